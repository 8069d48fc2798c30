"""The users' code of a simulated cluster: handlers, listeners, providers, an error handler and a strategy.

All of it notes in the history that it was called, and raises what the script of faults wants it to raise.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Annotated, Any
from unittest import mock

from anyio import sleep

from aioelasticjob.core import strategies
from aioelasticjob.error_handlers import lookup
from aioelasticjob.error_handlers.failure import Failure, Options
from aioelasticjob.errors import Fenced, RegistryError
from aioelasticjob.events import Ended, JobEvent
from aioelasticjob.jobs.context import InstanceContext, ItemContext
from aioelasticjob.jobs.dependencies import Depends
from aioelasticjob.jobs.listeners import JobListener, Listener, OnceListener
from aioelasticjob.model import Outcome
from aioelasticjob.testing.process import current_process
from tests.support.history import Attempted, AttemptOver, Begun, Called, Raised, Saved

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster, Host, JobPlan

UNRULY = "unruly"
"""The name of the strategy and of the error handler that raise when the script of faults wants it."""


class Panic(BaseException):
    """An error of an extension that is no Exception, such as a panic of code written in Rust."""


ERRORS: Mapping[str, Callable[[], BaseException]] = {
    "Panic": lambda: Panic("the extension is beyond repair"),
    "SystemExit": lambda: SystemExit(3),
    "CancelledError": lambda: asyncio.CancelledError("raised by the users' code itself"),
    "BaseExceptionGroup": lambda: BaseExceptionGroup("several at once", [Panic("one"), ValueError("two")]),
    "ValueError": lambda: ValueError("an ordinary error"),
}
"""What users' code may raise, by name."""
PLACES = (
    *("handler", "handler", "handler", "provider", "provider end"),
    *("before", "after", "once before", "once after", "error handler", "strategy"),
)
"""Which code may raise; handlers more often than the rest."""

Handler = Callable[..., Coroutine[object, object, None]]


class Code:
    """The code of one job in one process."""

    def __init__(self, cluster: Cluster, host: Host, job: JobPlan) -> None:
        self._cluster, self._host, self._process, self._job = cluster, host, host.name, job
        self._open: dict[tuple[str, int], tuple[int, str]] = {}
        """The number of each run that may have several attempts, by task and item, and how its last attempt ended."""

    def handler(self) -> Handler:
        """Return the job's handler."""
        if not self._job.provided:
            return self._handle

        async def handle(context: ItemContext | InstanceContext, value: object) -> None:
            await self._handle(context)

        handle.__annotations__["value"] = Annotated[object, Depends(self._provide)]
        return handle

    def listeners(self) -> Sequence[Listener]:
        """Return the job's listeners."""
        if not self._job.listened:
            return ()
        once = OnceListener(before=self._listener("once before"), after=self._listener("once after"))
        return (JobListener(before=self._listener("before"), after=self._listener("after")), once)

    def _listener(self, which: str) -> Callable[[InstanceContext], Awaitable[None]]:
        async def listen(context: InstanceContext) -> None:
            history, fire = self._cluster.history, context.fire
            about = self._process, context.instance, self._job.name, which, fire.slot, fire.source, fire.run
            called = Called(history.now(), *about)
            history.note(called)
            self._raise(which)

        return listen

    async def _provide(self) -> AsyncIterator[object]:
        self._raise("provider")
        yield object()
        self._raise("provider end")

    def _raise(self, where: str) -> None:
        raise_wanted(self._cluster, self._process, self._host.address, self._job.name, where)

    def put(self, event: JobEvent) -> None:
        """Note that a run with several attempts is over: its handler cannot know which one is the last."""
        if isinstance(event, Ended) and (event.task_id, event.item) in self._open:
            run, how = self._open.pop((event.task_id, event.item))
            how = {Outcome.FAILED: "failed", Outcome.CANCELLED: "cut off"}.get(event.outcome, how)
            is_about_attempt = isinstance(event.failure, TimeoutError) and str(event.failure).startswith("attempt ")
            how = "failed" if is_about_attempt else how
            self._cluster.history.finish(run, how)

    async def _handle(self, context: ItemContext | InstanceContext) -> None:
        if not self._job.attempts:
            await self._run(context, self._begin(context))
            return
        history, keys = self._cluster.history, [(context.task_id, item) for item in context.claimed]
        if keys[0] not in self._open:
            self._open |= {key: (run, "cut off") for key, run in zip(keys, self._begin(context), strict=True)}
        runs = [self._open[key][0] for key in keys]
        for run in runs:
            history.note(Attempted(history.now(), run, context.attempt))
        how = "cut off"
        try:
            await self._run(context, runs)
            how = "completed"
        except Exception:
            how = "failed"
            raise
        finally:
            for key, run in zip(keys, runs, strict=True):
                history.note(AttemptOver(history.now(), run, context.attempt, how))
                if key in self._open:
                    self._open[key] = run, how

    def _begin(self, context: ItemContext | InstanceContext) -> list[int]:
        """Note that a run begins, and return its number for each item."""
        history, job = self._cluster.history, self._job.name
        fences, offsets = _by_item(context)
        slot, items = context.fire.slot, tuple(fences)
        return [
            history.begin(
                lambda at, run, item=item: Begun(  # type: ignore[misc]
                    at,
                    run,
                    self._process,
                    self._host.address,
                    context.instance,
                    job,
                    item,
                    slot,
                    context.source,
                    fences[item],
                    self._host.skew,
                    offsets[item],
                )
            )
            for item in items
        ]

    async def _run(self, context: ItemContext | InstanceContext, runs: Sequence[int]) -> None:
        history, job = self._cluster.history, self._job.name
        fences, _ = _by_item(context)
        slot, items = context.fire.slot, tuple(fences)
        save = partial(self._save, context, dict(zip(items, runs, strict=True)), fences)
        how = "cut off"
        try:
            await self._work(items[0], slot, context.attempt, save)
            if (job, "handler") in self._cluster.unruly:
                how = "failed"
                self._raise("handler")
            how = "completed"
        except (RuntimeError, RegistryError):  # the latter if the registry refuses a checkpoint
            how = "failed"
            raise
        finally:
            for run in runs if not self._job.attempts else ():
                history.finish(run, how)

    async def _save(
        self, context: ItemContext | InstanceContext, runs: Mapping[int, int], fences: Mapping[int, int], step: str
    ) -> None:
        """Save checkpoints; who is told that he may not goes on, as code does that does not care."""
        history = self._cluster.history
        for item, run in runs.items():
            value = f"{fences[item]:x}.{step}"
            with suppress(Fenced):
                if isinstance(context, InstanceContext):
                    await context.save_offset(item, value)
                else:
                    await context.save_offset(value)
                path = f"/{context.job_name}/offset/{item}"
                history.note(Saved(history.now(), run, path, value))

    async def _work(self, item: int, slot: int, attempt: int, save: Callable[[str], Awaitable[None]]) -> None:
        """Take as long as this moment of this item takes on every instance, and fail if it is one that fails."""
        plan, job = self._cluster.plan, self._job
        dice = Random(f"{plan.seed} {job.name} {item} {slot}" + (f" {attempt}" if attempt > 1 else ""))
        seconds = dice.uniform(0.02, 0.4)  # in peace it is over before any schedule's next moment
        if not self._cluster.peaceful:
            seconds = min(12.0, job.period * dice.uniform(0.02, job.longest))
            if dice.random() < job.dragging:
                seconds = plan.session_timeout * dice.uniform(1, 3)
        saves = job.saving > 0 and Random(f"saving {plan.seed} {job.name} {item} {slot}").random() < job.saving
        if saves:
            await sleep(seconds / 2)
            await save("half")
        await sleep(seconds / 2 if saves else seconds)
        if saves:
            await save("done")
        if job.attempts and self._cluster.peaceful:
            return  # in peace there is no time for further attempts before the schedule's next moment
        if dice.random() < job.failing:
            raise RuntimeError("this run was meant to fail")


def raise_wanted(cluster: Cluster, process: str, host: str, job: str, where: str) -> None:
    """Raise what the script of faults wants this code to raise at the moment, if anything."""
    name = cluster.unruly.get((job, where))
    if name is not None:
        cluster.history.note(Raised(cluster.history.now(), process, host, job, where, name))
        raise ERRORS[name]()


@contextmanager
def registered(clusters: Sequence[Cluster]) -> Iterator[None]:
    """Make the strategy and the error handler known by name, which raise what the newest of ``clusters`` wants."""

    def trip(job: str, where: str) -> None:
        process = current_process()
        if process is not None and clusters:  # a judge who asks is nobody's process
            raise_wanted(clusters[-1], process.name, process.address, job, where)

    def allot(given: strategies.AssignmentInput) -> strategies.Assignment:
        trip(given.job, "strategy")
        return strategies.average(given)

    async def handle(failure: Failure, _options: Options) -> None:
        trip(failure.job, "error handler")

    strategies.find.cache_clear()  # it may remember those of another cluster
    lookup.find.cache_clear()
    with ExitStack() as patches:
        tables: tuple[tuple[Any, object], ...] = ((strategies._BUILT_IN, allot), (lookup._BUILT_IN, handle))
        for table, function in tables:
            patches.enter_context(mock.patch.dict(table, {UNRULY: function}))
        yield


def _by_item(context: ItemContext | InstanceContext) -> tuple[Mapping[int, int], Mapping[int, str | None]]:
    """Return the fences and the checkpoints of a context's items."""
    if isinstance(context, InstanceContext):
        fences = {item: context.fences.get(item, 0) for item in context.items}
        return fences, context.offsets
    return {context.item: context.fence}, {context.item: context.offset}
