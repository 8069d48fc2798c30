"""Records on their way through process: batches in lanes, and the workers that take them.

A record costs no task, no queue entry and no scope: the workers share the iterator of its batch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from operator import length_hint
from typing import Any, TypeAlias

from anyio.abc import TaskGroup

from aioelasticjob.coordination.progress import encoded
from aioelasticjob.jobs.context import Checkpoints, Context
from aioelasticjob.rates import IDLE, Load
from aioelasticjob.running.cancellation import HandlerScope
from aioelasticjob.running.executors import BatchSpan
from aioelasticjob.user_code import UserCode

MAX_TURN_SECONDS = 0.005
"""Seconds that a worker may go on without letting others run, when process never waits for anything."""
RECORDS_PER_CLOCK_CHECK = 15
"""A worker looks at the time after every 16 records."""

Call: TypeAlias = Callable[..., Awaitable[object]]
UnderWay: TypeAlias = dict[asyncio.Task[object], Context]
"""The handlers that have begun, by the tasks they run in."""


class Batch:
    """Records that were fetched together."""

    __slots__ = (
        *("complained", "failed", "fetched", "lane", "left", "offsets"),
        *("size", "span", "step", "told", "waiting"),
    )

    def __init__(self, lane: BatchQueue, records: Sequence[object], step: int | None, offsets: dict[int, str]) -> None:
        self.lane, self.offsets = lane, offsets
        self.size, self.step = len(records), step or 1
        calls = records if step is None else [records[at : at + step] for at in range(0, self.size, step)]
        self.waiting: Iterator[Any] = iter(calls)
        self.left = len(calls)
        """Calls of process that have not ended."""
        self.failed = 0
        """Records that have failed for good."""
        self.fetched = lane.time()
        self.told = (0, 0)
        self.complained: tuple[str, ...] = ()
        """Handlers whose failure with this batch has been told."""
        self.span: BatchSpan | None = None

    def on_the_way(self) -> tuple[int, int]:
        """Return how many records are in process, and how many wait."""
        left, waiting = (min(self.size, calls * self.step) for calls in (self.left, length_hint(self.waiting)))
        return max(0, left - waiting), waiting

    def news(self) -> tuple[int, int]:
        """Return how many records have succeeded and how many have failed since this was last asked."""
        through = self.size - min(self.size, self.left * self.step)
        counted, before = (max(0, through - self.failed), self.failed), self.told
        self.told = counted
        return counted[0] - before[0], counted[1] - before[1]


class Position:
    """The offsets as fetch sees them: what it says of the batch it hands out next holds once that batch is through."""

    def __init__(self, saved: Checkpoints) -> None:
        self._saved = saved
        self._said: dict[int, str] = {}
        self._new: dict[int, str] = {}
        self.over = False
        """Whether the run is over, so that nothing can be said any more."""

    @property
    def known(self) -> bool:
        """Whether fetch says offsets: then it does not meet again what is still in process."""
        return bool(self._said)

    def get(self, item: int) -> str | None:
        """Return the offset that fetch said last in this run, or else the one saved."""
        return self._said[item] if item in self._said else self._saved.get(item)

    async def save(self, item: int, value: str) -> None:
        """Note an offset for the next batch."""
        encoded(value)
        if self.over:
            await self._saved.save(item, value)  # which refuses it
        self._said[item] = self._new[item] = value

    def take(self) -> dict[int, str]:
        """Return what was said since this was last asked."""
        new, self._new = self._new, {}
        return new


class BatchQueue:
    """One context's records: at most one batch in process and one ahead."""

    def __init__(self, context: Context, fetching: Context, position: Position) -> None:
        self.context, self.fetching, self.position = context, fetching, position
        self.time = asyncio.get_running_loop().time
        self.call: Call
        """Process, awaitable, for this lane."""
        self.fail: Callable[[Batch, Any, Exception | None], Awaitable[None]]
        """Told of each call that has failed for good."""
        self.open: deque[Batch] = deque()
        """Batches that are not through, the oldest first."""
        self.due: dict[int, str] = {}
        """Offsets to be saved: all that lies before them is through."""
        self.failed = 0
        self.exhausted = False
        """Whether fetch has said that there is nothing more."""
        self.ended = False
        self.asking = False
        """Whether fetch is under way."""
        self.fetching_cut: HandlerScope
        """What cancels it."""
        self.news = asyncio.Event()
        self._passed = (0, 0)

    async def changed(self) -> None:
        """Wait until a batch is through, or somebody wants us to look."""
        self.news.clear()
        await self.news.wait()

    def take(self, records: Sequence[object], step: int | None) -> Batch:
        """Return the next batch, with what fetch has said of it."""
        batch = Batch(self, records, step, self.position.take())
        self.open.append(batch)
        return batch

    def through(self) -> None:
        """Note that a batch has ended: offsets are due up to the first that has not."""
        while self.open and not self.open[0].left:
            batch = self.open.popleft()
            if batch.span is not None:
                batch.span.end(batch.failed)
            succeeded, failed = batch.news()
            self._passed = self._passed[0] + succeeded, self._passed[1] + failed
            self.due |= batch.offsets
        self.news.set()

    def cut_off(self) -> None:
        """End the spans of batches that will not come to their end."""
        for batch in self.open:
            if batch.span is not None:
                batch.span.end(batch.failed)
                batch.span = None

    def count(self) -> tuple[int, int]:
        """Return how many records have succeeded and how many have failed since this was last asked."""
        succeeded, failed = self._passed
        for batch in self.open:
            more = batch.news()
            succeeded, failed = succeeded + more[0], failed + more[1]
        self._passed = (0, 0)
        return succeeded, failed

    def load(self) -> Load:
        """Return what is on its way."""
        batches = tuple(self.open)  # whoever asks may be in another thread
        if not batches:
            return IDLE
        counts = [batch.on_the_way() for batch in batches]
        lag = self.time() - batches[0].fetched
        return Load(sum(one[0] for one in counts), sum(one[1] for one in counts), lag)


class Workers:
    """Tasks that share a queue of batches: as many as there is work for, at most ``limit``."""

    def __init__(self, tasks: TaskGroup, limit: int, under_way: UnderWay, home: Callable[[], None]) -> None:
        self._tasks, self._limit, self._under_way, self._home = tasks, limit, under_way, home
        self.size = 0
        """How many there are; each one less is told by ``home``."""
        self._queue: deque[Batch] = deque()
        self._parked: list[asyncio.Future[None]] = []
        self._closed = False
        self._loop = asyncio.get_running_loop()

    def put(self, batch: Batch) -> None:
        """Let a batch be processed after those that wait."""
        self._queue.append(batch)
        woken = min(batch.left, len(self._parked))
        self._wake(woken)
        for _ in range(min(batch.left - woken, self._limit - self.size)):
            self.size += 1
            self._tasks.start_soon(self._work)

    def close(self) -> None:
        """Send the workers home, now that nothing more will come."""
        self._closed = True
        self._wake(len(self._parked))

    def _wake(self, number: int) -> None:
        for _ in range(number):
            parked = self._parked.pop()
            if not parked.done():
                parked.set_result(None)

    async def _work(self) -> None:
        try:
            await self._take_turns()
        finally:
            self.size -= 1
            self._home()

    async def _take_turns(self) -> None:
        queue = self._queue
        while True:
            if queue:
                batch = queue[0]
                if batch.span is None:
                    await self._drain(batch)
                else:
                    with batch.span.entered():
                        await self._drain(batch)
                if queue and queue[0] is batch:
                    queue.popleft()
            elif self._closed:
                return
            else:
                parked = self._loop.create_future()
                self._parked.append(parked)
                await parked

    async def _drain(self, batch: Batch) -> None:
        """Process records of a batch until none is left to begin with; others do the same with the same iterator."""
        if (task := asyncio.current_task()) is not None:
            self._under_way[task] = batch.lane.context
        lane, time, door = batch.lane, self._loop.time, UserCode("process")
        call, context, rested = lane.call, lane.context, time()
        for calls, record in enumerate(batch.waiting, 1):
            why: Exception | None = None
            try:
                failed = await call(context, record) is False
            except BaseException as error:
                failed, why = True, await door.failure(error)
            if failed:
                await lane.fail(batch, record, why)
            batch.left -= 1
            if not batch.left:
                lane.through()
            if not calls & RECORDS_PER_CLOCK_CHECK and time() - rested > MAX_TURN_SECONDS:
                await door.tidy()
                await asyncio.sleep(0)
                rested = time()
        await door.tidy()
