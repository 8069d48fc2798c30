"""The jobs of one process: they start together, share the time, and leave together."""

from __future__ import annotations

from asyncio import all_tasks, get_running_loop
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from aioelasticjob import ElasticJob, InvalidSetting, ItemContext, JobConfig
from aioelasticjob.errors import NotPermitted
from aioelasticjob.layout import Layout
from aioelasticjob.registry.client import ClockReading
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.transaction import Create
from aioelasticjob.running.job_scheduler import JobScheduler
from aioelasticjob.running.process import STARTING_AT_ONCE, watch_clock
from aioelasticjob.testing import VirtualClock, run
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, simulate


def test_the_time_is_asked_for_through_another_job_if_one_may_not_be_written() -> None:
    asked = list[str]()

    class Asking:
        is_refusing = False

        def __init__(self, name: str) -> None:
            self.name = name

        async def ask_time(self) -> None:
            asked.append(self.name)
            if self.name == "read-only":
                raise NotPermitted("/read-only")

    async def main() -> None:
        session = _five_seconds_ahead()
        jobs = cast(list[JobScheduler], [Asking("read-only"), Asking("open")])
        with anyio.move_on_after(9.5):
            await watch_clock(cast(Session, session), lambda: jobs)

    run(main, seed=0)
    assert (asked[0], set(asked[1:])) == ("read-only", {"open"})


def test_the_time_is_asked_for_less_and_less_often_if_no_job_may_be_written() -> None:
    asked = list[float]()

    class ReadOnly:
        is_refusing = False

        async def ask_time(self) -> None:
            asked.append(get_running_loop().time())
            raise NotPermitted("/read-only")

    async def main() -> None:
        session = _five_seconds_ahead()
        jobs = cast(list[JobScheduler], [ReadOnly(), ReadOnly()])
        with anyio.move_on_after(600):
            await watch_clock(cast(Session, session), lambda: jobs)

    run(main, seed=0)
    assert len(asked) < 60


def _five_seconds_ahead() -> SimpleNamespace:
    """Return a session whose registry is behind this host's clock."""
    time, clock = get_running_loop().time, VirtualClock()
    return SimpleNamespace(steady_time=time, read_clocks=lambda: ClockReading(clock.now(), time(), skew=5.0))


def two_jobs(here: SimulatedJobs, ended: list[tuple[str, float]], **other: Any) -> ElasticJob:
    """Return an application with two jobs, each run of which takes three seconds."""

    async def work(context: ItemContext) -> None:
        await anyio.sleep(3)
        ended.append((context.job_name, here.now()))

    app = here.app(work, cron="0/10 * * * * ?")
    app.add(work, **{"name": "other", "cron": "0/10 * * * * ?", **other})
    return app


async def left(here: SimulatedJobs) -> list[str]:
    return [name for job in ("job", "other") for name in await here.names(Layout(job).instances)]


def test_jobs_leave_together_when_what_they_run_has_ended() -> None:
    async def scene(here: SimulatedJobs) -> None:
        ended: list[tuple[str, float]] = []
        async with two_jobs(here, ended).running():
            assert len(await left(here)) == 2
            await here.until(11)
        assert sorted((job, round(at, 1)) for job, at in ended) == [("job", 13.0), ("other", 13.0)]
        assert here.now() < 14
        assert await left(here) == []

    simulate(scene)


def test_jobs_of_a_process_that_is_cancelled_leave_all_the_same_with_their_runs_cut_and_settled() -> None:
    async def scene(here: SimulatedJobs) -> None:
        ended: list[tuple[str, float]] = []
        with anyio.move_on_after(11 - here.now()):
            async with two_jobs(here, ended).running():
                await anyio.sleep_forever()
        assert ended == []
        assert here.now() < 12
        assert await left(here) == []
        assert await here.names(LAYOUT.item(0).execution) == ()  # no lock is left
        assert (await here.record(0)).outcome == "cancelled"

    simulate(scene)


def test_if_one_job_cannot_start_the_others_do_not_stay() -> None:
    async def scene(here: SimulatedJobs) -> None:
        there = JobConfig.build(job_name="other", job_type="DATAFLOW")
        await here.write(Create(Layout("other").root), Create(Layout("other").config, there.to_json()))
        begun = False
        with pytest.raises(InvalidSetting, match="other"):
            async with two_jobs(here, []).running():
                begun = True
        assert not begun
        assert await left(here) == []

    simulate(scene)


def test_of_many_jobs_that_start_only_some_own_a_task_meanwhile() -> None:
    many, most = 5 * STARTING_AT_ONCE, list[int]()

    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron="0 0 0 1 1 ?")
        for number in range(many - 1):
            app.add(lambda context: anyio.sleep(0), name=f"job-{number}", cron="0 0 0 1 1 ?")

        async def count() -> None:
            while True:
                most.append(len(all_tasks()))
                await anyio.sleep(0.001)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(count)
            async with app.running():
                tasks.cancel_scope.cancel()
                assert len([job for job in app.health.jobs if job.instance is not None]) == many

    simulate(scene)
    assert max(most) < many
