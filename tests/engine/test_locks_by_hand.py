"""A lock that somebody has made by hand is no run: all who look at the job name the node, and what to do."""

from __future__ import annotations

import io

import anyio
import pytest
from rich.console import Console, RenderableType

from aioelasticjob import operations
from aioelasticjob.cli.job_lists import JobList
from aioelasticjob.cli.jobs import _list, _picture
from aioelasticjob.operations import JobStatus
from aioelasticjob.operations.attention import reasons
from aioelasticjob.registry.transaction import Create, Delete
from aioelasticjob.testing import VirtualClock
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, simulate


def rendered(what: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=200)
    with console.capture() as captured:
        console.print(what)
    return captured.get()


LOCK = LAYOUT.item(1).running


async def status(here: SimulatedJobs) -> JobStatus:
    return await operations.job(here.observer, "job", now=VirtualClock().now())


@pytest.mark.parametrize("ephemeral", [False, True], ids=["it stays", "it goes with a session"])
def test_an_item_behind_a_lock_made_by_hand_is_blocked_and_the_node_is_named(ephemeral: bool) -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron="0/5 * * * * ?", sharding_total_count=2)
        async with app.running():
            await here.until(7)
            await here.write(Create(LOCK, b"", ephemeral=ephemeral))
            before = len(here.starts(1))
            await here.until(18)
            assert len(here.starts(1)) == before
            found = await status(here)
            assert [(one.item, one.run, one.blocked_by) for one in found.items] == [(0, None, ""), (1, None, LOCK)]
            assert found.running == ()
            assert app.health.jobs[0].blocked == (LOCK,)
            what_to_do = f"item 1 does not run until you remove {LOCK}: somebody has made that lock by hand"
            assert what_to_do in rendered(_picture(found, VirtualClock().now()))
            listed = rendered(_list(JobList(), (found,), VirtualClock().now()))
            assert "1 blocked" in listed
            assert f"job: {what_to_do}" in listed
            (reason,) = [one for one in reasons(found, VirtualClock().now()) if one.kind == "blocked"]
            assert reason.values == {"items": "1", "node": LOCK}
            await here.write(Delete(LOCK))
            await anyio.sleep(12)
            assert len(here.starts(1)) > before
            assert (await status(here)).blocked == ()
            assert app.health.jobs[0].blocked == ()

    simulate(scene)
