"""A job in one session, and what its next life knows of the last."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import anyio
import pytest

from aioelasticjob import ElasticJob, ItemContext, operations
from aioelasticjob.engine import process_context
from aioelasticjob.engine.life import History
from aioelasticjob.engine.turns import Activity
from aioelasticjob.errors import SessionEnded
from aioelasticjob.events import Misfired
from aioelasticjob.ground.limited_log import LimitedLog
from aioelasticjob.registry.codec import failure
from aioelasticjob.registry.transaction import Create, Delete, Op, Set
from aioelasticjob.testing import VirtualClock, run
from tests.engine.test_refused_writes import EVERY_TEN, EVERY_TWO, locked, refused_now, refusing, slots, unlocks
from tests.support.simulated_jobs import LAYOUT, REGISTRY, SimulatedJobs, end_life, listening, present_life, simulate


@pytest.mark.parametrize("code", [-102, -125, -112])
def test_a_job_that_joins_again_under_the_same_session_takes_its_own_locks_for_its_own(code: int) -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(work=3, cron=EVERY_TEN, sharding_total_count=2, failover=True)
        async with app.running() as session:
            await here.until(11)
            async with refusing(session, code, unlocks):
                end_life(app, failure(-102, "/job"))
                await here.until(16)
            await here.until(45)
            assert set(slots(here, 0)) >= {10, 30, 40}
            assert await locked(here) == []

    simulate(scene)


def test_a_new_connection_gives_every_part_of_a_job_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, take_turn = set[Activity](), Activity.take_turn

    def counted(activity: Activity) -> None:
        turns.add(activity)
        take_turn(activity)

    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron="0 0 0 1 1 ?")
        async with app.running() as session:
            await here.until(5)
            monkeypatch.setattr(Activity, "take_turn", counted)
            await here.until(5.5)
            assert not turns
            present_life(app).session_changed(session.status.value)
            await here.until(6)
            # what follows the nodes, the coordinator, the job's scheduler, and the settlement of its runs
            assert len(turns) == 4

    simulate(scene)


def test_a_job_that_joins_again_under_the_same_session_knows_what_it_has_reported() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(work=5, cron=EVERY_TWO, misfire=False)
        async with listening(here, app), app.running():
            await here.until(7.5)  # it has run for 2 until 7, and has reported 4 and 6
            end_life(app, failure(-102, "/job"))
            await here.until(14.5)
            assert slots(here, 0) == [2, 8, 14]
            spans = [(one.first / 1000 - here.start, one.slot / 1000 - here.start) for one in misfires(here)]
            assert spans == [(4, 6), (10, 12)]

    simulate(scene)


def test_a_job_that_cannot_join_again_says_in_its_health_why() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron=EVERY_TEN, sharding_total_count=2)
        async with app.running() as session:
            await here.until(15)

            def joins(ops: Sequence[Op]) -> bool:
                return any(isinstance(op, Set) and op.path.startswith(LAYOUT.servers) for op in ops)

            async with refusing(session, -125, joins):
                end_life(app, failure(-102, "/job"))
                await here.until(18)
                assert refused_now(app).keys() == {"to join"}
            await here.until(35)
            assert slots(here, 0) == [10, 20, 30]
            assert refused_now(app) == {}

    simulate(scene)


def test_an_end_of_the_session_that_did_not_come_lets_the_job_join_again_once_a_second() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron=EVERY_TWO, sharding_total_count=2)
        async with app.running() as session:
            await here.until(11)
            async with refusing(session, -112, lambda ops: True) as refused:
                await here.until(16)
            assert 0 < len(refused) <= 30
            await here.until(35)
            assert set(slots(here, 0)) >= {10, 18, 20, 30, 34}
            assert await locked(here) == []

    simulate(scene)


def test_why_a_job_joins_again_is_logged_once_a_minute_while_the_reason_stays_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        past = History(job="job", limited_log=LimitedLog())
        for _ in range(90):
            past.warn_rejoin(SessionEnded("over"))
            await anyio.sleep(1)

    run(main, seed=0)
    line = "job: this process joins the job again: over (docs: errors/SessionEnded)"
    count = "59 more lines were left out, about 1 job: a process joins jobs again: SessionEnded"
    assert caplog.messages == [line, count, line]


def test_an_instance_asked_to_leave_goes_in_the_end_though_the_registry_refuses_it_for_a_while() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron=EVERY_TEN)
        async with app.running() as session:
            await here.until(2)
            (me,) = await here.names(LAYOUT.instances)
            gone = Delete(LAYOUT.instance(me))
            async with refusing(session, -103, lambda ops: gone in ops) as refused:
                await here.write(Create(LAYOUT.shutdown(me)))
                await here.until(8)
                assert refused
                assert await here.names(LAYOUT.instances) == (me,)
            await here.until(15)
            assert await here.names(LAYOUT.instances) == ()

    simulate(scene)


def misfires(here: SimulatedJobs) -> list[Misfired]:
    return [one for one in here.events if isinstance(one, Misfired)]


def test_each_setting_that_is_declared_otherwise_than_the_registry_has_it_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with here.app(cron=EVERY_TEN, sharding_total_count=2).running():
            await here.until(1)
            assert not caplog.records
            app = here.app(cron=EVERY_TWO, sharding_total_count=2, timeout=5)
            async with app.running():
                said = [one.getMessage() for one in caplog.records]
                assert [one.split(" is declared here, but the registry has ")[0] for one in said] == [
                    f"job: cron = {EVERY_TWO!r}",
                    "job: timeout = 5.0",
                ]
                (health,) = app.health.jobs
                assert [one.setting for one in health.differs] == ["cron", "timeout"]
                assert app.health.as_json()["jobs"][0]["differs"] == said  # type: ignore[index]
                status = await operations.job(here.observer, "job", now=0)
                assert [one.differs for one in status.instances] == [(), ("cron", "timeout")]
        caplog.clear()
        caplog.set_level(logging.INFO, "aioelasticjob.engine.operator_log")
        for _ in range(2):  # the second time it declares what the registry has already
            async with here.app(cron=EVERY_TWO, sharding_total_count=2, overwrite=True).running():
                pass
        reason = "because its code says so and has overwrite=True"
        said = f"job: this instance has changed the setting cron from {EVERY_TEN!r} to {EVERY_TWO!r}, {reason}"
        assert [one.getMessage() for one in caplog.records] == [said]

    simulate(scene)


def test_an_instance_notes_anew_what_it_declares_otherwise_after_the_settings_have_changed() -> None:
    async def noted(here: SimulatedJobs) -> list[tuple[str, ...]]:
        return [one.differs for one in (await operations.job(here.observer, "job", now=0)).instances]

    async def scene(here: SimulatedJobs) -> None:
        first, second = here.app(cron=EVERY_TEN), here.app(cron=EVERY_TWO, timeout=5)
        async with first.running(), second.running():
            assert await noted(here) == [(), ("cron", "timeout")]
            config = first.jobs[0].changed(cron=EVERY_TWO)
            await here.write(Set(LAYOUT.config, config.to_json(), -1))
            await here.until(1 + config.reconcile_interval)
            assert await noted(here) == [("cron",), ("timeout",)]
            await here.write(Set(LAYOUT.config, second.jobs[0].to_json(), -1))
            await here.until(2 + 2 * config.reconcile_interval)
            assert await noted(here) == [("cron", "timeout"), ()]

    simulate(scene)


def test_who_joins_with_another_handler_than_several_instances_is_warned_once(caplog: pytest.LogCaptureFixture) -> None:
    async def other(context: object) -> None: ...

    async def scene(here: SimulatedJobs) -> None:
        async with here.app(cron=EVERY_TEN).running(), here.app(cron=EVERY_TEN).running():
            await here.until(1)
            async with here.app(other, cron=EVERY_TEN).running():
                (said,) = [one.getMessage() for one in caplog.records]
                mine = f"{__name__}:{other.__qualname__}"
                assert said.startswith(f"job: this process runs {mine}, but instance 127.0.0.1@-@")
                status = await operations.job(here.observer, "job", now=0)
                assert mine in [one.handler for one in status.instances]

    simulate(scene)


async def nothing(context: ItemContext) -> None: ...


@pytest.mark.parametrize("tenths", range(2, 30, 3))
def test_jobs_join_though_the_connection_is_lost_while_they_wait_for_their_turn(
    tenths: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_context, "REGISTERING_AT_ONCE", 1)

    async def scene(here: SimulatedJobs) -> None:
        async def worker() -> None:
            app = ElasticJob(here.address, clock=VirtualClock(), session_timeout=10)
            for number in range(4):
                app.add(nothing, name=f"job-{number}", cron="0 0 0 1 1 ? 2099")
            async with app.running():
                joined.set()
                await anyio.sleep_forever()

        joined = anyio.Event()
        here.faults.delay("10.0.0.1", REGISTRY, 0.1)
        process = here.faults.start("worker", "10.0.0.1", worker)
        await anyio.sleep(tenths / 10)
        here.faults.reset("10.0.0.1", REGISTRY)
        with anyio.fail_after(60):
            await joined.wait()
        process.terminate()

    simulate(scene)


def test_a_job_that_runs_again_has_no_problem_any_more_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        past = History(job="report", limited_log=LimitedLog())
        past.wait("the registry holds nonsense")
        assert past.standing_by is not None
        assert past.standing_by.problem == "the registry holds nonsense"
        for _ in range(2):
            past.resume()
            assert past.standing_by is None

    caplog.set_level(logging.INFO)
    run(main)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
