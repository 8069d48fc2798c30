"""What is removed is gone as a whole, and not while somebody is there."""

from __future__ import annotations

import anyio
import pytest

from aioelasticjob import InvalidSetting, JobConfig, operations
from aioelasticjob.core.layout import SWITCHES, Layout
from aioelasticjob.operations import ChangedMeanwhile, NotPossible
from aioelasticjob.operations.results import MAX_FILLED_PART
from aioelasticjob.registry.transaction import Create
from tests.engine.test_settings_changes import start_processes
from tests.operations.test_instances import HOSTILE, Meddled
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, simulate


def test_a_job_is_removed_once_nobody_is_there() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here)
        with pytest.raises(NotPossible, match=r"2 of its instances are there .*shut it down first"):
            await operations.remove(here.observer, "job")
        await operations.shut_down(here.observer, "job")
        await anyio.sleep(1)
        done = await operations.remove(here.observer, "job")
        assert done.summary.startswith("job: removed, ")
        assert await here.observer.exists(LAYOUT.root) is None
        assert await operations.names(here.observer) == ("other",)
        for name in (*HOSTILE, "job"):
            with pytest.raises(InvalidSetting, match="there are: other"):
                await operations.remove(here.observer, name)

    simulate(scene)


@pytest.mark.parametrize("second", [7.0, 10.1, 12.5])
def test_a_job_is_removed_by_force_while_it_runs(second: float) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "abc", work=2, cron="* * * * * ?", failover=True)
        await here.until(second)
        assert (await operations.remove(here.observer, "job", force=True)).changed
        assert await here.observer.exists(LAYOUT.root) is None
        gone = here.now()
        await here.until(40)
        assert await here.observer.exists(LAYOUT.root) is None
        assert them.since(gone + 1) == []
        assert all(count >= 2 for count in them.others.values())

    simulate(scene)


def test_whoever_joins_while_a_job_is_removed_keeps_it() -> None:
    async def scene(here: SimulatedJobs) -> None:
        config = JobConfig(job_name="job")
        nodes = [Create(path) for path in LAYOUT.skeleton]
        await here.write(*nodes, Create(LAYOUT.config, config.to_json()))
        joined = Create(LAYOUT.instance("me"), ephemeral=True)
        with pytest.raises(ChangedMeanwhile, match="/job/instances was given nodes below it meanwhile: nothing was"):
            await operations.remove(Meddled(here.observer, joined), "job")
        assert await here.observer.exists(LAYOUT.config)

    simulate(scene)


def test_what_is_too_large_for_a_transaction_is_removed_in_parts() -> None:
    async def scene(here: SimulatedJobs) -> None:
        job = Layout("x" * 200)
        await here.write(
            *(Create(path) for path in job.skeleton), Create(job.config, JobConfig(job_name=job.job).to_json())
        )
        for begin in range(0, 5000, 1000):
            await here.write(*(Create(job.item(item).offset, b"1") for item in range(begin, begin + 1000)))
        done = await operations.remove(here.observer, job.job)
        assert sum(map(len, done.paths)) > here.observer.settings.max_request * MAX_FILLED_PART
        assert await here.observer.exists(job.root) is None

    simulate(scene)


def test_a_server_is_forgotten_with_its_flags_once_nobody_is_there() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here)
        await operations.pause_server(here.observer, "10.0.0.1")
        with pytest.raises(NotPossible, match="instances of job, other are there"):
            await operations.remove_server(here.observer, "10.0.0.1")
        here.faults.crash(them.people["a"])
        await anyio.sleep(10)
        done = await operations.remove_server(here.observer, "10.0.0.1")
        assert done.summary == "server 10.0.0.1: removed from job, other"
        assert await here.names(LAYOUT.servers) == ("10.0.0.2",)
        assert await here.names(SWITCHES) == ()
        for name in (*HOSTILE, "10.0.0.1"):
            with pytest.raises(InvalidSetting, match=r"there are: 10\.0\.0\.2"):
                await operations.remove_server(here.observer, name)

    simulate(scene)
