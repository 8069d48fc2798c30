"""What operators say by plain writes: trigger, pause, disable, shut down, remove, and every setting while jobs run."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import anyio
import pytest

from aioelasticjob import Cron, ElasticJob, InstanceContext, ItemContext, JobConfig, operations
from aioelasticjob.config.job import section_of
from aioelasticjob.config.sections import DATAFLOW
from aioelasticjob.errors import Conflict, NodeMissing
from aioelasticjob.ground.times import moment
from aioelasticjob.registry.transaction import Create, Delete, Set
from aioelasticjob.schedules.calendars import Calendar
from aioelasticjob.testing import Process, VirtualClock
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, simulate

SOON = 0.05
"""Seconds: one watch event, and what follows from it."""
Test = TypeVar("Test", bound=Callable[..., None])
EVERY_TEN = "0/10 * * * * ?"


@dataclass(frozen=True)
class Run:
    at: float
    host: str
    items: tuple[int, ...]
    source: str
    parameter: str
    item_parameter: str | None


@dataclass
class JobProcesses:
    """Instances of one job on hosts 10.0.0.1, 10.0.0.2, …; each also runs a job that nobody touches."""

    here: SimulatedJobs
    settings: dict[str, Any]
    work: float = 0.2
    runs: list[Run] = field(default_factory=list)
    others: Counter[str] = field(default_factory=Counter)
    cancelled: list[float] = field(default_factory=list)
    people: dict[str, Process] = field(default_factory=dict)

    async def start_processes(self, *names: str) -> None:
        for name in names:
            known = len(await self.here.names(LAYOUT.instances))
            self.people[name] = self.here.faults.start(name, f"10.0.0.{ord(name) - 96}", self._main(name))
            while len(await self.here.names(LAYOUT.instances)) == known:
                await anyio.sleep(0.01)

    def _main(self, name: str) -> Callable[[], Coroutine[object, object, None]]:
        async def handler(context: ItemContext | InstanceContext) -> None:
            given = context.parameter if isinstance(context, ItemContext) else None
            run = Run(self.here.now(), name, context.claimed, context.source.value, context.job_parameter, given)
            self.runs.append(run)
            try:
                await anyio.sleep(self.work)
            except anyio.get_cancelled_exc_class():
                self.cancelled.append(self.here.now())
                raise
            if context.job_parameter == "fail":
                raise ValueError("as told")

        async def other(context: ItemContext) -> None:
            self.others[name] += 1

        async def main() -> None:
            app = ElasticJob(self.here.address, clock=VirtualClock(), session_timeout=5)
            app.add(handler, name="job", **self.settings)
            app.add(other, name="other", cron=EVERY_TEN, sharding_total_count=5)
            async with app.running():
                await anyio.sleep_forever()

        return main

    async def id_of(self, name: str) -> str:
        ip = f"10.0.0.{ord(name) - 96}@"
        return next(one for one in await self.here.names(LAYOUT.instances) if one.startswith(ip))

    async def holders(self) -> dict[int, str]:
        found = {}
        for item in await self.here.names(LAYOUT.sharding):
            node = await self.here.observer.get(LAYOUT.item(int(item)).instance)
            found[int(item)] = chr(96 + int(node.data.decode().partition("@")[0].rpartition(".")[2]))
        return found

    async def change(self, **settings: object) -> None:
        """Write settings into the registry as an operator does, by their keys there."""
        stored = json.loads((await self.here.observer.get(LAYOUT.config)).data)
        await self.here.write(Set(LAYOUT.config, json.dumps({**stored, **settings}).encode(), -1))

    def since(self, second: float) -> list[Run]:
        return [run for run in self.runs if run.at >= second]


async def start_processes(
    here: SimulatedJobs, names: str = "ab", work: float = 0.2, **settings: object
) -> JobProcesses:
    made = JobProcesses(here, {"cron": EVERY_TEN, "sharding_total_count": 4, **settings}, work)
    await made.start_processes(*names)
    await here.until(5)
    return made


async def remove(here: SimulatedJobs, order: str) -> None:
    """Remove the whole job node by node, and what has grown below a node meanwhile."""
    while tree := await here.observer.subtree([LAYOUT.root]):
        by_level = sorted(tree, key=lambda path: (-path.count("/"), path))
        by_name = sorted(tree, key=lambda path: [*(f"{part}\0" for part in path.split("/")), "\uffff"])
        for path in by_level if order == "by level" else by_name:
            if await here.observer.exists(path):
                with suppress(Conflict):
                    await here.write(Delete(path))


def test_all_instances_are_triggered_with_a_parameter_for_that_run() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "abc", job_parameter="daily")
        await here.trigger(parameter="special")
        await anyio.sleep(SOON)
        assert sorted(item for run in them.runs for item in run.items) == [0, 1, 2, 3]
        assert {run.parameter for run in them.runs} == {"special"}
        await here.until(12)
        assert {run.parameter for run in them.since(9)} == {"daily"}

    simulate(scene)


def test_a_server_is_disabled_at_once_and_enabled_again() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them, flag = await start_processes(here), LAYOUT.server_disabled("10.0.0.1")
        await here.until(10 - SOON)
        await here.write(Create(flag))
        await here.until(19)
        assert {run.host for run in them.runs} == {"b"}
        assert sorted(item for run in them.runs for item in run.items) == [0, 1, 2, 3]
        await here.until(35)
        assert {run.host for run in them.runs} == {"b"}
        await here.write(Delete(flag))
        await here.until(45)
        assert {run.host for run in them.since(39)} == {"a", "b"}
        assert set((await them.holders()).values()) == {"a", "b"}

    simulate(scene)


def test_a_running_item_ends_in_peace_when_its_server_is_paused() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, work=5)
        await here.until(11)
        await here.flag(LAYOUT.server_paused("10.0.0.1"))
        await here.until(25)
        assert them.cancelled == []
        assert {run.host for run in them.since(15)} == {"b"}

    simulate(scene)


def test_an_item_is_switched_off_at_once_and_on_again() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here)
        await here.until(10 - SOON)
        await here.flag(LAYOUT.item(2).disabled)
        await here.until(25)
        assert {item for run in them.runs for item in run.items} == {0, 1, 3}
        await here.write(Delete(LAYOUT.item(2).disabled))
        await here.until(32)
        assert {item for run in them.since(29) for item in run.items} == {0, 1, 2, 3}
        assert [run for run in them.since(25) if run.source != "SCHEDULE"] == []

    simulate(scene)


@pytest.mark.parametrize("how", ["shutdown", "delete"])
def test_an_instance_leaves_the_job_and_the_other_job_goes_on(how: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, work=3)
        await here.until(11)
        me = await them.id_of("a")
        await here.write(Create(LAYOUT.shutdown(me)) if how == "shutdown" else Delete(LAYOUT.instance(me)))
        await here.until(15)
        assert len(await here.names(LAYOUT.instances)) == 1
        assert them.cancelled == []
        assert set((await them.holders()).values()) == {"b"}
        before = them.others["a"]
        await here.until(45)
        assert {run.host for run in them.since(15)} == {"b"}
        assert len(them.since(15)) == 12
        assert them.others["a"] > before
        assert await here.names(LAYOUT.shutdowns) == ()

    simulate(scene)
    assert len([one for one in caplog.records if "this instance leaves" in one.getMessage()]) == (how == "delete")


@pytest.mark.parametrize("second", [7.0, 9.9, 10.001, 12.5])
@pytest.mark.parametrize("order", ["by level", "by name"])
def test_a_job_is_removed_while_it_runs_and_a_later_start_makes_it_anew(
    order: str, second: float, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "abc", work=4, failover=True, reconcile_interval=5.0)
        await here.until(second)
        await remove(here, order)
        assert await here.observer.exists(LAYOUT.root) is None
        gone = here.now()
        await here.until(60)
        assert await here.observer.exists(LAYOUT.root) is None
        assert them.since(gone + 1) == []
        assert all(count >= 2 for count in them.others.values())
        said = [one.getMessage() for one in caplog.records if one.name.startswith("aioelasticjob.engine")]
        assert Counter(one for one in said if "this instance leaves" in one).total() == 3
        assert len(said) == 3
        them.settings["sharding_total_count"] = 2
        await them.start_processes("d")
        await here.until(75)
        assert sorted(item for run in them.since(69) for item in run.items) == [0, 1]

    caplog.set_level(logging.WARNING)
    simulate(scene)


def test_all_instances_removed_by_hand_leave_and_the_job_stays() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "abc")
        for name in await here.names(LAYOUT.instances):
            with suppress(Conflict):
                await here.write(Delete(LAYOUT.instance(name)))
        await here.until(30)
        assert await here.names(LAYOUT.instances) == ()
        assert them.runs == []
        assert await here.observer.exists(LAYOUT.config)
        await them.start_processes("d")
        await here.until(41)
        assert {run.host for run in them.since(39)} == {"d"}

    simulate(scene)


def changes(*fields: str) -> Callable[[Test], Test]:
    """Say which settings a test changes while the job runs."""

    def note(test: Test) -> Test:
        CHANGED.update(fields)
        return test

    return note


CHANGED: set[str] = set()


def test_every_setting_is_changed_below_or_there_is_a_reason() -> None:
    assert CHANGED | {
        "job_name",  # is the job
        "job_type",  # is refused live: test_nonsense
        "handler",  # never changes: test_created_jobs
        "catch_up",  # looks back when an item is taken over: nobody was down while the job runs
        "description",  # is for people
        *("labels", "links"),  # are for people
        "disabled",  # is for servers that join for the first time
        "requires",  # test_format
        "overwrite",  # is for the start and never stored
        "monitor_port",  # test_monitor_port
        "executor",  # test_blocking: threads and processes are real
        "error_handler_options",  # with the handler
        *("must_end_within", "must_start_within"),  # are for the command alert: tests/cli/test_alert.py
        *("retry", "attempt_timeout", "items_at_once"),  # test_attempts
        *("after", "after_outcome"),  # test_followers
        "independent_items",  # test_independent_items
        *(name for name in JobConfig.model_fields if section_of(name) is DATAFLOW),  # test_dataflow_cluster
        "options",  # are a kind's, and checked by it: tests/jobs
    } == set(JobConfig.model_fields)


@changes("every", "at", "start_at", "end_at", "jitter")
def test_the_kind_of_schedule_is_changed() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "a", sharding_total_count=1)
        bounds = {"startAt": moment(here.start + 6).isoformat(), "endAt": moment(here.start + 21).isoformat()}
        await them.change(cron=None, every=7.0, **bounds)
        await here.until(30)
        assert [round(run.at) for run in them.runs] == [6, 13, 20]
        await them.change(cron=None, every=None, at=[moment(here.start + 33).isoformat()], startAt=None, endAt=None)
        await here.until(50)
        assert [round(run.at) for run in them.runs] == [6, 13, 20, 33]
        await them.change(at=[], every=20.0, jitter=15.0)
        await here.until(79)
        delayed = JobConfig.build(job_name="job", every=20, jitter=15).schedule
        assert delayed is not None
        start = delayed.starts(round((here.start + 60) * 1000)) / 1000 - here.start
        assert abs(them.runs[-1].at - start) < SOON < start - 60

    simulate(scene)


@changes("calendar", "calendar_mode")
def test_the_calendars_are_changed() -> None:
    """Today is the first of January, and is closed: with ``previous`` the moments of the second move to it."""

    async def scene(here: SimulatedJobs) -> None:
        await operations.set_calendar(here.observer, "closed", Calendar.of(["2026-01-01"]))
        await operations.set_calendar(here.observer, "tomorrow", Calendar.of(["2026-01-02"]))
        them = await start_processes(here, "a", sharding_total_count=1)
        await them.change(calendar=["closed"])
        await here.until(25)
        assert them.runs == []
        await them.change(cron="0/10 * * 2 1 ?", calendar=["tomorrow"], calendarMode="previous")
        await here.until(45)
        assert [round(run.at) for run in them.runs] == [30, 40]

    simulate(scene)


@changes("cron", "time_zone", "dst")
def test_the_schedule_is_changed() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, cron="0 0 0 1 1 ? 2090")
        await them.change(cron="0/3 * * * * ?")
        await anyio.sleep(4)
        assert {round(run.at) for run in them.runs} == {6, 9}
        spring = {"cron": "0 30 2 ? 3 1L", "timeZone": "Europe/Berlin"}
        upcoming = set()
        for setting in ({**spring, "timeZone": "UTC"}, {**spring, "dst": "cron"}, {**spring, "dst": "quartz"}):
            await them.change(**setting)
            await here.trigger(f"by-hand-{len(upcoming)}")
            await anyio.sleep(1)
            expected = Cron.parse(setting["cron"], setting["timeZone"], setting.get("dst", "cron"))  # type: ignore[arg-type]
            found = (await here.record(0)).next_fire
            following = expected.next_after(moment(here.start))
            assert found == (0 if following is None else round(following.timestamp() * 1000))
            upcoming.add(found)
        assert len(upcoming) == 3

    simulate(scene)


@changes("sharding_total_count", "sharding_item_parameters", "job_parameter", "per")
def test_count_parameters_and_what_is_called_are_changed() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here)
        for count in (6, 2):
            await them.change(shardingTotalCount=count)
            await anyio.sleep(SOON)
            assert set(await them.holders()) == set(range(count))
        await them.change(shardingItemParameters={"0": "Beijing"}, jobParameter="new")
        await here.until(12)
        assert {(run.items, run.parameter, run.item_parameter) for run in them.runs} == {
            ((0,), "new", "Beijing"),
            ((1,), "new", None),
        }
        await them.change(per="instance", shardingTotalCount=4)
        await here.until(22)
        assert sorted(run.items for run in them.since(15)) == [(0, 1), (2, 3)]

    simulate(scene)


def test_items_beyond_the_count_miss_no_moment_while_the_count_is_lower(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, work=3.0, sharding_total_count=6)
        await anyio.sleep(11 - here.now() % 60)
        await them.change(shardingTotalCount=3)  # while all six run
        await anyio.sleep(22 - here.now() % 60)
        await them.change(shardingTotalCount=8, cron="5/10 * * * * ?")
        await anyio.sleep(10)

    caplog.set_level(logging.WARNING)
    simulate(scene)
    assert [record.getMessage() for record in caplog.records if "missed" in record.getMessage()] == []


def test_an_item_that_somebody_takes_from_its_holder_by_hand_runs_what_came_until_it_is_assigned_again() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "a", sharding_total_count=1, sharding_quiet=2)
        await here.until(19.9)
        await here.write(Delete(LAYOUT.item(0).instance))
        await here.until(35)
        assert [round(run.at) for run in them.runs] == [10, 20, 30]

    simulate(scene)


@changes("sharding_strategy")
def test_the_strategy_is_changed() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here)
        assert await them.holders() == {0: "a", 1: "a", 2: "b", 3: "b"}
        await them.change(jobShardingStrategyType="single-balance")
        await anyio.sleep(SOON)
        assert await them.holders() in ({0: "a", 1: "b", 2: "a", 3: "b"}, {0: "b", 1: "a", 2: "b", 3: "a"})

    simulate(scene)


@changes("misfire", "timeout", "error_handler")
def test_what_becomes_of_late_long_and_failed_runs_is_changed(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "a", work=12, sharding_total_count=1)
        await here.until(23)
        assert [run.source for run in them.runs] == ["SCHEDULE", "MISFIRE"]
        await them.change(misfire=False)
        await here.until(45)
        assert [(round(run.at), run.source) for run in them.since(25)] == [(40, "SCHEDULE")]
        await them.change(timeout=1.5, misfire=True)
        await here.until(65)
        assert [(round(run.at), run.source) for run in them.since(53)] == [(60, "SCHEDULE")]
        assert (await here.record(0)).outcome == "timed out"
        assert [round(at, 1) for at in them.cancelled if at > 60] == [61.5]
        them.work, before = 0.1, failures()
        await them.change(jobParameter="fail")
        await here.until(71)
        assert failures() == before + 1
        await them.change(jobErrorHandlerType="ignore")
        await here.until(82)
        assert len(them.since(79)) == 1
        assert failures() == before + 1

    def failures() -> int:
        return len([one for one in caplog.records if one.name == "aioelasticjob.error_handlers"])

    simulate(scene)


@changes("alert_on")
def test_what_the_error_handler_is_called_for_is_changed(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "a", job_parameter="fail", error_handler="ignore", sharding_total_count=1)
        await here.until(19)
        assert failures() == 0
        await them.change(alertOn=["missed"])
        await here.until(29)
        assert failures() == 1  # they are logged then
        await them.change(alertOn=["failed", "missed"])
        await here.until(39)
        assert failures() == 1

    def failures() -> int:
        return len([one for one in caplog.records if one.name == "aioelasticjob.error_handlers"])

    simulate(scene)


@changes("log_runs")
def test_which_runs_are_in_the_log_is_changed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "aioelasticjob.engine.stats")

    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "a", work=2, sharding_total_count=2)
        await here.until(19)
        assert lines() == []
        await them.change(logRuns="ends")
        await here.until(29)
        assert lines() == ["job: items 0, 1 completed after 2.000 s (SCHEDULE for 2026-01-01T00:00:20+00:00)"]
        await them.change(logRuns="all")
        await here.until(39)
        assert lines() == [
            "job: items 0, 1 begin (SCHEDULE for 2026-01-01T00:00:30+00:00)",
            "job: items 0, 1 completed after 2.000 s (SCHEDULE for 2026-01-01T00:00:30+00:00)",
        ]
        await them.change(logRuns="ends", jobParameter="fail")
        await here.until(49)
        assert "aioelasticjob.error_handlers" in {one.name for one in caplog.records}
        assert lines() == ["job: items 0, 1 failed after 2.000 s (SCHEDULE for 2026-01-01T00:00:40+00:00)"]
        await them.change(logRuns="none")
        caplog.clear()
        await here.until(59)
        assert not [one for one in caplog.records if one.name == "aioelasticjob.error_handlers"]
        assert lines() == []

    def lines() -> list[str]:
        said = [one.getMessage() for one in caplog.records if one.name == "aioelasticjob.engine.stats"]
        if said:
            caplog.clear()
        return said

    simulate(scene)


@changes("failover")
def test_failover_is_switched_on_and_off() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "ab", work=8, cron="0 * * * * ?")
        await here.until(61)
        here.faults.crash(them.people["a"])
        await here.flag(LAYOUT.item(1).disabled)  # so this orphan is not rescued
        await them.change(failover=True)  # before the session ends, and with it the run that is cut off
        await here.until(66)
        assert {run.source for run in them.runs} == {"SCHEDULE"}
        await here.until(79)
        assert [(run.source, run.items) for run in them.since(66)] == [("FAILOVER", (0,))]
        assert await here.names(LAYOUT.orphans) == ("1",)
        await them.change(failover=False)
        await anyio.sleep(SOON)
        assert await here.names(LAYOUT.orphans) == ()
        await here.write(Delete(LAYOUT.item(1).disabled))
        await here.until(119)
        assert len(them.since(66)) == 1
        await here.until(125)
        assert sorted(item for run in them.since(119) for item in run.items) == [0, 1, 2, 3]

    simulate(scene)


@changes("max_rescues")
def test_fewer_rescues_are_allowed_from_now_on() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "abc", work=20, cron="0 * * * * ?", failover=True, sharding_total_count=1)
        await here.until(61)
        here.faults.crash(them.people[them.runs[-1].host])
        await here.until(72)
        await them.change(maxRescues=1)
        here.faults.crash(them.people[them.runs[-1].host])
        await here.until(100)
        assert [run.source for run in them.runs] == ["SCHEDULE", "FAILOVER"]
        assert (await here.record(0)).outcome == "given up"

    simulate(scene)


@changes("monitor_execution")
def test_monitoring_is_switched_off_and_on_and_no_moment_is_run_twice() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here)
        await here.until(12)
        assert len(await here.names(LAYOUT.execution)) == 4
        await them.change(monitorExecution=False)
        await anyio.sleep(SOON)
        assert await here.names(LAYOUT.execution) == ()
        await here.until(32)
        assert await here.names(LAYOUT.execution) == ()
        await them.change(monitorExecution=True)
        await here.until(35)
        assert Counter(round(run.at) for run in them.runs) == {10: 4, 20: 4, 30: 4}
        await here.until(42)
        assert Counter(round(run.at) for run in them.runs)[40] == 4
        assert len(await here.names(LAYOUT.execution)) == 4

    simulate(scene)


def test_records_stay_until_nothing_runs_any_more() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, work=4, cron="0 * * * * ?", reconcile_interval=10.0)
        await here.until(61)
        await them.change(monitorExecution=False)
        await here.until(63)
        assert len(await here.names(LAYOUT.execution)) == 4
        await here.until(76)
        assert await here.names(LAYOUT.execution) == ()
        assert them.cancelled == []

    simulate(scene)


@changes("max_time_diff_seconds")
def test_how_far_clocks_may_differ_is_changed(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = JobProcesses(here, {"cron": EVERY_TEN})
        them.people["a"] = here.faults.start("a", "10.0.0.1", them._main("a"), skew=-4.0)
        await here.until(21)
        assert len(them.runs) == 2
        await them.change(maxTimeDiffSeconds=2)
        await here.until(41)
        assert len(them.runs) == 2
        assert any("differ by 4.0 s, tolerated are 2 s" in one.getMessage() for one in caplog.records)
        await them.change(maxTimeDiffSeconds=9)
        await here.until(61)
        assert len(them.runs) == 4

    simulate(scene)


@changes("shutdown_timeout")
def test_the_grace_of_those_who_leave_is_changed() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "a", work=8)
        await them.change(shutdownTimeout=1)
        await here.until(11)
        await here.flag(LAYOUT.shutdown(await them.id_of("a")))
        await here.until(15)
        assert {round(at, 1) for at in them.cancelled} == {12.0}

    simulate(scene)


@changes("reconcile_interval")
def test_the_interval_of_the_tick_is_made_shorter() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, reconcile_interval=3600.0)
        await here.flag(LAYOUT.shutdown("nobody"))
        await here.until(30)
        assert await here.names(LAYOUT.shutdowns) == ("nobody",)
        await them.change(reconcileInterval=2)
        await anyio.sleep(2.1)
        assert await here.names(LAYOUT.shutdowns) == ()

    simulate(scene)


@changes("statistics_interval")
def test_the_interval_of_counts_is_made_shorter() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "a", statistics_interval=3600.0)
        await here.until(30)
        (ip,) = await here.names(LAYOUT.servers)

        async def number() -> int:
            return int((await here.observer.get(LAYOUT.success_count(ip))).data)

        with pytest.raises(NodeMissing):
            await number()
        await them.change(processCountIntervalSeconds=5)
        await anyio.sleep(5.1)
        assert await number() > 0

    simulate(scene)


@changes("sharding_quiet")
def test_how_long_membership_must_rest_is_changed() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here)
        await them.change(shardingQuiet=4)
        await here.until(10)
        await here.flag(LAYOUT.server_disabled("10.0.0.1"))
        await here.until(13.9)
        assert "a" in (await them.holders()).values()
        await here.until(14.1)
        assert "a" not in (await them.holders()).values()

    simulate(scene)


@changes("server_retention")
def test_servers_nobody_uses_are_forgotten_and_those_in_use_and_those_switched_off_are_not() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "abcd", reconcile_interval=60.0)
        for name in "bcd":
            await here.flag(LAYOUT.shutdown(await them.id_of(name)))
        await here.flag(LAYOUT.server_paused("10.0.0.2"))
        await here.write(Create(f"{LAYOUT.server('10.0.0.3')}/mine"))
        await here.until(70)
        await them.change(serverRetention=400)
        await here.until(400)
        assert len(await here.names(LAYOUT.servers)) == 4
        await here.until(400 * 1.25 + 65)
        assert await here.names(LAYOUT.servers) == ("10.0.0.1", "10.0.0.2", "10.0.0.3")
        stat = await here.observer.exists(LAYOUT.server("10.0.0.1"))
        assert stat is not None
        assert stat.version <= 5  # kept young, but not by a write on every tick
        await them.start_processes("e")
        here.faults.crash(them.people["a"])
        await here.until(800)
        assert "10.0.0.1" in await here.names(LAYOUT.servers)

    simulate(scene)


def test_a_setting_takes_effect_within_one_watch_event() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here)
        written = here.now()
        await them.change(cron="0/1 * * * * ?")
        await anyio.sleep(1 + SOON)
        assert timedelta(seconds=min(run.at for run in them.runs) - written) < timedelta(seconds=1 + SOON)

    simulate(scene)
