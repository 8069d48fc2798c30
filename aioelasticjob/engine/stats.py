"""Notes a job's executions: it counts and logs runs, puts events, and passes failures to the error handler."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

from aioelasticjob.clock import Clock
from aioelasticjob.config.job import JobConfig
from aioelasticjob.core.effects import EndRun
from aioelasticjob.cron.zone import local_text
from aioelasticjob.engine.early_end import FailedAttempt
from aioelasticjob.engine.execution import RUN_CANCELLED, Execution
from aioelasticjob.engine.member import Member
from aioelasticjob.engine.missed_reports import MissedReports
from aioelasticjob.engine.run_counts import RunCounts
from aioelasticjob.error_handlers import ErrorDispatcher, Failure
from aioelasticjob.errors import ElasticJobError, GivenUp, error_line
from aioelasticjob.events import CaughtUp, Closed, Events, Refused
from aioelasticjob.ground.limited_log import MOST
from aioelasticjob.ground.plural import listed_items
from aioelasticjob.jobs.context import Context, run_id, task_id
from aioelasticjob.logging import logger
from aioelasticjob.model import FireSource, Outcome, VersionedRecord

CUT_SHORT = (Outcome.CANCELLED, Outcome.STOPPED)
"""The outcomes of runs that were cancelled: before their end, or before their handler began."""

log = logger(__name__)


class ExecutionStats:
    """Counts and reports the executions of one job in one session."""

    def __init__(self, member: Member, clock: Clock, events: Events, dispatcher: ErrorDispatcher) -> None:
        self._job = member.layout.job
        self._me = member.id
        self._clock = clock
        self._events = events
        self._dispatcher = dispatcher
        self._limited_log = member.limited_log
        self._counts = events.counts[self._job]
        self.run_counts = RunCounts()
        """Counts the runs that ended here; the coordinator publishes the counts."""

    @property
    def missed_reports(self) -> MissedReports:
        """What reports the moments that the job's items have missed."""
        return MissedReports(self._me, self._clock, self._events, self._limited_log, self._dispatcher)

    def began(self, execution: Execution, *, catch_up: bool) -> None:
        """Note that an execution begins.  ``catch_up`` says that no instance was up when its moment came."""
        fire = execution.claim.fire
        self._counts.fires[fire.source] += 1
        if catch_up:
            self._counts.caught_up += 1
            items = tuple(execution.claim.items)
            self._events.put(CaughtUp(self._job, self._me, fire.slot, items))
        if execution.trace is not None:
            execution.trace.began()
        if fire.source is FireSource.FAILOVER and execution.config.log_runs != "none":
            items = tuple(execution.claim.items)
            kind = "runs that were cut off are run again"
            instances = {record.instance for record in execution.claim.before.values()}
            former = ", ".join(sorted(instances))
            text = f"was cut off on {former}, and begins again on {self._me}"
            self._warn(execution, items, text, kind, instance=former)
        if execution.config.log_runs == "all":
            items = tuple(execution.claim.items)
            what = "begins" if len(items) == 1 else "begin"
            self._log(logging.INFO, execution, items, what)

    def ended(self, execution: Execution, seconds: float, why: str | None = None) -> None:
        """Note the outcomes of an execution that took so many ``seconds``; ``why`` says why it was cancelled."""
        cut_short = False
        for item in execution.claim.items:
            outcome = execution.outcomes.get(item, Outcome.CANCELLED)
            if execution.job.engine is None:  # an engine counts records instead
                self.run_counts.succeeded += outcome is Outcome.COMPLETED
                self.run_counts.failed += outcome in (Outcome.FAILED, Outcome.TIMED_OUT)
            self._counts.runs[outcome] += 1
            cut_short |= outcome in CUT_SHORT
        if execution.trace is not None:
            execution.trace.close(execution.outcomes, seconds)
        if execution.config.log_runs in ("ends", "all"):
            self._log_ends(execution, seconds)
        elif cut_short and execution.config.log_runs == "failures":  # no error handler is called for these runs
            self._warn_of_cancelled(execution, Outcome.CANCELLED, seconds, why)
            self._warn_of_cancelled(execution, Outcome.STOPPED, seconds, RUN_CANCELLED)

    def failed(
        self, config: JobConfig, context: Context, error: Exception, part: str = "", *, run_goes_on: bool = False
    ) -> None:
        """Pass the failure of a run, or of a part of it, to the error handler that is configured now."""
        if config.log_runs == "none" and config.error_handler == "log":
            return
        fire_time = local_text(context.fire.slot, config.time_zone)
        failure = Failure(
            context.job_name,
            context.instance,
            context.claimed,
            context.task_id,
            fire_time,
            error,
            attempts=context.attempt,
            part=part,
            run_goes_on=run_goes_on,
        )
        self._dispatcher.report(config, failure)

    def attempt_failed(self, execution: Execution, failed: FailedAttempt) -> None:
        """Note an attempt that has failed; a line says so if another one follows, else the error handler does."""
        context = failed.context
        retry = execution.config.retry
        self._counts.failed_attempts += 1
        if execution.trace is not None:
            execution.trace.attempt_failed(failed)
        if failed.pause is None or retry is None or execution.config.log_runs == "none":
            return
        which = f"attempt {context.attempt} of {retry.attempts}"
        when = _when(execution)
        where = context.instance
        error = error_line(failed.error)
        text = f"{listed_items(context.claimed)}: {which} failed on {where} in the run of {when}: {error}"
        self._limited_log.warning(
            log,
            self._job,
            f"attempts fail with {type(failed.error).__name__}",
            f"{text}; the next one begins in {failed.pause:.3g} s",
            **_about(execution, context.claimed),
            attempt=context.attempt,
            task_id=context.task_id,
        )

    def _warn_of_cancelled(self, execution: Execution, outcome: Outcome, seconds: float, why: str | None) -> None:
        """Log which runs ended with this outcome, because they were cancelled, and why."""
        because = f": {why}" if why else ""
        for items, when in _ends(execution, outcome, seconds):
            self._warn(execution, items, f"was cancelled {when}{because}", "runs were cancelled before their end")

    def _warn(self, execution: Execution, items: Sequence[int], what: str, kind: str, **about: Any) -> None:
        """Log ``what`` has become of the run of items; lines of one ``kind`` are limited."""
        text = f"{listed_items(items)}: the run of {_when(execution)} {what}"
        about = about | _about(execution, items)
        self._limited_log.warning(log, self._job, kind, text, each=MOST, **about)

    def _log_ends(self, execution: Execution, seconds: float) -> None:
        """Log the end of an execution, in one line for each outcome."""
        for outcome in Outcome:
            level = logging.INFO if outcome is Outcome.COMPLETED else logging.WARNING
            about = {"seconds": round(seconds, 3), "outcome": outcome.value}
            for items, when in _ends(execution, outcome, seconds):
                self._log(level, execution, items, f"{outcome.value} {when}", **about)

    def _log(self, level: int, execution: Execution, items: Sequence[int], what: str, **about: object) -> None:
        """Log ``what`` has become of items of an execution."""
        source = execution.claim.fire.source.value
        text = f"{listed_items(items)} {what} ({source} for {_when(execution)})"
        extra = {"job": self._job, **_about(execution, items), **about}
        log.log(level, "%s: %s", self._job, text, extra=extra)

    def ended_by_leader(self, config: JobConfig, ended: EndRun) -> GivenUp | None:
        """Note that this instance has ended, as the leader, a run that was cut off and that nobody rescues.

        If the run was given up, report that to the error handler, and return the error; None if it was cancelled.
        """
        item = ended.item
        run = ended.run.record
        if ended.outcome == Outcome.STOPPED:
            self._put_closed(item, ended.run)
            text = "%s: the run of item %d was cancelled, and was cut off on %s: it ends as stopped, and is not rescued"
            about = {"job": self._job, "item": item, "instance": run.instance}
            kind = "runs that were cut off were cancelled, and end as stopped"
            if self._limited_log.admits(log, self._job, kind, each=MOST, level=logging.INFO):
                log.info(text, self._job, item, run.instance, extra=about)
            return None
        error = GivenUp(run.rescues, run.instance)
        task = task_id(self._job, str(item), run.instance, run.run, run.moment)
        fire_time = local_text(run.moment, config.time_zone)
        failure = Failure(self._job, run.instance, (item,), task, fire_time, error, what="given-up")
        self._dispatcher.report(config, failure)
        return error

    def _put_closed(self, item: int, closed: VersionedRecord) -> None:
        run = closed.record
        now = self._clock.now()
        source = next((one for one in FireSource if one == run.source), FireSource.SCHEDULE)
        task = task_id(self._job, str(item), run.instance, run.run, closed.zxid or run.moment)
        event = Closed(self._job, self._me, run.moment, source, item, Outcome.STOPPED, run.instance, task, now)
        self._events.put(event)

    def refused(self, why: ElasticJobError, *, again: bool) -> None:
        """Note that a fire is not run: each one is an event, and the first of a series is logged."""
        self._events.put(Refused(self._job, self._me, str(why)))
        kind = f"instances refuse to run items: {type(why).__name__}"
        if not again and self._limited_log.admits(log, self._job, kind):
            text = "%s: this instance refuses to run items: %s"
            log.error(text, self._job, why.with_page(), extra={"job": self._job})


def _ends(execution: Execution, outcome: Outcome, seconds: float) -> Iterator[tuple[Sequence[int], str]]:
    """Yield the items of an outcome, those whose handler was called first, each time with when their run ended."""
    outcomes = execution.outcomes
    items = [item for item in execution.claim.items if outcomes.get(item, Outcome.CANCELLED) is outcome]
    begun = execution.begun if outcome in CUT_SHORT else frozenset(items)
    ran = [item for item in items if item in begun]
    others = [item for item in items if item not in begun]
    if ran:
        yield ran, f"after {seconds:.3f} s"
    if others:
        yield others, "before the handler began"


def _about(execution: Execution, items: Sequence[int]) -> dict[str, Any]:
    """Return the fields of a line about items of an execution."""
    fire = execution.claim.fire
    run = run_id(execution.config.job_name, fire)
    return {"items": tuple(items), "slot": fire.slot, "run_id": run, "source": fire.source.value}


def _when(execution: Execution) -> str:
    return local_text(execution.claim.fire.slot, execution.config.time_zone)
