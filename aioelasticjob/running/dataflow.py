"""The engine of dataflow jobs: it fetches batch after batch, processes the records, and saves the offset after them.

Everything is bounded: at most ``concurrency`` calls of ``process`` run at a time, and each queue has at most one batch
that is being processed and one that was fetched ahead.  There is a queue for each item, or one for all items.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from anyio import CancelScope, CapacityLimiter, create_task_group, sleep
from anyio.abc import TaskGroup

from aioelasticjob.jobs.base import Handler, instance_context, item_context
from aioelasticjob.jobs.dataflow import Dataflow, RetryStrategy
from aioelasticjob.jobs.executors import pickled
from aioelasticjob.jobs.inspection import is_async
from aioelasticjob.model import Outcome
from aioelasticjob.rates import Flowed
from aioelasticjob.running.batches import BatchQueue, Workers
from aioelasticjob.running.cancellation import HandlerScope
from aioelasticjob.running.early_end import is_to_end
from aioelasticjob.running.execution import Execution
from aioelasticjob.running.feed import Feed, HandlerCalls

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
        self._execution, self._stream_control, self._config = execution, execution.stream_control, execution.config
        calls = HandlerCalls(flow, execution)
        self._feeds = [Feed(queue, calls, execution, self._stream_control) for queue in self._queues()]
        most = self._config.items_at_once
        self._turns = nullcontext() if most is None else CapacityLimiter(most)
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
                over_time = None if self._execution.to_stop else TimeoutError(f"the run took longer than {timeout:g} s")
                for feed in self._feeds:
                    if self._execution.outcomes.keys().isdisjoint(feed.queue.context.claimed):
                        feed.end(Outcome.TIMED_OUT if over_time else Outcome.STOPPED, over_time)
        finally:
            self._publish_counts()
            for feed in self._feeds:
                feed.close()

    def _queues(self) -> list[BatchQueue]:
        """Return the queues of this execution: one for each item, or one for all items."""
        config, claim, saved = self._config, self._execution.claim, self._execution.checkpoints
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
        stream_control, claim = self._stream_control, self._execution.claim
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
