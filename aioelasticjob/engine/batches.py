"""The batches of a dataflow: calls of its handlers, offsets, queues of batches, and workers that call ``process``.

The handlers are called in the loop, a thread or a process, with retries and time limits.  A record costs no task, no
queue entry and no scope, because the workers share the iterator of its batch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from operator import length_hint
from typing import Any, TypeAlias

from anyio.abc import TaskGroup

from aioelasticjob.engine.cancellation import HandlerScope, handler_scope
from aioelasticjob.engine.execution import Execution, never_began
from aioelasticjob.engine.offsets import encoded
from aioelasticjob.errors import Fenced, InvalidSetting, leaf_errors
from aioelasticjob.ground.rates import IDLE, Load
from aioelasticjob.host.user_code import UserCode
from aioelasticjob.jobs.base import Handler
from aioelasticjob.jobs.context import Checkpoints, Context
from aioelasticjob.jobs.dataflow import Dataflow
from aioelasticjob.jobs.dependencies import provided
from aioelasticjob.jobs.inspection import is_async
from aioelasticjob.observers.tracing import BatchSpan

MAX_TURN_SECONDS = 0.005
"""Seconds after which a worker lets other tasks run, if ``process`` never waits for anything."""
RECORDS_PER_CLOCK_CHECK = 16
"""How many records a worker processes between two looks at the time."""

Call: TypeAlias = Callable[..., Awaitable[object]]
Batches: TypeAlias = AsyncGenerator[Sequence[object], None]
Given: TypeAlias = dict[str, Any]
"""The values that providers have made for one handler, by the names of its arguments."""


class Batch:
    """Records that were fetched together."""

    def __init__(self, queue: BatchQueue, records: Sequence[object], step: int | None, offsets: dict[int, str]) -> None:
        self.queue = queue
        self.offsets = offsets
        self.size = len(records)
        self.step = step or 1
        calls = records
        if step is not None:
            calls = [records[at : at + step] for at in range(0, self.size, step)]
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
        left = min(self.size, self.left * self.step)
        waiting = min(self.size, length_hint(self.waiting) * self.step)
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
        before = self._counted
        open_counts = [batch.counts() for batch in self.open]
        self._counted = _sum([self._passed, *open_counts])
        return self._counted[0] - before[0], self._counted[1] - before[1]

    def load(self) -> Load:
        """Return how many records are being processed, how many wait, and the lag in seconds."""
        batches = tuple(self.open)  # a copy, because the caller may be in another thread
        if not batches:
            return IDLE
        processed, waiting = _sum([batch.on_the_way() for batch in batches])
        return Load(processed, waiting, self.time() - batches[0].fetched)


def _sum(pairs: Sequence[tuple[int, int]]) -> tuple[int, int]:
    first, second = zip(*pairs, strict=True)
    return sum(first), sum(second)


class Workers:
    """Tasks that share a queue of batches: as many as there are calls to make, at most ``limit``."""

    def __init__(
        self, tasks: TaskGroup, limit: int, under_way: dict[asyncio.Task[object], Context], ended: Callable[[], None]
    ) -> None:
        self._tasks = tasks
        self._limit = limit
        self._under_way = under_way
        self._ended = ended
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
        queue = batch.queue
        time = self._loop.time
        door = UserCode("process")
        call = queue.call
        context = queue.context
        rested = time()
        for calls, record in enumerate(batch.waiting, 1):
            why: Exception | None = None
            try:
                failed = await call(context, record) is False
            except BaseException as error:
                why = await door.failure(error)
                failed = True
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


class Position:
    """The offsets as ``fetch`` sees them.

    An offset that ``fetch`` saves belongs to the batch that it returns next.  It is written to the registry once all
    records of that batch have been processed.
    """

    def __init__(self, saved: Checkpoints) -> None:
        self._saved = saved
        self._said: dict[int, str] = {}
        self._new: dict[int, str] = {}
        self.over = False
        """Whether the run is over, so that offsets cannot be saved any more."""

    @property
    def known(self) -> bool:
        """Whether ``fetch`` saves offsets.  If so, it does not return records again that are still being processed."""
        return bool(self._said)

    def get(self, item: int) -> str | None:
        """Return the offset that ``fetch`` has saved last in this run, or else the one in the registry."""
        return self._said[item] if item in self._said else self._saved.get(item)

    async def save(self, item: int, value: str) -> None:
        """Note an offset for the next batch.

        Raises:
            Fenced: the run is over.
            InvalidSetting: the value is not text, or too large.
        """
        encoded(value)
        if self.over:
            raise Fenced(item)
        self._said[item] = self._new[item] = value

    def take(self) -> dict[int, str]:
        """Return the offsets that ``fetch`` has saved since the last call of this method."""
        new = self._new
        self._new = {}
        return new


class HandlerCalls:
    """The handlers of a dataflow, as one execution calls them."""

    def __init__(self, flow: Dataflow[Any], execution: Execution) -> None:
        self._flow = flow
        self._execution = execution
        self._config = execution.config
        self._process, self._dead = flow.handlers
        declared = flow.config.batch_size  # the code says whether process takes lists, operators say of which length
        self.step = declared and (self._config.batch_size or declared)
        """The number of records that ``process`` takes as a list; None if it takes them one by one."""

    def provided(self, context: Context) -> AbstractAsyncContextManager[tuple[Given, ...]]:
        """Return a context manager with the handlers' other arguments: one value of each provider for a whole run."""
        if not any(self._flow.needs):
            return nullcontext(({}, {}, {}))
        return provided(context, self._execution.executors.overrides, *self._flow.needs)

    async def batches(self, context: Context, given: Given) -> Batches:
        """Yield the batches of ``fetch``: all batches of a generator; one of a function, or more if streaming."""
        if self._flow.generates:
            async with _closing(self._flow.fetch(context, **given)) as generator:
                async for found in generator:
                    yield _checked(found)
            return
        fetch = self._awaitable(self._flow.sendable, given)
        yield _checked(await fetch(context))
        while self._config.streaming:
            yield _checked(await fetch(context))

    def fetch_scope(self, context: Context) -> HandlerScope:
        """Return a scope that can cancel the call of ``fetch`` in the current task, and that names it if it goes on."""
        fetch = self._flow.fetch
        is_awaited = self._flow.generates or is_async(self._flow.fetch)
        named = fetch if is_awaited else None
        return handler_scope(named, context, self._execution.limited_log)

    def process(self, given: Given) -> Call:
        """Return ``process`` with its retries; ``record_timeout`` limits each attempt, not what it waits for."""
        executors = self._execution.executors
        executor = self._config.executor
        limit = self._config.record_timeout
        process = self._process
        is_plain = not is_async(process)
        named = None if is_plain else process
        once: Call = partial(executors.call_now, executor, process) if is_plain else process
        once = partial(once, **given) if given else once

        async def within(context: Context, record: Any) -> object:
            with handler_scope(named, context, self._execution.limited_log, limit) as scope:
                returned = await once(context, record)
            if scope.cancel_called:  # also if a thread went on to its end
                raise TimeoutError(f"`process` took longer than record_timeout = {limit:g} s{never_began(scope)}")
            return returned

        async def in_place(context: Context, record: Any) -> object:
            async with executors.place(executor, context):
                if executor == "process" and limit is not None:
                    await executors.processes.prepare(process)
                return await limited(context, record)

        limited = once if limit is None else within
        call = in_place if is_plain else limited
        retry = self._config.retry or self._flow.retry  # a file's or an operator's, or else that of the code
        return call if retry is None else retry.wraps(call)

    def dead(self, given: Given) -> Call | None:
        """Return the handler for records whose last attempt has failed, or None if there is none."""
        return self._dead and self._awaitable(self._dead, given)

    def _awaitable(self, handler: Handler, given: Given) -> Call:
        """Return the handler if it is async, else a function that runs it in a thread or a process."""
        if not is_async(handler):
            return partial(self._execution.executors.call, self._config.executor, handler, **given)
        return partial(handler, **given) if given else handler


@asynccontextmanager
async def _closing(generator: AsyncGenerator[object, None]) -> AsyncIterator[AsyncGenerator[object, None]]:
    """Close a generator at the end.

    If the generator is inside a task group, the group wraps GeneratorExit in an exception group; it is unwrapped here.
    """
    try:
        yield generator
    finally:
        try:
            await generator.aclose()
        except BaseExceptionGroup as group:
            others = [error for error in leaf_errors(group) if not isinstance(error, GeneratorExit)]
            if others:
                raise BaseExceptionGroup(group.message, others) from None


def _checked(found: object) -> Sequence[object]:
    """Return the records that ``fetch`` returned, as a list or an empty tuple.

    Raises:
        InvalidSetting: the value is not a batch.
    """
    if found is None or (isinstance(found, tuple) and not found):
        return ()
    if isinstance(found, tuple | str | bytes | bytearray) or not isinstance(found, Sequence):
        raise InvalidSetting("fetch", found, "must hand out lists of records, or None when there are none left")
    return found if type(found) is list else list(found)  # methods of a user's own class could raise later
