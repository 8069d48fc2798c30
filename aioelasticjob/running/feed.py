"""Feeds one queue of a dataflow execution: it fetches batches, hands them to the workers, counts, and saves offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

from aioelasticjob.errors import RegistryError
from aioelasticjob.jobs.context import ItemContext
from aioelasticjob.jobs.dataflow import RecordFailed, TooManyFailures
from aioelasticjob.model import Outcome
from aioelasticjob.running.batches import Batch, BatchQueue, Call, Workers
from aioelasticjob.running.cancellation import HandlerScope
from aioelasticjob.running.execution import Execution
from aioelasticjob.running.handler_calls import Batches, Given, HandlerCalls
from aioelasticjob.running.stream_control import StreamControl
from aioelasticjob.user_code import UserCode


class Feed:
    """Supplies the workers with the records of one queue.

    It has more than twelve methods: the steps of a batch share what is in process.
    """

    def __init__(self, lane: BatchQueue, calls: HandlerCalls, execution: Execution, reins: StreamControl) -> None:
        self.lane, self._calls, self._execution, self._reins, self._config = (
            lane,
            calls,
            execution,
            reins,
            execution.config,
        )
        item = lane.context.item if isinstance(lane.context, ItemContext) else None
        self.meter = reins.events.rates.meter(self._config.job_name, item)
        self.meter.begin(lane.load)

    async def run(self, workers: Workers, limit: HandlerScope) -> None:
        """Fetch and process all records of the queue, in one span if runs are traced.

        ``limit`` is the scope of the whole execution, which cancels it after its timeout.
        """
        if (tracer := self._execution.executors.tracer) is None:
            await self._to_the_end(workers)
            return
        with tracer.run(self.lane.context, self._config.job_type) as ended:
            try:
                ended(await self._to_the_end(workers))
            except asyncio.CancelledError:
                if limit.cancel_called:
                    ended(Outcome.TIMED_OUT)
                raise
            finally:
                self.lane.cut_off()

    def end(self, outcome: Outcome, failure: Exception | None) -> None:
        """Note the outcome of the queue's items."""
        lane, execution = self.lane, self._execution
        lane.ended = True
        execution.outcomes.update(dict.fromkeys(lane.context.claimed, outcome))
        if failure is not None:
            self._complain(failure)
        if execution.trace is not None:
            execution.trace.ended(lane.context.claimed, outcome)

    def count(self) -> None:
        """Count the records processed since the last call."""
        meter, run_counts = self.meter, self._reins.run_counts
        succeeded, failed = self.lane.count()
        meter.succeeded, meter.failed = meter.succeeded + succeeded, meter.failed + failed
        run_counts.succeeded, run_counts.failed = run_counts.succeeded + succeeded, run_counts.failed + failed
        meter.sample()

    def close(self) -> None:
        """Refuse further offsets, and stop measuring."""
        self.lane.position.over = True
        self.meter.end()

    async def _to_the_end(self, workers: Workers) -> Outcome:
        lane, execution = self.lane, self._execution
        failure: Exception | None = None
        if (task := asyncio.current_task()) is not None:
            execution.under_way[task] = lane.context
        if execution.trace is not None:
            execution.trace.started(lane.context)
        try:
            async with (
                UserCode("a provider of arguments, or the retry strategy,"),
                self._calls.provided(lane.context) as (for_fetch, for_process, for_dead),
            ):
                lane.call = self._calls.process(for_process)
                lane.fail = partial(self._fail, self._calls.dead(for_dead))
                failure = await self._flow(workers, for_fetch)
        except Exception as error:
            failure = failure or error
        if failure is None and self._has_failed():
            failure = TooManyFailures(lane.failed, self._config.max_failures or 0)
        if failure is None and not lane.exhausted:
            self._reins.unfinished.update(lane.context.claimed)
        outcome = Outcome.COMPLETED if failure is None else Outcome.FAILED
        self.end(outcome, failure)
        return outcome

    async def _flow(self, workers: Workers, given: Given) -> Exception | None:
        """Fetch until there are no more records, wait until all are processed, and return the first error."""
        failure: Exception | None = None
        try:
            async with UserCode("fetch"):
                with self._calls.cut(self.lane.context) as self.lane.fetching_cut:
                    await self._fetch_all(workers, given)
        except Exception as error:
            failure = error
        try:
            await self._drain()
        except RegistryError as error:
            failure = failure or error
        return failure

    async def _fetch_all(self, workers: Workers, given: Given) -> None:
        lane, prefetch = self.lane, self._config.prefetch
        async with aclosing(self._calls.batches(lane.fetching, given)) as batches:
            while records := await self._next(batches):
                workers.put(self._take(records))
                ahead = lane.position.known if prefetch is None else prefetch
                while len(lane.open) > ahead and not self._is_over():
                    await lane.changed()
                await self._save()
                if self._is_over():  # checked after the first batch, so that every run processes at least one
                    break
            await self._drain()  # before the generator is closed: records may need its connection or file
            lane.due |= lane.position.take()
            lane.exhausted = not records

    async def _next(self, batches: Batches) -> Sequence[object]:
        """Return the next batch; it is empty at the end."""
        self.lane.asking = True
        try:
            return await anext(batches)
        except StopAsyncIteration:  # not anext(batches, ()): in CPython 3.11 that raises SystemError
            return ()
        finally:
            self.lane.asking = False

    def _take(self, records: Sequence[object]) -> Batch:
        batch = self.lane.take(records, self._calls.step)
        if (tracer := self._execution.executors.tracer) is not None:
            batch.span = tracer.batch(self.lane.context, batch.size)
        return batch

    async def _fail(self, dead: Call | None, batch: Batch, record: Any, error: Exception | None) -> None:
        """Count a call of ``process`` whose last attempt has failed, and pass its record to ``dead``."""
        lane, records = self.lane, 1 if self._calls.step is None else len(record)
        batch.failed += records
        lane.failed += records
        if error is not None:
            self._report_once(batch, "process", error)
        if dead is None:
            return
        try:
            async with UserCode("dead"):
                await dead(lane.context, record, error or RecordFailed())
            self.meter.dead += records
        except Exception as own:
            self._report_once(batch, "dead", own)

    def _report_once(self, batch: Batch, of: str, error: Exception) -> None:
        """Report only the first failure of each handler in a batch: a million stacks in the log help nobody."""
        if of not in batch.complained:
            batch.complained += (of,)
            self._complain(error)

    def _is_over(self) -> bool:
        """Whether no further batch is to be fetched."""
        return (self._config.streaming and self._reins.end.is_set()) or self._has_failed()

    def _has_failed(self) -> bool:
        return self._config.max_failures is not None and self.lane.failed > self._config.max_failures

    async def _drain(self) -> None:
        """Wait until all batches are processed, and save their offsets."""
        while self.lane.open:
            await self.lane.changed()
        await self._save()

    async def _save(self) -> None:
        due, self.lane.due = self.lane.due, {}
        for item, value in due.items():
            await self._execution.checkpoints.save(item, value)

    def _complain(self, error: Exception) -> None:
        if (tracer := self._execution.executors.tracer) is not None:
            tracer.failed(error)
        self._execution.report_error(self.lane.context, error)
