"""Reports missed moments: with an event, a count and a line in the log; error handlers are called if a job wants it.

It also logs which records were lowered, since their moments may run twice.
"""

from __future__ import annotations

from aioelasticjob.clock import Clock
from aioelasticjob.config.job import JobConfig
from aioelasticjob.core.commands import Report, SayAhead, SayLowered
from aioelasticjob.core.reasons import ORDINARY_IN_STREAMS, Newest
from aioelasticjob.core.requests import Span
from aioelasticjob.core.schedules import FOREVER, InForce
from aioelasticjob.core.timeline import Passed, Timeline
from aioelasticjob.cron.zone import local_text
from aioelasticjob.error_handlers import ErrorDispatcher, Failure
from aioelasticjob.errors import MissedRuns
from aioelasticjob.events import MOMENTS_COUNTED, Events, Misfired
from aioelasticjob.ground.limited_log import MOST, LimitedLog
from aioelasticjob.ground.plural import listed_items
from aioelasticjob.ground.times import moment, time_text
from aioelasticjob.logging import logger

EXPIRED = "it was asked for, and could not begin, or go on, before the request expired"
REMOVED = (
    "it was asked for, and the item was removed before it could begin, or go on, because the item count was lowered"
)
OF_REQUESTS = frozenset({EXPIRED, REMOVED})
"""Why runs that somebody has asked for are missed."""

log = logger(__name__)


class MissedReports:
    """Reports the moments that the items of one job have missed."""

    def __init__(
        self, instance: str, clock: Clock, events: Events, limited_log: LimitedLog, dispatcher: ErrorDispatcher
    ) -> None:
        self._me = instance
        self._clock = clock
        self._events = events
        self._limited_log = limited_log
        self._dispatcher = dispatcher

    def put(self, config: JobConfig, report: Report) -> None:
        """Report missed moments.  The error handler is not called for a run that it was called for already.

        Moments that come while a stream runs are events, but neither warnings nor alerts: that is how streams work.
        """
        job = config.job_name
        items = report.items
        why = report.why
        first = report.passed.first
        slot = report.passed.last
        moments = report.passed.count
        missed = f"{listed_items(items)} missed {_moments(report.passed, config.time_zone)}"
        ran_on = f"; it ran on {report.cut_off}" if report.cut_off not in why else ""
        message = f"{missed}: {why}{ran_on}; {_consequence(report)}"
        line = f"{message} (reported by {self._me})"  # several workers often write into one log
        # each request ends by itself, so a line about one must not suppress a line about another
        each = MOST if why in OF_REQUESTS else 1
        is_ordinary = config.streaming and why in ORDINARY_IN_STREAMS
        if is_ordinary:
            log.debug("%s: %s", job, line, extra={"job": job, "slot": slot, "items": items, "moments": moments})
        else:
            self._limited_log.warning(log, job, why, line, each=each, slot=slot, items=items, moments=moments)
        self._events.counts[job].misfired += moments * len(items)
        now = self._clock.now()
        self._events.put(Misfired(job, self._me, first, slot, items, moments, why, report.cut_off, now))
        if not (report.handled or is_ordinary):
            at = local_text(slot, config.time_zone)
            failure = Failure(job, self._me, items, "", at, MissedRuns(message, why), what="missed")
            self._dispatcher.report(config, failure)

    def ahead(self, job: str, ahead: SayAhead) -> None:
        """Log that items count as accounted for up to a time that has yet to come: moments up to it are not run."""
        until = time_text(moment(ahead.until / 1000))
        text = (
            f"{listed_items(ahead.items)}: a clock was ahead when they were run or reported, so moments up to {until} "
            "count as run or reported already"
        )
        kind = "records claim moments that have yet to come"
        self._limited_log.warning(log, job, kind, text, each=MOST, items=ahead.items)

    def lowered(self, job: str, lowered: SayLowered) -> None:
        """Log that an item is accounted for up to now only, so that moments may be run, or reported, a second time."""
        until = time_text(moment(lowered.until / 1000))
        now = time_text(moment(lowered.now / 1000))
        text = (
            f"item {lowered.item} was accounted for up to {until}, because a clock was ahead.  Now it is accounted for "
            f"up to {now}: moments between the two may be run or reported a second time"
        )
        kind = "records claimed moments that had yet to come"
        self._limited_log.warning(log, job, kind, text, each=MOST, item=lowered.item)


def left_of(span: Span | None, first: int) -> Passed:
    """Return the moments of a request from ``first`` on: one, or those of a backfill's span."""
    if span is None:
        return Passed(first, first)
    timeline = Timeline([InForce(span.schedule, 0, FOREVER, True)], first)
    passed = timeline.passed(first - 1, span.end - 1)
    return passed[0] if passed else Passed(first, first)


def _consequence(report: Report) -> str:
    """Return what happens to the missed moments, and to the newest moment if that is run instead."""
    they_are = "they are" if report.passed.count > 1 else "it is"
    match report.newest:
        case Newest.RUN | Newest.LATE:
            return f"{they_are} not run, but a later moment is"
        case _:
            again = " again" if report.cut_off else ""
            return f"{they_are} not run{again}"


def _moments(passed: Passed, time_zone: str) -> str:
    """Return missed moments as text."""
    first = local_text(passed.first, time_zone)
    last = local_text(passed.last, time_zone)
    if passed.count == 1:
        return f"the run of {last}"
    at_least = "at least " if passed.count >= MOMENTS_COUNTED else ""
    return f"{at_least}{passed.count} runs ({first} to {last})"
