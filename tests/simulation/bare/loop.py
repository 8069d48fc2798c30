"""A virtual loop on which a seed decides whose step is next.

Each process of a real cluster runs its own callbacks in the order in which they were scheduled; nothing but chance says
which process is faster.  So there is one queue for each process, and the dice choose among them.  Time creeps on with
every callback, and jumps to the next timer when nothing is ready.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from random import Random

from aioelasticjob.testing.errors import Deadlock, Livelock
from aioelasticjob.testing.loop import VirtualLoop
from aioelasticjob.testing.process import Process, current_process

SLOWEST = 0.001
"""Seconds that one callback takes at most."""
MOST = 300_000
"""Callbacks that a whole life takes at most; more are an endless loop."""


class SteppedLoop(VirtualLoop):
    """Runs one callback at a time, of the process that the dice choose."""

    def __init__(self, dice: Random, *, start: float) -> None:
        super().__init__(start=start)
        self._dice = dice
        self._queues = _Queues()
        self._ready = self._queues  # type: ignore[assignment]  # what the base class does with it, the queues do
        self.steps = 0
        """Callbacks that have run so far."""

    def _run_once(self) -> None:
        self._come_due()
        queues = self._queues.open()
        if not queues:
            self._jump()
            return
        handle = queues[self._dice.randrange(len(queues))].popleft()
        if not handle._cancelled:
            self.steps += 1
            if self.steps > MOST:
                raise Livelock(f"more than {MOST} steps; the next one is {handle}")
            self._now += SLOWEST * self._dice.random()
            handle._run()

    def _come_due(self) -> None:
        while self._scheduled and self._scheduled[0]._when <= self._now:  # type: ignore[attr-defined]
            timer = heapq.heappop(self._scheduled)
            timer._scheduled = False  # type: ignore[attr-defined]
            self._queues.append(timer)

    def _jump(self) -> None:
        if not self._scheduled:
            raise Deadlock([])
        self._now = max(self._now, self._scheduled[0]._when)  # type: ignore[attr-defined]


class _Queues:
    """What is ready, by process; None is the world outside of all processes."""

    def __init__(self) -> None:
        self._by_process: dict[Process | None, deque[asyncio.Handle]] = {None: deque()}

    def open(self) -> list[deque[asyncio.Handle]]:
        """Return the queues of those who may take a step; the dead are forgotten."""
        for process in [one for one in self._by_process if one is not None and not one.alive]:
            del self._by_process[process]
        queues = self._by_process.items()
        return [queue for process, queue in queues if queue and not (process is not None and process.paused)]

    def append(self, handle: asyncio.Handle) -> None:
        """Put a callback behind the others of its process, unless that is dead."""
        process = current_process(handle._context)  # type: ignore[attr-defined]
        if process is None or process.alive:
            self._by_process.setdefault(process, deque()).append(handle)

    def extendleft(self, handles: Iterable[asyncio.Handle]) -> None:
        """Put callbacks before the others of their processes."""
        for handle in handles:
            self._by_process.setdefault(current_process(handle._context), deque()).appendleft(handle)  # type: ignore[attr-defined]

    def clear(self) -> None:
        """Forget all of them."""
        self._by_process.clear()

    def __len__(self) -> int:
        return sum(map(len, self._by_process.values()))

    def __iter__(self) -> Iterator[asyncio.Handle]:
        return (handle for queue in self._by_process.values() for handle in queue)
