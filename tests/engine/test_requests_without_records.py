"""Requests of jobs without records, and requests that somebody has written by hand: each item runs once."""

from __future__ import annotations

from collections import Counter

import anyio
import pytest

from aioelasticjob import FireSource, ItemContext, operations
from aioelasticjob.core.effects import MAX_OPERATIONS
from aioelasticjob.core.reasons import BUSY
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.events import Misfired
from aioelasticjob.ground.times import moment
from aioelasticjob.registry.transaction import Create, Delete, Set
from tests.engine.test_requested_runs import AWAY, NEVER, SWEEP, far, runs, status
from tests.engine.test_settings_changes import EVERY_TEN, JobProcesses, start_processes
from tests.support.simulated_jobs import LAYOUT, REGISTRY, SimulatedJobs, listening, simulate

EACH_ONCE = {((0,), "TRIGGER", "P"): 1, ((1,), "TRIGGER", "P"): 1}


async def pair(here: SimulatedJobs, work: float = 0.2) -> JobProcesses:
    """Start two instances of a job without records, which hold two items each."""
    return await start_processes(here, "ab", work=work, cron=NEVER, monitor_execution=False)


@pytest.mark.parametrize("monitored", [True, False])
def test_a_request_that_is_written_by_hand_with_its_kind_alone_runs_all_items_once(monitored: bool) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "ab", cron=NEVER, monitor_execution=monitored)
        written = here.now()
        await here.write(Create(LAYOUT.request("x"), b'{"kind": "TRIGGER"}'))
        await anyio.sleep(5)
        assert Counter((run.items, run.source) for run in them.runs) == {((item,), "TRIGGER"): 1 for item in range(4)}
        found = await status(here, "x")
        assert (found.state, found.outcomes, found.request.by) == ("done", {"completed": 4}, "")
        assert found.request.moment == pytest.approx((here.start + written) * 1000, abs=50)

    simulate(scene)


@pytest.mark.parametrize("monitored", [True, False])
def test_a_request_by_hand_may_name_items_and_a_parameter(monitored: bool) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "ab", cron=NEVER, monitor_execution=monitored)
        await here.write(Create(LAYOUT.request("x"), b'{"kind": "TRIGGER", "items": [3], "parameter": "P"}'))
        await anyio.sleep(5)
        assert runs(them) == {((3,), "TRIGGER", "P"): 1}
        assert (await status(here, "x")).outcomes == {"completed": 1}

    simulate(scene)


def test_items_of_all_instances_run_once_without_records() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await pair(here)
        asked = await operations.ask(here.observer, "job", parameter="P", id="r")
        found = await operations.ended(here.observer, "job", asked.request)
        assert (found.state, found.outcomes) == ("done", {"completed": 4})
        assert Counter(run.items for run in them.runs) == {(item,): 1 for item in range(4)}
        assert {run.parameter for run in them.runs} == {"P"}
        assert len({run.host for run in them.runs}) == 2
        again = await operations.ask(here.observer, "job", parameter="P", id="r")
        assert not again.changed
        await anyio.sleep(5)
        assert len(them.runs) == 4

    simulate(scene)


def test_how_runs_without_records_have_failed_is_counted() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await pair(here)
        await operations.ask(here.observer, "job", parameter="fail", items=[0, 1], id="r")
        assert (await operations.ended(here.observer, "job", "r")).outcomes == {"failed": 2}

    simulate(scene)


@pytest.mark.parametrize("trouble", ["reset", "moved", "edited"])
@pytest.mark.parametrize("after", SWEEP)
def test_what_happens_while_items_begin_without_records_neither_loses_a_run_nor_doubles_it(
    after: int, trouble: str
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await far(here, monitor_execution=False)
        await operations.ask(here.observer, "job", parameter="P", id="r")
        await anyio.sleep(after / 1000)
        if trouble == "reset":
            here.faults.reset("10.0.0.1", REGISTRY)
        elif trouble == "moved":
            await here.write(Set(LAYOUT.sharding, b"", -1))
        else:
            node = await here.observer.get(LAYOUT.request("r"))
            await here.write(Set(LAYOUT.request("r"), node.data, -1))
        await anyio.sleep(10)
        assert runs(them) == EACH_ONCE
        assert (await status(here)).outcomes == {"completed": 2}

    simulate(scene)


@pytest.mark.parametrize("after", SWEEP)
def test_an_instance_that_dies_meanwhile_leaves_no_item_that_runs_twice_and_none_that_never_begins(after: int) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await pair(here, work=0.05)
        here.faults.delay("10.0.0.1", REGISTRY, AWAY)
        here.faults.delay("10.0.0.2", REGISTRY, AWAY)
        await anyio.sleep(1)
        await operations.ask(here.observer, "job", id="r")
        await anyio.sleep(after / 1000)
        them.people["a"].kill()
        found = await operations.ended(here.observer, "job", "r")
        await anyio.sleep(30)
        assert max(Counter(run.items for run in them.runs).values()) == 1
        assert sum(found.outcomes.values()) == 4
        assert found.outcomes.keys() <= {"completed", "cut off"}
        ended = await status(here)
        assert ended.request.closed
        assert ended.outcomes == found.outcomes
        cut_off = ended.outcomes.get("cut off", 0)
        assert 4 - cut_off <= len(them.runs) <= 4

    simulate(scene)


def test_a_run_without_records_of_an_instance_that_is_gone_ends_its_request() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await pair(here, work=60)
        await operations.ask(here.observer, "job", id="r")
        await anyio.sleep(1)
        them.people["a"].kill()
        await here.until(120)
        found = await status(here)
        assert (found.state, found.outcomes) == ("done", {"completed": 2, "cut off": 2})
        assert found.request.closed
        assert len(them.runs) == 4

    simulate(scene)


def test_a_run_without_records_that_ends_with_its_session_is_cut_off_though_the_instance_joins_again() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "a", work=60, cron=NEVER, monitor_execution=False, sharding_total_count=1)
        await operations.ask(here.observer, "job", id="r")
        await anyio.sleep(1)
        here.faults.partition(["10.0.0.1"], [REGISTRY])
        await anyio.sleep(15)
        here.faults.heal()
        await anyio.sleep(30)
        assert len(them.cancelled) == len(them.runs) == 1
        found = await status(here)
        assert (found.state, found.outcomes) == ("done", {"cut off": 1})

    simulate(scene)


def test_an_instance_that_leaves_notes_that_its_runs_without_records_were_cut_off() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(
            here, "ab", work=60, cron=NEVER, monitor_execution=False, sharding_total_count=1, shutdown_timeout=1
        )
        await operations.ask(here.observer, "job", id="r")
        await anyio.sleep(1)
        (runner,) = {run.host for run in them.runs}
        await here.flag(LAYOUT.shutdown(await them.id_of(runner)))
        await anyio.sleep(10)
        assert (await status(here)).outcomes == {"cut off": 1}
        assert len(them.runs) == 1

    simulate(scene)


def test_a_job_without_records_is_asked_for_some_items_later_and_only_for_a_while() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await pair(here)
        await operations.ask(here.observer, "job", items=[1], delay=10, expires=5, id="r")
        await anyio.sleep(9)
        assert them.runs == []
        await anyio.sleep(5)
        assert Counter(run.items for run in them.runs) == {(1,): 1}
        await here.flag(LAYOUT.paused)
        await operations.ask(here.observer, "job", items=[1], delay=1, expires=5, id="late")
        await anyio.sleep(60)
        await here.write(Delete(LAYOUT.paused))
        await anyio.sleep(5)
        assert len(them.runs) == 1
        assert (await status(here, "late")).state == "expired"

    simulate(scene)


def test_a_job_without_records_runs_no_moments_again() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here, "a", monitor_execution=False)
        await here.until(31)
        with pytest.raises(InvalidSetting, match="can be run again only with monitor_execution = True"):
            await operations.rerun(here.observer, "job", moment(here.start + 20))

    simulate(scene)


def test_an_instance_is_asked_to_run_what_it_holds_and_nothing_else() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "ab", cron=NEVER)
        b = await them.id_of("b")
        held = sorted(item for item, holder in (await them.holders()).items() if holder == "b")
        asked = await operations.ask(here.observer, "job", instance=b, parameter="P")
        assert "asked to run items" in asked.summary
        await anyio.sleep(2)
        assert runs(them) == {((item,), "TRIGGER", "P"): 1 for item in held}
        with pytest.raises(InvalidSetting, match="names the items that it holds"):
            await operations.ask(here.observer, "job", instance=b, items=[0])
        with pytest.raises(InvalidSetting, match="no such instance"):
            await operations.ask(here.observer, "job", instance="nobody")

    simulate(scene)


@pytest.mark.parametrize("monitored", [True, False])
def test_more_items_than_one_claim_takes_are_run_though_the_assignment_moves_between(monitored: bool) -> None:
    async def scene(here: SimulatedJobs) -> None:
        count = MAX_OPERATIONS + 3
        them = await far(here, sharding_total_count=count, monitor_execution=monitored)
        await anyio.sleep(5)
        await operations.ask(here.observer, "job", parameter="P", id="r")
        while not await here.names(LAYOUT.request("r")):
            await anyio.sleep(0.005)
        await here.write(Set(LAYOUT.sharding, b"", -1))
        await anyio.sleep(10)
        assert runs(them) == {((item,), "TRIGGER", "P"): 1 for item in range(count)}

    simulate(scene)


@pytest.mark.parametrize("monitored", [True, False])
def test_a_request_during_a_run_does_not_swallow_the_late_run_of_what_was_missed(monitored: bool) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "a", work=12, sharding_total_count=1, monitor_execution=monitored)
        await here.until(11)
        await operations.ask(here.observer, "job")
        them.work = 1
        await here.until(39)
        assert [(round(run.at), run.source) for run in them.runs] == [
            (10, "SCHEDULE"),
            (22, "TRIGGER"),
            (23, "MISFIRE"),
            (30, "SCHEDULE"),
        ]

    simulate(scene)


@pytest.mark.parametrize(("misfire", "missed"), [(True, [20]), (False, [20, 30])])
def test_what_came_during_a_run_keeps_its_reason_though_a_request_is_answered_before_it_is_reported(
    misfire: bool, missed: list[int]
) -> None:
    async def work(context: ItemContext) -> None:
        await anyio.sleep(25 if context.source is FireSource.SCHEDULE else 1)

    async def scene(here: SimulatedJobs) -> None:
        app = here.app(work, cron=EVERY_TEN, misfire=misfire)
        async with listening(here, app), app.running():
            await here.until(11)
            await operations.ask(here.observer, "job")
            await here.until(39)
        found = [event for event in here.events if isinstance(event, Misfired)]
        assert [(event.first, event.slot, event.why) for event in found] == [
            (at(here, missed[0]), at(here, missed[-1]), BUSY)
        ]

    def at(here: SimulatedJobs, second: int) -> int:
        return round((here.start + second) * 1000)

    simulate(scene)
