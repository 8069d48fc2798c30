"""One server over all jobs: what it holds and runs, how its runs went, and since when it is switched off."""

from __future__ import annotations

import pytest

from aioelasticjob import InvalidSetting, operations
from aioelasticjob.ground.times import moment
from tests.console.samples import INSTANCES, item, status
from tests.engine.test_settings_changes import start_processes
from tests.support.simulated_jobs import SimulatedJobs, simulate

A, B = "10.0.0.1", "10.0.0.2"


def test_a_server_shows_its_jobs_with_what_they_hold_and_run_there() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, work=3.0)
        await here.until(11)
        held = tuple(number for number, host in sorted((await them.holders()).items()) if host == "a")
        found = await operations.server(here.observer, A, now=0)
        assert (found.host.ip, found.host.jobs, found.host.instances) == (A, ("job", "other"), 2)
        job, other = found.jobs
        assert (job.name, job.state, job.items) == ("job", "running", held)
        assert [one.id for one in job.instances] == [await them.id_of("a")]
        assert [run.item for run in job.runs] == list(held)
        assert [run.since.timestamp() - here.start for run in job.runs] == pytest.approx([10.0] * len(held), abs=0.5)
        assert (other.name, other.state, other.runs) == ("other", "waiting", ())
        assert found.runs == job.runs
        assert found.flags == ()

    simulate(scene)


def test_each_flag_of_a_server_tells_since_when_it_holds() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here)
        before = here.now()
        await operations.disable(here.observer, "job", server=A)
        await here.until(20)
        await operations.pause_server(here.observer, A)
        later = here.now()
        found = await operations.server(here.observer, A, now=0)
        job, other = found.jobs
        (disabled, since), (paused, since_later) = operations.flags_of(job.server)
        assert (disabled, paused) == ("disabled", "paused in all jobs")
        assert since.timestamp() - here.start == pytest.approx(before, abs=0.5)
        assert since_later.timestamp() - here.start == pytest.approx(later, abs=0.5)
        assert operations.flags_of(other.server) == found.flags == (("paused in all jobs", since_later),)
        assert (await operations.server(here.observer, B, now=0)).flags == ()

    simulate(scene)


def test_a_server_that_no_job_knows_is_answered_with_those_that_are_there() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here)
        with pytest.raises(InvalidSetting, match=r"no job knows such a server; there are: 10\.0\.0\.1, 10\.0\.0\.2"):
            await operations.server(here.observer, "10.0.0.9", now=0)

    simulate(scene)


def test_runs_on_other_servers_do_not_count_and_the_oldest_run_comes_first() -> None:
    def run(number: int, instance: str, since: float) -> operations.ItemStatus:
        return item(number, instance, run=operations.ActiveRun(instance, moment(since)))

    first, second = INSTANCES[:2]
    jobs = (
        status("one", (run(0, first, 30), run(1, second, 10)), now=40, instances=(first, second)),
        status("two", (run(0, first, 20),), now=40),
        status("elsewhere", (item(0, second),), now=40, instances=(second,)),
    )
    found = operations.server_details(jobs, A)
    assert found is not None
    assert [(one.job, one.item) for one in found.runs] == [("two", 0), ("one", 0)]
    assert [job.name for job in found.jobs] == ["one", "two"]
    assert operations.server_details(jobs, "10.0.0.9") is None
