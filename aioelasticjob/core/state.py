"""The state of one job in this process: its position in the schedule, and one value for each of its items.

``Came`` says what happens to the moments that came to an item, depending on the state in which the item was.  Times
are in milliseconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto, unique
from math import inf

from aioelasticjob.core.entries import Entry
from aioelasticjob.core.records import is_cut_off, open_moment
from aioelasticjob.cron import Cron
from aioelasticjob.events import MOMENTS_COUNTED
from aioelasticjob.ground.times import moment
from aioelasticjob.model import NONE


@dataclass(frozen=True, slots=True)
class Passed:
    """Consecutive moments that passed without a run."""

    first: int
    last: int
    count: int = 1
    """The number of moments.  It is counted up to ``MOMENTS_COUNTED``."""


class Timetable:
    """A cron schedule, and the present position in it.  Moments between two looks are combined into the newest one."""

    def __init__(self, cron: Cron | None, now: int) -> None:
        self._cron = cron
        self.newest = 0
        """The newest moment that is due; 0 if there was none."""
        self.upcoming: int | None = None
        """The next moment; None if there is none."""
        self._search(now)

    def advance(self, now: int) -> int:
        """Move on to ``now``, and return how many moments are due now; they are counted up to ``MOMENTS_COUNTED``."""
        due = 0
        while self.upcoming is not None and self.upcoming <= now and due < MOMENTS_COUNTED:
            self.newest, due = self.upcoming, due + 1
            self.upcoming = self._after(self.newest)
        if self.upcoming is not None and self.upcoming <= now:
            self._search(now)
        return due

    def following(self) -> int:
        """Return the moment after the upcoming one; 0 if there is none."""
        return (self._after(self.upcoming) if self.upcoming is not None else None) or 0

    def passed(self, after: int, until: int) -> Passed | None:
        """Return the moments later than ``after`` and up to ``until``; None if there are none."""
        first = self._after(after) if after < until else None
        if first is None or first > until:
            return None
        last, count, following = first, 1, self._after(first)
        while following is not None and following <= until and count < MOMENTS_COUNTED:
            last, count, following = following, count + 1, self._after(following)
        if following is not None and following <= until:
            last = self._newest_until(until) or last
        return Passed(first, last, count)

    def _search(self, now: int) -> None:
        self.newest, self.upcoming = self._newest_until(now), self._after(now)

    def _newest_until(self, until: int) -> int:
        last = None if self._cron is None else self._cron.previous_before(moment((until + 1) / 1000))
        return 0 if last is None else round(last.timestamp() * 1000)

    def _after(self, milliseconds: int) -> int | None:
        return None if self._cron is None else self._cron.millisecond_after(milliseconds)


class Newest(Enum):
    """What happens to the newest moment that came to an item.  Older moments are never run any more."""

    RUN = auto()
    """The newest moment is run, and counts as on time."""
    LATE = auto()
    """The newest moment is run late."""
    MISSED_AND_LATE = auto()
    """The newest moment is reported as missed, and is also run late."""
    MISSED = auto()
    """The newest moment is reported as missed, and is not run."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What happens to the moments that came to an item in one state."""

    why: str
    """Why the older moments were missed."""
    newest: Newest
    """What happens to the newest moment if the job's ``misfire`` is on."""
    why_newest: str = ""
    """Why the newest moment was missed, if the reason differs from ``why``."""

    def fate(self, *, misfire: bool) -> Newest:
        """Return what happens to the newest moment: without ``misfire`` none is run late."""
        is_late = self.newest in (Newest.LATE, Newest.MISSED_AND_LATE)
        return Newest.MISSED if is_late and not misfire else self.newest


AWAY = "the registry could not be reached"
REFUSED = "the registry refused to claim or to settle items"
BUSY = "the last run was still going on"
ENDED = "the schedule was changed before the item could be run"
SET_BACK = "the registry's clock was ahead and has been set back"
UNKNOWN = "this process did not know the new schedule yet"
BLOCKED = "another instance held or ran the item, or the item waited for its rescue"
GONE = "{}, which ran before, was gone, and this instance had not taken over yet"
OURS = "an earlier session of this process held the item, and has ended"
STILL_RAN = "another instance was still running the item"

ORDINARY_IN_STREAMS = frozenset({BUSY, BLOCKED, STILL_RAN})
"""Reasons that are ordinary in a streaming job, whose run goes on while many moments come."""


@unique
class Came(Enum):
    """The state in which an item was when moments came that were not run, and the rule for these moments.

    Moments of an item that is switched off are excused (``Account.pass_over``).  Five cases do not depend on the state
    of one item, and are decided elsewhere.  For each of them, here is what would go wrong without it:

    * Moments came during an outage of the registry, or while it refused the claims or settlements of the job, or the
      clock was set ahead: that is the reason, whatever the state of the item (``MissedMoments``).  Otherwise, if the
      registry was down or its quota was used up for a minute, an operator would read that the process had been held up,
      or that the last run was still going on.  The operator would search in the wrong place.
    * No instance was up (``UnattendedMoments``): instances share marks of what was reported.  Otherwise two instances
      that come back after a night would both report it, for an item that moves from one to the other a second later.
    * The job keeps no records (``UnattendedMoments``): its leader reports what came while no instance was up, once for
      all items.  Otherwise nobody would report that night, because no instance knows when the last run was.
    * A record claims a moment that has yet to come (``FutureRecords``).  Otherwise, if a clock that is an hour ahead
      claims an item for 03:00 and is corrected at 02:00, the item would not run for an hour, and nothing would be
      reported.
    * A schedule was in force before this instance knew it (``MissedMoments.report_hidden``).  Say a job changes from
      every minute to every second at 01:59:30, and this instance learns of it after it has claimed 02:00:00.  Otherwise
      the seconds before 02:00:00 would count as claimed, because the record has only the moment of the last run.
    """

    HELD_UP = Rule("this process was too slow or was suspended", Newest.RUN)
    """The item could have been run, but this process was too slow to see that it was due."""
    UNSETTLED = Rule("the assignment of items was being changed", Newest.RUN)
    """The item was due, but the assignment was not settled yet."""
    OVERTAKEN = Rule(STILL_RAN, Newest.RUN)
    """The item was released after the claim for a later moment had been sent without it."""
    RUNNING = Rule(BUSY, Newest.MISSED_AND_LATE)
    """The item's last run was still going on in this process."""
    FOUND_RUNNING = Rule("another instance is still running the item", Newest.MISSED_AND_LATE)
    """This instance tried to claim the item, and found that another instance runs it."""
    ELSEWHERE = Rule(BLOCKED, Newest.LATE, STILL_RAN)
    """This instance knew that another instance ran the item; that run has ended now."""
    BLOCKED = Rule(BLOCKED, Newest.RUN)
    """Another instance held the item, or the item was being rescued, or it waited for a rescuer."""
    DISCONNECTED = Rule(AWAY, Newest.LATE)
    """This process could not reach the registry when the newest moment came."""
    OBSTRUCTED = Rule("nodes that somebody has made by hand prevent the claim of the item", Newest.MISSED)
    """This instance tried to claim the item, but nodes that somebody had made by hand prevented it."""
    REPLACED = Rule(ENDED, Newest.MISSED)
    """The schedule was changed before the item could be run."""
    UNHEARD = Rule(UNKNOWN, Newest.RUN)
    """The schedule was already in force, but this instance did not know it yet.

    If the schedule was changed during a run, its moments up to the end of that run are missed for the reason of
    ``RUNNING``: the run was still going on.
    """
    UNRECORDED = Rule("records were switched on or off before the item could be run", Newest.MISSED)
    """Records were switched off while another instance ran or rescued the item, so nobody sees the end of that run; or
    records were switched on, and show nothing of earlier runs."""
    SET_BACK = Rule(SET_BACK, Newest.RUN)
    """The registry's clock had been ahead, and the item's record or the newest moment was one that had yet to come."""


@dataclass(frozen=True, slots=True)
class FutureRecord:
    """A record that claims moments which have yet to come."""

    since: int
    """The time after which the item's moments are in question."""
    found: int
    """The time at which this instance found the record."""
    is_far: bool
    """Whether the record claims a moment that is too far in the future."""


@dataclass(slots=True)
class Item(Entry):
    """What the registry says of one item, and what this instance has reported of it and still has to run."""

    reported: int = 0
    """The newest moment that was run or reported here, also before the job joined again; 0 if there is none."""
    ran: int = 0
    """The newest moment that was run here to its end, also before the job joined again; 0 if there is none."""
    floor: int = 0
    """Moments up to this one are not due any more."""
    given: int = 0
    """The zxid with which the item was given to this instance; 0 if this instance does not hold the item.

    If it differs between two views, the item has moved away and come back.
    """
    elsewhere: bool = False
    """Whether another instance still runs the item."""
    rescued: bool = False
    """Whether this instance holds the item, and the item is being rescued or waits for a rescuer."""
    followed: int = 0
    """The item's last moment when this instance began to follow the schedule in force; later moments belong to that."""
    late: int = 0
    """The moment that is to be run late: when it came, another instance ran the item, or the registry was away."""
    unrecorded: int = 0
    """The newest moment that was run here before records were switched on; no record shows that."""
    lost_run: int = 0
    """When the run began that was last reported as cut off."""
    released_run: int = 0
    """When the run began of which it is known that it goes on nowhere, although it was cut off and is not rescued."""
    future: FutureRecord | None = None
    """What is known of the item's record if the record claims moments that have yet to come."""

    @property
    def accounted(self) -> int:
        """The moment up to which all moments were run, reported as missed, or excused.  Later ones are due."""
        return max(self.floor, self.record.slot)

    @property
    def run_until(self) -> int:
        """The moment up to which none is to be reported.  One that a stream has left open is due, but was run."""
        return max(self.accounted, open_moment(self.record))

    @property
    def cut_off(self) -> bool:
        """Whether the newest run has not ended, according to the record."""
        return is_cut_off(self.record)

    def is_due(self, moment: int) -> bool:
        """Whether a moment is due when it comes: it has neither been claimed nor passed over."""
        assert self.seen is not None
        record = self.seen.record
        return self.floor < moment and record.slot < moment != record.ahead

    def knows(self, moment: int) -> bool:
        """Whether a moment, or a later one, was run or reported here."""
        return self.reported >= moment > 0


class Items(dict[int, Item]):
    """The items of a job, by number.  Reading a number that is not there makes a new item."""

    def __missing__(self, number: int) -> Item:
        item = self[number] = Item()
        return item

    def ran(self, items: Iterable[int], moment: int, unfinished: Collection[int] = NONE) -> None:
        """Note that a moment was run for items.  A stream has left it open for those that are ``unfinished``.

        It is kept here, because the records of items do not stay if the job gets fewer items.
        """
        for number in items:
            item = self[number]
            item.reported = max(moment, item.reported)
            if number not in unfinished:
                item.ran = max(moment, item.ran)

    def reported(self, items: Iterable[int], moment: int) -> None:
        """Note that a moment was run or reported for items."""
        for number in items:
            self[number].reported = max(moment, self[number].reported)

    def that_may_have_offsets(self, items: Iterable[int]) -> frozenset[int]:
        """Return those of these items that may have an offset."""
        found = [number for number in items if self[number].may_have_offset]
        return frozenset(found) if found else NONE

    def join_again(self) -> None:
        """Forget everything except which moments were run or reported here."""
        self.update({number: Item(reported=item.reported, ran=item.ran) for number, item in self.items()})


@dataclass(slots=True)
class Past:
    """What the earlier lives of a job in this process have left for the next one."""

    since: float = inf
    """Since when an instance has been up, by the registry's clock, as far as known when the first life began."""
    instances: tuple[str, ...] = ()
    """What this process was called in its last sessions, and is called in this one."""
    newest_reported: int = 0
    """The newest moment that was run or reported here; 0 if there is none."""
    items: Items = field(default_factory=Items)
    """The same for each item, but of this session only: in an earlier one another schedule may have been in force."""
