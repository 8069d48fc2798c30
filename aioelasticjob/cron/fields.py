"""A parsed expression, field by field: frozen sets, and rules for days.  Both dialects are parsed into these."""

from __future__ import annotations

from calendar import isleap
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from typing import TypeAlias

FIRST_YEAR = 1970
LAST_YEAR = 2199
LONGEST_EXPRESSION = 2_000  # a list of every second, minute, hour, day and year is shorter

MONTH_NAMES = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAY_NAMES = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_SUNDAY = 1
_SATURDAY = 7


@lru_cache(maxsize=1024)
def bits(members: frozenset[int]) -> int:
    """Return a set of small numbers as a mask: bit n stands for n."""
    mask = 0
    for member in members:
        mask |= 1 << member
    return mask


def month_length(year: int, month: int) -> int:
    """Return the number of days of a month."""
    if month == 2 and isleap(year):
        return 29
    return _LENGTHS[month]


def weekday_of(year: int, month: int, day: int) -> int:
    """Return the weekday of a day as Quartz counts it: 1 is Sunday, 7 Saturday."""
    return date(year, month, day).isoweekday() % 7 + 1


@dataclass(frozen=True, slots=True)
class MonthDays:
    """Days by their number: ``1,15``."""

    days: frozenset[int]

    def mask(self, year: int, month: int) -> int:
        """Return the days of a month that are meant, bit n for day n."""
        return bits(self.days) & _all_days(year, month)


@dataclass(frozen=True, slots=True)
class LastDay:
    """The month's last day or some days before it, or the working day nearest to that: ``L``, ``L-3``, ``L-3W``."""

    before: int = 0
    working: bool = False

    def mask(self, year: int, month: int) -> int:
        """Return the days of a month that are meant, bit n for day n."""
        day = month_length(year, month) - self.before
        if day < 1:
            return 0
        if self.working:
            day = _nearest_working_day(year, month, day)
        return 1 << day


@dataclass(frozen=True, slots=True)
class NearestWorkingDay:
    """The working day nearest to a day, in the same month: ``15W``."""

    day: int

    def mask(self, year: int, month: int) -> int:
        """Return the days of a month that are meant, bit n for day n."""
        length = month_length(year, month)
        if self.day <= length:
            return 1 << _nearest_working_day(year, month, self.day)
        # Quartz takes the 31st of April for the 1st of May; when that is a Saturday, it steps back to the 30th.
        if self.day == length + 1 and weekday_of(year, month, length) == _SATURDAY - 1:
            return 1 << length
        return 0


@dataclass(frozen=True, slots=True)
class Weekdays:
    """Days by their weekday, 1 is Sunday: ``MON-FRI``."""

    weekdays: frozenset[int]

    def mask(self, year: int, month: int) -> int:
        """Return the days of a month that are meant, bit n for day n."""
        lead = weekday_of(year, month, 1)  # the 1st's weekday becomes bit 1
        week = bits(self.weekdays)
        turned = (week >> lead | week << 7 - lead) << 1 & 0b1111_1110
        five_weeks = turned | turned << 7 | turned << 14 | turned << 21 | turned << 28
        return five_weeks & _all_days(year, month)


@dataclass(frozen=True, slots=True)
class LastWeekday:
    """The last such weekday of the month: ``6L``."""

    weekday: int

    def mask(self, year: int, month: int) -> int:
        """Return the days of a month that are meant, bit n for day n."""
        last = month_length(year, month)
        days_before = (weekday_of(year, month, last) - self.weekday) % 7
        return 1 << last - days_before


@dataclass(frozen=True, slots=True)
class NthWeekday:
    """The n-th such weekday of the month, if there is one: ``6#3``."""

    weekday: int
    nth: int

    def mask(self, year: int, month: int) -> int:
        """Return the days of a month that are meant, bit n for day n."""
        first = 1 + (self.weekday - weekday_of(year, month, 1)) % 7
        day = first + 7 * (self.nth - 1)
        if day > month_length(year, month):
            return 0
        return 1 << day


@dataclass(frozen=True, slots=True)
class EitherDay:
    """Crontab's rule when both day fields are restricted: a day that satisfies one of them."""

    month_days: MonthDays
    weekdays: Weekdays

    def mask(self, year: int, month: int) -> int:
        """Return the days of a month that are meant, bit n for day n."""
        return self.month_days.mask(year, month) | self.weekdays.mask(year, month)


Days: TypeAlias = MonthDays | LastDay | NearestWorkingDay | Weekdays | LastWeekday | NthWeekday | EitherDay
EVERY_DAY = MonthDays(frozenset(range(1, 32)))
EVERY_YEAR = frozenset(range(FIRST_YEAR, LAST_YEAR + 1))


@dataclass(frozen=True, slots=True)
class Fields:
    """A parsed expression as explicit sets."""

    seconds: frozenset[int]
    minutes: frozenset[int]
    hours: frozenset[int]
    days: Days
    months: frozenset[int]
    years: frozenset[int]
    roving: bool
    """The hour field is a wildcard or a step: the schedule follows elapsed time when the clock is changed."""


class FieldError(Exception):
    """A field cannot be read; the reader of the expression adds which one."""


def is_roving(text: str, hours: frozenset[int]) -> bool:
    """Return whether an hour field is a repetition, not a time of day; a step with only one hour is a time of day."""
    return len(hours) == 24 or (len(hours) > 1 and ("*" in text or "/" in text))


def shortened(text: str, limit: int = 120) -> str:
    """Return a text short enough for a message."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… ({len(text)} characters)"


def _all_days(year: int, month: int) -> int:
    """Return the bits from 0 to the last day of a month."""
    return (2 << month_length(year, month)) - 1


def _nearest_working_day(year: int, month: int, day: int) -> int:
    weekday = weekday_of(year, month, day)
    if weekday == _SATURDAY:
        return day - 1 if day > 1 else day + 2
    if weekday == _SUNDAY:
        return day + 1 if day < month_length(year, month) else day - 2
    return day
