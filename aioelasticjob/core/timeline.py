"""The moments of a job over time: those of its schedule, and those of former schedules until each was replaced.

Times are in milliseconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aioelasticjob.core.schedules import InForce, Schedules
from aioelasticjob.events import MOMENTS_COUNTED
from aioelasticjob.schedules import Schedule


@dataclass(frozen=True, slots=True)
class Passed:
    """Consecutive moments of one schedule."""

    first: int
    last: int
    count: int = 1
    """The number of moments.  It is counted up to ``MOMENTS_COUNTED``."""


class Timeline:
    """All moments of a job, and the present position among them."""

    def __init__(self, periods: Sequence[InForce], now: int) -> None:
        self._periods = tuple(periods)
        """The schedules since records were last switched on or off, oldest first; the last one has no end."""
        self.newest = 0
        """The newest moment that has come; 0 if there was none."""
        self.previous = 0
        """A moment or time before ``newest``, with no moment between the two."""
        self.upcoming: int | None = None
        """The next moment; None if there is none."""
        self.starts_at = 0
        """When the next moment comes: then, or later if there is jitter."""
        self._is_delayed = any(one.schedule is not None and one.schedule.settings.jitter for one in self._periods)
        lacking = [one for one in self._periods if one.schedule is not None and one.schedule.missing_calendars]
        self.lacking: Sequence[InForce] = lacking
        """The schedules of which a calendar is missing, oldest first: their moments are not run."""
        self._search(now)

    @classmethod
    def of(cls, schedules: Schedules, now: int) -> Timeline:
        """Return the timeline of the schedules that the leader has noted."""
        return cls(schedules.periods, now)

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
        if self._is_delayed:
            for period in self._periods:
                if period.schedule is not None and period.since < moment <= period.until:
                    return min(period.schedule.starts(moment), period.until)
        return moment

    def has_come(self, time: int) -> int:
        """Return up to when moments have come at a time: up to then, or up to before one that comes later.

        Records and reports know moments only; whoever compares them with a time of a clock asks this first.
        """
        newest = self.newest_until(time) if self._is_delayed else 0
        return newest - 1 if self.start_of(newest) > time else time

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
        come = self.has_come(now)
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
