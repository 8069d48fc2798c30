"""A job in one session, and what its next life knows of the last."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest

from aioelasticjob.errors import SessionEnded
from aioelasticjob.events import Misfired
from aioelasticjob.registry.codec import failure
from aioelasticjob.registry.transaction import Create, Delete, Op, Set
from aioelasticjob.running.life import History
from aioelasticjob.testing import run
from tests.running.test_refused_writes import EVERY_TEN, EVERY_TWO, locked, refused_now, refusing, slots, unlocks
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, listening, simulate


@pytest.mark.parametrize("code", [-102, -125, -112])
def test_a_job_that_joins_again_under_the_same_session_takes_its_own_locks_for_its_own(code: int) -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(work=3, cron=EVERY_TEN, sharding_total_count=2, failover=True)
        async with app.running() as session:
            await here.until(11)
            async with refusing(session, code, unlocks):
                (runner,) = app._here.shared.running_jobs  # type: ignore[union-attr]
                runner._releases.tasks.start_soon(_fails)
                await here.until(16)
            await here.until(45)
            assert set(slots(here, 0)) >= {10, 30, 40}
            assert await locked(here) == []

    async def _fails() -> None:
        raise failure(-102, "/job")

    simulate(scene)


def test_a_job_that_joins_again_under_the_same_session_knows_what_it_has_told_of() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(work=5, cron=EVERY_TWO, misfire=False)
        async with listening(here, app), app.running():
            await here.until(7.5)  # it has run for 2 until 7, and told of 4 and 6
            (runner,) = app._here.shared.running_jobs  # type: ignore[union-attr]
            runner._releases.tasks.start_soon(_fails)
            await here.until(14.5)
            assert slots(here, 0) == [2, 8, 14]
            told = [(one.first / 1000 - here.start, one.slot / 1000 - here.start) for one in misfires(here)]
            assert told == [(4, 6), (10, 12)]

    async def _fails() -> None:
        raise failure(-102, "/job")

    simulate(scene)


def test_a_job_that_cannot_join_again_says_in_its_health_why() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron=EVERY_TEN, sharding_total_count=2)
        async with app.running() as session:
            await here.until(15)

            def joins(ops: Sequence[Op]) -> bool:
                return any(isinstance(op, Set) and op.path.startswith(LAYOUT.servers) for op in ops)

            async with refusing(session, -125, joins):
                (runner,) = app._here.shared.running_jobs  # type: ignore[union-attr]
                runner._releases.tasks.start_soon(_fails)
                await here.until(18)
                assert refused_now(app).keys() == {"to join"}
            await here.until(35)
            assert slots(here, 0) == [10, 20, 30]
            assert refused_now(app) == {}

    async def _fails() -> None:
        raise failure(-102, "/job")

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
        past = History()
        for _ in range(90):
            past.warn_rejoin(SessionEnded("over"), "job")
            await anyio.sleep(1)

    run(main, seed=0)
    assert caplog.messages == ["job: this process joins the job again: over"] * 2


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
    return [one for one in here.told if isinstance(one, Misfired)]
