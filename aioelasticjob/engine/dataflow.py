"""The engine of dataflow jobs: it fetches batch after batch, processes the records, and saves the offset after them.

Everything is bounded: at most ``concurrency`` calls of ``process`` run at a time, and each queue has at most one batch
that is being processed and one that was fetched ahead.  There is a queue for each item, or one for all items.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from anyio import CancelScope, create_task_group, sleep
from anyio.abc import TaskGroup

from aioelasticjob.engine.batches import Batch, Batches, BatchQueue, Call, Given, HandlerCalls, Position, Workers
from aioelasticjob.engine.cancellation import HandlerScope
from aioelasticjob.engine.early_end import StreamControl, is_to_end
from aioelasticjob.engine.execution import Execution
from aioelasticjob.errors import RegistryError
from aioelasticjob.ground.plural import counted
from aioelasticjob.ground.rates import Flowed
from aioelasticjob.host.user_code import UserCode, cancellation_behind
from aioelasticjob.jobs.base import Handler, instance_context, item_context
from aioelasticjob.jobs.context import ItemContext
from aioelasticjob.jobs.dataflow import Dataflow, RecordFailed, RetryStrategy, TooManyFailures
from aioelasticjob.jobs.executors import pickled
from aioelasticjob.jobs.inspection import is_async
from aioelasticjob.model import Outcome

REPORT_INTERVAL = 1.0
"""Seconds between two counts of the processed records, and between two ``Flowed`` events."""
FETCH_GRACE = 5.0
"""When the run is to end, a call of ``fetch`` is cancelled after at most so many seconds."""


@dataclass(frozen=True, slots=True)
class DataflowEngine:
    """Runs the executions of a dataflow job."""

    flow: Dataflow[Any]

    @property
    def handlers(self) -> tuple[Handler, ...]:
        """Fetch, process, and dead if there is one."""
        process, dead = self.flow.handlers
        return tuple(one for one in (self.flow.fetch, process, dead) if one is not None)

    @property
    def retry(self) -> RetryStrategy | None:
        """How often a record is tried, if code says so beside the settings."""
        return self.flow.retry

    def check(self, executor: str) -> bool:
        """Check that the dataflow is complete, and return whether any of its handlers is a plain function.

        Raises:
            InvalidSetting: it has no ``process``, or the executor is ``process`` and a handler cannot be pickled.
        """
        process, dead = self.flow.handlers
        fetch = None if self.flow.generates else self.flow.sendable
        plain = [one for one in (fetch, process, dead) if one is not None and not is_async(one)]
        if executor == "process":
            for handler in plain:
                pickled(handler)
        return bool(plain)

    async def __call__(self, execution: Execution) -> None:
        """Fetch and process until there are no more records, or the run is to end; note each item's outcome."""
        await _DataflowRun(self.flow, execution).run()


class _DataflowRun:
    """One execution of a dataflow job."""

    def __init__(self, flow: Dataflow[Any], execution: Execution) -> None:
        assert execution.stream_control is not None  # as for every job with an engine
        self._execution = execution
        self._stream_control = execution.stream_control
        self._config = execution.config
        calls = HandlerCalls(flow, execution)
        self._feeds = [Feed(queue, calls, execution, self._stream_control) for queue in self._queues()]
        self._turns = nullcontext() if execution.turns is None else execution.turns
        """Limits how many items are fetched and processed side by side."""
        self._left = set(self._feeds)
        """The feeds that have not ended."""
        self._worker_groups: list[Workers] = []
        self._over = asyncio.Event()
        """Set when no feed and no worker is left."""
        self._tasks: TaskGroup
        self._limit: HandlerScope

    async def run(self) -> None:
        """Run the whole execution."""
        timeout = self._config.timeout
        try:
            with self._execution.scope_of_all(timeout) as self._limit:
                self._execution.enter(self._limit, self._execution.claim.items)
                async with create_task_group() as self._tasks:
                    self._tasks.start_soon(self._count)
                    if self._config.streaming:
                        self._tasks.start_soon(self._watch)
                        self._tasks.start_soon(self._end_fetching)
                    self._start_feeds()
                    with CancelScope(shield=True):  # the group itself must not be cancelled: see execution.py
                        await self._over.wait()
                    self._tasks.cancel_scope.cancel()
            if self._limit.cancel_called:
                if self._execution.to_stop:
                    outcome = Outcome.STOPPED
                    over_time = None
                else:
                    outcome = Outcome.TIMED_OUT
                    over_time = TimeoutError(f"the run took longer than {timeout:g} s")
                for feed in self._feeds:
                    if self._execution.outcomes.keys().isdisjoint(feed.queue.context.claimed):
                        feed.end(outcome, over_time)
        finally:
            self._publish_counts()
            for feed in self._feeds:
                feed.close()

    def _queues(self) -> list[BatchQueue]:
        """Return the queues of this execution: one for each item, or one for all items."""
        config = self._config
        claim = self._execution.claim
        saved = self._execution.checkpoints
        if config.per == "instance":
            return [BatchQueue(instance_context(config, claim, saved))]
        return [BatchQueue(item_context(config, claim, item, saved)) for item in sorted(claim.items)]

    def _start_feeds(self) -> None:
        """Start the feeds.  Each has one worker of its own if its records stay in order; otherwise they share all."""
        limit = 1 if self._config.ordered else self._config.concurrency
        for feed in self._feeds:
            if self._config.ordered or not self._worker_groups:
                self._worker_groups.append(Workers(self._tasks, limit, self._execution.under_way, self._look_if_over))
            self._tasks.start_soon(self._run_feed, feed, self._worker_groups[-1])

    async def _run_feed(self, feed: Feed, workers: Workers) -> None:
        try:
            async with self._turns:
                await feed.run(workers, self._limit)
        finally:
            self._left.discard(feed)
            if not self._left:
                for workers in self._worker_groups:
                    workers.close()
            self._look_if_over()

    def _look_if_over(self) -> None:
        if not self._left and not any(workers.size for workers in self._worker_groups):
            self._over.set()

    async def _count(self) -> None:
        while True:
            await sleep(REPORT_INTERVAL)
            self._publish_counts()

    def _publish_counts(self) -> None:
        """Count the records processed since the last call, and put a ``Flowed`` event if anybody reads events."""
        for feed in self._feeds:
            feed.count()
        if self._stream_control.events.heard:
            rates = tuple(feed.meter.read() for feed in self._feeds)
            self._stream_control.events.put(Flowed(self._config.job_name, self._execution.claim.instance, rates))

    async def _watch(self) -> None:
        """Wait until a view says that the run is to end, then set ``end``."""
        stream_control = self._stream_control
        claim = self._execution.claim
        await stream_control.views.until(lambda now: is_to_end(stream_control.view, now, claim))
        stream_control.end.set()

    async def _end_fetching(self) -> None:
        """When the run is to end, wake the feeds that wait, and cancel each call of ``fetch`` that takes too long.

        A call may begin later, because every run fetches at least one batch.
        """
        await self._stream_control.end.wait()
        for feed in self._feeds:
            feed.queue.news.set()
        while True:
            await sleep(FETCH_GRACE)
            for feed in self._feeds:
                feed.cancel_fetch()


class Feed:
    """Supplies the workers with the records of one queue."""

    def __init__(
        self, queue: BatchQueue, calls: HandlerCalls, execution: Execution, stream_control: StreamControl
    ) -> None:
        self.queue = queue
        self._calls = calls
        self._stream_control = stream_control
        self._execution = execution
        self._config = execution.config
        self._tracer = execution.executors.tracer
        item = queue.context.item if isinstance(queue.context, ItemContext) else None
        self.meter = stream_control.events.rates.meter(self._config.job_name, item)
        self.meter.begin(queue.load)
        self._position = Position(queue.context.checkpoints)
        self._failed = 0
        """The number of records whose last attempt has failed."""
        self._is_fetching = False
        """Whether a call of ``fetch`` is running."""
        self._fetch_scope: HandlerScope
        """The scope that cancels the calls of ``fetch``."""
        self._is_exhausted = False
        """Whether ``fetch`` has returned that there are no more records."""

    async def run(self, workers: Workers, limit: HandlerScope) -> None:
        """Fetch and process all records of the queue, in one span if runs are traced.

        ``limit`` is the scope of the whole execution.  It is cancelled after its timeout, or when somebody asks for it.
        """
        if self._tracer is None:
            await self._to_the_end(workers)
            return
        with self._tracer.run(self.queue.context, self._config.job_type) as ended:
            try:
                ended(await self._to_the_end(workers))
            except asyncio.CancelledError:
                if limit.cancel_called:
                    ended(Outcome.STOPPED if self._execution.to_stop else Outcome.TIMED_OUT)
                raise
            finally:
                for batch in self.queue.open:  # those that will not be processed to their end
                    batch.end_span()

    def end(self, outcome: Outcome, failure: Exception | None) -> None:
        """Note the outcome of the queue's items."""
        context = self.queue.context
        execution = self._execution
        execution.outcomes.update(dict.fromkeys(context.claimed, outcome))
        if failure is not None:
            if self._tracer is not None:
                self._tracer.failed(failure)
            execution.failed(context, failure)
        if execution.trace is not None:
            execution.trace.ended(context.claimed, outcome)
        if execution.items_ended is not None:
            execution.items_ended(execution, context.claimed)

    def count(self) -> None:
        """Count the records processed since the last call."""
        meter = self.meter
        run_counts = self._stream_control.run_counts
        succeeded, failed = self.queue.count()
        meter.succeeded += succeeded
        meter.failed += failed
        run_counts.succeeded += succeeded
        run_counts.failed += failed
        meter.sample()

    def cancel_fetch(self) -> None:
        """Cancel the call of ``fetch`` that is running, if there is one."""
        if self._is_fetching:
            self._fetch_scope.cancel()

    def close(self) -> None:
        """Refuse further offsets, and stop measuring."""
        self._position.over = True
        self.meter.end()

    async def _to_the_end(self, workers: Workers) -> Outcome:
        queue = self.queue
        execution = self._execution
        failure: Exception | None = None
        if (task := asyncio.current_task()) is not None:
            execution.under_way[task] = queue.context
        if execution.trace is not None:
            execution.trace.started(queue.context)
        try:
            async with (
                UserCode("a provider of arguments, or the retry strategy,"),
                self._calls.provided(queue.context) as (for_fetch, for_process, for_dead),
            ):
                queue.call = self._calls.process(for_process)
                queue.fail = partial(self._fail, self._calls.dead(for_dead))
                failure = await self._flow(workers, for_fetch)
        except Exception as error:
            failure = failure or error
        if failure is None and self._has_failed():
            failure = TooManyFailures(self._failed, self._config.max_failures or 0)
        if failure is None and not self._is_exhausted:
            execution.unfinished = execution.unfinished.union(queue.context.claimed)
        outcome = Outcome.COMPLETED if failure is None else Outcome.FAILED
        self.end(outcome, failure)
        return outcome

    async def _flow(self, workers: Workers, given: Given) -> Exception | None:
        """Fetch until there are no more records or the run is to end, process all, and return the first error."""
        failure: Exception | None = None
        try:
            async with UserCode("fetch"):
                with self._calls.fetch_scope(self.queue.context) as self._fetch_scope:
                    await self._fetch_all(workers, given)
        except Exception as error:
            is_cut = self._fetch_scope.cancel_called and cancellation_behind(error) is not None
            failure = None if is_cut else error
        try:
            await self._drain()
        except RegistryError as error:
            failure = failure or error
        return failure

    async def _fetch_all(self, workers: Workers, given: Given) -> None:
        queue = self.queue
        prefetch = self._config.prefetch
        context = replace(queue.context, checkpoints=self._position)
        async with aclosing(self._calls.batches(context, given)) as batches:
            while records := await self._next(batches):
                workers.put(self._take(records))
                ahead = self._position.known if prefetch is None else prefetch
                while len(queue.open) > ahead and not self._is_over():
                    await queue.changed()
                await self._save()
                if self._is_over():  # checked after the first batch, so that every run processes at least one
                    break
            await self._drain()  # before the generator is closed: records may need its connection or file
            queue.due |= self._position.take()
            self._is_exhausted = not records

    async def _next(self, batches: Batches) -> Sequence[object]:
        """Return the next batch; it is empty at the end."""
        self._is_fetching = True
        try:
            return await anext(batches)
        except StopAsyncIteration:  # not anext(batches, ()): in CPython 3.11 that raises SystemError
            return ()
        finally:
            self._is_fetching = False

    def _take(self, records: Sequence[object]) -> Batch:
        batch = self.queue.take(records, self._calls.step, self._position.take())
        if self._tracer is not None:
            batch.span = self._tracer.batch(self.queue.context, batch.size)
        return batch

    async def _fail(self, dead: Call | None, batch: Batch, record: Any, error: Exception | None) -> int:
        """Pass the record (or list) of a failed call of ``process`` to ``dead``; return how many records it was."""
        queue = self.queue
        records = 1 if self._calls.step is None else len(record)
        part = "a record" if self._calls.step is None else f"a list of {counted(records, 'record')}"
        self._failed += records
        if error is not None:
            self._report_once(batch, part, error)
        if dead is None:
            return records
        try:
            async with UserCode("dead"):
                await dead(queue.context, record, error or RecordFailed())
            self.meter.dead += records
        except Exception as own:
            self._report_once(batch, f"the call of `dead` for {part}", own, of="dead")
        return records

    def _report_once(self, batch: Batch, part: str, error: Exception, of: str = "process") -> None:
        """Report only the first failure of each handler in a batch: a million stacks in the log help nobody."""
        if of in batch.reported:
            return
        batch.reported += (of,)
        if self._tracer is not None:
            self._tracer.failed(error)
        self._execution.report_error(self.queue.context, error, part=part, run_goes_on=not self._has_failed())

    def _is_over(self) -> bool:
        """Whether no further batch is to be fetched."""
        return (self._config.streaming and self._stream_control.end.is_set()) or self._has_failed()

    def _has_failed(self) -> bool:
        return self._config.max_failures is not None and self._failed > self._config.max_failures

    async def _drain(self) -> None:
        """Wait until all batches are processed, and save their offsets."""
        while self.queue.open:
            await self.queue.changed()
        await self._save()

    async def _save(self) -> None:
        due = self.queue.due
        self.queue.due = {}
        for item, value in due.items():
            await self._execution.checkpoints.save(item, value)
