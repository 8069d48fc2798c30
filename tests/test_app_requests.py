"""A running application asks for runs on its own session."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from aioelasticjob import InvalidState, ItemContext
from tests.support.simulated_jobs import SimulatedJobs, simulate


def test_an_application_triggers_a_job_and_the_handler_reads_what_was_asked() -> None:
    async def scene(here: SimulatedJobs) -> None:
        seen = list[tuple[int, Any, str]]()

        async def handler(context: ItemContext) -> None:
            seen.append((context.item, context.request, context.job_parameter))

        app = here.app(handler, sharding_total_count=3, job_parameter="daily")
        async with app.running():
            await app.trigger("job", {"day": 20}, items=[0, 2], id="one")
            await anyio.sleep(1)
            assert sorted(seen, key=lambda one: one[0]) == [
                (0, {"day": 20}, '{"day": 20}'),
                (2, {"day": 20}, '{"day": 20}'),
            ]
            await app.trigger("job", "[1]", items=[1])
            await app.trigger("job", items=[1])
            await anyio.sleep(1)
            assert seen[2:] == [(1, None, "[1]"), (1, None, "daily")]
            await app.trigger("job", delay=60, id="later")
            assert (await app.cancel_request("job", "later")).changed
            assert {one.request.id: one.state for one in await app.requests("job")}["later"] == "cancelled"

    simulate(scene)


def test_an_application_that_does_not_run_cannot_ask() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app()
        for ask in (app.trigger("job"), app.requests("job"), app.cancel_request("job", "r")):
            with pytest.raises(InvalidState, match="must be running"):
                await ask

    simulate(scene)


def test_an_option_that_does_not_exist_is_refused_with_those_that_do() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app()
        async with app.running():
            with pytest.raises(TypeError, match="a request has no option params: known are at, delay, expires, id"):
                await app.trigger("job", params=1)  # type: ignore[call-arg]

    simulate(scene)
