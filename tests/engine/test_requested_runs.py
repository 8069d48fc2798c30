"""Requests in virtual time: each item runs once, whatever comes between the asking and the claim."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from itertools import pairwise

import anyio
import pytest

from aioelasticjob import ElasticJob, ItemContext, operations
from aioelasticjob.engine.missed_reports import REMOVED
from aioelasticjob.events import Misfired
from aioelasticjob.ground.times import moment
from aioelasticjob.operations import RequestStatus
from aioelasticjob.registry.transaction import Create, Delete, Set
from aioelasticjob.testing import VirtualClock
from tests.engine.test_settings_changes import JobProcesses, start_processes
from tests.support.simulated_jobs import LAYOUT, REGISTRY, SimulatedJobs, listening, simulate

NEVER = "0 0 0 1 1 ? 2090"
AWAY = 0.02
"""Seconds between an instance and the registry, each way: things happen while its requests travel."""
SWEEP = range(0, 151, 10)
"""Milliseconds after the request at which something happens to it."""


async def status(here: SimulatedJobs, id: str = "r") -> RequestStatus:
    return await operations.request(here.observer, "job", id)


async def far(here: SimulatedJobs, **settings: object) -> JobProcesses:
    them = await start_processes(here, "a", work=0.05, **{"sharding_total_count": 2, "cron": NEVER, **settings})
    here.faults.delay("10.0.0.1", REGISTRY, AWAY)
    await anyio.sleep(1)
    return them


def runs(them: JobProcesses) -> Counter[tuple[tuple[int, ...], str, str]]:
    return Counter((run.items, run.source, run.parameter) for run in them.runs)


def test_items_of_all_instances_run_once_for_one_moment() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "ab", cron=NEVER)
        asked = await operations.ask(here.observer, "job", parameter="P", items=[3, 0], id="r")
        assert (asked.changed, asked.request) == (True, "r")
        await anyio.sleep(1)
        assert runs(them) == {((0,), "TRIGGER", "P"): 1, ((3,), "TRIGGER", "P"): 1}
        assert len({run.host for run in them.runs}) == 2
        assert {(await here.record(item)).asked for item in (0, 3)} == {(await status(here)).request.asked}
        found = await status(here)
        assert (found.state, found.outcomes, found.is_over) == ("done", {"completed": 2}, True)
        again = await operations.ask(here.observer, "job", parameter="P", items=[0, 3], id="r")
        assert (again.changed, again.request) == (False, "r")
        await anyio.sleep(1)
        assert len(them.runs) == 2
        with pytest.raises(operations.NotPossible, match="the items differ; the parameter differs; choose another id"):
            await operations.ask(here.observer, "job", parameter="Q", id="r")

    simulate(scene)


@pytest.mark.parametrize("trouble", ["reset", "moved", "edited"])
@pytest.mark.parametrize("after", SWEEP)
def test_what_happens_while_a_claim_travels_neither_loses_a_run_nor_doubles_it(after: int, trouble: str) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await far(here)
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
        assert runs(them) == {((0,), "TRIGGER", "P"): 1, ((1,), "TRIGGER", "P"): 1}
        assert (await status(here)).outcomes == {"completed": 2}

    simulate(scene)


@pytest.mark.parametrize("after", SWEEP)
def test_a_request_that_is_cancelled_meanwhile_runs_or_does_not_and_ends(after: int) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await far(here)
        await operations.ask(here.observer, "job", id="r")
        await anyio.sleep(after / 1000)
        await operations.cancel_request(here.observer, "job", "r")
        await anyio.sleep(10)
        assert len(them.runs) in (0, 2)
        found = await status(here)
        assert found.is_over
        assert sum(found.outcomes.values()) == len(them.runs)

    simulate(scene)


def test_a_run_that_is_cut_off_and_whose_item_is_removed_ends_its_request_even_if_the_item_comes_back() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "ab", work=60, cron=NEVER)
        await operations.ask(here.observer, "job", items=[0, 3], id="r")
        await anyio.sleep(1)
        them.people["b"].kill()
        await here.until(here.now() + 15)
        await them.change(shardingTotalCount=2)
        await anyio.sleep(5)
        assert await here.names(LAYOUT.sharding) == ("0", "1")
        await them.change(shardingTotalCount=4)
        await anyio.sleep(60)
        found = await status(here)
        assert (found.state, found.outcomes) == ("done", {"completed": 1, "cut off": 1})

    simulate(scene)


def test_a_run_that_is_cut_off_is_rescued_and_noted_as_completed() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "ab", work=3, cron=NEVER, failover=True)
        await operations.ask(here.observer, "job", parameter="P", id="r")
        await anyio.sleep(1)
        here.faults.crash(them.people["a"])
        await anyio.sleep(20)
        sources = Counter(run.source for run in them.runs)
        assert sources == {"TRIGGER": 4, "FAILOVER": 2}
        assert {run.parameter for run in them.runs} == {"P"}
        assert (await status(here)).outcomes == {"completed": 4}

    simulate(scene)


def test_items_that_still_run_elsewhere_run_for_the_request_afterwards() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "a", work=20, cron="0 * * * * ?")
        await here.until(61)
        await them.start_processes("b")
        await here.until(63)
        them.work = 1
        await operations.ask(here.observer, "job", parameter="P", id="r")
        await here.until(119)
        again = sorted((round(run.at), run.host, run.items) for run in them.since(62))
        assert again == [(80, "a", (0,)), (80, "a", (1,)), (80, "b", (2,)), (80, "b", (3,))]
        assert (await status(here)).outcomes == {"completed": 4}

    simulate(scene)


def test_a_planned_run_begins_at_its_time_and_later_if_nobody_is_up_then() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "a", cron=NEVER)
        await operations.ask(here.observer, "job", delay=30, id="soon")
        await operations.ask(here.observer, "job", at=moment(here.start + 60), id="at")
        assert (await status(here, "soon")).state == "planned"
        await here.until(50)
        assert {round(run.at, 1) for run in them.runs} == {35.0}
        here.faults.crash(them.people["a"])
        await here.until(200)
        await them.start_processes("b")
        await here.until(210)
        late = [run for run in them.runs if run.host == "b"]
        assert sorted(run.items for run in late) == [(0,), (1,), (2,), (3,)]
        assert {(await here.record(item)).asked for item in range(4)} == {round((here.start + 60) * 1000)}

    simulate(scene)


def test_a_request_that_expires_before_anybody_is_up_is_reported_and_not_run() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "a", cron=NEVER, reconcile_interval=5)
        here.faults.crash(them.people["a"])
        await operations.ask(here.observer, "job", delay=10, expires=timedelta(seconds=20), id="r")
        await here.until(60)
        app = here.app(cron=NEVER)
        async with listening(here, app), app.running():
            await here.until(130)
        assert here.runs == []
        (report,) = [event for event in here.events if type(event).__name__ == "Misfired"]
        assert "before the request expired" in str(report)
        found = await status(here)
        assert (found.state, found.is_over) == ("expired", True)

    simulate(scene)


def test_a_request_of_which_an_item_is_removed_before_it_could_run_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron=NEVER, sharding_total_count=4)
        async with listening(here, app), app.running():
            await here.until(5)
            await operations.ask(here.observer, "job", items=[0, 2, 3], delay=30, id="r")
            await operations.ask(here.observer, "job", items=[3], delay=10, id="paused")
            await operations.pause_request(here.observer, "job", "paused")
            await operations.configure(here.observer, "job", {"sharding_total_count": 2})
            await here.until(60)
        assert len(here.runs) == 1  # of the item 0
        reports = [event for event in here.events if isinstance(event, Misfired)]
        assert [(one.items, one.why) for one in reports] == [((3,), REMOVED), ((2, 3), REMOVED)]
        assert [(one.slot == one.first, one.moments) for one in reports] == [(True, 1)] * 2
        assert sum("missed the run of" in line for line in caplog.messages) == 2  # a line for each, within one minute

    simulate(scene)


def test_a_request_goes_before_the_moments_that_are_due() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "a", work=15, cron="0/10 * * * * ?", sharding_total_count=1)
        await here.until(12)  # a run that began at 10 goes on until 25; the moment of 20 comes meanwhile
        await operations.ask(here.observer, "job", id="r")
        await here.until(45)
        assert [(round(run.at), run.source) for run in them.runs] == [
            (10, "SCHEDULE"),
            (25, "TRIGGER"),
            (40, "MISFIRE"),
        ]

    simulate(scene)


def test_an_item_in_whose_way_a_node_stands_is_tried_again_later() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "a", cron=NEVER, sharding_total_count=2)
        stands = LAYOUT.item(1).execution
        await here.observer.commit([Create(stands, ephemeral=True)], incarnation=here.observer.incarnation)
        await operations.ask(here.observer, "job", id="r")
        await here.until(30)
        assert [run.items for run in them.runs] == [(0,)]
        await here.write(Delete(stands))
        await here.until(130)
        assert [run.items for run in them.runs] == [(0,), (1,)]

    simulate(scene)


@pytest.mark.parametrize("what", ["job", "server", "server in all jobs"])
def test_a_pause_keeps_a_request_waiting(what: str) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "a", cron=NEVER)
        await operations.ask(here.observer, "job", delay=10, id="r")
        if what == "server in all jobs":
            await operations.pause_server(here.observer, "10.0.0.1")
        else:
            await operations.pause(here.observer, "job", server="10.0.0.1" if what == "server" else None)
        await here.until(60)
        assert them.runs == []
        if what == "server in all jobs":
            await operations.resume_server(here.observer, "10.0.0.1")
        else:
            await operations.resume(here.observer, "job", server="10.0.0.1" if what == "server" else None)
        await anyio.sleep(2)
        assert len(them.runs) == 4

    simulate(scene)


def at(here: SimulatedJobs, second: float) -> datetime:
    return moment(here.start + second)


def test_a_backfill_runs_every_moment_of_every_item_oldest_first() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(work=1, cron="0 * * * * ?", sharding_total_count=2)
        async with app.running():
            await here.until(5)
            await operations.backfill(here.observer, "job", at(here, -180), at(here, 0), id="r")
            await here.until(70)
        for item in (0, 1):
            assert [(source, slot) for _, source, slot in here.starts(item)] == [
                *(("BACKFILL", -180.0), ("BACKFILL", -120.0), ("BACKFILL", -60.0), ("SCHEDULE", 60.0))
            ]
        found = await status(here)
        assert (found.state, found.outcomes) == ("done", {"completed": 6})
        record = await here.record(0)
        assert (record.slot, record.asked) == (round((here.start + 60) * 1000), 0)

    simulate(scene)


def test_a_backfill_and_the_schedule_take_turns() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(work=1.5, cron="* * * * * ?", sharding_total_count=1)
        async with app.running():
            await here.until(5)
            await operations.backfill(here.observer, "job", at(here, -60), at(here, 0), id="r")
            await here.until(25)
        sources = [source for when, _, source, _ in here.runs if 8 < when < 24]
        assert {sources[0], sources[1]} == {"BACKFILL", "MISFIRE"}
        assert set(sources[::2]) == {sources[0]}
        assert set(sources[1::2]) == {sources[1]}

    simulate(scene)


def test_a_trigger_goes_before_a_backfill() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(work=2, cron="0 * * * * ?", sharding_total_count=1)
        async with app.running():
            await here.until(5)
            await operations.backfill(here.observer, "job", at(here, -180), at(here, 0))
            await here.until(6)
            await operations.ask(here.observer, "job")
            await here.until(20)
        assert [source for _, _, source, _ in here.runs] == ["BACKFILL", "TRIGGER", "BACKFILL", "BACKFILL"]

    simulate(scene)


def test_a_backfill_goes_on_elsewhere_when_its_process_dies() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "ab", work=2, cron="0 * * * * ?", failover=True)
        await operations.backfill(here.observer, "job", at(here, -300), at(here, 0), id="r")
        await anyio.sleep(3)
        here.faults.crash(them.people["a"])
        await here.until(59)
        assert (await status(here)).outcomes == {"completed": 20}
        again = Counter(run.items for run in them.runs if run.source == "BACKFILL")
        assert again == {(item,): 5 for item in range(4)}
        assert sum(run.source == "FAILOVER" for run in them.runs) == 2

    simulate(scene)


def test_a_backfill_of_one_item_at_a_time_never_runs_two() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "ab", work=2, cron="0 * * * * ?", failover=True)
        await operations.backfill(here.observer, "job", at(here, -120), at(here, 0), items_at_once=1, id="r")
        await here.until(59)
        begun = sorted(run.at for run in them.runs)
        assert len(begun) == 8
        assert all(after - before >= 2 for before, after in pairwise(begun))

    simulate(scene)


def test_a_backfill_keeps_its_schedule_and_can_be_paused_and_cancelled() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "a", work=1, cron="0 * * * * ?", sharding_total_count=1)
        await operations.backfill(here.observer, "job", at(here, -3600), at(here, 0), id="r")
        await operations.configure(here.observer, "job", {"cron": NEVER})
        await here.until(15)
        await operations.pause_request(here.observer, "job", "r")
        await here.until(17)
        before = len(them.runs)
        await here.until(30)
        assert len(them.runs) == before > 5
        await operations.resume_request(here.observer, "job", "r")
        await here.until(40)
        await operations.cancel_request(here.observer, "job", "r")
        await here.until(50)
        done = len(them.runs)
        assert before < done < 40
        found = await status(here)
        assert (found.state, found.outcomes, found.is_over) == ("cancelled", {"completed": done}, True)

    simulate(scene)


def test_a_request_ends_a_stream_that_goes_on() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app, batches = ElasticJob(here.address, clock=VirtualClock(), session_timeout=10), list[tuple[float, str]]()

        @app.dataflow(cron="0 * * * * ?", name="job", sharding_total_count=1, streaming=True)
        async def orders(context: ItemContext) -> list[int]:
            batches.append((here.now(), context.source.value))
            await anyio.sleep(0.5)
            return [1]

        @orders.process
        async def ship(_context: ItemContext, _order: int) -> None:
            pass

        async with app.running():
            await here.until(5)
            first = await operations.ask(here.observer, "job", delay=7200)  # which changes the settings, too
            await operations.cancel_request(here.observer, "job", first.request)
            await here.until(80)
            assert {source for _, source in batches} == {"SCHEDULE"}
            await operations.ask(here.observer, "job")
            await here.until(84)
            assert {source for when, source in batches if when > 82} == {"TRIGGER"}

    simulate(scene)


def test_all_items_and_instances_of_a_run_and_its_rescue_share_a_run_id_and_a_fire_time() -> None:
    async def scene(here: SimulatedJobs) -> None:
        seen = list[tuple[str, str, str, datetime]]()

        async def handler(context: ItemContext) -> None:
            seen.append((context.source, context.run_id, context.task_id, context.fire_time))
            await anyio.sleep(5)

        async def main() -> None:
            app = ElasticJob(here.address, clock=VirtualClock(), session_timeout=5)
            settings = {"cron": "0 * * * * ?", "time_zone": "Asia/Shanghai", "failover": True}
            app.add(handler, name="job", sharding_total_count=4, **settings)
            async with app.running():
                await anyio.sleep_forever()

        processes = [here.faults.start(name, f"10.0.0.{n}", main) for n, name in enumerate("ab", 1)]
        await here.until(10)
        for ask in ("new", "old"):
            if ask == "new":
                await operations.ask(here.observer, "job", id="r")
            else:
                await operations.ask(here.observer, "job")
            await anyio.sleep(8)
        assert len(seen) == 8
        assert [len({run_id for _, run_id, _, _ in seen[n : n + 4]}) for n in (0, 4)] == [1, 1]
        assert len({fire_time for *_, fire_time in seen}) == 2
        assert seen[0][1].startswith("job@r-20260101T")
        await here.until(61)
        here.faults.crash(processes[0])
        await here.until(90)
        scheduled = seen[8:]
        assert {source for source, *_ in scheduled} == {"SCHEDULE", "FAILOVER"}
        assert {(run_id, f"{at:%F %T %z}") for _, run_id, _, at in scheduled} == {
            ("job@20260101T000100Z", "2026-01-01 08:01:00 +0800")
        }
        assert len({task_id for _, _, task_id, _ in seen}) == len(seen) == 14
        assert all(run_id.partition("@")[2] in task_id for _, run_id, task_id, _ in seen)

    simulate(scene)
