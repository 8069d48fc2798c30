"""The batches of a dataflow: queues that hold them, and workers that call ``process`` for their records.

A record costs no task, no queue entry and no scope, because the workers share the iterator of its batch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import nullcontext
from operator import length_hint
from typing import Any, TypeAlias

from anyio.abc import TaskGroup

from aioelasticjob.jobs.context import Context
from aioelasticjob.observers.tracing import BatchSpan
from aioelasticjob.rates import IDLE, Load
from aioelasticjob.user_code import UserCode

MAX_TURN_SECONDS = 0.005
"""Seconds after which a worker lets other tasks run, if ``process`` never waits for anything."""
RECORDS_PER_CLOCK_CHECK = 16
"""How many records a worker processes between two looks at the time."""

Call: TypeAlias = Callable[..., Awaitable[object]]


class Batch:
    """Records that were fetched together."""

    def __init__(self, queue: BatchQueue, records: Sequence[object], step: int | None, offsets: dict[int, str]) -> None:
        self.queue, self.offsets = queue, offsets
        self.size, self.step = len(records), step or 1
        calls = records if step is None else [records[at : at + step] for at in range(0, self.size, step)]
        self.waiting: Iterator[Any] = iter(calls)
        self.left = len(calls)
        """The number of calls of ``process`` that have not ended."""
        self.failed = 0
        """The number of records whose last attempt has failed."""
        self.fetched = queue.time()
        self.reported: tuple[str, ...] = ()
        """The handlers whose failure with this batch has been reported."""
        self.span: BatchSpan | None = None

    def end_span(self) -> None:
        """End the batch's span, if it has one that has not ended."""
        if self.span is not None:
            self.span.end(self.failed)
            self.span = None

    def on_the_way(self) -> tuple[int, int]:
        """Return how many records are being processed, and how many wait."""
        left, waiting = (min(self.size, calls * self.step) for calls in (self.left, length_hint(self.waiting)))
        return max(0, left - waiting), waiting

    def counts(self) -> tuple[int, int]:
        """Return how many records have succeeded, and how many have failed."""
        through = self.size - min(self.size, self.left * self.step)
        return max(0, through - self.failed), self.failed


class BatchQueue:
    """The records of one context: at most one batch that is being processed, and one fetched ahead."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.time = asyncio.get_running_loop().time
        self.call: Call
        """Calls ``process`` for this queue."""
        self.fail: Callable[[Batch, Any, Exception | None], Awaitable[int]]
        """Is called for each call of ``process`` whose last attempt has failed."""
        self.open: deque[Batch] = deque()
        """The batches that have unprocessed records, oldest first."""
        self.due: dict[int, str] = {}
        """The offsets that can be saved now, because all records before them have been processed."""
        self.news = asyncio.Event()
        self._passed = self._counted = (0, 0)
        """How many records of finished batches have succeeded and failed; the same of all batches at the last count."""

    async def changed(self) -> None:
        """Wait until a batch has been processed, or the run is to end."""
        self.news.clear()
        await self.news.wait()

    def take(self, records: Sequence[object], step: int | None, offsets: dict[int, str]) -> Batch:
        """Return the next batch, with the ``offsets`` that ``fetch`` has saved for it."""
        batch = Batch(self, records, step, offsets)
        self.open.append(batch)
        return batch

    def through(self) -> None:
        """Note that a batch has been processed: the offsets of all batches before the first unfinished one are due."""
        while self.open and not self.open[0].left:
            batch = self.open.popleft()
            batch.end_span()
            self._passed = _sum([self._passed, batch.counts()])
            self.due |= batch.offsets
        self.news.set()

    def count(self) -> tuple[int, int]:
        """Return how many records have succeeded and how many have failed since the last call of this method."""
        before, self._counted = self._counted, _sum([self._passed, *(batch.counts() for batch in self.open)])
        return self._counted[0] - before[0], self._counted[1] - before[1]

    def load(self) -> Load:
        """Return how many records are being processed, how many wait, and the lag in seconds."""
        batches = tuple(self.open)  # a copy, because the caller may be in another thread
        if not batches:
            return IDLE
        return Load(*_sum([batch.on_the_way() for batch in batches]), self.time() - batches[0].fetched)


def _sum(pairs: Sequence[tuple[int, int]]) -> tuple[int, int]:
    first, second = zip(*pairs, strict=True)
    return sum(first), sum(second)


class Workers:
    """Tasks that share a queue of batches: as many as there are calls to make, at most ``limit``."""

    def __init__(
        self, tasks: TaskGroup, limit: int, under_way: dict[asyncio.Task[object], Context], ended: Callable[[], None]
    ) -> None:
        self._tasks, self._limit, self._under_way, self._ended = tasks, limit, under_way, ended
        self.size = 0
        """The number of workers.  ``ended`` is called whenever one ends."""
        self._queue: deque[Batch] = deque()
        self._parked: list[asyncio.Future[None]] = []
        self._closed = False
        self._loop = asyncio.get_running_loop()

    def put(self, batch: Batch) -> None:
        """Let the workers process a batch after the batches that wait already."""
        self._queue.append(batch)
        woken = min(batch.left, len(self._parked))
        self._wake(woken)
        for _ in range(min(batch.left - woken, self._limit - self.size)):
            self.size += 1
            self._tasks.start_soon(self._work)

    def close(self) -> None:
        """End the workers once the queue is empty: no further batch will come."""
        self._closed = True
        self._wake(len(self._parked))

    def _wake(self, number: int) -> None:
        for _ in range(number):
            parked = self._parked.pop()
            if not parked.done():
                parked.set_result(None)

    async def _work(self) -> None:
        queue = self._queue
        try:
            while queue or not self._closed:
                if queue:
                    batch = queue[0]
                    with nullcontext() if batch.span is None else batch.span.entered():
                        await self._drain(batch)
                    if queue and queue[0] is batch:
                        queue.popleft()
                else:
                    parked = self._loop.create_future()
                    self._parked.append(parked)
                    await parked
        finally:
            self.size -= 1
            self._ended()

    async def _drain(self, batch: Batch) -> None:
        """Process records of a batch until none is left.  Other workers take records from the same iterator."""
        if (task := asyncio.current_task()) is not None:
            self._under_way[task] = batch.queue.context
        queue, time, door = batch.queue, self._loop.time, UserCode("process")
        call, context, rested = queue.call, queue.context, time()
        for calls, record in enumerate(batch.waiting, 1):
            why: Exception | None = None
            try:
                failed = await call(context, record) is False
            except BaseException as error:
                failed, why = True, await door.failure(error)
            records = await queue.fail(batch, record, why) if failed else 0
            batch.left -= 1
            batch.failed += records  # together with what is left: the counts are read at any time
            if not batch.left:
                queue.through()
            if not calls % RECORDS_PER_CLOCK_CHECK and time() - rested > MAX_TURN_SECONDS:
                await door.tidy()
                await asyncio.sleep(0)
                rested = time()
        await door.tidy()
