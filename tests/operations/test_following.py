"""What operators see of jobs that follow others."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from aioelasticjob import operations
from aioelasticjob.cli.describe import summary_as_json
from aioelasticjob.cli.jobs import JobList, _list, _picture
from aioelasticjob.core.layout import Layout
from aioelasticjob.operations.attention import reasons
from aioelasticjob.operations.lateness import lateness
from aioelasticjob.operations.status import JobStatus, UpstreamStatus
from aioelasticjob.registry.transaction import Set
from tests.engine.test_followers import Chain
from tests.support.simulated_jobs import SimulatedJobs, simulate


async def jobs(here: SimulatedJobs) -> dict[str, JobStatus]:
    found = await operations.jobs(here.observer, now=here.start + here.now())
    return {one.name: one for one in found}


def text(shown: object) -> str:
    console = Console(width=200, record=True, file=None, force_terminal=False)
    with console.capture() as captured:
        console.print(shown)
    return captured.get()


def test_a_follower_says_for_whose_items_it_waits_since_which_moment() -> None:
    async def scene(here: SimulatedJobs) -> None:
        chain = Chain(here)
        chain.work = {"extract": 5.0}
        settings = {"after": "extract", "must_end_within": 2}
        app = chain.app(extract={"every": "10s", "sharding_total_count": 2}, load=settings)
        async with app.running():
            await here.until(9)
            assert (await jobs(here))["load"].waiting_moment is None
            await here.until(13)
            now = here.start + here.now()
            load = (await jobs(here))["load"]
            assert load.upstreams == (UpstreamStatus("extract", "", (0, 1)),)
            assert load.waiting_moment is not None
            assert load.waiting_moment.timestamp() - here.start == 10.0
            assert load == await operations.job(here.observer, "load", now=now)
            shown = text(_picture(load, now))
            assert "runs each moment once it has completed in extract" in shown
            assert "waits for items 0, 1 of extract to end the moment " in shown
            await here.until(18)
            load = (await jobs(here))["load"]
            assert (load.waiting_moment, load.upstreams) == (None, (UpstreamStatus("extract"),))
            assert lateness(load, here.start + here.now()) is None
            assert load.next_fire is not None
            assert load.next_fire.timestamp() - here.start == 20.0
            await here.until(23)
            late = lateness((await jobs(here))["load"], here.start + here.now())
            assert late is not None
            assert (late.moment.timestamp() - here.start, late.missing) == (20.0, "ended")

    simulate(scene)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"every": None, "after": ["load"]}, "they follow each other, so each waits for the other"),
        ({"every": None}, "it has no schedule"),
        ({"monitorExecution": False}, "it keeps no records (monitor_execution is off)"),
        (None, "there is no such job"),
    ],
)
def test_a_follower_from_whose_upstream_nothing_comes_needs_attention(
    change: dict[str, object] | None, problem: str
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        chain = Chain(here)
        upstream = chain.app(extract={"every": "10s"})
        async with chain.app(load={"after": "extract"}).running():
            async with upstream.running():
                await here.until(15)
                assert reasons((await jobs(here))["load"], here.start + here.now()) == ()
                if change is not None:
                    node = await here.observer.get(Layout("extract").config)
                    changed = json.dumps({**json.loads(node.data), **change}).encode()
                    await here.write(Set(Layout("extract").config, changed, -1))
                    await here.until(17)
            if change is None:
                await operations.remove(here.observer, "extract")
            found = (await jobs(here))["load"]
            (reason,) = reasons(found, here.start + here.now())
            assert (reason.kind, reason.values) == ("cannot follow", {"job": "extract", "problem": problem})
            assert f"it cannot follow extract: {problem}" in text(_picture(found, here.start + here.now()))

    simulate(scene)


def test_the_tree_of_jobs_shows_each_job_below_those_that_it_follows() -> None:
    async def scene(here: SimulatedJobs) -> None:
        chain = Chain(here)
        jobs_of = {"after": ["extract", "clean"]}
        app = chain.app(extract={"every": "10s"}, clean={"after": "extract"}, load=jobs_of, other={"every": "10s"})
        async with app.running():
            await here.until(5)
            found = list((await jobs(here)).values())
        shown = text(_list(JobList(tree=True), found, here.start + here.now()))
        names = [line.strip("│├└─ ").split("  ")[0] for line in shown.splitlines()]
        assert names == ["extract", "clean", "load", "load", "other"]
        assert summary_as_json(found[2])["after"] == ["extract", "clean"]

    simulate(scene)


def test_the_tree_of_jobs_shows_the_followers_of_a_job_once() -> None:
    async def scene(here: SimulatedJobs) -> None:
        chain = Chain(here)
        load = {"after": ["extract", "clean"]}
        app = chain.app(extract={"every": "10s"}, clean={"after": "extract"}, load=load, report={"after": "load"})
        async with app.running():
            await here.until(5)
            found = list((await jobs(here)).values())
        shown = text(_list(JobList(tree=True), found, here.start + here.now()))
        names = [line.strip("│├└─ ").split("  ")[0] for line in shown.splitlines()]
        assert names == ["extract", "clean", "load", "report", "load", "its followers stand above"]

    simulate(scene)


def test_the_moments_of_a_follower_are_previewed_before_it_is_changed() -> None:
    async def scene(here: SimulatedJobs) -> None:
        chain = Chain(here)
        app = chain.app(fast={"every": "4s"}, slow={"every": "6s"}, load={"after": "fast"})
        async with app.running():
            await here.until(1)
            now = here.start + here.now()
            preview = await operations.preview(here.observer, "load", {"after": "fast,slow"}, now=now)
        assert [fire.timestamp() - here.start for fire in preview.next_fires] == [12, 24, 36, 48, 60]
        assert preview.warnings == ()

    simulate(scene)
