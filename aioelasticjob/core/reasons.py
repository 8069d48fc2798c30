"""Why moments passed without a run: the reason follows from what happened at the time, and from the item's record.

Times are in milliseconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import NamedTuple

from aioelasticjob.core.timeline import Passed, Timeline
from aioelasticjob.ground.values import value
from aioelasticjob.model import Record

SKIPPED = "the clock was set ahead and skipped this time"
AWAY = "the registry could not be reached"
REFUSED = "the registry refused to claim or to settle items"
CLOCK = "the clock of the instance that held the item was too far from the registry's"
NO_INSTANCE_UP = "no instance was up"
BUSY = "the last run was still going on"
ENDED = "the schedule was changed before the item could be run"
NO_CALENDAR = "a calendar was missing: {}"
OURS = "an earlier session of this process held the item, and has ended"
GONE = "{}, which ran before, was gone, and this instance had not taken over yet"
BLOCKED = "another instance held or ran the item, or the item waited for its rescue"
UNSETTLED = "the assignment of items was being changed"
HELD_UP = "this process was too slow or was suspended"
OBSTRUCTED = "nodes that somebody has made by hand prevent the claim of the item"
CUT_OFF = "the run was cut off, and failover is off"
REMOVED = "the run was cut off, and the item was removed because the item count was lowered"
NOT_RECORDED = "the run was cut off, and the job keeps no records"

ORDINARY_IN_STREAMS = frozenset({BUSY, BLOCKED})
"""Reasons that are ordinary in a streaming job, whose run goes on while many moments come."""


_OF_A_RESTART = frozenset({NO_INSTANCE_UP, OURS, BLOCKED, UNSETTLED})


def is_of_restart(why: str) -> bool:
    """Whether instances that come and go are a reason for moments that were missed, however they have gone."""
    return why in _OF_A_RESTART or why.endswith(GONE.removeprefix("{}"))


class Newest(Enum):
    """What happens to the newest moment that has come to an item.  Older moments are never run any more."""

    RUN = auto()
    """The newest moment is run, and counts as on time."""
    LATE = auto()
    """The newest moment is run late."""
    MISSED = auto()
    """The newest moment is reported as missed, and is not run."""


class Cause(NamedTuple):
    """A span of time whose moments were missed for one reason."""

    began: int
    """The first millisecond of the span."""
    ended: int
    """Its last millisecond."""
    why: str


@value
class Missed:
    """Moments of an item that passed without a run, for one reason."""

    passed: Passed
    why: str


def of_last_run(record: Record) -> Iterable[Cause]:
    """Return the span in which an item was busy with its newest run, or waited for the rescue of that run."""
    if record.completed and record.completed_at:
        # the moment of a run that somebody has asked for may be long ago
        began = record.begun if record.asked else min(record.begun, record.slot)
        yield Cause(began, record.completed_at, BUSY)


def explained(
    timeline: Timeline, after: int, until: int, causes: Sequence[Cause], why: str, leave_out: int = 0
) -> list[Missed]:
    """Return the moments later than ``after`` and up to ``until``, with the reason for which each was missed.

    The first of the ``causes`` whose span holds a moment is its reason, and ``why`` is the reason of all others.  The
    moment ``leave_out`` was run.
    """
    if not timeline.has_moment(after, until):
        return []
    ends = {until}
    for cause in causes:
        ends.update((cause.began - 1, cause.ended))
    if leave_out:
        ends.update((leave_out - 1, leave_out))
    spans = list[tuple[int, int, str]]()
    start = after
    for end in sorted(end for end in ends if after < end <= until):
        reason = next((cause.why for cause in causes if cause.began <= end <= cause.ended), why)
        is_continued = bool(spans) and spans[-1][1:] == (start, reason)
        if end == leave_out:
            pass
        elif is_continued:
            spans[-1] = (spans[-1][0], end, reason)
        else:
            spans.append((start, end, reason))
        start = end
    return [Missed(passed, reason) for start, end, reason in spans for passed in timeline.passed(start, end)]
