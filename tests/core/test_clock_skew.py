"""The registry's clock is set, both ways; those of the workers are right throughout."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from aioelasticjob import ElasticJob, ItemContext
from aioelasticjob.core.layout import Layout
from aioelasticjob.events import Misfired
from aioelasticjob.registry.transaction import Set
from aioelasticjob.testing import Faults, VirtualClock, VirtualCluster, simulated
from aioelasticjob.testing.loop import START
from aioelasticjob.testing.virtual_cluster import PORT, REGISTRY
from aioelasticjob.zookeeper.server import serve
from aioelasticjob.zookeeper.settings import Settings

LASTING = Settings(max_session_timeout=600_000)  # the observer's


class Setting:
    """A cluster whose registry's clock can be set, and an account of the seconds since the start."""

    def __init__(self, **settings: Any) -> None:
        self.off = self.work = 0.0
        self.cluster = VirtualCluster()
        self.app = ElasticJob("embedded://", clock=VirtualClock(), session_timeout=10)
        self.runs: dict[int, list[float]] = {}
        """When each scheduled second was run."""

        @self.app.job(**{"cron": "* * * * * ?", "name": "job", **settings})
        async def job(context: ItemContext) -> None:
            slot = round(context.fire_time.timestamp() - START)
            self.runs.setdefault(slot, []).append(self.now())
            await anyio.sleep(self.work)

    def now(self) -> float:
        return VirtualClock().now() - START

    async def open(self, off: float = 0.0, workers: int = 1) -> None:
        """Start the registry with its clock off by so much, and the workers."""

        async def registry() -> None:
            async with serve("0.0.0.0", PORT, settings=LASTING, clock=lambda: VirtualClock().now() + self.off):
                await anyio.sleep_forever()

        self.off, self.cluster._faults = off, Faults()
        self.cluster.faults.start("registry", REGISTRY, registry)
        for _ in range(workers):
            await self.cluster.start(self.app)

    async def until(self, second: float) -> None:
        await anyio.sleep(second - self.now())

    async def change(self, cron: str, description: str = "") -> None:
        operator, path = self.cluster._session, Layout("job").config
        stored = json.loads((await operator.get(path)).data)
        write = Set(path, json.dumps({**stored, "cron": cron, "description": description}).encode(), -1)
        await operator.commit([write], incarnation=operator.incarnation)

    def reported(self) -> dict[int, list[str]]:
        """Return why each scheduled second was reported as missed."""
        reported: dict[int, list[str]] = {}
        for event in self.cluster.events:
            if isinstance(event, Misfired):
                for second in range(round(event.first / 1000 - START), round(event.slot / 1000 - START) + 1):
                    reported.setdefault(second, []).append(event.why)
        return reported


@pytest.mark.parametrize("monitored", [True, False])
def test_up_to_where_a_clock_ahead_by_less_than_a_minute_has_run_items_they_wait_and_the_log_says_so(
    monitored: bool, caplog: pytest.LogCaptureFixture
) -> None:
    @simulated
    async def test() -> None:
        here = Setting(monitor_execution=monitored)
        await here.open(off=30)
        await here.until(6.03)
        here.off = 0
        await here.until(60)
        assert here.reported() == {}
        assert all(len(here.runs[second]) == 1 for second in range(31, 60))
        assert set(here.runs) == set(range(31, 60))
        assert [round(at) for second in range(38, 60) for at in here.runs[second]] == list(range(38, 60))
        (line,) = [one for one in caplog.messages if "count as run or reported already" in one]
        assert "a clock was ahead" in line
        await here.cluster.close()

    test()


def test_items_that_a_clock_ahead_by_more_than_a_minute_has_run_are_run_again_after_ten_steady_seconds() -> None:
    @simulated
    async def test() -> None:
        here = Setting(sharding_total_count=1)
        await here.open(off=3600)
        await here.until(6.03)
        here.off = 0
        await here.until(60)
        again = [second for second in here.runs if second < 3600]
        assert again == list(range(18, 60))  # the clock was set at about 6, and the leader saw it a second later
        assert all(len(here.runs[second]) == 1 for second in again)
        assert here.reported() == {}
        await here.cluster.close()

    test()


@pytest.mark.parametrize("killed", [6.5, 20])
def test_whoever_takes_an_item_over_believes_the_record_that_a_clock_ahead_has_dated(killed: float) -> None:
    @simulated
    async def test() -> None:
        here = Setting()
        await here.open(off=45, workers=1)
        await here.until(6.03)
        here.off = 0
        await here.cluster.start(here.app)
        await here.until(killed)
        (holder,) = [one for one in here.cluster.instances if await one.holds()]
        holder.kill()
        await here.until(80)
        assert all(len(runs) == 1 for runs in here.runs.values())
        assert not here.runs.keys() & here.reported().keys()
        assert {*here.runs, *here.reported()} >= set(range(47, 80))
        await here.cluster.close()

    test()


def test_a_schedule_that_is_changed_after_the_clock_was_put_right_misses_nothing_twice() -> None:
    @simulated
    async def test() -> None:
        here = Setting(cron="0/10 * * * * ?", sharding_total_count=1)
        await here.open(off=26)
        await here.until(6.03)
        here.off = 0
        await here.until(12.5)
        await here.change("* * * * * ?")
        await here.until(50)
        assert here.reported() == {}
        assert set(range(31, 50)) <= here.runs.keys()
        assert all(len(runs) == 1 for runs in here.runs.values())
        await here.cluster.close()

    test()


def test_a_schedule_that_began_by_a_clock_ahead_is_followed_from_then_on_though_another_setting_was_written() -> None:
    @simulated
    async def test() -> None:
        here = Setting(cron="0/10 * * * * ?", sharding_total_count=1)
        await here.open()
        await here.until(2)
        here.off = 26
        await here.until(4)
        await here.change("* * * * * ?")
        await here.until(6.03)
        here.off = 0
        await here.until(9)
        await here.change("* * * * * ?", "hello")
        await here.until(50)
        assert {*here.runs, *here.reported()} >= set(range(30, 50))
        assert all(len(runs) == 1 for runs in here.runs.values())
        assert not here.runs.keys() & here.reported().keys()
        await here.cluster.close()

    test()


def test_a_schedule_that_was_changed_while_the_clock_was_ahead_runs_as_usual_after_that_time() -> None:
    @simulated
    async def test() -> None:
        here = Setting(cron="0/10 * * * * ?", sharding_total_count=1)
        here.work = 4
        await here.open()
        await here.until(11)
        here.off = 40
        await here.until(12)
        await here.change("1/10 * * * * ?")
        await here.until(18)
        here.off = 0
        await here.until(90)
        assert {61, 71, 81} <= here.runs.keys()
        assert all(len(runs) == 1 for runs in here.runs.values())
        await here.cluster.close()

    test()


def test_a_job_that_was_made_by_a_clock_ahead_runs_from_the_time_at_which_that_was() -> None:
    @simulated
    async def test() -> None:
        here = Setting(cron="0/5 * * * * ?", sharding_total_count=1)
        await here.open(off=31, workers=2)
        here.off = 0
        await here.until(4.5)
        (holder,) = [one for one in here.cluster.instances if await one.holds()]
        holder.kill()
        await here.until(60)
        assert {*here.runs, *here.reported()} == set(range(35, 60, 5))
        await here.cluster.close()

    test()


def test_who_has_not_noticed_a_clock_that_was_ahead_takes_nothing_for_missed_from_before_the_schedule() -> None:
    @simulated
    async def test() -> None:
        here = Setting(cron="0/10 * * * * ?", sharding_total_count=1)
        await here.open()
        await here.until(5)
        await here.cluster.start(here.app)
        await here.until(8.5)
        await here.change("* * * * * ?")
        await here.until(20.5)
        here.off = 26
        await here.until(24.5)
        here.off = 0
        (holder,) = [one for one in here.cluster.instances if await one.holds()]
        holder.kill()
        await here.until(60)
        reported = here.reported()
        assert min(reported) > 8, reported
        await here.cluster.close()

    test()


@pytest.mark.parametrize("off", [-3600, -20])
@pytest.mark.parametrize("cron", ["* * * * * ?", "0/20 * * * * ?"])
def test_a_clock_that_is_set_back_by_mistake_costs_no_more_than_the_time_until_it_is_put_right(
    off: float, cron: str
) -> None:
    @simulated
    async def test() -> None:
        here = Setting(cron=cron, sharding_total_count=1)
        await here.open(workers=2)
        await here.until(30.5)
        here.off = off
        await here.until(34.5)
        here.off = 0
        await here.until(90)
        due = set(range(1, 90) if cron.startswith("*") else (20, 40, 60, 80))
        assert set(here.reported()) <= set(range(31, 37))
        assert due - here.reported().keys() <= set(here.runs) <= due
        assert all(len(runs) == 1 for runs in here.runs.values())
        await here.cluster.close()

    test()


def test_an_item_gained_just_after_the_clock_was_set_back_is_not_silent_until_it_comes_there_again() -> None:
    @simulated
    async def test() -> None:
        here = Setting(sharding_total_count=2, monitor_execution=False)
        await here.open(off=3600, workers=2)
        await here.until(10.5)
        here.off = 0
        await here.until(12.5)
        await here.cluster.instances[0].stop()
        await here.until(60)
        assert not any(second > 3600 and at > 12.5 for second, runs in here.runs.items() for at in runs)
        assert [len(here.runs[second]) for second in range(40, 60)] == [2] * 20
        assert {*here.runs, *here.reported()} >= set(range(22, 60))  # the schedule's date was lowered by then
        await here.cluster.close()

    test()


def test_who_refuses_to_run_by_a_registry_clock_soon_hears_that_it_was_put_right() -> None:
    @simulated
    async def test() -> None:
        here = Setting(max_time_diff_seconds=3)
        await here.open(off=-5)
        await here.until(78.5)
        assert here.runs == {}
        here.off = 0  # which nothing tells: nobody runs anything, so nobody writes
        await here.until(110)
        assert set(range(85, 110)) <= set(here.runs) <= set(range(79, 110))
        assert all(len(runs) == 1 for runs in here.runs.values())
        await here.cluster.close()

    test()


def test_moments_reported_while_the_clock_was_ahead_are_not_run_when_they_come() -> None:
    @simulated
    async def test() -> None:
        here = Setting(
            max_time_diff_seconds=3, sharding_total_count=2
        )  # refused, what is to come is reported, not claimed
        await here.open()
        await here.until(10.5)
        here.off = 50
        await here.until(12.5)
        here.off = 0
        await here.until(28)
        await here.cluster.start(here.app)  # who is given one of the items
        await here.until(36)
        await here.cluster.instances[1].stop()  # and the first gains it anew, with its record
        await here.until(80)
        assert here.reported().keys() >= set(range(12, 60))
        assert not here.runs.keys() & here.reported().keys()
        assert {*here.runs, *here.reported()} >= set(range(1, 60)) | set(range(64, 80))
        await here.cluster.close()

    test()
