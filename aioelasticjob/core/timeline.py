"""The moments of a job over time: those of its schedule, and those of former schedules until each was replaced.

Times are in milliseconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aioelasticjob.core.records import MAX_MILLISECONDS
from aioelasticjob.core.schedules import InForce, Schedules
from aioelasticjob.core.upstreams import Upstreams
from aioelasticjob.events import MOMENTS_COUNTED
from aioelasticjob.schedules import Schedule

AHEAD = 60_000
"""How far ahead of this clock, in milliseconds, a moment may lie that other jobs have ended: theirs may be ahead."""
NEVER = MAX_MILLISECONDS
"""Stands for the time at which a moment comes if that is not known yet."""


@dataclass(frozen=True, slots=True)
class Passed:
    """Consecutive moments of one schedule."""

    first: int
    last: int
    count: int = 1
    """The number of moments.  It is counted up to ``MOMENTS_COUNTED``."""


class Timeline:
    """All moments of a job, and the present position among them.

    The moments of a job that follows others come when these have ended them.
    """

    def __init__(self, periods: Sequence[InForce], now: int, upstreams: Upstreams | None = None) -> None:
        self._upstreams = upstreams
        self._periods = tuple(periods)
        """The schedules since records were last switched on or off, oldest first; the last one has no end."""
        self.newest = 0
        """The newest moment that has come; 0 if there was none."""
        self.previous = 0
        """A moment or time before ``newest``, with no moment between the two."""
        self.upcoming: int | None = None
        """The next moment; None if there is none."""
        self.starts_at = 0
        """When the next moment comes: then, or later if there is jitter; far in the future if that is not known."""
        self._now = now
        self._has_followed = any(one.follows for one in self._periods)
        self._is_delayed = any(one.schedule is not None and one.schedule.settings.jitter for one in self._periods)
        lacking = [one for one in self._periods if one.schedule is not None and one.schedule.missing_calendars]
        self.lacking: Sequence[InForce] = lacking
        """The schedules of which a calendar is missing, oldest first: their moments are not run."""
        self._search(now)

    @classmethod
    def of(cls, schedules: Schedules, now: int, upstreams: Upstreams | None = None) -> Timeline:
        """Return the timeline of the schedules that the leader has noted."""
        return cls(schedules.periods, now, upstreams)

    @property
    def begins(self) -> int:
        """The time after which this timeline knows moments."""
        return self._periods[0].since

    @property
    def is_recorded(self) -> bool:
        """Whether runs are recorded while the schedule in force is followed."""
        return self._periods[-1].recorded

    @property
    def followed_since(self) -> int:
        """Since when the newest of its schedules is in force."""
        return self._periods[-1].since

    @property
    def replaced(self) -> Sequence[InForce]:
        """The former schedules, oldest first."""
        return self._periods[:-1]

    def lacks_calendar(self, moment: int) -> bool:
        """Whether a moment is not run because a calendar is missing now, or was missing when the moment came."""
        if not self.lacking:
            return False
        return self.lacking[-1] is self._periods[-1] or any(one.since < moment <= one.until for one in self.lacking)

    def advance(self, now: int) -> None:
        """Move on to ``now``, or back to it if the time was set back."""
        if self._upstreams is not None:
            self._search(now)
            return
        upcoming = self.upcoming
        if self.newest > now or (self._is_delayed and self.start_of(self.newest) > now):
            self._search(now)
        elif upcoming is not None and self.starts_at <= now:
            self.previous = self.newest
            self.newest = upcoming
            self._set_upcoming(self._after(upcoming))
            if self.upcoming is not None and self.starts_at <= now:
                self._search(now)

    def start_of(self, moment: int) -> int:
        """Return when a moment comes: then, or later if there is jitter, while its schedule is in force."""
        if self._upstreams is not None:
            if moment > self._upstreams.ended:
                return NEVER
            return min(self._upstreams.came(moment), self._now)  # the others' clocks may be ahead
        if self._is_delayed:
            for period in self._periods:
                if period.schedule is not None and period.since < moment <= period.until:
                    return min(period.schedule.starts(moment), period.until)
        return moment

    def came_by(self, moment: int) -> int:
        """Return the transaction by which a moment came; 0 if none did it, or it is not known any more."""
        return 0 if self._upstreams is None else self._upstreams.came_by(moment)

    def has_come(self, time: int) -> int:
        """Return up to when moments have come at a time: up to then, or up to before one that comes later.

        Records and reports know moments only; whoever compares them with a time of a clock asks this first.
        """
        if self._upstreams is not None:
            return self._upstreams.has_come(time)
        newest = self.newest_until(time) if self._is_delayed else 0
        return newest - 1 if self.start_of(newest) > time else time

    def hindrance(self, moment: int) -> str:
        """Return why a moment that has come is not run: because of the jobs that were followed when it came."""
        if not self._has_followed:
            return ""
        for period in self._periods:
            if period.since < moment <= period.until and period.follows:
                if period.follows != self._periods[-1].follows or self._upstreams is None:
                    return "the schedule was changed, and nobody knows any more whether they have ended it"
                return self._upstreams.hindrance(moment)
        return ""

    def hindrances(self, moment: int) -> list[tuple[int, int, str]]:
        """Return first and last moments that the followed jobs have hindered, up to the newest one, and why."""
        return [] if self._upstreams is None else list(self._upstreams.causes(moment))

    def following(self) -> int:
        """Return the moment after the upcoming one; 0 if there is none."""
        following = None if self.upcoming is None else self._after(self.upcoming)
        return following or 0

    def has_moment(self, after: int, until: int) -> bool:
        """Whether a moment came later than ``after`` and up to ``until``."""
        if after >= until:
            return False
        if self.previous <= after and until < (self.upcoming or until + 1):
            return after < self.newest <= until
        following = self._after(after)
        return following is not None and following <= until

    def newest_until(self, until: int) -> int:
        """Return the newest moment up to a time; 0 if there is none."""
        for period in reversed(self._periods):
            newest = _newest(period.schedule, min(until, period.until)) if period.since < until else 0
            if newest > period.since:
                return newest
        return 0

    def passed(self, after: int, until: int) -> list[Passed]:
        """Return the moments later than ``after`` and up to ``until``, oldest first: one entry for each schedule."""
        found = list[Passed]()
        for period in self._periods:
            start = max(after, period.since)
            end = min(until, period.until)
            passed = _passed(period.schedule, start, end) if start < end else None
            if passed is not None:
                found.append(passed)
        return found

    def _search(self, now: int) -> None:
        self._now = now
        if self._upstreams is None:
            come = self.has_come(now)
        else:  # not when the others' clocks say it: this clock may be a little behind, and nothing wakes the job later
            come = min(self._upstreams.ended, now + AHEAD)
        self.newest = self.newest_until(come)
        self.previous = self.newest_until(self.newest - 1) if self.newest else 0
        self._set_upcoming(self._after(come))

    def _set_upcoming(self, upcoming: int | None) -> None:
        self.upcoming = upcoming
        self.starts_at = 0 if upcoming is None else self.start_of(upcoming)

    def _after(self, milliseconds: int) -> int | None:
        """Return the first moment later than a time; None if there is none."""
        for period in self._periods:
            if period.until <= milliseconds or period.schedule is None:
                continue
            following = period.schedule.after(max(milliseconds, period.since))
            if following is not None and following <= period.until:
                return following
        return None


def _newest(schedule: Schedule | None, until: int) -> int:
    """Return the newest moment of a schedule up to a time; 0 if there is none."""
    found = None if schedule is None else schedule.until(until)
    return found or 0


def _passed(schedule: Schedule | None, after: int, until: int) -> Passed | None:
    """Return the moments of a schedule later than ``after`` and up to ``until``; None if there are none."""
    first = None if schedule is None else schedule.after(after)
    if schedule is None or first is None or first > until:
        return None
    last = first
    count = 1
    following = schedule.after(first)
    while following is not None and following <= until and count < MOMENTS_COUNTED:
        last = following
        count += 1
        following = schedule.after(following)
    if following is not None and following <= until:
        last = _newest(schedule, until) or last
    return Passed(first, last, count)
