"""A run that is cancelled ends as stopped, and nothing else does."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from aioelasticjob import ElasticJob, InstanceContext, InvalidSetting, ItemContext, operations
from aioelasticjob.operations import NotPossible
from aioelasticjob.testing import VirtualClock
from tests.engine.test_settings_changes import start_processes
from tests.support.simulated_jobs import LAYOUT, REGISTRY, SimulatedJobs, simulate

NEVER = "0 0 0 1 1 ? 2090"


def test_the_run_of_one_item_is_stopped_and_the_others_and_the_next_run_go_on() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "ab", work=40, cron="0 * * * * ?", failover=True)
        await here.until(65)
        done = await operations.cancel(here.observer, "job", item=1)
        assert "asked to stop the run of item 1" in done.summary
        await here.until(66)
        assert len(them.cancelled) == 1
        await here.until(105)  # items that were claimed together are settled together
        records = [await here.record(item) for item in range(4)]
        assert [(one.completed, one.outcome) for one in records] == [
            *((True, "completed"), (True, "stopped"), (True, "completed"), (True, "completed"))
        ]
        await here.until(150)
        assert sorted((run.at > 100, run.items, run.source) for run in them.runs) == [
            (late, (item,), "SCHEDULE") for late in (False, True) for item in range(4)
        ]
        assert len(them.cancelled) == 1
        await here.until(175)
        assert (await here.record(1)).outcome == "completed"

    simulate(scene)


def test_a_run_that_was_asked_to_stop_is_not_asked_again() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here, "ab", work=40, cron=NEVER)
        await operations.ask(here.observer, "job", id="r")
        await anyio.sleep(2)
        for host in ("10.0.0.1", "10.0.0.2"):  # so that the runs have not ended yet
            here.faults.delay(host, REGISTRY, 1)
        first = await operations.cancel(here.observer, "job", item=1)
        again = await operations.cancel(here.observer, "job", item=1)
        assert (first.changed, again.changed) == (True, False)
        assert "job: the run of item 1 was asked to stop already; an item stays locked" in again.summary
        others = await operations.cancel(here.observer, "job")
        assert "asked to stop the run of items 0, 2, 3;" in others.summary
        assert not (await operations.cancel(here.observer, "job")).changed

    simulate(scene)


def test_all_runs_of_a_job_are_stopped_on_all_instances() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "ab", work=40, cron=NEVER)
        await operations.ask(here.observer, "job", id="r")
        await anyio.sleep(2)
        await operations.cancel(here.observer, "job")
        await anyio.sleep(1)
        assert len(them.cancelled) == 4
        found = await operations.request(here.observer, "job", "r")
        assert (found.state, found.outcomes) == ("done", {"stopped": 4})
        with pytest.raises(NotPossible, match="nothing runs now"):
            await operations.cancel(here.observer, "job")
        with pytest.raises(NotPossible, match="item 2 does not run now"):
            await operations.cancel(here.observer, "job", item=2)
        for item in (4, True, 1.0, "1", [1]):
            with pytest.raises(InvalidSetting, match="items 0 to 3"):
                await operations.cancel(here.observer, "job", item=item)  # type: ignore[arg-type]

    simulate(scene)


def test_one_call_for_all_items_and_a_dataflow_are_stopped_as_a_whole() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = ElasticJob(here.address, clock=VirtualClock(), session_timeout=10)

        @app.job(name="job", per="instance", sharding_total_count=2)
        async def wait(_context: InstanceContext) -> None:
            await anyio.sleep(60)

        @app.dataflow(name="flow", sharding_total_count=2, streaming=True)
        async def fetch(_context: ItemContext) -> list[int]:
            await anyio.sleep(1)
            return [1]

        @fetch.process
        async def process(_context: ItemContext, _record: int) -> None:
            await anyio.sleep(60)

        async with app.running():
            for name in ("job", "flow"):
                await app.trigger(name, id="r")
                await anyio.sleep(5)
                await app.cancel(name, item=1)
                await anyio.sleep(5)
                found = await operations.request(here.observer, name, "r")
                assert (name, found.outcomes) == (name, {"stopped": 2})

    simulate(scene)


def test_the_wish_to_stop_runs_is_forgotten_and_is_no_mistake(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here, "a", work=40, cron=NEVER)
        await operations.ask(here.observer, "job")
        await anyio.sleep(2)
        await operations.cancel(here.observer, "job")
        await anyio.sleep(60)
        assert len(await here.names(LAYOUT.requests)) == 2
        await anyio.sleep(3700)
        assert await here.names(LAYOUT.requests) == ()

    simulate(scene)
    assert "is not a request" not in caplog.text


def test_runs_of_a_job_without_records_cannot_be_cancelled_and_the_sentence_is_about_that() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here, "a", work=40, cron=NEVER, monitor_execution=False)
        with pytest.raises(InvalidSetting, match="runs of job can be cancelled only with monitor_execution = True"):
            await operations.cancel(here.observer, "job")

    simulate(scene)


@pytest.mark.parametrize("fence", ["x", True, 1.5])
def test_what_is_no_fence_is_refused_by_name(fence: Any) -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here, "a", work=40, cron=NEVER)
        await operations.ask(here.observer, "job")
        await anyio.sleep(2)
        with pytest.raises(InvalidSetting, match="must be a whole number") as wrong:
            await operations.cancel(here.observer, "job", item=1, fence=fence)
        assert wrong.value.setting == "fence"

    simulate(scene)
