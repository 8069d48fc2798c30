"""What is owed and reported of moments that came while nobody was up, or while the configuration was written."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import partial

import anyio
import pytest

from aioelasticjob import ElasticJob, ItemContext
from aioelasticjob.core.unattended import NO_INSTANCE_UP, Succession
from aioelasticjob.core.view import read
from aioelasticjob.events import CaughtUp, Ended, Misfired
from aioelasticjob.registry.transaction import Create, Delete, Set
from aioelasticjob.testing import Process, VirtualCluster, simulated
from tests.core.cases import BEGIN, ME, OTHER, Case
from tests.engine.test_claims import LAYOUT as DESK
from tests.engine.test_claims import ClaimedJob
from tests.engine.test_settings_changes import start_processes
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, listening, simulate

EVERY_MINUTE = "0 * * * * ?"
SPAN = tuple[int, int, int]


async def start_process(here: SimulatedJobs, name: str, *, skew: float = 0.0, **settings: object) -> Process:
    """Start a process of the job on a host of its own, and wait until its items are known to it."""

    async def main() -> None:
        app = here.app(**{"cron": EVERY_MINUTE, "sharding_total_count": 2, **settings})
        async with listening(here, app), app.running():
            await anyio.sleep_forever()

    process = here.faults.start(name, f"10.0.0.{ord(name) - 96}", main, skew=skew)
    await anyio.sleep(2)
    return process


async def ran_until(here: SimulatedJobs, second: float, name: str = "a", **settings: object) -> None:
    """Let somebody run the job from before 60 until a second at which he is killed, so that nobody is up."""
    process = await start_process(here, name, **settings)
    await here.until(second)
    here.faults.crash(process)


def reported(here: SimulatedJobs, item: int = 0) -> list[SPAN]:
    """First, last and number of the moments reported, in seconds after the start."""
    start = here.start
    return [
        (round(one.first / 1000 - start), round(one.slot / 1000 - start), one.moments)
        for one in here.events
        if isinstance(one, Misfired) and item in one.items
    ]


def test_a_newcomer_owes_what_came_before_him_although_another_setting_was_written_since() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "bc", cron=EVERY_MINUTE, sharding_total_count=2)
        await here.until(118)
        here.faults.crash(them.people["b"], "silent")
        await here.until(120.5)
        await them.change(description="hello")
        await them.start_processes("a")
        await here.until(170)
        assert sorted((run.items, round(run.at) < 130) for run in them.since(110)) == [((0,), True), ((1,), True)]

    simulate(scene)


def test_a_newcomer_owes_the_first_moment_of_an_item_although_another_setting_was_written_since() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "bc", cron=EVERY_MINUTE, sharding_total_count=2)
        await here.until(58)
        here.faults.crash(them.people["b"], "silent")
        await here.until(60.5)
        await them.change(description="hello")
        await them.start_processes("a")
        await here.until(110)
        assert sorted((run.items, round(run.at) < 70) for run in them.since(0)) == [((0,), True), ((1,), True)]

    simulate(scene)


def test_a_newcomer_to_a_job_that_was_not_monitored_before_runs_nothing_once_more() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "bc", cron=EVERY_MINUTE, sharding_total_count=2, monitor_execution=False)
        await here.until(65)
        await them.change(monitorExecution=True)
        await here.until(66)
        await them.change(description="hello")
        await them.start_processes("a")
        await here.until(110)
        assert len(them.since(0)) == 2

    simulate(scene)


def test_a_newcomer_owes_nothing_of_what_came_before_the_schedule_was_changed() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "bc", cron=EVERY_MINUTE, sharding_total_count=2)
        await here.until(118)
        here.faults.crash(them.people["b"], "silent")
        await here.until(120.5)
        await them.change(cron="0/30 * * * * ?")
        await them.start_processes("a")
        await here.until(149)
        assert [(run.host, run.items) for run in them.since(110)] == [("c", (1,))]
        await here.until(151)
        assert sorted(run.items for run in them.since(149)) == [(0,), (1,)]

    simulate(scene)


def test_a_release_that_overwrites_the_description_catches_up() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await ran_until(here, 61, catch_up=3600.0)
        await here.until(190)
        await start_process(here, "b", catch_up=3600.0, overwrite=True, description="new release")
        assert here.starts()[1:] == [(190.5, "MISFIRE", 180.0)]
        assert reported(here) == [(120, 120, 1)]

    simulate(scene)


def test_a_release_that_changes_the_schedule_runs_nothing_of_before_but_reports_it() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await ran_until(here, 61, catch_up=3600.0)
        await here.until(190)
        await start_process(here, "b", catch_up=3600.0, overwrite=True, cron="0/30 * * * * ?")
        assert len(here.starts()) == 1
        assert reported(here) == [(120, 180, 2)]
        await here.until(211)
        assert here.starts()[1:] == [(210.0, "CRON", 210.0)]

    simulate(scene)


def test_moments_that_nobody_was_up_for_are_reported_by_the_first_instance_that_comes_back() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await ran_until(here, 61)
        await here.until(250)
        await start_process(here, "b")
        assert reported(here, 0) == reported(here, 1) == [(120, 240, 3)]
        assert len(here.starts()) == 1

    simulate(scene)


@pytest.mark.parametrize("monitored", [True, False])
def test_a_newcomer_tells_of_the_last_moment_that_nobody_was_up_for_though_his_clock_has_not_reached_it(
    monitored: bool,
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        await ran_until(here, 70, monitor_execution=monitored, sharding_quiet=0)
        await here.until(180.2)
        await start_process(here, "b", skew=-0.9, monitor_execution=monitored, sharding_quiet=0)
        await here.until(200)
        assert reported(here, 0) == reported(here, 1) == [(120, 180, 2)]
        assert len(here.starts()) == 1

    simulate(scene)


def test_moments_of_items_that_never_ran_are_reported_too() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await ran_until(here, 30)
        await here.until(190)
        await start_process(here, "b")
        assert reported(here, 0) == reported(here, 1) == [(60, 180, 3)]
        assert here.starts() == []
        await here.until(241)
        assert here.starts() == [(240.0, "CRON", 240.0)]
        assert await here.names(LAYOUT.item(0).execution) == ()  # the mark has gone

    simulate(scene)


def test_what_an_item_that_never_ran_missed_is_reported_under_the_schedule_of_its_time() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await ran_until(here, 30)
        await here.until(130)
        stored = json.loads((await here.observer.get(LAYOUT.config)).data)
        changed = json.dumps({**stored, "cron": "0/50 * * * * ?"}).encode()
        await here.write(Set(LAYOUT.config, changed, -1))
        await here.until(195)
        await start_process(here, "b")
        assert reported(here, 0) == reported(here, 1) == [(60, 120, 2), (170, 180, 2)]

    simulate(scene)


@pytest.mark.parametrize(("back", "spans", "caught_up"), [(3600.0, [(120, 180, 2)], 1), (5.0, [(120, 240, 3)], 0)])
def test_of_moments_to_be_caught_up_the_newest_is_run_and_the_older_ones_are_reported(
    back: float, spans: list[SPAN], caught_up: int
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        await ran_until(here, 61, catch_up=back)
        await here.until(250)
        await start_process(here, "b", catch_up=back)
        assert reported(here, 0) == reported(here, 1) == spans
        assert {event.why for event in here.events if isinstance(event, Misfired)} == {NO_INSTANCE_UP}
        assert [source for _, source, _ in here.starts()[1:]] == ["MISFIRE"] * caught_up
        assert sum(len(one.items) for one in here.events if isinstance(one, CaughtUp)) == 2 * caught_up

    simulate(scene)


async def join_one_after_another(here: SimulatedJobs, **settings: object) -> None:
    for name in "bcd":
        await start_process(here, name, **settings)


async def join_at_once(here: SimulatedJobs, **settings: object) -> None:
    async with anyio.create_task_group() as tasks:
        for name in "bcd":
            tasks.start_soon(partial(start_process, here, name, **settings))


async def come_and_go(here: SimulatedJobs, **settings: object) -> None:
    for name in "bcd":
        here.faults.crash(await start_process(here, name, **settings))
        await anyio.sleep(5)


@pytest.mark.parametrize("come", [join_one_after_another, join_at_once, come_and_go])
@pytest.mark.parametrize(("leave", "first"), [(61, 120), (30, 60)])
def test_they_are_reported_once_however_many_come_back(
    leave: float, first: int, come: Callable[[SimulatedJobs], Awaitable[None]]
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        await ran_until(here, leave)
        await here.until(250)
        await come(here)
        assert reported(here, 0) == reported(here, 1) == [(first, 240, 1 + (240 - first) // 60)]

    simulate(scene)


def test_those_of_another_absence_are_reported_by_themselves() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await ran_until(here, 61)
        await here.until(130)
        here.faults.crash(await start_process(here, "b"))
        await here.until(250)
        await start_process(here, "c")
        assert reported(here, 0) == reported(here, 1) == [(120, 120, 1), (180, 240, 2)]

    simulate(scene)


def test_of_a_disabled_item_nobody_misses_a_moment_also_when_it_moves_afterwards() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await ran_until(here, 61)
        await here.flag(LAYOUT.item(0).disabled)
        await here.until(250)
        await start_process(here, "b")
        await here.write(Delete(LAYOUT.item(0).disabled))
        await start_process(here, "c")
        assert reported(here, 0) == []
        assert reported(here, 1) == [(120, 240, 3)]

    simulate(scene)


def test_on_a_paused_server_nobody_misses_a_moment() -> None:
    async def scene(here: SimulatedJobs) -> None:
        process = await start_process(here, "a")
        await here.until(61)
        await here.flag(LAYOUT.server_paused("10.0.0.1"))
        await here.until(190)
        await here.write(Delete(LAYOUT.server_paused("10.0.0.1")))
        await here.until(195)
        assert reported(here, 0) == reported(here, 1) == []
        here.faults.crash(process)

    simulate(scene)


def test_an_item_that_was_not_there_missed_nothing() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "a", cron=EVERY_MINUTE, sharding_total_count=2)
        await here.until(61)
        await them.change(shardingTotalCount=1)
        await here.until(190)
        here.faults.crash(them.people["a"])
        await start_process(here, "b")
        await them.change(shardingTotalCount=2)
        await here.until(199)
        assert reported(here, 1) == []

    simulate(scene)


def test_a_run_asked_for_by_hand_hides_nothing_that_nobody_was_up_for() -> None:
    async def scene(here: SimulatedJobs) -> None:
        process = await start_process(here, "a")
        await here.until(61)
        me = next(iter(await here.names(LAYOUT.instances)))
        await here.write(Create(LAYOUT.trigger(me)))
        await here.until(70)
        here.faults.crash(process)
        await here.until(190)
        await start_process(here, "b")
        assert reported(here, 0) == reported(here, 1) == [(120, 180, 2)]

    simulate(scene)


UNMONITORED = {"monitor_execution": False}


async def killed_at(here: SimulatedJobs, second: float, **settings: object) -> None:
    await ran_until(here, second, **UNMONITORED, **settings)


async def left_at(here: SimulatedJobs, second: float, **settings: object) -> None:
    process = await start_process(here, "a", **UNMONITORED, **settings)
    await here.until(second)
    process.terminate()


@pytest.mark.parametrize(("end", "at"), [(killed_at, 122.5), (left_at, 119), (left_at, 61)])
@pytest.mark.parametrize("come", [join_one_after_another, join_at_once, come_and_go])
def test_without_records_it_is_the_leader_who_tells_of_what_nobody_was_up_for(
    end: Callable[..., Awaitable[None]], at: float, come: Callable[..., Awaitable[None]]
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        await end(here, at)  # killed after the tick that tells that somebody was there for 120
        await here.until(250)
        await come(here, **UNMONITORED)
        first = 120 if at < 120 else 180
        assert reported(here, 0) == reported(here, 1) == [(first, 240, 1 + (240 - first) // 60)]
        if come is not come_and_go:
            await here.until(305)
            assert here.starts()[-1] == (300.0, "CRON", 300.0)

    simulate(scene)


def test_without_records_a_run_since_the_last_tick_before_a_crash_is_reported_too() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await killed_at(here, 122, reconcile_interval=50)
        await here.until(190)
        await start_process(here, "b", **UNMONITORED)
        assert reported(here, 0) == reported(here, 1) == [(120, 180, 2)]  # nothing tells that it has run at 120

    simulate(scene)


def test_without_records_and_without_a_date_of_the_absence_nothing_is_reported() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await killed_at(here, 70)
        await here.write(Set(LAYOUT.execution, b"", -1))  # as an older release leaves it
        await here.until(130)
        process = await start_process(here, "b", **UNMONITORED)
        assert reported(here, 0) == []
        here.faults.crash(process)
        await here.until(190)
        await start_process(here, "c", **UNMONITORED)
        assert reported(here, 0) == reported(here, 1) == [(180, 180, 1)]

    simulate(scene)


def test_without_records_nobody_misses_a_moment_on_a_paused_server_either() -> None:
    async def scene(here: SimulatedJobs) -> None:
        process = await start_process(here, "a", **UNMONITORED)
        await here.until(61)
        await here.flag(LAYOUT.server_paused("10.0.0.1"))
        await here.until(195)
        here.faults.crash(process)
        await here.write(Delete(LAYOUT.server_paused("10.0.0.1")))
        await here.until(250)
        await start_process(here, "b", **UNMONITORED)
        assert reported(here, 0) == reported(here, 1) == [(240, 240, 1)]

    simulate(scene)


def test_without_records_nothing_came_before_monitoring_was_switched_off() -> None:
    async def scene(here: SimulatedJobs) -> None:
        process = await start_process(here, "a")
        await here.until(65)
        stored = json.loads((await here.observer.get(LAYOUT.config)).data)
        await here.write(Set(LAYOUT.config, json.dumps({**stored, "monitorExecution": False}).encode(), -1))
        await here.until(80)
        here.faults.crash(process)
        await here.until(130)
        await start_process(here, "b", **UNMONITORED)
        assert reported(here, 0) == reported(here, 1) == [(120, 120, 1)]

    simulate(scene)


def test_without_records_who_was_busy_when_given_an_item_sees_to_what_has_come_since() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "ab", work=27, cron="0/10 * * * * ?", sharding_total_count=2, **UNMONITORED)
        (item,) = (item for item, holder in (await them.holders()).items() if holder == "a")
        await here.until(12)
        them.people["a"].kill()  # its item is given to the other within seconds, whose run goes on until 37
        await here.until(37.5)
        assert set((await them.holders()).values()) == {"b"}
        assert item in {item for run in them.since(30) for item in run.items}

    simulate(scene)


def test_moments_that_came_during_the_last_run_before_an_absence_are_reported() -> None:
    async def scene(here: SimulatedJobs) -> None:
        async def main() -> None:
            app = here.app(work=100, cron=EVERY_MINUTE, sharding_total_count=2, shutdown_timeout=200.0)
            async with listening(here, app), app.running():
                await here.until(70)

        here.faults.start("a", "10.0.0.1", main)
        await here.until(250)
        assert (await here.record(0)).completed_at == round((here.start + 160) * 1000)
        await start_process(here, "b")
        assert reported(here)[-2:] == [(120, 120, 1), (180, 240, 2)]  # during the run, and while no instance was up

    simulate(scene)


def test_a_rescue_after_an_absence_is_not_the_reason_why_moments_before_it_were_missed() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await ran_until(here, 62, work=5, failover=True)
        await here.until(200)
        await start_process(here, "b", work=5, failover=True)
        await here.until(230)
        missed = [one for one in here.events if isinstance(one, Misfired)]
        assert reported(here, 0) == reported(here, 1) == [(120, 180, 2)]
        assert {one.why for one in missed} == {NO_INSTANCE_UP}  # also of the item that was rescued before the report

    simulate(scene)


async def change(here: SimulatedJobs, cron: str) -> None:
    stored = json.loads((await here.observer.get(LAYOUT.config)).data)
    await here.write(Set(LAYOUT.config, json.dumps({**stored, "cron": cron}).encode(), -1))


@pytest.mark.parametrize("monitored", [True, False])
def test_moments_of_a_schedule_that_came_and_went_during_a_run_are_reported(monitored: bool) -> None:
    async def scene(here: SimulatedJobs) -> None:
        async def main() -> None:
            app = here.app(work=100, cron=EVERY_MINUTE, sharding_total_count=2, monitor_execution=monitored)
            async with listening(here, app), app.running():
                await anyio.sleep_forever()

        here.faults.start("a", "10.0.0.1", main)
        await here.until(70)
        await change(here, "30 * * * * ?")
        await here.until(140)
        await change(here, EVERY_MINUTE)
        await here.until(175)
        assert reported(here, 0) == reported(here, 1) == [(90, 90, 1)]

    simulate(scene)


EACH, FIFTH = "* * * * * ?", "0/5 * * * * ?"


def test_no_schedule_came_after_the_one_in_force_though_an_earlier_one_was_dated_by_a_clock_ahead() -> None:
    job, fields = ClaimedJob(1), {"timeZone": "UTC", "dst": "cron", "monitorExecution": True}
    former = {**fields, "cron": "* * * * * ?", "since": 4_000_000}
    config = job.config.changed(cron="0/5 * * * * ?", time_zone="UTC")
    note = {**fields, "cron": config.cron, "since": 1_000_000, "former": [former]}
    job.write(Set(DESK.config, config.to_json(), -1), Create(DESK.schedule, json.dumps(note).encode()))
    view = read(job.registry.tree(), DESK, config)
    assert (view.schedules.dated, [one.since for one in view.schedules.former]) == (1_000, [4_000_000])
    assert not Succession(view, view).has_changed


def test_a_schedule_is_the_same_while_it_is_in_force_whatever_else_is_changed() -> None:
    case = Case.of(cron=EACH)
    before = case.view()
    case.now = 10
    case.configure(description="hello")
    assert not Succession(before, case.view()).has_changed


@pytest.mark.parametrize("back", [False, True])
def test_a_schedule_that_was_replaced_has_ended_then_though_it_is_back_in_force(back: bool) -> None:
    case = Case.of(cron=EACH)
    before = case.view()
    case.now = 10
    case.configure(cron=FIFTH)
    if back:
        case.now = 20
        case.configure(cron=EACH)
    found = Succession(before, case.view())
    assert found.has_changed
    assert found.ended == (BEGIN + 10) * 1000
    assert [one.cron and one.cron.expression for one in found.between] == [FIFTH] * back


def test_a_schedule_that_was_written_over_before_it_was_noted_is_followed_by_those_that_are_dated_later() -> None:
    case = Case.of(cron=EACH)
    case.now, case.config = 15, case.config.changed(cron=FIFTH)
    case.put(case.view().layout.config, case.config.to_json())
    before = case.view()
    for now, cron in ((20, "0/7 * * * * ?"), (30, FIFTH)):
        case.now = now
        case.configure(cron=cron)
    found = Succession(before, case.view())
    assert [one.since for one in found.between] == [(BEGIN + 20) * 1000]
    assert found.has_changed  # another was in force meanwhile


def test_who_has_an_item_when_its_schedule_ends_depends_on_which_came_first() -> None:
    case = Case.of(items=3, cron=EACH)
    before = case.view()
    case.now = 10
    case.give(0, OTHER)
    case.now = 20
    case.configure(cron=FIFTH)
    case.now = 30
    case.give(1, OTHER)
    found = Succession(before, case.view())
    assert found.handed_on(range(3), ME) == {0}  # whose next holder has seen the end of the last one


@pytest.mark.parametrize("streaming", [True, False])
def test_moments_at_which_the_last_run_was_going_on_are_not_told_as_without_an_instance(streaming: bool) -> None:
    async def fetch(context: ItemContext) -> list[int]:
        await anyio.sleep(1)
        return [1]

    async def run(context: ItemContext) -> None:
        await anyio.sleep(60)

    def made() -> ElasticJob:
        app = ElasticJob("embedded://")
        if streaming:
            app.dataflow("records", cron="0/10 * * * * ?", streaming=True)(fetch).process(lambda context, record: None)
        else:
            app.add(run, name="records", cron="0/10 * * * * ?", shutdown_timeout=60)
        return app

    @simulated
    async def scene(cluster: VirtualCluster) -> None:
        first = await cluster.start(made())
        await anyio.sleep(50)
        await first.stop()
        ended = max(event.at for event in cluster.events if isinstance(event, Ended))
        await anyio.sleep(30)
        await cluster.start(made())
        await anyio.sleep(15)
        told = [one for one in cluster.events if isinstance(one, Misfired) and one.why == NO_INSTANCE_UP]
        assert [(one.first > ended * 1000, one.moments) for one in told] == [(True, 3)]

    scene(VirtualCluster())
