"""When a job runs, and when it does not: the fires of one and of several instances, in virtual time."""

from __future__ import annotations

import gc
import sys
from typing import Any

import anyio
import pytest

from aioelasticjob import ElasticJob, InstanceContext, ItemContext, Retry, operations
from aioelasticjob.clock import Clock
from aioelasticjob.core.layout import SWITCHES, server_switch
from aioelasticjob.events import Ended, Misfired, Refused
from aioelasticjob.model import Outcome
from aioelasticjob.registry.transaction import Create, Delete, Set
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, listening, simulate


def test_every_item_runs_at_every_moment() -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with here.app(cron="0/2 * * * * ?", sharding_total_count=3).running():
            await here.until(7)

    here = simulate(scene)
    for item in range(3):
        assert here.starts(item) == [(2.0, "SCHEDULE", 2.0), (4.0, "SCHEDULE", 4.0), (6.0, "SCHEDULE", 6.0)]


@pytest.mark.parametrize("items", [1, 10, 100])
def test_a_monitored_fire_costs_two_transactions_and_no_read(items: int) -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with here.app(cron="0/10 * * * * ?", sharding_total_count=items).running():
            await here.until(15)
            before = here.observer.zxid
            await here.observer.sync()
            before = here.observer.zxid
            await here.until(25)
            await here.observer.sync()
            assert here.observer.zxid - before == 2
        assert len(here.runs) == 2 * items

    simulate(scene)


def test_without_monitoring_a_fire_writes_nothing() -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with here.app(cron="* * * * * ?", monitor_execution=False).running():
            await here.until(5.5)
            await here.observer.sync()
            before = here.observer.zxid
            await here.until(9.5)
            await here.observer.sync()
            assert here.observer.zxid == before
        assert [at for at, _, _ in here.starts()] == list(range(1, 10))

    simulate(scene)


def test_moments_that_come_during_a_run_collapse_into_one_late_run() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron="0/10 * * * * ?", work=25)
        async with listening(here, app), app.running():
            await here.until(100)

    here = simulate(scene)
    assert here.starts()[:4] == [
        (10.0, "SCHEDULE", 10.0),
        (35.0, "MISFIRE", 30.0),
        (60.0, "MISFIRE", 60.0),
        (85.0, "MISFIRE", 80.0),
    ]
    first = next(event for event in here.events if isinstance(event, Misfired))
    assert (first.items, first.moments) == ((0,), 1)  # the newest one is run late
    counts = here.apps[0].counts["job"]
    assert counts.fires == {"SCHEDULE": 1, "MISFIRE": 3}
    assert counts.misfired == sum(event.moments for event in here.events if isinstance(event, Misfired))
    assert counts.runs == {"completed": 4}


def test_with_misfire_off_they_are_dropped_and_reported() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron="0/10 * * * * ?", work=25, misfire=False)
        async with listening(here, app), app.running():
            await here.until(100)

    here = simulate(scene)
    assert here.starts()[:3] == [(10.0, "SCHEDULE", 10.0), (40.0, "SCHEDULE", 40.0), (70.0, "SCHEDULE", 70.0)]
    assert [event.moments for event in here.events if isinstance(event, Misfired)][:2] == [2, 2]


def test_a_failing_item_stops_neither_the_others_nor_the_schedule() -> None:
    async def scene(here: SimulatedJobs) -> None:
        async def handler(context: ItemContext) -> None:
            here.runs.append((here.now(), context.item, context.source.value, 0))
            if context.item == 1:
                raise ValueError("no luck")

        app = here.app(handler, cron="* * * * * ?", sharding_total_count=3)
        async with listening(here, app), app.running():
            await here.until(3.5)
            records = [await here.record(item) for item in range(3)]
        assert [record.outcome for record in records] == ["completed", "failed", "completed"]
        assert all(record.completed for record in records)

    here = simulate(scene)
    assert len(here.runs) == 9
    ended = [event.outcome for event in here.events if isinstance(event, Ended) and event.item == 1]
    assert ended == [Outcome.FAILED] * 3


def test_a_handler_that_cancels_itself_has_failed() -> None:
    async def scene(here: SimulatedJobs) -> None:
        async def handler(context: ItemContext) -> None:
            here.runs.append((here.now(), context.item, context.source.value, 0))
            raise anyio.get_cancelled_exc_class()

        app = here.app(handler, cron="* * * * * ?")
        async with listening(here, app), app.running():
            await here.until(3.5)

    here = simulate(scene)
    assert [event.outcome for event in here.events if isinstance(event, Ended)] == [Outcome.FAILED] * 3


def test_a_handler_that_exits_has_failed_and_nothing_else_ends() -> None:
    async def scene(here: SimulatedJobs) -> None:
        async def handler(context: ItemContext) -> None:
            here.runs.append((here.now(), context.item, context.source.value, 0))
            sys.exit(3)

        async with here.app(handler, cron="* * * * * ?", sharding_total_count=2).running():
            await here.until(3.5)
            assert (await here.record(0)).outcome == "failed"

    assert len(simulate(scene).runs) == 6


def test_a_run_is_cut_at_its_timeout() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron="0/10 * * * * ?", work=60, timeout=3)
        async with listening(here, app), app.running():
            await here.until(25)

    here = simulate(scene)
    assert [at for at, _, _ in here.starts()] == [10.0, 20.0]
    assert [
        (event.outcome, round(event.slot / 1000 - here.start)) for event in here.events if isinstance(event, Ended)
    ] == [
        (Outcome.TIMED_OUT, 10),
        (Outcome.TIMED_OUT, 20),
    ]


def test_a_timeout_error_of_the_handlers_own_is_a_failure() -> None:
    async def scene(here: SimulatedJobs) -> None:
        async def handler(context: ItemContext) -> None:
            raise TimeoutError("the bank does not answer")

        app = here.app(handler, cron="* * * * * ?", timeout=30)
        async with listening(here, app), app.running():
            await here.until(1.5)

    assert [event.outcome for event in simulate(scene).events if isinstance(event, Ended)] == [Outcome.FAILED]


def test_per_instance_one_call_has_all_items() -> None:
    async def scene(here: SimulatedJobs) -> None:
        seen: list[InstanceContext] = []

        async def handler(context: InstanceContext) -> None:
            seen.append(context)

        parameters = {0: "Beijing", 2: "Guangzhou"}
        settings = {"sharding_total_count": 3, "sharding_item_parameters": parameters, "job_parameter": "all"}
        async with here.app(handler, cron="0/5 * * * * ?", per="instance", **settings).running():
            await here.until(6)
        (context,) = seen
        assert (context.items, context.item_parameters, context.job_parameter) == ((0, 1, 2), parameters, "all")
        assert context.task_id.startswith("job@-@0,1,2@-@READY@-@127.0.0.1@-@")

    simulate(scene)


def test_an_item_context_tells_all_it_should() -> None:
    async def scene(here: SimulatedJobs) -> None:
        seen: list[ItemContext] = []

        async def handler(context: ItemContext) -> None:
            seen.append(context)

        parameters = {1: "Shanghai"}
        app = here.app(handler, cron="0/5 * * * * ?", sharding_total_count=2, sharding_item_parameters=parameters)
        async with app.running():
            await here.until(11)
        assert [(one.item, one.parameter, one.sharding_total_count) for one in seen[:2]] == [
            (0, None, 2),
            (1, "Shanghai", 2),
        ]
        assert {one.fire_time.isoformat() for one in seen} == {"2026-01-01T00:00:05+00:00", "2026-01-01T00:00:10+00:00"}
        assert seen[2].fence > seen[0].fence > 0
        assert len({one.task_id for one in seen}) == 4

    simulate(scene)


def test_a_changed_cron_takes_effect_at_once_and_owes_nothing() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron="0 0 12 * * ?")
        async with app.running():
            await here.until(5)
            config = app.jobs[0].changed(cron="0/10 * * * * ?")
            await here.write(Set(LAYOUT.config, config.to_json(), -1))
            await here.until(25)

    assert simulate(scene).starts() == [(10.0, "SCHEDULE", 10.0), (20.0, "SCHEDULE", 20.0)]


def test_nonsense_in_the_configuration_leaves_the_last_good_one() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron="0/10 * * * * ?")
        async with app.running():
            await here.until(5)
            await here.write(Set(LAYOUT.config, b"{nonsense", -1))
            await here.until(15)
            await here.write(Set(LAYOUT.config, app.jobs[0].changed(cron="0/3 * * * * ?").to_json(), -1))
            await here.until(19)
            assert (await here.observer.get(LAYOUT.config)).data != b"{nonsense"

    assert simulate(scene).starts() == [(10.0, "SCHEDULE", 10.0), (18.0, "SCHEDULE", 18.0)]


def test_a_changed_count_takes_effect_while_running() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron="0/5 * * * * ?", sharding_total_count=2)
        async with app.running():
            await here.until(6)
            await here.write(Set(LAYOUT.config, app.jobs[0].changed(sharding_total_count=4).to_json(), -1))
            await here.until(11)
            assert await here.names(LAYOUT.execution) == ("0", "1", "2", "3")
            await here.write(Set(LAYOUT.config, app.jobs[0].changed(sharding_total_count=1).to_json(), -1))
            await here.until(16)
            assert await here.names(LAYOUT.execution) == await here.names(LAYOUT.sharding) == ("0",)

    here = simulate(scene)
    assert [(at, item) for at, item, _, _ in here.runs] == [
        (5.0, 0), (5.0, 1), (10.0, 0), (10.0, 1), (10.0, 2), (10.0, 3), (15.0, 0),
    ]  # fmt: skip


def test_a_trigger_runs_now_once_and_takes_no_moment_away() -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with here.app(cron="0/10 * * * * ?").running():
            await here.until(3)
            await here.trigger()
            await here.until(12)
            assert (await operations.request(here.observer, "job", "by-hand")).state == "done"

    assert simulate(scene).starts() == [(3.0, "TRIGGER", 3.0), (10.0, "SCHEDULE", 10.0)]


def test_a_trigger_just_before_a_moment_does_not_wait_for_it() -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with here.app(cron="0/10 * * * * ?").running():
            await here.until(9.92)
            await here.trigger()
            await here.until(12)

    first, second = simulate(scene).runs
    assert (first[2], second[2:]) == ("TRIGGER", ("SCHEDULE", 10.0))
    assert first[3] < 10


def test_a_trigger_during_a_run_waits_for_its_end() -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with here.app(cron="0/20 * * * * ?", work=6).running():
            await here.until(21)
            await here.trigger()
            await here.until(35)

    assert simulate(scene).starts() == [(20.0, "SCHEDULE", 20.0), (26.0, "TRIGGER", 21.0)]


@pytest.mark.parametrize("flag", [LAYOUT.server_disabled("127.0.0.1"), LAYOUT.server_paused("127.0.0.1")])
def test_a_server_that_is_closed_claims_nothing_and_owes_nothing_afterwards(flag: str) -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with here.app(cron="0/10 * * * * ?").running():
            await here.until(15)
            await here.flag(flag)
            await here.until(45)
            await here.write(Delete(flag))
            await here.until(55)

    assert simulate(scene).starts() == [(10.0, "SCHEDULE", 10.0), (50.0, "SCHEDULE", 50.0)]


def test_a_disabled_item_is_left_out() -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with here.app(cron="0/10 * * * * ?", sharding_total_count=2).running():
            await here.until(15)
            await here.flag(LAYOUT.item(1).disabled)
            await here.until(35)
            await here.write(Delete(LAYOUT.item(1).disabled))
            await here.until(45)

    here = simulate(scene)
    assert [at for at, _, _ in here.starts(0)] == [10.0, 20.0, 30.0, 40.0]
    assert [at for at, _, _ in here.starts(1)] == [10.0, 40.0]


@pytest.mark.parametrize(
    "flag",
    [
        LAYOUT.item(0).disabled,
        LAYOUT.paused,
        LAYOUT.server_paused("127.0.0.1"),
        LAYOUT.server_disabled("127.0.0.1"),
        server_switch("127.0.0.1", "paused"),
    ],
)
def test_what_came_during_a_run_before_the_item_was_switched_off_is_missed_and_the_rest_is_excused(flag: str) -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron="0/10 * * * * ?", work=35)
        async with listening(here, app), app.running():
            if flag.startswith(SWITCHES):
                await here.write(*map(Create, (SWITCHES, server_switch("127.0.0.1"))))
            await here.until(22)
            await here.flag(flag)
            await here.until(55)

    here = simulate(scene)
    assert here.starts() == [(10.0, "SCHEDULE", 10.0)]
    assert misfired(here) == [((0,), 1, 20)]


def test_disabled_in_the_configuration_counts_only_for_a_new_server() -> None:
    async def scene(here: SimulatedJobs) -> None:
        flag = LAYOUT.server_disabled("127.0.0.1")
        async with here.app(cron="0/10 * * * * ?", disabled=True).running():
            await here.until(15)
            await here.write(Delete(flag))
        async with here.app(cron="0/10 * * * * ?", disabled=True).running():
            await here.until(35)
            assert await here.observer.exists(flag) is None

    assert [at for at, _, _ in simulate(scene).starts()] == [20.0, 30.0]


def test_items_are_handed_over_at_once_when_an_instance_leaves() -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with here.app(cron="0/5 * * * * ?", sharding_total_count=4).running():
            async with here.app(cron="0/5 * * * * ?", sharding_total_count=4).running():
                await here.until(6)
            await here.until(11)
            assert len(await here.names(LAYOUT.instances)) == 1

    here = simulate(scene)
    assert sorted((at, item) for at, item, _, _ in here.runs) == [(at, item) for at in (5.0, 10.0) for item in range(4)]


def test_a_graceful_stop_lets_running_items_finish() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron="0/10 * * * * ?", work=8)
        async with listening(here, app):
            async with app.running():
                await here.until(11)
            assert round(here.now()) == 18
        assert (await here.record(0)).outcome == "completed"

    assert [event.outcome for event in simulate(scene).events if isinstance(event, Ended)] == [Outcome.COMPLETED]


def test_nothing_begins_without_records_under_a_session_of_which_the_job_has_not_heard_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron="* * * * * ?", monitor_execution=False)
        async with app.running() as session, listening(here, app):
            await here.until(3.5)
            before = len(here.events)
            with monkeypatch.context() as patch:
                patch.setattr(type(session), "incarnation", session.incarnation + 1)
                await here.until(4.9)
                assert here.events[before:] == []
            await here.until(5.5)

    assert [fired for _, _, fired in simulate(scene).starts()] == [1, 2, 3, 5]


def test_after_the_shutdown_timeout_they_are_cut_and_their_mark_is_gone() -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with here.app(cron="0/10 * * * * ?", work=80, shutdown_timeout=4).running():
            await here.until(11)
        assert round(here.now()) == 15
        assert await here.names(LAYOUT.item(0).execution) == ()
        record = await here.record(0)
        assert (record.completed, record.outcome) == (False, "cancelled")

    simulate(scene)


@pytest.mark.parametrize("how", ["asked", "removed by hand"])
def test_an_operator_ends_one_instance_and_the_other_takes_over(how: str) -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with here.app(cron="0/5 * * * * ?").running(), here.app(cron="0/5 * * * * ?").running():
            await here.until(6)
            (holder,) = {(await here.observer.get(LAYOUT.item(0).instance)).data.decode()}
            if how == "asked":
                await here.flag(LAYOUT.shutdown(holder))
            else:
                await here.write(Delete(LAYOUT.instance(holder)))
            await here.until(11)
            assert holder not in await here.names(LAYOUT.instances)
            assert await here.names(LAYOUT.shutdowns) == ()

    assert [at for at, _, _ in simulate(scene).starts()] == [5.0, 10.0]


def test_a_moment_that_falls_into_a_resharding_is_run_by_the_new_holder() -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with here.app(cron="0/10 * * * * ?", sharding_total_count=6).running():
            await here.until(9.8)
            async with here.app(cron="0/10 * * * * ?", sharding_total_count=6).running():
                await here.until(15)

    here = simulate(scene)
    assert sorted(item for _, item, _, _ in here.runs) == list(range(6))
    assert all(fired == 10.0 and at < 11 for at, _, _, fired in here.runs)


@pytest.mark.parametrize("seconds", [8, -8])
def test_beyond_the_tolerated_clock_difference_nothing_runs(seconds: int, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron="0/10 * * * * ?", max_time_diff_seconds=5)
        app._here.clock = Ahead(app._here.clock, seconds)
        async with listening(here, app), app.running():
            await here.until(45)

    here = simulate(scene)
    assert here.runs == []
    refused = [event.why for event in here.events if isinstance(event, Refused)]
    assert len(refused) == 4  # of each moment
    assert all("tolerated are 5 s" in why for why in refused)
    assert len([one for one in caplog.records if "the registry's differ by" in one.getMessage()]) == 1


def test_operators_see_that_an_instance_runs_nothing_because_of_its_clock_and_when_that_is_over() -> None:
    async def seen(here: SimulatedJobs, app: ElasticJob) -> tuple[object, ...]:
        status = await operations.job(here.observer, "job", now=0)
        (one,) = status.instances
        (health,) = app.health.jobs
        return one.clock_differs, status.state, status.next_fire is None, health.clock_differs

    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron="0/10 * * * * ?", max_time_diff_seconds=5)
        tick = app.jobs[0].reconcile_interval
        clock = Ahead(app._here.clock, 8)
        app._here.clock = clock
        async with app.running():
            await here.until(2 + tick)
            assert await seen(here, app) == (8.0, "clock differs", True, 8.0)
            (name,) = await here.observer.children(LAYOUT.instances)
            noted = await here.observer.get(LAYOUT.instance(name))
            await here.until(2 + 3 * tick)
            assert await here.observer.get(LAYOUT.instance(name)) == noted  # nothing is written anew
            clock.seconds = 0
            await here.until(2 + 4 * tick)
            assert await seen(here, app) == (None, "waiting", False, None)

    assert simulate(scene).runs


@pytest.mark.parametrize("seconds", [-3600, -2, 2, 3600])
def test_a_clock_that_is_astray_neither_delays_an_item_nor_hurries_it(seconds: int) -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron="0/10 * * * * ?")
        app._here.clock = Ahead(app._here.clock, seconds)
        async with app.running():
            await here.until(35)

    assert simulate(scene).starts() == [(at, "SCHEDULE", at) for at in (10.0, 20.0, 30.0)]


def test_a_clock_that_is_set_while_a_job_lives_moves_no_moment() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron="0/10 * * * * ?")
        clock = Ahead(app._here.clock, 0)
        app._here.clock = clock
        async with app.running():
            for second, ahead in ((15, -600), (35, 600), (55, -5), (75, 0)):
                await here.until(second)
                clock.seconds = ahead
            await here.until(95)

    assert simulate(scene).starts() == [(float(at), "SCHEDULE", float(at)) for at in range(10, 100, 10)]


def test_a_clock_that_runs_ahead_does_not_claim_the_registrys_future() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron="0/10 * * * * ?")
        app._here.clock = Ahead(app._here.clock, 3600)
        async with app.running():
            await here.until(25)
            assert (await here.record(0)).slot / 1000 - here.start == 20

    assert [fired for _, _, fired in simulate(scene).starts()] == [10.0, 20.0]


class Ahead:
    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock, self.seconds = clock, seconds

    def now(self) -> float:
        return self._clock.now() + self.seconds


def test_a_record_written_by_hand_owes_nothing_and_is_mended_by_the_next_run() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await here.write(*(Create(path) for path in LAYOUT.skeleton), Create(LAYOUT.item(0).execution, b"scribble"))
        async with here.app(cron="0/10 * * * * ?").running():
            await here.until(15)
            assert (await here.record(0)).outcome == "completed"

    assert simulate(scene).starts() == [(10.0, "SCHEDULE", 10.0)]


def misfired(here: SimulatedJobs) -> list[tuple[tuple[int, ...], int, int]]:
    """Return who missed what: items, moments, the newest of them as a second."""
    reports = [event for event in here.events if isinstance(event, Misfired)]
    return [(event.items, event.moments, round(event.slot / 1000 - here.start)) for event in reports]


def test_a_misfire_names_the_items_that_missed_a_moment_and_no_others() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron="0/10 * * * * ?", sharding_total_count=3, work=25)
        await here.write(*(Create(path) for path in LAYOUT.skeleton), Create(LAYOUT.item(2).sharding))
        await here.flag(LAYOUT.item(2).disabled)
        async with listening(here, app), app.running():
            await here.until(39)

    assert misfired(simulate(scene)) == [((0, 1), 1, 20)]  # the next holder reports what comes from then on


def test_a_standstill_costs_each_item_all_moments_but_the_newest() -> None:
    async def scene(here: SimulatedJobs) -> None:
        async def main() -> None:
            app = here.app(cron="* * * * * ?", sharding_total_count=2)
            async with listening(here, app), app.running():
                await anyio.sleep_forever()

        person = here.faults.start("a", "10.0.0.1", main)
        await here.until(5.5)
        here.faults.pause(person)
        await here.until(9.7)  # less than a session
        here.faults.resume(person)
        await here.until(12)
        assert misfired(here) == [((0, 1), 3, 8)]
        assert [fired for _, _, fired in here.starts() if 4 <= fired < 12] == [4.0, 5.0, 9.0, 10.0, 11.0]
        person.terminate()

    simulate(scene)


@pytest.mark.parametrize("settings", [{}, {"retry": Retry(), "attempt_timeout": 5}])
def test_fires_leave_no_garbage_in_cycles(settings: dict[str, Any]) -> None:
    """A cycle would live until the garbage collector finds it, and collections stop the whole process."""

    async def scene(here: SimulatedJobs) -> None:
        ran: list[int] = []

        async def work(context: ItemContext) -> None:
            ran.append(context.fire.slot)

        async with here.app(work, cron="* * * * * ?", sharding_total_count=2, **settings).running():
            await here.until(5.5)
            gc.collect()
            gc.disable()
            before, ran[:] = len(gc.garbage), []
            await here.until(9.99)  # claims are sent 120 ms ahead at the latest
            await here.write(Create(LAYOUT.server("10.9.9.9"), b"other"))  # they are given back, and decided anew
            await here.until(15.5)
            try:
                gc.set_debug(gc.DEBUG_SAVEALL)
                gc.collect()
                found, gc.garbage[before:] = gc.garbage[before:], []
            finally:
                gc.set_debug(0)
                gc.enable()
        assert len(ran) == 20
        assert found == []

    simulate(scene)
