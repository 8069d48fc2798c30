"""Sets of moments.  Each answers two questions: which is the first one after a time, and the newest one up to a time.

Times are whole milliseconds since the epoch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Protocol

from aioelasticjob.cron import Cron
from aioelasticjob.cron.fields import LAST_YEAR
from aioelasticjob.ground.times import moment
from aioelasticjob.schedules.calendars import FARTHEST, CalendarMode, ClosedDays
from aioelasticjob.schedules.days import day_of, shifts, start_of

LATEST = round(datetime(LAST_YEAR + 1, 1, 1, tzinfo=UTC).timestamp() * 1000) - 1
"""No schedule has a moment after this one."""
MAX_DAYS = 1_000
"""Open days that are looked at in vain; then there counts as none, as where a job of Saturdays has closed weekends."""


class Moments(Protocol):
    """A set of moments."""

    def after(self, time: int) -> int | None:
        """Return the first moment later than a time; None if there is none."""

    def until(self, time: int) -> int | None:
        """Return the newest moment up to a time, which may be that time; None if there is none."""


@dataclass(frozen=True, slots=True)
class CronMoments:
    """The moments of a cron expression."""

    cron: Cron

    def after(self, time: int) -> int | None:
        """Return the first moment later than a time; None if there is none."""
        return _milliseconds(self.cron.next_after(moment(time / 1000)))

    def until(self, time: int) -> int | None:
        """Return the newest moment up to a time; None if there is none."""
        return _milliseconds(self.cron.previous_before(moment((time + 1) / 1000)))


@dataclass(frozen=True, slots=True)
class Interval:
    """Moments with the same time between each two of them."""

    first: int
    every: int

    def after(self, time: int) -> int | None:
        """Return the first moment later than a time; None if there is none."""
        if time < self.first:
            return self.first
        found = self.first + ((time - self.first) // self.every + 1) * self.every
        return found if found <= LATEST else None

    def until(self, time: int) -> int | None:
        """Return the newest moment up to a time; None if there is none."""
        passed = min(time, LATEST) - self.first
        return None if passed < 0 else self.first + passed // self.every * self.every


@dataclass(frozen=True, slots=True)
class Dates:
    """Single moments, each given."""

    moments: tuple[int, ...]
    """In ascending order."""

    def after(self, time: int) -> int | None:
        """Return the first moment later than a time; None if there is none."""
        place = bisect_right(self.moments, time)
        return self.moments[place] if place < len(self.moments) else None

    def until(self, time: int) -> int | None:
        """Return the newest moment up to a time; None if there is none."""
        place = bisect_right(self.moments, time)
        return self.moments[place - 1] if place else None


@dataclass(frozen=True, slots=True)
class Union:
    """The moments of several sets; one that several of them have is one moment."""

    parts: tuple[Moments, ...]

    def after(self, time: int) -> int | None:
        """Return the first moment later than a time; None if there is none."""
        return min(_known(part.after(time) for part in self.parts), default=None)

    def until(self, time: int) -> int | None:
        """Return the newest moment up to a time; None if there is none."""
        return max(_known(part.until(time) for part in self.parts), default=None)


@dataclass(frozen=True, slots=True)
class Between:
    """The moments of a set from ``first`` to ``last``, both included."""

    moments: Moments
    first: int
    last: int

    def after(self, time: int) -> int | None:
        """Return the first moment later than a time; None if there is none."""
        found = self.moments.after(max(time, self.first - 1))
        return found if found is not None and found <= self.last else None

    def until(self, time: int) -> int | None:
        """Return the newest moment up to a time; None if there is none."""
        found = self.moments.until(min(time, self.last))
        return found if found is not None and found >= self.first else None


@dataclass(frozen=True, slots=True)
class Shifted:
    """The moments of a set, each moved by the same time."""

    moments: Moments
    by: int

    def after(self, time: int) -> int | None:
        """Return the first moment later than a time; None if there is none."""
        found = self.moments.after(time - self.by)
        return None if found is None else found + self.by

    def until(self, time: int) -> int | None:
        """Return the newest moment up to a time; None if there is none."""
        found = self.moments.until(time - self.by)
        return None if found is None else found + self.by


@dataclass(frozen=True, slots=True)
class OnOpenDays:
    """The moments of a set that are on open days; those on closed days are left out, or moved to an open day."""

    moments: Moments
    closed: ClosedDays
    mode: CalendarMode
    zone: tzinfo

    def after(self, time: int) -> int | None:
        """Return the first moment later than a time; None if there is none."""
        if self.mode == "skip":
            found = self.moments.after(time)
            if found is None or self.closed.is_open(day_of(found, self.zone)):
                return found
        day = day_of(min(time, LATEST), self.zone)
        for _ in range(MAX_DAYS):
            # what is on this day or later comes from no earlier day than this
            source = self.moments.after(start_of(day - self._moves_ahead, self.zone) - 1)
            if source is None:
                return None
            open_day = self.closed.open_from(max(day, day_of(source, self.zone) - self._moves_back), 1)
            if open_day is None:
                return None
            found = self._on(open_day).after(time)
            if found is not None:
                return found
            day = open_day + 1
        return None

    def until(self, time: int) -> int | None:
        """Return the newest moment up to a time; None if there is none."""
        day = day_of(min(time, LATEST), self.zone)
        for _ in range(MAX_DAYS):
            source = self.moments.until(start_of(day + 1 + self._moves_back, self.zone) - 1)
            if source is None:
                return None
            open_day = self.closed.open_from(min(day, day_of(source, self.zone) + self._moves_ahead), -1)
            if open_day is None:
                return None
            found = self._on(open_day).until(time)
            if found is not None:
                return found
            day = open_day - 1
        return None

    def moved(self, time: int) -> int | None:
        """Return where a moment on a closed day moves; None if it is left out."""
        if self.mode == "skip":
            return None
        step = self._step
        day = day_of(time, self.zone)
        target = self.closed.open_from(day, step)
        if target is None or abs(target - day) > FARTHEST:
            return None
        return self._moved(Dates((time,)), day, target).after(0)

    @property
    def _moves_ahead(self) -> int:
        """By how many days a moment moves to later days at most."""
        return FARTHEST if self.mode == "next" else 0

    @property
    def _moves_back(self) -> int:
        """By how many days a moment moves to earlier days at most."""
        return FARTHEST if self.mode == "previous" else 0

    @property
    def _step(self) -> int:
        return 1 if self.mode == "next" else -1

    def _on(self, day: int) -> Moments:
        """Return the moments of an open day with those that move to it."""
        own = Between(self.moments, start_of(day, self.zone), start_of(day + 1, self.zone) - 1)
        if self.mode == "skip":
            return own
        moved = [self._moved(self.moments, source, day) for source in self.closed.before(day, self._step)]
        return Union((own, *moved))

    def _moved(self, moments: Moments, source: int, target: int) -> Moments:
        """Return the moments of a day at the same local times of another day."""
        parts = list[Moments]()
        for shift in shifts(source, target, self.zone):
            part = Between(moments, shift.first, shift.last)
            if shift.gathered is None:
                parts.append(Shifted(part, shift.by))
            elif part.after(0) is not None:
                parts.append(Dates((shift.gathered,)))
        return Union(tuple(parts))


def _known(found: Iterable[int | None]) -> list[int]:
    return [one for one in found if one is not None]


def _milliseconds(found: datetime | None) -> int | None:
    return None if found is None else round(found.timestamp() * 1000)
