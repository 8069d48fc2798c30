"""The acts of a run that is disturbed on purpose, in simulated time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from aioelasticjob.testing import VirtualClock, run
from tests.chaos import acts


def stage() -> Any:
    @asynccontextmanager
    async def seated(workers: int) -> AsyncIterator[None]:
        yield

    async def replace_the_dead() -> None:
        await asyncio.sleep(1e6)

    return SimpleNamespace(clock=VirtualClock(), actions=[], seats=[], seated=seated, replace_the_dead=replace_the_dead)


def play(monkeypatch: pytest.MonkeyPatch, *, begins_after: float, recovers_after: float) -> list[str]:
    """Return which rules were broken on a machine whose workers serve all items only after so many seconds."""

    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        waited_for = [loop.time() + begins_after]

        async def disturb() -> None:
            waited_for.append(loop.time() + recovers_after)

        monkeypatch.setattr(acts, "_unserved", lambda stage, since: ["job/0"] if loop.time() < waited_for[-1] else [])
        _, unserved = await acts.act(stage(), 4, disturb)
        return [one.rule for one in unserved]

    return run(main)


def test_workers_of_a_busy_machine_may_take_longer_to_start_than_to_recover(monkeypatch: pytest.MonkeyPatch) -> None:
    assert play(monkeypatch, begins_after=acts.TIMEOUT + 60, recovers_after=acts.TIMEOUT - 10) == []


def test_items_that_are_not_served_again_in_time_break_a_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    assert play(monkeypatch, begins_after=1, recovers_after=acts.TIMEOUT + 10) == ["convergence"]
