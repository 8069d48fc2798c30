"""Running scheduled moments of the past again: those of a span (backfill), or one of them (rerun)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from aioelasticjob.core.request_runs import open_requests
from aioelasticjob.core.requests import Request, Span
from aioelasticjob.core.view import JobView
from aioelasticjob.cron.zone import local_time
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.plural import counted
from aioelasticjob.model import FireSource
from aioelasticjob.operations.asking import (
    Asked,
    disabled_note,
    item_numbers,
    milliseconds,
    new_request,
    see_whether_recorded,
    see_whether_requests_work,
    write_request,
)
from aioelasticjob.operations.cascade import write_cascade
from aioelasticjob.operations.queries import listed, view_of
from aioelasticjob.operations.results import NotPossible
from aioelasticjob.registry.session import Session

COUNTED = 10_000
"""How many moments of a span are counted before the plan says that there are more."""


@dataclass(frozen=True, slots=True)
class BackfillPlan:
    """What a backfill runs."""

    first: datetime
    """The oldest moment, in the job's time zone."""
    last: datetime
    """The newest moment, in the job's time zone."""
    moments: int
    """The number of moments; at ``COUNTED`` the count stops."""
    items: int
    """How many items run each of these moments, with those that are disabled."""
    note: str = ""
    """The end of the sentence: which items are disabled, so that their part waits."""

    @property
    def summary(self) -> str:
        """The plan as one sentence."""
        return f"{self.moments_text}{self.note}"

    @property
    def moments_text(self) -> str:
        """The moments and the number of items."""
        more = "at least " if self.moments >= COUNTED else ""
        if self.moments == 1:
            return f"the moment {self.first.isoformat()} of {counted(self.items, 'item')}"
        span = f"{self.first.isoformat()} to {self.last.isoformat()}"
        return f"{more}{counted(self.moments, 'moment')} ({span}) of {counted(self.items, 'item')}"


async def plan_backfill(
    session: Session, job: str, start: datetime, end: datetime, *, items: Iterable[int] | None = None
) -> BackfillPlan:
    """Return what a backfill would run, and write nothing; raises the same errors as ``backfill``."""
    view = await view_of(session, job, request="")
    return _plan(view, await _request(session, view, _span(view, start, end), ("end", end), items, None, ""))


async def backfill(
    session: Session,
    job: str,
    start: datetime,
    end: datetime,
    *,
    items: Iterable[int] | None = None,
    items_at_once: int | None = None,
    id: str | None = None,
    by: str = "",
    cascade: bool = False,
) -> Asked:
    """Ask for runs of all scheduled moments from ``start`` (included) to ``end`` (not included), which is not later
    than now.

    Each item runs its moments one after another, oldest first, in turns with the scheduled ones.  Moments that ran
    before run again.  The schedule is the one of now, also if it is changed meanwhile.  At most ``items_at_once`` items
    run at a time in the whole cluster.  The moments of an item that is disabled wait until it is enabled.

    With ``cascade`` the jobs that follow run these moments as well, once the jobs that they follow have run all of
    them; if a run has not completed, they do not, unless any outcome will do for them.

    Raises:
        InvalidSetting: no such job, the job has no schedule or does not allow it, or an argument makes no sense.
        NotPossible: the job's configuration is invalid.
        ChangedMeanwhile: others have changed the job meanwhile.
        RegistryError: the registry could not be read or written.
    """
    view = await view_of(session, job, request=id or "")
    wanted = await _request(session, view, _span(view, start, end, items_at_once), ("end", end), items, id, by)
    return await _write(session, view, wanted, cascade=cascade)


async def rerun(
    session: Session,
    job: str,
    fire_time: datetime,
    *,
    items: Iterable[int] | None = None,
    id: str | None = None,
    by: str = "",
    cascade: bool = False,
) -> Asked:
    """Ask for another run of one scheduled moment, which must be one of the schedule's; ``cascade`` as in a backfill.

    Raises: as ``backfill`` does.
    """
    view = await view_of(session, job, request=id or "")
    begin = milliseconds("fire_time", fire_time)
    span = replace(_schedule(view), start=begin, end=begin + 1)
    if span.following(0) is None:
        raise InvalidSetting(
            "fire_time", fire_time.isoformat(), f"must be a moment of the schedule; {_near(view, fire_time)}"
        )
    wanted = await _request(session, view, span, ("fire_time", fire_time), items, id, by)
    return await _write(session, view, wanted, cascade=cascade)


async def _write(session: Session, view: JobView, wanted: Request, *, cascade: bool) -> Asked:
    summary = f"{view.layout.job}: asked to run {_plan(view, wanted).moments_text} again"
    is_there = view.layout.request(wanted.id) in view.tree
    if cascade and not is_there:
        return await write_cascade(session, view, wanted, summary)
    return await write_request(session, view, wanted, summary)


def see_no_backfill(view: JobView) -> None:
    """Check that the number of items can be changed.

    Raises:
        NotPossible: a backfill is under way, which counts on the items that there are.
    """
    open_ = [request.id for request in open_requests(view) if request.source is FireSource.BACKFILL]
    if open_:
        raise NotPossible(
            f"{view.layout.job}: the number of items cannot be changed while moments are run again "
            f"({listed(open_)}): wait for that, or cancel it"
        )


async def _request(
    session: Session,
    view: JobView,
    span: Span,
    until: tuple[str, datetime],
    items: Iterable[int] | None,
    id: str | None,
    by: str,
) -> Request:
    """Return a backfill, whose newest moment is given ``until``: the name and the value of a setting."""
    see_whether_requests_work(view)
    see_whether_recorded(view, f"moments of {view.layout.job} can be run again only with monitor_execution = True")
    wanted = await new_request(session, view, None if items is None else item_numbers(items), id, by)
    if span.end > wanted.asked + 1:
        setting, newest = until
        raise InvalidSetting(setting, newest.isoformat(), "must not be later than now: later moments run by themselves")
    return replace(wanted, source=FireSource.BACKFILL, span=span)


def _schedule(view: JobView) -> Span:
    schedule = view.schedule
    if schedule is None:
        raise InvalidSetting("cron", None, f"{view.layout.job} has no schedule, so it has no moments to run again")
    if missing := schedule.missing_calendars:
        what = listed(missing)
        raise NotPossible(f"{view.layout.job}: a calendar is missing, so its moments are not known: make {what} first")
    return Span(0, 0, schedule)


def _span(view: JobView, start: datetime, end: datetime, items_at_once: int | None = None) -> Span:
    first = milliseconds("start", start)
    last = milliseconds("end", end)
    if last <= first:
        raise InvalidSetting("end", end.isoformat(), f"must be later than the start, {start.isoformat()}")
    if items_at_once is not None and (isinstance(items_at_once, bool) or not isinstance(items_at_once, int)):
        raise InvalidSetting("items_at_once", items_at_once, "must be a whole number, 1 or more")
    if items_at_once is not None and items_at_once < 1:
        raise InvalidSetting("items_at_once", items_at_once, "must be 1 or more")
    span = replace(_schedule(view), start=first, end=last, items_at_once=items_at_once or 0)
    if span.following(0) is None:
        raise InvalidSetting("start", start.isoformat(), f"the schedule has no moment from then to {end.isoformat()}")
    return span


def _plan(view: JobView, wanted: Request) -> BackfillPlan:
    assert wanted.span is not None
    first, last, moments = wanted.span.moments(COUNTED)
    begin, end = (local_time(one, wanted.span.schedule.settings.time_zone) for one in (first, last))
    items = sum(1 for _ in wanted.within(view.config.sharding_total_count))
    return BackfillPlan(begin, end, moments, items, disabled_note(view, wanted))


def _near(view: JobView, instant: datetime) -> str:
    schedule = view.schedule
    near = () if schedule is None else (schedule.previous_before(instant), schedule.next_after(instant))
    return f"near it are {listed(one.isoformat() for one in near if one is not None)}"
