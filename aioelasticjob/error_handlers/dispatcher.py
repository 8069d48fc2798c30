"""The error dispatcher: delivers failures to error handlers.  Each target has its own queue, so none delays another."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import TypeAlias, cast

from anyio import create_task_group, move_on_after

from aioelasticjob.clock import Clock
from aioelasticjob.config.job import JobConfig
from aioelasticjob.config.links import console_link, filled_links
from aioelasticjob.error_handlers.alert_limit import AlertLimit
from aioelasticjob.error_handlers.failure import (
    Escalated,
    Failure,
    Options,
    announce_failure,
    log,
    log_ending,
    log_failure,
)
from aioelasticjob.error_handlers.lookup import find
from aioelasticjob.errors import ElasticJobError, error_line
from aioelasticjob.events import Counts
from aioelasticjob.ground.limited_log import MOST, LimitedLog
from aioelasticjob.ground.plural import counted
from aioelasticjob.host.user_code import UserCode

MAX_WAITING_FAILURES = 1000
"""Failures that may wait for delivery; beyond that, the longest queue loses its oldest failure."""
MAX_TARGETS_AT_ONCE = 100
"""Targets to which failures are delivered at the same time: each may need a connection, and the registry needs one."""
DELIVERY_TIMEOUT = 30.0
"""Seconds that the delivery of one failure may take."""

Target: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
"""A target: the name of an error handler, and its options."""


class _TargetQueue:
    """The failures that wait for one target: a queue for each job, and the jobs take turns."""

    def __init__(self) -> None:
        self.queues: dict[str, deque[Failure]] = {}
        self.delivering: Failure | None = None

    def put(self, failure: Failure) -> None:
        """Add a failure."""
        self.queues.setdefault(failure.job, deque()).append(failure)

    def take(self, job: str | None = None) -> Failure:
        """Return the oldest failure of a job, by default of the one whose turn it is."""
        if job is None:
            job = next(iter(self.queues))
        queue = self.queues.pop(job)
        failure = queue.popleft()
        if queue:
            self.queues[job] = queue  # behind all others
        return failure

    def left(self) -> Iterator[Failure]:
        """Yield the failures that have not been delivered."""
        if self.delivering is not None:
            yield self.delivering
        for queue in self.queues.values():
            yield from queue


class ErrorDispatcher:
    """Takes the failures of all jobs of a process and delivers each to its error handler.

    Each failure is logged at once, in one line; with its stack if the handler is ``log``.  Missed moments are not: the
    log has them already.  A failure that could not be delivered is logged once more, with its stack and the reason.
    ``limited_log`` limits these lines for each job and type of error.  ``console_url`` is where the console shows the
    registry.
    """

    def __init__(
        self,
        clock: Clock,
        counts: Mapping[str, Counts],
        limited_log: LimitedLog,
        namespace: str = "",
        console_url: str = "",
    ) -> None:
        self._clock = clock
        self._counts = counts
        self._namespace = namespace
        self._console_url = console_url
        self._admits = partial(limited_log.admits, log, each=MOST, most=10 * MOST)
        self._queues: dict[Target, _TargetQueue] = {}
        self._unserved: list[Target] = []
        self._waiting = 0
        self._dropped = 0
        self._limit = AlertLimit()
        self._at_once = asyncio.Semaphore(MAX_TARGETS_AT_ONCE)
        self._news = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.escalated: Exception | None = None
        """The error that ends the application, because its error handler is ``raise``; the log has it already."""
        self._over = False

    def report(self, config: JobConfig, failure: Failure) -> None:
        """Take a failure for the error handler that is configured now, if the job's ``alert_on`` names what it is.

        Otherwise a run that failed is logged.  Missed moments are in the log already.
        """
        if config.links:
            known = {"job": failure.job, "run_id": failure.run_id, "task_id": failure.task_id}
            failure = replace(failure, links=filled_links(config.links, **known))
        is_in_log_already = failure.what == "missed" and config.error_handler == "log"
        if failure.what in config.alert_on and not is_in_log_already:
            self.put(config.error_handler, config.error_handler_options, failure)
        elif failure.is_of_a_run:
            self._log_failure(failure)

    def put(self, handler: str, options: Options, failure: Failure) -> None:
        """Take a failure for delivery; this never waits."""
        match handler:
            case "ignore":
                return
            case "log":
                self._log_failure(failure)
                return
            case "raise":
                self._end(failure)
                return
        target = handler, tuple(sorted(options.items()))
        self._send(target, failure)

    def _send(self, target: Target, failure: Failure) -> None:
        """Take a failure for a target, unless it has to wait."""
        handler, _ = target
        replaces = self._limit.holds(target, failure)
        admitted = self._limit.admitted(target, failure, _time())
        if admitted is None:
            self._hold_back(failure, handler, replaces)
            return
        failure = admitted
        if failure.what != "missed" and self._admits(failure.job, f"{_kind(failure)}: {handler} is called"):
            announce_failure(failure, handler)
        if self._over:
            self._give_up(failure, f"the application has ended, {handler} is not called any more")
            return
        if self._waiting >= MAX_WAITING_FAILURES:
            self._drop()
        if target not in self._queues:
            self._queues[target] = _TargetQueue()
            self._unserved.append(target)
        self._queues[target].put(failure)
        self._waiting += 1
        self._idle.clear()
        self._news.set()

    async def wait_until_delivered(self) -> None:
        """Wait until all failures have been delivered."""
        await self._idle.wait()

    async def deliver(self) -> None:
        """Deliver failures until cancelled; those of one target one after another.

        Raises:
            Exception: the error of a failure whose error handler is ``raise``.
        """
        try:
            async with create_task_group() as tasks:
                while self.escalated is None:
                    with move_on_after(self._limit.next_due() - _time()):
                        await self._news.wait()
                    self._news.clear()
                    self._send_released()
                    while self._unserved:
                        tasks.start_soon(self._serve, self._unserved.pop())
                tasks.cancel_scope.cancel()
        finally:
            self._close()
        assert self.escalated is not None
        raise self.escalated

    def _send_released(self) -> None:
        """Send the failures that have waited long enough."""
        for target, failure in self._limit.released(_time()):
            self._send(cast(Target, target), failure)

    async def _serve(self, target: Target) -> None:
        """Deliver the failures that wait for one target."""
        pending = self._queues[target]
        while pending.queues:
            # the semaphore is fair: a target that is slow gives way to others after each failure
            async with self._at_once:
                if pending.queues:  # otherwise the waiting failures were dropped in the meantime
                    pending.delivering = pending.take()
                    self._waiting -= 1
                    await self._call_handler(target, pending.delivering)
                    pending.delivering = None
        del self._queues[target]
        if not self._queues:
            self._idle.set()

    async def _call_handler(self, target: Target, failure: Failure) -> None:
        name, options = target
        reported = replace(
            failure,
            reported_at=self._clock.now(),
            namespace=self._namespace,
            link=console_link(self._console_url, failure.job, failure.run_id),
        )
        try:
            trouble = await call_handler(name, dict(options), reported)
        except Escalated as escalated:
            self._end(escalated.failure)
            return
        if not trouble:
            self._counts[failure.job].alerts["delivered"] += 1
            return
        self._counts[failure.job].alerts["failed"] += 1
        pause = self._limit.failed(target, failure, _time())
        if pause is None:
            then = "the failure is only in the log"
        else:
            then = f"it is called again in {_minutes(pause)}"
        self._news.set()
        if self._admits(failure.job, f"the error handler {name} fails"):
            text = "%s: the error handler %s failed, so %s: %s"
            log.error(text, failure.job, name, then, trouble, extra={"job": failure.job})
        if not failure.undelivered:
            self._log_failure(failure)

    def _end(self, failure: Failure) -> None:
        """Let a failure end the application."""
        if self.escalated is None:
            self.escalated = failure.error
            log_ending(failure)
            self._news.set()

    def _drop(self) -> None:
        """Drop the oldest failure of the target and job for which most failures wait."""
        queues = list[tuple[int, _TargetQueue, str]]()
        for of_target in self._queues.values():
            for of_job, queue in of_target.queues.items():
                queues.append((len(queue), of_target, of_job))
        _, pending, job = max(queues, key=itemgetter(0))
        self._waiting -= 1
        self._dropped += 1
        why = (
            f"{MAX_WAITING_FAILURES} failures wait already, and this is the oldest of the longest queue"
            f" ({self._dropped} dropped so far)"
        )
        self._give_up(pending.take(job), why, dropped=self._dropped)

    def _hold_back(self, failure: Failure, handler: str, replaces: bool) -> None:
        """Log an alert that has to wait; missed moments are in the log already, and limited there as well.

        If it takes the place of another one that waited, that one is not sent any more.
        """
        self._news.set()
        if replaces:
            self._counts[failure.job].alerts["dropped"] += 1
        if failure.what != "missed":
            self._log_failure(failure, f"{handler} has been sent such alerts just now, so this one waits")

    def _give_up(self, failure: Failure, why: str, **fields: object) -> None:
        self._counts[failure.job].alerts["dropped"] += 1
        self._log_failure(failure, why, **fields)

    def _log_failure(self, failure: Failure, why: str = "", **fields: object) -> None:
        if self._admits(failure.job, _kind(failure)):
            log_failure(failure, why, **fields)

    def _close(self) -> None:
        """Log the undelivered failures when the application ends."""
        dropped = 0
        for (name, _), pending in self._queues.items():
            for failure in pending.left():
                self._give_up(failure, f"the application ended before {name} was done")
                dropped += 1
        if dropped:
            text = "the application ended before error handlers had delivered all failures: %d are only in the log"
            log.error(text, dropped, extra={"dropped": dropped})
        for failure in self._limit.held:  # the log has them already, and those that failed are counted
            if not failure.undelivered:
                self._counts[failure.job].alerts["dropped"] += 1
        self._queues.clear()
        self._over = True
        self._idle.set()  # nothing will be delivered any more, so wake those that wait for it


async def call_handler(name: str, options: Options, failure: Failure) -> str:
    """Give a failure to an error handler; return why that has failed, or an empty text.

    Raises:
        Escalated: the error handler is ``raise``.
    """
    try:
        with move_on_after(DELIVERY_TIMEOUT) as limit:
            async with UserCode("it"):
                await find(name)(failure, options)
        if limit.cancelled_caught:
            return f"was not done within {DELIVERY_TIMEOUT:g} s"
    except Escalated:
        raise
    except ElasticJobError as error:
        return error.with_page()
    except Exception as error:
        return error_line(error)
    return ""


def _time() -> float:
    return asyncio.get_running_loop().time()


def _minutes(seconds: float) -> str:
    return counted(round(seconds / 60), "minute")


def _kind(failure: Failure) -> str:
    """Return which lines are limited together."""
    if not failure.is_of_a_run:
        return f"failures of jobs: {failure.what}"
    what = "records" if failure.part else "runs"
    return f"{what} fail with {type(failure.error).__name__}"
