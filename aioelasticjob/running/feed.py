"""Feeds one queue of a dataflow execution: it fetches batches, hands them to the workers, counts, and saves offsets.

The dataflow's handlers are called in the loop, a thread or a process, with retries and time limits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from aioelasticjob.coordination.offsets import encoded
from aioelasticjob.errors import Fenced, InvalidSetting, RegistryError
from aioelasticjob.jobs.base import Handler
from aioelasticjob.jobs.context import Checkpoints, Context, ItemContext
from aioelasticjob.jobs.dataflow import Dataflow, RecordFailed, TooManyFailures
from aioelasticjob.jobs.dependencies import provided
from aioelasticjob.jobs.inspection import is_async
from aioelasticjob.model import Outcome
from aioelasticjob.plural import counted
from aioelasticjob.running.batches import Batch, BatchQueue, Call, Workers
from aioelasticjob.running.cancellation import HandlerScope, handler_scope
from aioelasticjob.running.early_end import StreamControl
from aioelasticjob.running.execution import Execution
from aioelasticjob.user_code import UserCode, cancellation_behind

Batches: TypeAlias = AsyncGenerator[Sequence[object], None]
Given: TypeAlias = dict[str, Any]
"""The values that providers have made for one handler, by the names of its arguments."""


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
        new, self._new = self._new, {}
        return new


class Feed:
    """Supplies the workers with the records of one queue.

    It has more than twelve methods, because all steps of a batch share the queue.
    """

    def __init__(
        self, queue: BatchQueue, calls: HandlerCalls, execution: Execution, stream_control: StreamControl
    ) -> None:
        self.queue, self._calls, self._stream_control = queue, calls, stream_control
        self._execution, self._config, self._tracer = execution, execution.config, execution.executors.tracer
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
        context, execution = self.queue.context, self._execution
        execution.outcomes.update(dict.fromkeys(context.claimed, outcome))
        if failure is not None:
            if self._tracer is not None:
                self._tracer.failed(failure)
            execution.failed(context, failure)
        if execution.trace is not None:
            execution.trace.ended(context.claimed, outcome)

    def count(self) -> None:
        """Count the records processed since the last call."""
        meter, run_counts = self.meter, self._stream_control.run_counts
        succeeded, failed = self.queue.count()
        meter.succeeded, meter.failed = meter.succeeded + succeeded, meter.failed + failed
        run_counts.succeeded, run_counts.failed = run_counts.succeeded + succeeded, run_counts.failed + failed
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
        queue, execution = self.queue, self._execution
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
        queue, prefetch = self.queue, self._config.prefetch
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
        queue, records = self.queue, 1 if self._calls.step is None else len(record)
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
        due, self.queue.due = self.queue.due, {}
        for item, value in due.items():
            await self._execution.checkpoints.save(item, value)


class HandlerCalls:
    """The handlers of a dataflow, as one execution calls them."""

    def __init__(self, flow: Dataflow[Any], execution: Execution) -> None:
        self._flow, self._execution, self._config = flow, execution, execution.config
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
        fetch, is_awaited = self._flow.fetch, self._flow.generates or is_async(self._flow.fetch)
        return handler_scope(fetch if is_awaited else None, context, self._execution.limited_log)

    def process(self, given: Given) -> Call:
        """Return ``process`` with its retries; ``record_timeout`` limits each attempt."""
        call = once = self._awaitable(self._process, given)
        limit, awaited = self._config.record_timeout, self._process if is_async(self._process) else None

        async def within(context: Context, record: Any) -> object:
            with handler_scope(awaited, context, self._execution.limited_log, limit):
                return await once(context, record)
            raise TimeoutError(f"`process` took longer than record_timeout = {limit:g} s")

        if limit is not None:
            call = within
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
            _, others = group.split(GeneratorExit)
            if others is not None:
                raise others from None


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
