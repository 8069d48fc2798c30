"""Nothing is lost without a word: what a chaos run of real processes found untold, once more in virtual time."""

from __future__ import annotations

import json

import anyio
import pytest

from aioelasticjob import ItemContext
from aioelasticjob.core.clock_skew import ClockSkewMonitor
from aioelasticjob.core.commands import AnyReport, Report
from aioelasticjob.core.missed import SKIPPED, MissedMoments
from aioelasticjob.core.state import AWAY, GONE, Items, Timetable
from aioelasticjob.cron import Cron
from aioelasticjob.events import Began, Misfired, Rescued
from aioelasticjob.model import ClockReading, Record, VersionedRecord
from aioelasticjob.registry.transaction import Set
from aioelasticjob.testing import Process
from tests.support.simulated_jobs import LAYOUT, REGISTRY, SimulatedJobs, listening, simulate


async def start_process(
    here: SimulatedJobs, name: str, *, work: float = 0.1, leaving: anyio.Event | None = None, **settings: object
) -> Process:
    """Start a process of the job on a host of its own, and wait until it has joined; it leaves when it is asked to."""

    async def handler(context: ItemContext) -> None:
        await anyio.sleep(work)

    async def main() -> None:
        app = here.app(handler, sharding_total_count=2, **settings)
        async with listening(here, app), app.running():
            await (leaving or anyio.Event()).wait()

    known = len(await here.names(LAYOUT.instances))
    process = here.faults.start(name, f"10.0.0.{ord(name) - 96}", main)
    while len(await here.names(LAYOUT.instances)) == known:
        await anyio.sleep(0.01)
    return process


def misfires(here: SimulatedJobs, item: int) -> list[Misfired]:
    return [event for event in here.events if isinstance(event, Misfired) and item in event.items]


def test_a_run_that_dies_after_its_item_has_moved_is_reported_once_like_any_other() -> None:
    async def scene(here: SimulatedJobs) -> None:
        first = await start_process(here, "a", work=100, cron="0/10 * * * * ?")
        await here.until(11)
        await start_process(here, "b", cron="0/10 * * * * ?")
        await here.until(15)
        holders = {(await here.observer.get(LAYOUT.item(item).instance)).data.partition(b"@")[0] for item in (0, 1)}
        assert holders == {b"10.0.0.1", b"10.0.0.2"}  # one has moved while it ran
        here.faults.crash(first)
        await here.until(55)
        for item in (0, 1):
            cut_off = [event for event in misfires(here, item) if "cut off" in event.why]
            assert [(event.slot / 1000 - here.start, event.moments) for event in cut_off] == [(10, 1)]

    simulate(scene)


def test_moments_missed_by_instances_that_are_gone_are_reported_by_the_remaining_ones() -> None:
    async def scene(here: SimulatedJobs) -> None:
        first = await start_process(here, "a", cron="0/5 * * * * ?")
        second = await start_process(here, "b", cron="0/5 * * * * ?")
        await here.until(31)
        here.faults.crash(second)
        await here.until(37)
        ran = (await here.record(1)).instance
        assert ran in await here.names(LAYOUT.instances)
        await start_process(here, "c", cron="0/5 * * * * ?")
        here.faults.crash(first)
        here.events.clear()
        await here.until(60)
        lost = [event for event in misfires(here, 1) if event.why == GONE.format(ran)]
        spans = [(event.first / 1000 - here.start, event.slot / 1000 - here.start, event.moments) for event in lost]
        assert spans == [(35, 40, 2)]  # it was last run at 30, and runs again at 45

    simulate(scene)


def test_who_is_left_knows_since_when_somebody_was_there_also_under_its_next_session() -> None:
    async def scene(here: SimulatedJobs) -> None:
        asked_to_leave = anyio.Event()
        first = {"work": 12, "shutdown_timeout": 20}
        await start_process(here, "a", cron="0/5 * * * * ?", leaving=asked_to_leave, **first)
        began = await first_run(here)
        await here.until(began + 25.5)  # it runs for the third time
        await start_process(here, "b", cron="0/5 * * * * ?")
        await here.until(began + 26.5)  # one item has been given to the other one
        here.faults.partition(["10.0.0.2"], [REGISTRY])
        asked_to_leave.set()
        here.events.clear()
        await here.until(began + 60)  # the other's session has ended
        here.faults.heal()
        await here.until(began + 75)
        for item in (0, 1):
            assert min(first for first, _, _ in spans(here, item)) == began + 25

    simulate(scene)


def spans(here: SimulatedJobs, item: int) -> list[tuple[int, int, int]]:
    start = here.start
    return [(round(e.first / 1000 - start), round(e.slot / 1000 - start), e.moments) for e in misfires(here, item)]


def test_a_report_names_the_first_and_the_last_moment_however_many_there_are() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_process(here, "a", work=100.5, cron="* * * * * ?")
        began = await first_run(here)
        await here.until(began + 101)
        assert spans(here, 0) == spans(here, 1) == [(began + 1, began + 100, 16)]  # of which 16 are counted

    simulate(scene)


def test_reports_follow_each_other_without_a_gap_and_without_a_moment_reported_twice() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_process(here, "a", work=3.5, cron="* * * * * ?")
        began = await first_run(here)
        await here.until(began + 40)
        reports = spans(here, 0)
        assert [first for first, _, _ in reports] == [began + 1, *(last + 1 for _, last, _ in reports[:-1])]
        assert [moments for _, _, moments in reports] == [last - first + 1 for first, last, _ in reports]

    simulate(scene)


def test_a_report_ends_with_the_schedule_that_it_is_about() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_process(here, "a", work=15, cron="0/2 * * * * ?")
        began = await first_run(here)
        await here.until(began + 7)
        stored = json.loads((await here.observer.get(LAYOUT.config)).data)
        await here.write(Set(LAYOUT.config, json.dumps({**stored, "cron": "0/20 * * * * ?"}).encode(), -1))
        await here.until(began + 16)
        reports = spans(here, 0)
        assert [number for first, last, _ in reports for number in range(first, last + 1, 2)] == [
            began + 2,
            began + 4,
            began + 6,
        ]

    simulate(scene)


@pytest.mark.parametrize("given_away", ["before", "after"])
def test_moments_of_a_schedule_that_ends_are_reported_though_their_item_was_given_away(given_away: str) -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_process(here, "a", work=22.5, cron="0/2 * * * * ?", misfire=False)
        began = await first_run(here)  # of both items
        await here.until(began + 7)
        if given_away == "before":
            await start_process(here, "b", cron="0/2 * * * * ?", misfire=False)
            await here.until(began + 11)
        stored = json.loads((await here.observer.get(LAYOUT.config)).data)
        changed = here.now()
        await here.write(Set(LAYOUT.config, json.dumps({**stored, "cron": "1/20 * * * * ?"}).encode(), -1))
        if given_away == "after":
            await start_process(here, "b", cron="1/20 * * * * ?", misfire=False)
        await here.until(began + 35)
        holders = [(await here.observer.get(LAYOUT.item(item).instance)).data.partition(b"@")[0] for item in (0, 1)]
        reports = spans(here, holders.index(b"10.0.0.2"))
        reported = [second for first, last, _ in reports for second in range(first, last + 1, 2) if second % 2 == 0]
        assert sorted(set(reported)) == [*range(began + 2, round(changed), 2)]

    simulate(scene)


def test_moments_of_a_schedule_that_came_during_a_run_are_reported_though_records_were_switched_off_after_it() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_process(here, "a", work=32, cron="0/10 * * * * ?")
        for second, changed in ((15, {"cron": "0/2 * * * * ?"}), (25, {"monitorExecution": False})):
            await here.until(second)
            stored = json.loads((await here.observer.get(LAYOUT.config)).data)
            await here.write(Set(LAYOUT.config, json.dumps({**stored, **changed}).encode(), -1))
        await here.until(45)  # the run was over at 42
        reported = {second for first, last, _ in spans(here, 0) for second in range(first, last + 1, 2)}
        assert reported == set(range(16, 42, 2))

    simulate(scene)


def test_moments_of_a_schedule_that_ended_while_another_held_an_item_are_reported_when_it_comes_back() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_process(here, "a", work=15, cron="0/2 * * * * ?")
        began = await first_run(here)  # of both items
        await here.until(began + 7)
        await start_process(here, "b", cron="0/2 * * * * ?")
        await here.until(began + 7.5)
        here.faults.partition([REGISTRY], ["10.0.0.2"])  # it has reported what had passed, and reports nothing more
        await here.until(began + 11)
        stored = json.loads((await here.observer.get(LAYOUT.config)).data)
        await here.write(Set(LAYOUT.config, json.dumps({**stored, "cron": "59 59 23 * * ?"}).encode(), -1))
        await here.until(began + 30)
        for item in (0, 1):
            assert (await here.observer.get(LAYOUT.item(item).instance)).data.startswith(b"10.0.0.1@")
            reported = {second for first, last, _ in spans(here, item) for second in range(first, last + 1, 2)}
            assert reported == set(range(began + 2, began + 11, 2))

    simulate(scene)


def test_moments_of_a_new_schedule_are_reported_though_a_later_one_was_run_before_it_was_known() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_process(here, "a", cron="0/10 * * * * ?")
        began = await first_run(here)
        await here.until(began + 7)
        here.faults.delay(REGISTRY, "10.0.0.1", 2)
        stored = json.loads((await here.observer.get(LAYOUT.config)).data)
        await here.until(began + 8.2)  # the claim is sent before this is known
        await here.write(Set(LAYOUT.config, json.dumps({**stored, "cron": "* * * * * ?"}).encode(), -1))
        await here.until(began + 20)
        begun = {round(one.slot / 1000 - here.start) for one in here.events if isinstance(one, Began)}
        reported = {second for first, last, _ in spans(here, 0) for second in range(first, last + 1)}
        assert {began, began + 10} <= begun - reported
        assert begun | reported >= set(range(began + 9, began + 17))
        assert min(reported) == began + 9

    simulate(scene)


def test_moments_that_came_while_a_run_was_put_up_for_rescue_are_reported_when_records_end() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_process(here, "a", work=600, cron="* * * * * ?", failover=True)
        began = await first_run(here)
        here.faults.partition([REGISTRY], ["10.0.0.1"])
        stored = json.loads((await here.observer.get(LAYOUT.config)).data)
        changed = {**stored, "monitorExecution": False, "failover": False}
        await here.until(began + 8.5)  # beyond the deadline, within the session's timeout
        await here.write(Set(LAYOUT.config, json.dumps(changed).encode(), -1))
        here.faults.heal()
        await here.until(began + 15)
        assert json.loads((await here.observer.get(LAYOUT.schedule)).data)["monitorExecution"] is False
        reported = {second for first, last, _ in spans(here, 0) for second in range(first, last + 1)}
        assert reported >= set(range(began + 1, began + 9))

    simulate(scene)


def test_moments_that_came_before_a_rescue_are_reported_though_it_was_over_before_it_was_seen() -> None:
    async def scene(here: SimulatedJobs) -> None:
        settings = {"cron": "0/3 * * * * ?", "failover": True}
        await start_process(here, "b", work=0.2, **settings)
        await start_process(here, "a", work=600, **settings)
        await here.until(7)
        holders = [(await here.observer.get(LAYOUT.item(item).instance)).data.partition(b"@")[0] for item in (0, 1)]
        item = holders.index(b"10.0.0.1")
        here.faults.partition([REGISTRY], ["10.0.0.1"])
        await here.until(15)  # beyond the deadline, within the session's timeout
        here.faults.heal()
        here.faults.delay(REGISTRY, "10.0.0.1", 0.4)
        await here.until(30)
        rescued = [one for one in here.events if isinstance(one, Rescued) and one.item == item]
        assert [round(one.slot / 1000 - here.start) for one in rescued] == [3]
        reported = {second for first, last, _ in spans(here, item) for second in range(first, last + 1, 3)}
        begun = {
            round(one.slot / 1000 - here.start) for one in here.events if isinstance(one, Began) and item in one.items
        }
        assert reported | begun >= set(range(6, 19, 3))

    simulate(scene)


@pytest.mark.parametrize("failover", [True, False])
def test_a_moment_whose_claim_was_given_back_after_a_sleep_is_reported_by_the_next_holder(failover: bool) -> None:
    async def scene(here: SimulatedJobs) -> None:
        settings, asked_to_leave = {"cron": "* * * * * ?", "failover": failover}, anyio.Event()
        await start_process(here, "b", **settings)
        sleeper = await start_process(here, "c", leaving=asked_to_leave, **settings)
        await here.until(11.95)
        here.faults.pause(sleeper)  # the claim for the next second has left
        await here.until(14.2)
        await start_process(here, "a", **settings)
        await here.until(17.5)
        asked_to_leave.set()  # or it might tell of the moment itself, before it hears that the item has moved
        here.faults.resume(sleeper)
        await here.until(25)
        reported = [second for first, last, _ in spans(here, 1) for second in range(first, last + 1)]
        begun = [
            round(one.slot / 1000 - here.start) for one in here.events if isinstance(one, Began) and 1 in one.items
        ]
        assert reported.count(12) == 1
        assert set(reported + begun) >= set(range(2, 25))

    simulate(scene)


@pytest.mark.parametrize(("leaves", "ends", "missed"), [(15, 25, [20, 30]), (25, 12, [30])])
def test_moments_of_an_item_given_to_somebody_busy_are_reported_though_records_end(
    leaves: int, ends: int, missed: list[int]
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        asked_to_leave, cron = anyio.Event(), "0/10 * * * * ?"
        await start_process(here, "a", work=32, cron=cron)
        await start_process(here, "b", cron=cron, leaving=asked_to_leave)
        await here.until(11)
        holders = [(await here.observer.get(LAYOUT.item(item).instance)).data.partition(b"@")[0] for item in (0, 1)]
        item = holders.index(b"10.0.0.2")
        for second in sorted([leaves, ends]):
            await here.until(second)
            if second == leaves:
                asked_to_leave.set()  # the item is given to the other one, who runs until 42
            else:
                stored = json.loads((await here.observer.get(LAYOUT.config)).data)
                await here.write(Set(LAYOUT.config, json.dumps({**stored, "monitorExecution": False}).encode(), -1))
        await here.until(45)
        assert [second for first, last, _ in spans(here, item) for second in range(first, last + 1, 10)] == missed
        begun = [
            round(one.slot / 1000 - here.start) for one in here.events if isinstance(one, Began) and item in one.items
        ]
        assert begun == [*range(10, missed[0], 10), 40]

    simulate(scene)


def test_without_records_too_who_was_busy_when_given_an_item_tells_of_a_schedule_changed_meanwhile() -> None:
    async def scene(here: SimulatedJobs) -> None:
        asked_to_leave, cron = anyio.Event(), "0/10 * * * * ?"
        await start_process(here, "a", work=32, cron=cron, monitor_execution=False)
        await start_process(here, "b", cron=cron, leaving=asked_to_leave, monitor_execution=False)
        await here.until(11)
        holders = [(await here.observer.get(LAYOUT.item(item).instance)).data.partition(b"@")[0] for item in (0, 1)]
        asked_to_leave.set()  # its item is given to the other one, who runs until 42
        await here.until(35)
        stored = json.loads((await here.observer.get(LAYOUT.config)).data)
        await here.write(Set(LAYOUT.config, json.dumps({**stored, "cron": "1/10 * * * * ?"}).encode(), -1))
        await here.until(45)
        assert spans(here, holders.index(b"10.0.0.2")) == [(20, 30, 2)]
        assert not any(name.isdigit() for name in await here.names(LAYOUT.execution))

    simulate(scene)


@pytest.mark.parametrize("cron", ["0/10 * * * * ?", "1/10 * * * * ?"])
def test_a_moment_that_came_during_a_run_is_run_after_it_though_records_ended_meanwhile(cron: str) -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_process(here, "a", work=15, cron="0/10 * * * * ?")
        await here.until(12)
        stored = json.loads((await here.observer.get(LAYOUT.config)).data)
        changed = {**stored, "monitorExecution": False, "cron": cron}
        await here.write(Set(LAYOUT.config, json.dumps(changed).encode(), -1))
        await here.until(29)
        begun = [
            round(one.slot / 1000 - here.start) for one in here.events if isinstance(one, Began) and 0 in one.items
        ]
        assert begun == [10, 20 + int(cron[0])]

    simulate(scene)


async def first_run(here: SimulatedJobs) -> int:
    """Wait until somebody runs the job's first item, and return the second at which that began."""
    while not (await here.names(LAYOUT.execution)):
        await anyio.sleep(0.01)
    await anyio.sleep(0.2)
    return round((await here.record(0)).begun / 1000 - here.start)


def test_hidden_moments_before_one_that_was_reported_by_the_old_schedule_and_is_to_run_again_are_reported() -> None:
    items, reports = Items(), list[AnyReport]()
    items[0].seen, items[0].reported = VersionedRecord(Record(slot=42_000), 1), 45_000
    missed = MissedMoments(ClockSkewMonitor(ClockReading(46.0, 46.0)), items, reports)
    old, new = (Timetable(Cron.parse(text), 46_000) for text in ("0/3 * * * * ?", "* * * * * ?"))
    missed.report_hidden([0], new, old, 41_500)
    assert [(one.passed.first, one.passed.last) for one in reports if isinstance(one, Report)] == [(43_000, 44_000)]


def test_runs_that_one_instance_left_are_reported_together_and_once() -> None:
    items, reports = Items(), list[AnyReport]()
    missed = MissedMoments(ClockSkewMonitor(ClockReading(46.0, 46.0)), items, reports)
    killed, other = (Record(slot=40_000, instance=one, begun=40_100) for one in ("killed", "other"))
    missed.report_lost_runs({3: killed, 1: killed, 2: other})
    missed.report_lost_runs({1: killed, 3: killed})
    assert [(one.items, one.cut_off) for one in reports if isinstance(one, Report)] == [
        ((1, 3), "killed"),
        ((2,), "other"),
    ]


def test_moments_that_a_clock_skips_during_an_outage_never_came_whatever_the_outage() -> None:
    items, reports = Items(), list[AnyReport]()
    clock = ClockSkewMonitor(ClockReading(115.0, 15.0, outages=((5.0, 0.0),)))
    clock.take(ClockReading(176.0, 16.0, outages=((6.0, 0.0),)))  # the clock was set ahead by a minute
    clock.take(ClockReading(190.0, 30.0, outages=((20.0, 10.0),)))  # the outage began 5 seconds before that
    missed, table = MissedMoments(clock, items, reports), Timetable(Cron.parse("0/2 * * * * ?"), 190_000)
    missed.report({0: 130_000}, table, 178_000, "late")
    found = [(one.passed.last, one.why) for one in reports if isinstance(one, Report)]
    assert (found[-2:], {why for _, why in found[:-1]}) == ([(176_000, SKIPPED), (178_000, AWAY)], {SKIPPED})
