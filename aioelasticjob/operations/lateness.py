"""Which moments of a job have not begun, or not ended, as soon as the job's settings demand.  Nothing here waits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, TypeAlias

from aioelasticjob.ground.times import moment
from aioelasticjob.model import Record
from aioelasticjob.operations.status import ItemStatus, JobStatus

Missing: TypeAlias = Literal["ended", "begun"]


@dataclass(frozen=True, slots=True)
class Lateness:
    """A moment that is late."""

    moment: datetime
    missing: Missing
    """What it has not done in time."""
    within: float
    """The seconds that the job allows for that."""
    items: tuple[int, ...]
    run: str
    """The name of the run that goes on, or was cut off, on the first of them; empty if there is none."""


def lateness(job: JobStatus, now: float) -> Lateness | None:
    """Return what is late of a job; an end that is missing goes before a beginning.  None if nothing is late.

    Moments that were excused, because the job or the item was switched off, are accounted for in the item's record.
    """
    if job.state == "switched off" or job.schedule is None:
        return None
    resting = {one.item for one in job.resting}
    for within, missing in _limits(job):
        due = job.schedule.newest_come(moment(now - within))
        if due is None:
            continue
        at = due.timestamp()
        items = [one for one in job.items if one.item not in resting and _concerns(at, one, job)]
        late = {one.item: one.record for one in items if one.record is not None and _IS_LATE[missing](one.record, at)}
        if late:
            first = next(iter(late.values()))
            run = first.run if first.begun and not first.outcome else ""
            return Lateness(due, missing, within, tuple(late), run)
    return None


def late_at(job: JobStatus, now: float) -> float | None:
    """Return when a moment of a job may become late next, in seconds since the epoch."""
    schedule = job.schedule
    if schedule is None:
        return None
    found = list[float]()
    for within, _ in _limits(job):
        following = schedule.next_to_come(moment(now - within))
        if following is not None:
            found.append(schedule.start_of(following).timestamp() + within)
    return min(found, default=None)


def _limits(job: JobStatus) -> list[tuple[float, Missing]]:
    limits: tuple[tuple[float | None, Missing], ...] = (
        (job.config.must_end_within, "ended"),
        (job.config.must_start_within, "begun"),
    )
    return [(within, missing) for within, missing in limits if within is not None]


def _concerns(at: float, item: ItemStatus, job: JobStatus) -> bool:
    """Whether the schedule was in force at a moment, and the item is known to have been there."""
    since = job.scheduled_since
    if item.record is None or not item.record.accounted:
        since = max(since, job.configured_at)  # the item may be new, because the number of items was raised
    return at > since


def _has_not_begun(record: Record, at: float) -> bool:
    return record.accounted < at * 1000


def _has_not_ended(record: Record, at: float) -> bool:
    """Whether a moment waits for its run, or its run, or that of an earlier moment, goes on or was cut off."""
    if _has_not_begun(record, at):
        return True
    is_run_of_a_moment = record.begun > 0 and not record.asked
    return is_run_of_a_moment and not record.outcome and record.slot <= at * 1000


_IS_LATE: Final[dict[Missing, Callable[[Record, float], bool]]] = {"ended": _has_not_ended, "begun": _has_not_begun}
