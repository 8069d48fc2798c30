"""One execution: the handlers of all claimed items run side by side, within the session's lease.

An error of a handler goes no further: it is reported, and it decides the outcome of the handler's items.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from anyio import CancelScope, CapacityLimiter, Event, create_task_group, sleep_forever
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled

from aioelasticjob.config.job import JobConfig
from aioelasticjob.core.view import JobView
from aioelasticjob.engine.cancellation import HandlerScope, handler_scope, warn_unheeded
from aioelasticjob.engine.early_end import FailedAttempt, RetryWaits, StreamControl
from aioelasticjob.engine.executors import NEVER_BEGAN, Executors
from aioelasticjob.engine.trace import Trace
from aioelasticjob.errors import ElasticJobError, NotAnException, add_note, leaf_errors
from aioelasticjob.ground.limited_log import LimitedLog
from aioelasticjob.host.user_code import UserCode, cancellation_behind
from aioelasticjob.jobs.base import Engine, Job, instance_context, item_context
from aioelasticjob.jobs.context import Checkpoints, Context
from aioelasticjob.jobs.dependencies import provided
from aioelasticjob.model import NONE, Claim, Outcome
from aioelasticjob.observers.failures import reason

JOB_LEAVES = "the job leaves"
"""Why handlers are cut off when the job leaves."""
RUN_CANCELLED = "somebody has cancelled the run"
"""Why handlers are cut off when an operator or a program has asked for it."""
BEGUN_AT_ONCE = 200
"""Items whose runs begin in one turn of the event loop: ten thousand would block it for most of a second."""


@dataclass(slots=True, eq=False)
class Execution:
    """All that one execution needs."""

    job: Job
    config: JobConfig
    claim: Claim
    checkpoints: Checkpoints
    executors: Executors
    report_error: Callable[..., None]
    """Is called with the context and the error of each failure; for a part of a run also with fields of ``Failure``."""
    retry_waits: RetryWaits
    stream_control: StreamControl | None = None
    """Says when the run is to end; only for jobs with an engine."""
    trace: Trace | None = None
    """Puts events of the runs; None unless anybody reads events."""
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    """The outcome of each item.  An item whose run was cut off has none."""
    errors: dict[int, str] = field(default_factory=dict)
    """The first error of each item that has failed, for its record."""
    unfinished: frozenset[int] = NONE
    """Items of a stream that may have more records.  Their moment or request stays open, so their holder goes on."""
    is_proven: Callable[[], bool] = lambda: True
    """Returns whether the session of the claim is certain to live now.  If it is not, the execution is cancelled."""
    handling: AbstractContextManager[object] = field(default_factory=nullcontext)
    """Surrounds users' code: a job that leaves gives its handlers more time than it gives the registry."""
    under_way: dict[asyncio.Task[object], Context] = field(default_factory=dict)
    """The context of each handler that has begun, by the task that the handler runs in."""
    report_attempt: Callable[[Execution, FailedAttempt], None] = lambda execution, failed: None
    """Is called with every failed attempt of a job that tries runs again."""
    limits: dict[int, HandlerScope] = field(default_factory=dict)
    """The scope in which each item's handler runs."""
    limited_log: LimitedLog = field(default_factory=LimitedLog)
    """Limits the lines about handlers that go on after they were cancelled."""
    waiting: set[int] = field(default_factory=set)
    """Items whose plain function has yet to be given a thread or process."""
    to_stop: set[int] = field(default_factory=set)
    """Items whose run somebody has cancelled."""
    turns: CapacityLimiter | None = None
    """Bounds how many items of the job run side by side in this process; None if nothing does."""
    items_ended: Callable[[Execution, Sequence[int]], None] | None = None
    """Is called when items have ended while others may go on, if these do not wait for each other."""
    cancel_called: bool = False
    """Whether ``cancel`` was called."""
    reason: str | None = None
    """The first reason that was given to ``cancel``, if any."""

    @property
    def begun(self) -> frozenset[int]:
        """The items whose handler was called.  A plain function that waited for a thread in vain was not called."""
        begun = set[int]()
        for context in self.under_way.values():
            if self._has_begun(context):
                begun.update(context.claimed)
        return frozenset(begun)

    def _has_begun(self, context: Context) -> bool:
        limit = self.limits.get(context.claimed[0])
        return limit is None or context.attempt > 1 or not never_began(limit)

    @property
    def _is_named(self) -> bool:
        """Whether the log names a handler that goes on after it was cancelled.

        Of plain functions, only one in a thread is named.  A process is killed, a script ends within its ``grace`` or
        the log says that it cannot be killed, and of a dataflow's functions it is not known which one goes on.
        """
        in_thread = self.config.executor == "thread" and self.job.engine is None
        return self.config.job_type != "SCRIPT" and (in_thread or not self.job.blocking)

    def failed(self, context: Context, error: Exception) -> None:
        """Report a failure of a handler, after its last attempt, or of a listener's ``before``."""
        if self.claim.is_recorded:
            why = reason(error)
            self.errors = {**dict.fromkeys(context.claimed, why), **self.errors}
        if self.trace is not None:
            self.trace.failed(context, error)
        self.report_error(context, error)

    async def stop_unless_proven(self) -> None:
        """Return if the session of the claim is certain to live now; otherwise wait for the cancellation.

        This execution may have waited for a listener, another item or an earlier attempt.  Meanwhile the machine may
        have slept, so the lease may be over.  ``HandlerScope`` may hold the cancellation back for a second; this method
        waits for it, so that no handler begins meanwhile.
        """
        if not self.is_proven():
            await sleep_forever()

    def scope(self, context: Context, seconds: float | None) -> HandlerScope:
        """Return a scope for a handler, which cancels it after so many seconds and names it if it goes on."""
        named = self.job.handler if self._is_named else None
        return handler_scope(named, context, self.limited_log, seconds)

    def cancellable(self) -> AbstractContextManager[Execution | HandlerScope]:
        """Return what is cancelled to cut the execution off: a scope around all calls, or itself if there is one call.

        One call has a scope of its own already.  With a second scope around it, each fire would take a seventh longer
        to begin.
        """
        for_all = self.config.per == "instance" or len(self.claim.items) == 1
        is_one = for_all and self.job.engine is None and not self.job.listeners and self.turns is None
        return nullcontext(self) if is_one else self.scope_of_all()

    def cancel(self, reason: str | None = None) -> None:
        """Cut off an execution that is one call of a handler."""
        self.cancel_called = True
        self.reason = self.reason or reason
        for limit in self.limits.values():
            limit.cancel(reason)

    def leave(self) -> None:
        """Cut off what waits for a thread or process, because the job leaves and another instance runs it again."""
        if self.retry_waits.hands_over and self.waiting:
            self.reason = self.reason or JOB_LEAVES
            for item in self.waiting:
                self.limits[item].cancel(JOB_LEAVES)

    def scope_of_all(self, seconds: float | None = None) -> HandlerScope:
        """Return a scope for all handlers, which names those that go on."""
        return HandlerScope(self._log_unheeded_handlers if self._is_named else None, seconds)

    def stop_cancelled(self, view: JobView) -> None:
        """Stop the runs that somebody has cancelled, also those that have yet to begin: nobody runs them again."""
        claimed = self.claim.items if self.claim.is_recorded else {}  # they may be many, and a wish names few
        for one in view.request_nodes.cancellations:
            meant = {item for item, fence in one.fences.items() if item in claimed and claimed[item].zxid == fence}
            self.stop(meant)

    def stop(self, items: Set[int]) -> None:
        """Cancel the handlers of these items; those that have yet to begin are cancelled when they do."""
        for item in items - self.to_stop:
            self.to_stop.add(item)
            if item in self.limits:
                self.limits[item].cancel(RUN_CANCELLED)

    def enter(self, limit: HandlerScope, items: Iterable[int]) -> None:
        """Note the scope in which the handler of these items runs, and cancel it if their runs were cancelled."""
        self.limits.update(dict.fromkeys(items, limit))
        if self.cancel_called:
            limit.cancel()
        if not self.to_stop.isdisjoint(items):
            limit.cancel(RUN_CANCELLED)

    def _log_unheeded_handlers(self) -> None:
        for task, context in self.under_way.items():
            if not task.done() and self.outcomes.keys().isdisjoint(context.claimed):
                warn_unheeded(self.job.handler, context, task, self.limited_log)


async def execute(execution: Execution) -> None:
    """Run the handlers of all claimed items, and note the outcome of each item."""
    config = execution.config
    claim = execution.claim
    checkpoints = execution.checkpoints
    try:
        with execution.handling:
            if execution.job.engine is not None:
                await _run_engine(execution, execution.job.engine)
            elif config.per == "instance":
                context = instance_context(config, claim, checkpoints, execution.job.parameter)
                await _run_item(execution, context, *claim.items)
            elif len(claim.items) == 1 and execution.turns is None:
                (item,) = claim.items
                await _run_item(
                    execution, item_context(config, claim, item, checkpoints, execution.job.parameter), item
                )
            else:
                await _run_items(execution)
    finally:  # if this instance leaves, cancelled runs without an outcome would be handed over, and begun again
        for item in execution.to_stop & claim.items.keys():
            if item in execution.unfinished:  # its stream gave way before, and does not go on elsewhere
                del execution.outcomes[item]
            execution.outcomes.setdefault(item, Outcome.STOPPED)
        execution.unfinished -= execution.to_stop


async def _run_engine(execution: Execution, engine: Engine) -> None:
    try:
        async with UserCode("the engine"):
            await engine(execution)
    except Exception as error:
        without_outcome = execution.claim.items.keys() - execution.outcomes.keys()
        execution.outcomes |= dict.fromkeys(without_outcome, Outcome.FAILED)
        execution.failed(instance_context(execution.config, execution.claim, execution.checkpoints), error)


async def _run_items(execution: Execution) -> None:
    """Run the items side by side.

    The execution's ``HandlerScope`` cancels their tasks.  The shield keeps the task group from being cancelled as well:
    it would cancel the tasks again in every turn of the event loop.
    """
    waiting = set(execution.claim.items)
    over = Event()
    turns = nullcontext() if execution.turns is None else execution.turns

    async def one(item: int) -> None:
        try:
            async with turns:
                await checkpoint_if_cancelled()  # the run may have been cancelled before this item's portion began
                await execution.stop_unless_proven()
                if execution.retry_waits.hands_over:  # the job leaves, so another instance runs what has not begun
                    execution.reason = execution.reason or JOB_LEAVES
                    return
                context = item_context(
                    execution.config, execution.claim, item, execution.checkpoints, execution.job.parameter
                )
                await _run_item(execution, context, item)
        finally:
            waiting.discard(item)
            if not waiting:
                over.set()

    async with create_task_group() as tasks:
        with CancelScope(shield=True):
            for number, item in enumerate(execution.claim.items, 1):
                tasks.start_soon(one, item)
                if number % BEGUN_AT_ONCE == 0:
                    await checkpoint()
            await over.wait()


async def _run_item(execution: Execution, context: Context, *items: int) -> None:
    tracer = execution.executors.tracer
    trace = execution.trace
    if trace is not None:
        trace.started(context)
    if tracer is None:
        outcome = await _run_handler(execution, context)
    else:
        with tracer.run(context, execution.config.job_type) as ended:
            if (outcome := await _run_handler(execution, context)) is not None:
                ended(outcome)
    if outcome is None:
        return
    execution.outcomes.update(dict.fromkeys(items, outcome))
    if trace is not None:
        trace.ended(items, outcome)
    if execution.items_ended is not None:
        execution.items_ended(execution, items)


async def _run_handler(execution: Execution, context: Context) -> Outcome | None:
    """Call the handler, and return the outcome of its items; None if ``Execution.cancel`` has cut the call off."""
    config = execution.config
    timeout = config.timeout
    task = asyncio.current_task()
    assert task is not None  # as always in a coroutine
    execution.under_way[task] = context
    is_repeatable = config.retry is not None or config.attempt_timeout is not None
    attempts = _Attempts(execution, context, task) if is_repeatable else None
    failure: Exception | None = None
    limit = execution.scope(context, timeout)
    try:
        async with UserCode("the handler", task):
            with limit:
                execution.enter(limit, context.claimed)
                if attempts is None:
                    await _call(execution, context)
                else:
                    await attempts.run()
    except Exception as error:
        failure = error
    if (is_cut := _is_cut_short(limit, failure)) and not execution.to_stop.isdisjoint(context.claimed):
        return Outcome.STOPPED
    if execution.cancel_called or limit.reason == JOB_LEAVES:
        was_ended = limit.has_caught if failure is None else _is_made_of_cancellation(failure)
        if was_ended:
            return None
        is_cut = is_cut and limit.is_overdue
    newest = context if attempts is None else attempts.context
    if is_cut:
        waited = never_began(limit) if newest.attempt == 1 else ""
        too_long = TimeoutError(f"the run took longer than {timeout:g} s{waited}")
        too_long.__cause__ = failure if failure is not None or attempts is None else attempts.failure
        failure = too_long
    if failure is None:
        return Outcome.COMPLETED
    if execution.executors.tracer is not None:
        execution.executors.tracer.failed(failure)
    execution.failed(newest, failure)
    has_timed_out = is_cut or (attempts is not None and failure is attempts.timed_out)
    return Outcome.TIMED_OUT if has_timed_out else Outcome.FAILED


def _is_cut_short(limit: HandlerScope, failure: Exception | None) -> bool:
    """Whether the cancellation by a scope is the reason why a call of a handler has ended.

    It is also the reason if a thread went on to its end, or if the handler has made an error of the cancellation.  It
    is not if the handler raised another error, or one of this package: that says more, such as that a script cannot be
    killed.
    """
    if not limit.cancel_called:
        return False
    if failure is None:
        return True
    return not isinstance(failure, ElasticJobError) and cancellation_behind(failure) is not None


def _is_made_of_cancellation(failure: Exception) -> bool:
    """Whether the error of a call that was cut off says nothing but that it was cancelled."""
    if isinstance(failure, NotAnException) and failure.__cause__ is not None:
        return all(isinstance(one, asyncio.CancelledError) for one in leaf_errors(failure.__cause__))
    return cancellation_behind(failure) is not None


def never_began(limit: HandlerScope) -> str:
    """Return what the error about a time limit says besides, if the function was never called; otherwise ""."""
    return f": {NEVER_BEGAN}" if NEVER_BEGAN in limit.notes else ""


class _Attempts:
    """The attempts of one run, one after another, within its time limit and under its lock."""

    def __init__(self, execution: Execution, context: Context, task: asyncio.Task[object]) -> None:
        self._execution = execution
        self._task = task
        self.context = context
        """The context of the newest attempt."""
        self.failure: Exception | None = None
        """The error of the newest attempt that has failed."""
        self.timed_out: TimeoutError | None = None
        """The error of the newest attempt that took too long: other errors of this type are the handler's own."""

    async def run(self) -> None:
        """Call the handler until an attempt succeeds; raise the error of the last one if none does."""
        execution = self._execution
        retry = execution.config.retry
        while (failure := await self._attempt()) is not None:
            self.failure = failure
            number = self.context.attempt
            is_last = retry is None or number >= retry.attempts or not retry.applies_to(failure)
            if retry is None or is_last or (isinstance(failure, ElasticJobError) and failure.is_final):
                self._report(failure, None)
                raise failure
            if UserCode("the handler", self._task).is_cancelled:  # a thread, or a handler that goes on, may fail late
                await sleep_forever()  # as in ``stop_unless_proven``
            pause = retry.pause_after(number)
            self._report(failure, pause)
            why = await execution.retry_waits.wait(execution.claim, self.context.claimed, pause)
            await execution.stop_unless_proven()
            if why:
                add_note(failure, f"there is no attempt {number + 1} of {retry.attempts}, because {why}")
                raise failure
            self.context = replace(self.context, attempt=number + 1)
            execution.under_way[self._task] = self.context
            if execution.trace is not None:
                execution.trace.attempts.update(dict.fromkeys(self.context.claimed, self.context.attempt))

    async def _attempt(self) -> Exception | None:
        """Call the handler once, within ``attempt_timeout``, and return its error."""
        execution = self._execution
        context = self.context
        limit = execution.config.attempt_timeout
        self._began = asyncio.get_running_loop().time()
        failure: Exception | None = None
        scope = execution.scope(context, limit)
        try:
            async with UserCode("the handler", self._task):
                with scope:
                    await _call(execution, context)
        except Exception as error:
            failure = error
        if _is_cut_short(scope, failure):
            too_long = TimeoutError(f"attempt {context.attempt} took longer than {limit:g} s{never_began(scope)}")
            too_long.__cause__ = failure
            self.timed_out = too_long
            return too_long
        return failure

    def _report(self, failure: Exception, pause: float | None) -> None:
        if self._execution.config.retry is not None:
            seconds = asyncio.get_running_loop().time() - self._began
            self._execution.report_attempt(self._execution, FailedAttempt(self.context, failure, seconds, pause))


async def _call(execution: Execution, context: Context) -> None:
    job = execution.job
    executors = execution.executors
    call = job.handler
    if job.blocking:  # a thread cannot be interrupted, so the item stays locked until the thread has ended
        call = partial(_call_plain, execution)
    if job.needs is None:
        await call(context)
    else:
        async with provided(context, executors.overrides, job.needs) as (given,):
            await call(context, **given)


async def _call_plain(execution: Execution, context: Context, **given: Any) -> None:
    """Call the handler, a plain function, once a thread or process is free for it."""
    executor = execution.config.executor
    executors = execution.executors
    execution.waiting.update(context.claimed)
    if execution.retry_waits.hands_over and executors.is_busy(executor):  # it would wait only now
        execution.leave()
    try:
        async with executors.place(executor, context):
            execution.waiting.difference_update(context.claimed)
            await executors.call_now(executor, execution.job.handler, context, **given)
    finally:
        execution.waiting.difference_update(context.claimed)
