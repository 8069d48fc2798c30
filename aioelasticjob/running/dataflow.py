"""The engine of dataflow jobs: a run fetches batch after batch, has them processed, and keeps the offset behind them.

Everything is bounded: at most ``concurrency`` calls of process at a time, and per item one batch in process and one
fetched ahead.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from reprlib import repr as short
from typing import Any, TypeAlias

from anyio import CancelScope, create_task_group, fail_after, sleep
from anyio.abc import TaskGroup

from aioelasticjob.errors import InvalidSetting, RegistryError
from aioelasticjob.jobs.base import Handler, instance_context, is_async, item_context
from aioelasticjob.jobs.context import Context, ItemContext
from aioelasticjob.jobs.dataflow import Dataflow, RecordFailed, TooManyFailures
from aioelasticjob.jobs.dependencies import ProviderFailed, provided
from aioelasticjob.model import Outcome
from aioelasticjob.rates import Flowed, Meter
from aioelasticjob.running.blocking import pickled
from aioelasticjob.running.cut import Cut, tell
from aioelasticjob.running.executor import Flight
from aioelasticjob.running.lanes import Batch, Call, Lane, Position, Workers, is_being_cancelled
from aioelasticjob.running.reins import Reins, is_to_end

PACE = 1.0
"""Seconds between two counts of what is through, and between two events that tell of it."""
GRACE = 5.0
"""Seconds that a fetch under way may take when the run is to end, before it is cancelled."""

Batches: TypeAlias = AsyncGenerator[Sequence[object], None]
Given: TypeAlias = dict[str, Any]
"""What providers have made for one handler."""


@dataclass(frozen=True, slots=True)
class Engine:
    """What runs the flights of a dataflow."""

    flow: Dataflow

    def check(self) -> bool:
        """See to it that the dataflow is complete, and return whether any of it is plain functions.

        Raises:
            InvalidSetting: it has no process, or what is to run in processes cannot be sent there.
        """
        process, dead = self.flow.handlers
        fetch = None if self.flow.generates else self.flow.fetch
        plain = [one for one in (fetch, process, dead) if one is not None and not is_async(one)]
        if self.flow.config.executor == "process":
            for handler in plain:
                pickled(handler)
        return bool(plain)

    async def __call__(self, flight: Flight) -> None:
        """Fetch and process until there is nothing more, or the run is to end; note how each item ended."""
        assert flight.reins is not None
        await _Run(self.flow, flight, flight.reins).run()


class _Run:
    """One flight of a dataflow."""

    def __init__(self, flow: Dataflow, flight: Flight, reins: Reins) -> None:
        self._flow, self._flight, self._reins, self._config = flow, flight, reins, flight.config
        self._process, self._dead = flow.handlers
        declared = flow.config.batch_size  # whether process takes lists is said by its code, how long by the operators
        self._step = declared and (self._config.batch_size or declared)
        self._meters = {lane: self._meter(lane) for lane in self._lanes()}
        self._left = set(self._meters)
        """Lanes that have not come to their end."""
        self._crews: list[Workers] = []
        self._over = asyncio.Event()
        """Set when no lane and no worker is left."""
        self._tasks: TaskGroup
        self._limit: Cut

    async def run(self) -> None:
        """Run the whole flight."""
        timeout = self._config.timeout
        try:
            unheeded, blocking = self._flight.tell_unheeded, self._flight.job.blocking
            with Cut(unheeded, after=timeout, threads=blocking) as self._limit:
                async with create_task_group() as self._tasks:
                    self._tasks.start_soon(self._count)
                    if self._config.streaming:
                        self._tasks.start_soon(self._watch)
                        self._tasks.start_soon(self._hold)
                    self._flow_through()
                    with CancelScope(shield=True):  # to cancel them is up to the Cut: a cancelled group never stops it
                        await self._over.wait()
                    self._tasks.cancel_scope.cancel()
            if self._limit.cancel_called:
                for lane in self._meters:
                    if not lane.ended:
                        self._end(lane, Outcome.TIMED_OUT, TimeoutError(f"the run took longer than {timeout:g} s"))
        finally:
            self._tell()
            for lane, meter in self._meters.items():
                lane.position.over = True
                meter.end()

    def _lanes(self) -> list[Lane]:
        """Return the lanes of this flight: one for each item, or one for all of them."""
        config, claim, saved = self._config, self._flight.claim, self._flight.checkpoints
        contexts: list[Context] = (
            [instance_context(config, claim, saved)]
            if config.per == "instance"
            else [item_context(config, claim, item, saved) for item in sorted(claim.items)]
        )
        positions = [Position(saved) for _ in contexts]
        fetching = [replace(one, checkpoints=each) for one, each in zip(contexts, positions, strict=True)]
        return list(map(Lane, contexts, fetching, positions))

    def _meter(self, lane: Lane) -> Meter:
        item = lane.context.item if isinstance(lane.context, ItemContext) else None
        meter = self._reins.events.rates.meter(self._config.job_name, item)
        meter.begin(lane.load)
        return meter

    def _flow_through(self) -> None:
        limit = 1 if self._config.ordered else self._config.concurrency
        for lane in self._meters:
            if self._config.ordered or not self._crews:
                self._crews.append(Workers(self._tasks, limit, self._flight.under_way, self._look_if_over))
            self._tasks.start_soon(self._run_lane, lane, self._crews[-1])

    async def _run_lane(self, lane: Lane, workers: Workers) -> None:
        try:
            await self._feed(lane, workers)
        finally:
            self._left.discard(lane)
            if not self._left:
                for crew in self._crews:
                    crew.close()
            self._look_if_over()

    def _look_if_over(self) -> None:
        if not self._left and not any(crew.size for crew in self._crews):
            self._over.set()

    async def _feed(self, lane: Lane, workers: Workers) -> None:
        """Fetch and process for one lane until its end, as one span if runs are traced."""
        if (tracer := self._flight.means.tracer) is None:
            await self._feed_to_the_end(lane, workers)
            return
        with tracer.run(lane.context, self._config.job_type) as ended:
            try:
                ended(await self._feed_to_the_end(lane, workers))
            except asyncio.CancelledError:
                if self._limit.cancel_called:
                    ended(Outcome.TIMED_OUT)
                raise
            finally:
                lane.cut_off()

    async def _feed_to_the_end(self, lane: Lane, workers: Workers) -> Outcome:
        failure: BaseException | None = None
        if (task := asyncio.current_task()) is not None:
            self._flight.under_way[task] = lane.context
        if self._flight.trace is not None:
            self._flight.trace.started(lane.context)
        try:
            async with self._provided(lane) as (for_fetch, for_process, for_dead):
                lane.call = self._attempts(self._awaitable(self._process, for_process))
                lane.fail = partial(self._fail, self._dead and self._awaitable(self._dead, for_dead))
                failure = await self._flow_to_the_end(lane, workers, for_fetch)
        except ProviderFailed as error:
            failure = failure or error
        if failure is None and self._has_failed(lane):
            failure = TooManyFailures(lane.failed, self._config.max_failures or 0)
        if failure is None and not lane.exhausted:
            self._reins.unfinished.update(lane.context.claimed)
        outcome = Outcome.COMPLETED if failure is None else Outcome.FAILED
        self._end(lane, outcome, failure)
        return outcome

    def _provided(self, lane: Lane) -> AbstractAsyncContextManager[tuple[Given, ...]]:
        """Return what provides the handlers' other arguments; one value of each provider for the whole run."""
        needs = self._flow.needs
        return provided(lane.context, self._flight.means.overrides, *needs) if any(needs) else nullcontext(({}, {}, {}))

    async def _flow_to_the_end(self, lane: Lane, workers: Workers, given: Given) -> BaseException | None:
        """Fetch until there is nothing more, wait until all of it is through, and return what went wrong."""
        failure: BaseException | None = None
        try:
            with self._fetching(lane) as lane.fetching_cut:
                await self._fetch_all(lane, workers, given)
        except asyncio.CancelledError:
            if is_being_cancelled():
                raise
            failure = RuntimeError("fetch was cancelled from within, not by us")
        except (Exception, SystemExit) as error:
            failure = error
        try:
            await self._drain(lane)
        except RegistryError as error:
            failure = failure or error
        return failure

    def _fetching(self, lane: Lane) -> Cut:
        """Return what cuts off a fetch of this lane, and names it if it does not heed."""
        task, job = asyncio.current_task(), self._flight.job
        assert task is not None  # as always in a coroutine
        if self._flow.generates or is_async(self._flow.fetch):
            return Cut(partial(tell, job, lane.context, task))
        return Cut(lambda: None, threads=True)

    async def _fetch_all(self, lane: Lane, workers: Workers, given: Given) -> None:
        async with aclosing(self._batches(lane, given)) as batches:
            while records := await self._next(lane, batches):
                workers.put(self._take(lane, records))
                ahead = lane.position.known if self._config.prefetch is None else self._config.prefetch
                while len(lane.open) > ahead and not self._is_over(lane):
                    await lane.changed()
                await self._save(lane)
                if self._is_over(lane):  # not before the first batch: every run gets something done
                    break
            await self._drain(lane)  # records may need what the generator holds open
            lane.due |= lane.position.take()
            lane.exhausted = not records

    def _take(self, lane: Lane, records: Sequence[object]) -> Batch:
        batch = lane.take(records, self._step)
        if (tracer := self._flight.means.tracer) is not None:
            batch.span = tracer.batch(lane.context, batch.size)
        return batch

    async def _next(self, lane: Lane, batches: Batches) -> Sequence[object]:
        """Return the next batch, an empty one at the end."""
        lane.asking = True
        try:
            return await anext(batches)
        except StopAsyncIteration:  # not a default of (): CPython 3.11 cannot hand that out (SystemError)
            return ()
        finally:
            lane.asking = False

    async def _batches(self, lane: Lane, given: Given) -> Batches:
        """Yield what fetch hands out: a coroutine's batch, and again if streaming, or all batches of a generator."""
        if self._flow.generates:
            async with _closing(self._flow.fetch(lane.fetching, **given)) as generator:
                async for found in generator:
                    yield _checked(found)
            return
        fetch = self._awaitable(self._flow.fetch, given)
        yield _checked(await fetch(lane.fetching))
        while self._config.streaming:
            yield _checked(await fetch(lane.fetching))

    def _awaitable(self, handler: Handler, given: Given) -> Call:
        """Return the handler if it is async, else what runs it in a thread or a process."""
        if not is_async(handler):
            return partial(self._flight.means.call, self._config.executor, handler, **given)
        return partial(handler, **given) if given else handler

    def _attempts(self, call: Call) -> Call:
        """Return process with the time limit and the retries that are wanted, each attempt within its own limit."""
        limit, once = self._config.record_timeout, call

        async def within(context: Context, record: Any) -> object:
            with fail_after(limit):
                return await once(context, record)

        if limit is not None:
            call = within
        return call if self._flow.retry is None else self._flow.retry.wraps(call)

    async def _fail(self, dead: Call | None, batch: Batch, record: Any, error: BaseException | None) -> None:
        """Count a call that has failed for good, and show its record to ``dead``."""
        lane, records = batch.lane, 1 if self._step is None else len(record)
        batch.failed += records
        lane.failed += records
        if error is not None and not batch.complained:  # one for each batch: a million stacks help nobody
            batch.complained = True
            self._complain(lane, error)
        if dead is None:
            return
        try:
            await dead(lane.context, record, error or RecordFailed())
            self._meters[lane].dead += records
        except asyncio.CancelledError:
            if is_being_cancelled():
                raise
        except (Exception, SystemExit) as own:
            self._flight.complain(lane.context, own)

    def _is_over(self, lane: Lane) -> bool:
        """Whether nothing more is to be fetched."""
        return (self._config.streaming and self._reins.end.is_set()) or self._has_failed(lane)

    def _has_failed(self, lane: Lane) -> bool:
        return self._config.max_failures is not None and lane.failed > self._config.max_failures

    async def _drain(self, lane: Lane) -> None:
        """Wait until everything is through, and save how far that is."""
        while lane.open:
            await lane.changed()
        await self._save(lane)

    async def _save(self, lane: Lane) -> None:
        due, lane.due = lane.due, {}
        for item, value in due.items():
            await self._flight.checkpoints.save(item, value)

    def _end(self, lane: Lane, outcome: Outcome, failure: BaseException | None) -> None:
        lane.ended = True
        self._flight.outcomes.update(dict.fromkeys(lane.context.claimed, outcome))
        if failure is not None:
            self._complain(lane, failure)
        if self._flight.trace is not None:
            self._flight.trace.ended(lane.context.claimed, outcome)

    def _complain(self, lane: Lane, error: BaseException) -> None:
        if (tracer := self._flight.means.tracer) is not None:
            tracer.failed(error)
        self._flight.complain(lane.context, error)

    async def _count(self) -> None:
        while True:
            await sleep(PACE)
            self._tell()

    def _tell(self) -> None:
        """Count what is through since the last time, and tell whoever listens."""
        for lane, meter in self._meters.items():
            succeeded, failed = lane.count()
            meter.succeeded, meter.failed = meter.succeeded + succeeded, meter.failed + failed
            self._reins.tally.succeeded += succeeded
            self._reins.tally.failed += failed
            meter.sample()
        if self._reins.events.heard:
            rates = tuple(meter.read() for meter in self._meters.values())
            self._reins.events.put(Flowed(self._config.job_name, self._flight.claim.instance, rates))

    async def _watch(self) -> None:
        """Set the end when the newest view wants it."""
        reins, claim = self._reins, self._flight.claim
        await reins.views.until(lambda now: is_to_end(reins.view, now, claim))
        reins.end.set()

    async def _hold(self) -> None:
        """When the run is to end, wake those that wait, and cut off those that go on fetching."""
        await self._reins.end.wait()
        for lane in self._meters:
            lane.news.set()
        await sleep(GRACE)
        for lane in self._meters:
            if lane.asking:
                lane.fetching_cut.cancel()


@asynccontextmanager
async def _closing(generator: AsyncGenerator[object, None]) -> AsyncIterator[AsyncGenerator[object, None]]:
    """Close a generator at the end; a task group that it was left in makes a group of what closes it."""
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
    """Return the records that fetch handed out.

    Raises:
        InvalidSetting: it is no batch.
    """
    if found is None or found == ():
        return ()
    if isinstance(found, tuple | str | bytes | bytearray) or not isinstance(found, Sequence):
        raise InvalidSetting("fetch", short(found), "must hand out lists of records, or None when there are none left")
    return found
