"""Finds the next and the previous wall time of a schedule: a search over bit masks, which knows no time zone."""

from __future__ import annotations

from datetime import datetime

from aioelasticjob.cron.fields import Fields, bits


class Search:
    """Finds wall times; a search looks at most once at each month of the schedule's years."""

    __slots__ = ("_days", "_first", "_hours", "_last", "_minutes", "_months", "_seconds", "_years")

    def __init__(self, fields: Fields) -> None:
        self._seconds = bits(fields.seconds)
        self._minutes = bits(fields.minutes)
        self._hours = bits(fields.hours)
        self._months = bits(fields.months)
        self._years = bits(fields.years)
        self._days = fields.days
        self._first = min(fields.hours), min(fields.minutes), min(fields.seconds)
        self._last = max(fields.hours), max(fields.minutes), max(fields.seconds)

    def next(self, wall: datetime) -> datetime | None:
        """Return the first named wall time from ``wall`` on, naive; zone and fold of ``wall`` are ignored."""
        if self._names(wall.year, wall.month, wall.day):
            clock = self._clock_from(wall.hour, wall.minute, wall.second)
            if clock is not None:
                return datetime(wall.year, wall.month, wall.day, *clock)
        date = self._date_from(wall.year, wall.month, wall.day + 1)
        if date is None:
            return None
        return datetime(*date, *self._first)

    def previous(self, wall: datetime) -> datetime | None:
        """Return the last named wall time up to ``wall``, naive; zone and fold of ``wall`` are ignored."""
        if self._names(wall.year, wall.month, wall.day):
            clock = self._clock_until(wall.hour, wall.minute, wall.second)
            if clock is not None:
                return datetime(wall.year, wall.month, wall.day, *clock)
        date = self._date_until(wall.year, wall.month, wall.day - 1)
        if date is None:
            return None
        return datetime(*date, *self._last)

    def _names(self, year: int, month: int, day: int) -> bool:
        if not _has(self._years, year) or not _has(self._months, month):
            return False
        return _has(self._days.mask(year, month), day)

    def _clock_from(self, hour: int, minute: int, second: int) -> tuple[int, int, int] | None:
        _, first_minute, first_second = self._first
        if _has(self._hours, hour):
            if _has(self._minutes, minute):
                second = _at_or_after(self._seconds, second)
                if second >= 0:
                    return hour, minute, second
            minute = _at_or_after(self._minutes, minute + 1)
            if minute >= 0:
                return hour, minute, first_second
        hour = _at_or_after(self._hours, hour + 1)
        if hour >= 0:
            return hour, first_minute, first_second
        return None

    def _clock_until(self, hour: int, minute: int, second: int) -> tuple[int, int, int] | None:
        _, last_minute, last_second = self._last
        if _has(self._hours, hour):
            if _has(self._minutes, minute):
                second = _at_or_before(self._seconds, second)
                if second >= 0:
                    return hour, minute, second
            minute = _at_or_before(self._minutes, minute - 1)
            if minute >= 0:
                return hour, minute, last_second
        hour = _at_or_before(self._hours, hour - 1)
        if hour >= 0:
            return hour, last_minute, last_second
        return None

    def _date_from(self, year: int, month: int, day: int) -> tuple[int, int, int] | None:
        start_year = year
        start = year, month
        while (year := _at_or_after(self._years, year)) >= 0:
            if year != start_year:
                month = 1
            while (month := _at_or_after(self._months, month)) >= 0:
                first_day = day if (year, month) == start else 1
                found = _at_or_after(self._days.mask(year, month), first_day)
                if found >= 0:
                    return year, month, found
                month += 1
            year += 1
        return None

    def _date_until(self, year: int, month: int, day: int) -> tuple[int, int, int] | None:
        start_year = year
        start = year, month
        while (year := _at_or_before(self._years, year)) >= 0:
            if year != start_year:
                month = 12
            while (month := _at_or_before(self._months, month)) >= 0:
                last_day = day if (year, month) == start else 31
                found = _at_or_before(self._days.mask(year, month), last_day)
                if found >= 0:
                    return year, month, found
                month -= 1
            year -= 1
        return None


def _has(mask: int, member: int) -> bool:
    """Whether a set has this member."""
    return mask >> member & 1 == 1


def _at_or_after(mask: int, member: int) -> int:
    """Return the lowest member of a set from ``member`` up, or -1."""
    rest = mask >> member << member
    lowest_bit = rest & -rest
    return lowest_bit.bit_length() - 1


def _at_or_before(mask: int, member: int) -> int:
    """Return the highest member of a set up to ``member``, or -1; ``member`` may be -1."""
    up_to_member = (1 << member + 1) - 1
    return (mask & up_to_member).bit_length() - 1
