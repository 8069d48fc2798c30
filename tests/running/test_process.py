"""The jobs of one process: they start together, share the time, and leave together."""

from __future__ import annotations

from asyncio import get_running_loop
from types import SimpleNamespace
from typing import cast

import anyio

from aioelasticjob.errors import NotPermitted
from aioelasticjob.registry.session import Session
from aioelasticjob.running.process import watch_clock
from aioelasticjob.running.process_context import ProcessContext
from aioelasticjob.testing import VirtualClock, run


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
        shared = SimpleNamespace(clock=VirtualClock(), runners={Asking("read-only"): None, Asking("open"): None})
        with anyio.move_on_after(9.5):
            await watch_clock(cast(Session, session), cast(ProcessContext, shared))

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
        shared = SimpleNamespace(clock=VirtualClock(), runners={ReadOnly(): None, ReadOnly(): None})
        with anyio.move_on_after(600):
            await watch_clock(cast(Session, session), cast(ProcessContext, shared))

    run(main, seed=0)
    assert len(asked) < 60


def _five_seconds_ahead() -> SimpleNamespace:
    """Return a session whose registry is behind this host's clock."""
    time = get_running_loop().time
    return SimpleNamespace(steady_time=time, compare_clocks=lambda _: (time(), 5.0, 0.0), outages=())
