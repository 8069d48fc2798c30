"""What the console says of a job whose runs are not monitored, so that no record tells of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import anyio

from aioelasticjob import operations
from tests.console.conftest import Play, Scene


def test_it_needs_attention_while_its_runs_fail_and_its_last_run_is_not_said_to_be_missing(
    play: Play, tmp_path: Path
) -> None:
    async def act(scene: Scene) -> None:
        async def fail() -> None:
            raise ValueError("all is lost")

        scene.work = fail
        await scene.run_job(monitor_execution=False, statistics_interval=1, error_handler="ignore")
        browser = await scene.operator()
        await operations.ask(scene.registry.session, "report")
        await scene.seen(lambda now: now.jobs["report"].failed == 1)
        for path in ("/r/billing/jobs", "/r/billing/job/report"):
            page = (await browser.get(path)).text
            assert "1 of 1 runs failed in the last interval" in page
            assert "not recorded" in page
            assert "never" not in page
        await scene.seen(lambda _: bool(scene.registry.store.snapshot.errors))  # the event store is told a little later
        scene.console.state.registries.add(replace(scene.registry.settings, name="again"))
        again = scene.console.state.registries.get("again")
        assert again is not None
        with anyio.fail_after(90):
            await again.snapshot.until(lambda now: now.read)
        assert not again.runs["report"]  # they would be the newest ones for ever

    play(act, event_store=f"sqlite:///{tmp_path / 'events.db'}")
