"""Clocks of tests."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from aioelasticjob.testing.loop import VirtualLoop


@dataclass
class StandingClock:
    """A clock that stands where it was set."""

    time: float

    def now(self) -> float:
        return self.time


def block_loop(seconds: float) -> None:
    """Let time pass without a turn of the running loop, as a blocking call in a handler does."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop._now += seconds


def skip_time(seconds: float) -> None:
    """Set the clock of the running asyncio loop ahead: what waits for a time before has waited long enough."""
    loop = asyncio.get_running_loop()
    before = loop.time
    loop.time = lambda: before() + seconds  # type: ignore[method-assign]
