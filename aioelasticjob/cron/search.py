"""Finds the next and the previous wall time of a schedule: a search over bit masks, which knows no time zone."""

from __future__ import annotations

from datetime import datetime

from aioelasticjob.cron.fields import Fields, bits


class Search:
    """Finds wall times; a search looks at most once at each month of the schedule's years."""

    __slots__ = ("_days", "_first", "_hours", "_last", "_minutes", "_months", "_seconds", "_years")

    def __init__(self, fields: Fields) -> None:
        self._seconds, self._minutes, self._hours = bits(fields.seconds), bits(fields.minutes), bits(fields.hours)
        self._months, self._years = bits(fields.months), bits(fields.years)
        self._days = fields.days
        self._first = min(fields.hours), min(fields.minutes), min(fields.seconds)
        self._last = max(fields.hours), max(fields.minutes), max(fields.seconds)

    def next(self, wall: datetime) -> datetime | None:
        """Return the first named wall time from ``wall`` on, naive; zone and fold of ``wall`` are ignored."""
        year, month, day = wall.year, wall.month, wall.day
        if self._names(year, month, day):
            clock = self._clock_from(wall.hour, wall.minute, wall.second)
            if clock is not None:
                return datetime(year, month, day, *clock)
        date = self._date_from(year, month, day + 1)
        return None if date is None else datetime(*date, *self._first)

    def previous(self, wall: datetime) -> datetime | None:
        """Return the last named wall time up to ``wall``, naive; zone and fold of ``wall`` are ignored."""
        year, month, day = wall.year, wall.month, wall.day
        if self._names(year, month, day):
            clock = self._clock_until(wall.hour, wall.minute, wall.second)
            if clock is not None:
                return datetime(year, month, day, *clock)
        date = self._date_until(year, month, day - 1)
        return None if date is None else datetime(*date, *self._last)

    def _names(self, year: int, month: int, day: int) -> bool:
        return bool(self._years >> year & self._months >> month & self._days.mask(year, month) >> day & 1)

    def _clock_from(self, hour: int, minute: int, second: int) -> tuple[int, int, int] | None:
        if self._hours >> hour & 1:
            if self._minutes >> minute & 1 and (found := _at_or_after(self._seconds, second)) >= 0:
                return hour, minute, found
            if (found := _at_or_after(self._minutes, minute + 1)) >= 0:
                return hour, found, self._first[2]
        if (found := _at_or_after(self._hours, hour + 1)) >= 0:
            return found, self._first[1], self._first[2]
        return None

    def _clock_until(self, hour: int, minute: int, second: int) -> tuple[int, int, int] | None:
        if self._hours >> hour & 1:
            if self._minutes >> minute & 1 and (found := _at_or_before(self._seconds, second)) >= 0:
                return hour, minute, found
            if (found := _at_or_before(self._minutes, minute - 1)) >= 0:
                return hour, found, self._last[2]
        if (found := _at_or_before(self._hours, hour - 1)) >= 0:
            return found, self._last[1], self._last[2]
        return None

    def _date_from(self, year: int, month: int, day: int) -> tuple[int, int, int] | None:
        start = year, month
        while (year := _at_or_after(self._years, year)) >= 0:
            month = month if year == start[0] else 1
            while (month := _at_or_after(self._months, month)) >= 0:
                found = _at_or_after(self._days.mask(year, month), day if (year, month) == start else 1)
                if found >= 0:
                    return year, month, found
                month += 1
            year += 1
        return None

    def _date_until(self, year: int, month: int, day: int) -> tuple[int, int, int] | None:
        start = year, month
        while (year := _at_or_before(self._years, year)) >= 0:
            month = month if year == start[0] else 12
            while (month := _at_or_before(self._months, month)) >= 0:
                found = _at_or_before(self._days.mask(year, month), day if (year, month) == start else 31)
                if found >= 0:
                    return year, month, found
                month -= 1
            year -= 1
        return None


def _at_or_after(mask: int, member: int) -> int:
    """Return the lowest member of a set from ``member`` up, or -1."""
    rest = mask >> member << member
    return (rest & -rest).bit_length() - 1


def _at_or_before(mask: int, member: int) -> int:
    """Return the highest member of a set up to ``member``, or -1; ``member`` may be -1."""
    return (mask & (1 << member + 1) - 1).bit_length() - 1
