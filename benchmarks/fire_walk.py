"""The way that one fire takes through the package: files it enters, calls it makes, moves from file to file.

One job of one item is monitored and has an async handler; the server is a process of its own.  Events
are those of ``sys.setprofile`` in the package's code; the handler and other libraries do not count.

* A *call* is one 'call' event of a function of the package: each coroutine and generator that is resumed is one more,
  so each wait costs as many as there are coroutines that wait for each other.
* A *file* is entered when one of its functions is called or resumed.
* A *move* is control coming to another file of the package than it was in before, by a call or by a return: a function
  that calls one of another file, which returns, makes two moves.  What lies between in other libraries' code does not
  interrupt the sequence.  Of these, *moves by a call* are seen by calls alone: each call of a function that is in
  another file than the call before it.

The job fires in every other second.  The second around its moment holds the claim, the handler and the settlement; the
second after it is the baseline: what this process does anyway.  A fire's figures are what its second has more than the
usual second without, and a file is a fire's if more calls are made into it.  All are medians over many fires: a
heartbeat comes once in five seconds, so the median is that of a second without.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median_low
from types import CodeType, FrameType
from typing import Any, Final

import uvloop

import aioelasticjob
from aioelasticjob import ElasticJob, ItemContext
from benchmarks.report import Figure
from benchmarks.servers import embedded_server
from benchmarks.worker import started

NAME: Final = "the way of one fire"
PACKAGE: Final = Path(aioelasticjob.__file__).parent
WARM: Final = 1
"""Fires before the first that counts."""
INNER: Final = ("core", "engine")


@dataclass(slots=True)
class Walk:
    """What was entered within a window."""

    calls: Counter[str] = field(default_factory=Counter)
    """By file, the path within the package."""
    moves: int = 0
    moves_by_call: int = 0
    _at: str = ""
    """The file that control was in last."""
    _called: str = ""
    """The file of the last function called."""

    def call(self, file: str) -> None:
        """Note that a function of a file is called or resumed."""
        self.calls[file] += 1
        self.moves_by_call += self._called not in ("", file)
        self._called = file
        self.reach(file)

    def reach(self, file: str) -> None:
        """Note that control is in a file now."""
        self.moves += self._at not in ("", file)
        self._at = file

    def within(self, *folders: str) -> int:
        """Return how many files of these folders were entered."""
        return sum(file.partition("/")[0] in folders for file in self.calls)

    def beyond(self, usual: Walk) -> Walk:
        """Return what is more here than usual."""
        moves, by_call = self.moves - usual.moves, self.moves_by_call - usual.moves_by_call
        return Walk(self.calls - usual.calls, max(0, moves), max(0, by_call))


def measure(*, quick: bool) -> Iterator[Figure]:
    """Yield the figures."""
    with embedded_server() as server, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        fires, idle = runner.run(_walks(f"zk://{server.address}/walk", 1 if quick else 21))
    usual = _usual(idle)
    yield from _figures("1 job × 1 item, a fire", [walk.beyond(usual) for walk in fires], ("≤ 14", "≤ 20", "≤ 70"))
    yield from _figures("the same, a second without a fire", idle, ("", "", ""))


def _usual(walks: list[Walk]) -> Walk:
    files = {file for walk in walks for file in walk.calls}
    calls = Counter({file: median_low(walk.calls[file] for walk in walks) for file in files})
    by_call = median_low(walk.moves_by_call for walk in walks)
    return Walk(calls, median_low(walk.moves for walk in walks), by_call)


def _figures(case: str, walks: list[Walk], goals: tuple[str, str, str]) -> Iterator[Figure]:
    inner, everywhere, moves = goals
    figures = (
        ("files in core and engine", [walk.within(*INNER) for walk in walks], inner),
        ("files without registry", [len(walk.calls) - walk.within("registry") for walk in walks], ""),
        ("files in all", [len(walk.calls) for walk in walks], everywhere),
        ("calls", [walk.calls.total() for walk in walks], ""),
        ("moves from file to file", [walk.moves for walk in walks], moves),
        ("moves from file to file by a call", [walk.moves_by_call for walk in walks], ""),
    )
    for name, values, goal in figures:
        yield Figure(NAME, case, name, median_low(values), "", goal)


async def _walks(address: str, count: int) -> tuple[list[Walk], list[Walk]]:
    """Return the seconds with a fire and those without."""
    fired = list[int]()
    app = ElasticJob(address)

    async def handler(context: ItemContext) -> None:
        fired.append(context.fire.slot)

    app.add(handler, name="job", cron="0/2 * * * * ?")
    fires, idle = list[Walk](), list[Walk]()
    async with started(app, spared=False):
        while len(fired) < WARM:
            await asyncio.sleep(0.05)
        moment = fired[-1] / 1000 + 2
        await _until(moment - 0.5)
        while len(fires) < count:
            before = len(fired)
            with walked() as around:
                await _until(moment + 0.5)
            with walked() as after:
                await _until(moment + 1.5)
            moment += 2
            if len(fired) == before + 1:  # no less and no more, whatever else the machine had to do
                fires.append(around)
                idle.append(after)
    return fires, idle


async def _until(moment: float) -> None:
    await asyncio.sleep(moment - time.time())


@contextmanager
def walked() -> Iterator[Walk]:
    """Note the calls and moves of this thread while the block is open."""
    walk, known = Walk(), dict[CodeType, str]()

    def file_of(frame: FrameType) -> str:
        code = frame.f_code
        if (file := known.get(code)) is None:
            path = Path(code.co_filename)
            file = known[code] = str(path.relative_to(PACKAGE)) if path.is_relative_to(PACKAGE) else ""
        return file

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and (file := file_of(frame)):
            walk.call(file)
        elif event == "return" and frame.f_back is not None and (file := file_of(frame.f_back)):
            walk.reach(file)

    sys.setprofile(note)
    try:
        yield walk
    finally:
        sys.setprofile(None)
