"""Describes a schedule in plain English, from its parsed sets: so the text says what it does, not how it was typed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import assert_never

from aioelasticjob.cron.fields import (
    EVERY_YEAR,
    Days,
    EitherDay,
    Fields,
    LastDay,
    LastWeekday,
    MonthDays,
    NearestWorkingDay,
    NthWeekday,
    Weekdays,
)
from aioelasticjob.ground.plural import counted

_WEEKDAYS = ("", "Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = (
    "",
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_ORDINALS = ("", "first", "second", "third", "fourth", "fifth")
MOST_TIMES = 6
"""Times of a day that are listed one by one."""


def sentence(fields: Fields) -> str:
    """Return when a schedule fires, without its zone."""
    parts = [_clock(fields), _days(fields.days)]
    if len(fields.months) < 12:
        parts.append(f"in {_spans(fields.months, _MONTHS)}")
    if fields.years != EVERY_YEAR:
        parts.append(f"in {_spans(fields.years)}")
    return ", ".join(part for part in parts if part)


def _clock(fields: Fields) -> str:
    """Describe the time of day: as a list if it is short, as "every …" if it is regular, otherwise field by field."""
    if len(fields.hours) * len(fields.minutes) * len(fields.seconds) <= MOST_TIMES:
        times = product(sorted(fields.hours), sorted(fields.minutes), sorted(fields.seconds))
        listed = [f"{hour:02}:{minute:02}:{second:02}" for hour, minute, second in times]
        return f"At {_listed(listed)}"
    hours = "" if len(fields.hours) == 24 else _hours(fields.hours)
    rhythm = _clock_as_rhythm(fields, hours)
    if rhythm:
        return rhythm
    if len(fields.minutes) == 60:
        return f"At second {_spans(fields.seconds)} of every minute{hours}"
    which = f"minute {_spans(fields.minutes)}"
    if len(fields.seconds) == 60:
        which = f"every second of {which}"
    elif fields.seconds != {0}:
        which = f"second {_spans(fields.seconds)} of {which}"
    return f"At {which}{hours or ' of every hour'}"


def _clock_as_rhythm(fields: Fields, hours: str) -> str:
    """Describe a time of day as "every …"; return nothing if it is not regular."""
    if len(fields.minutes) == 60:
        every_second = _rhythm(fields.seconds, 60, "second")
        if every_second:
            return f"Every {every_second}{hours}"
    if len(fields.seconds) != 1:
        return ""
    second = f" at second {min(fields.seconds)}" if fields.seconds != {0} else ""
    every_minute = _rhythm(fields.minutes, 60, "minute")
    if every_minute:
        return f"Every {every_minute}{second}{hours}"
    every_hour = _rhythm(fields.hours, 24, "hour")
    if every_hour and len(fields.minutes) == 1:
        return f"Every {every_hour} at minute {min(fields.minutes)}{second}"
    return ""


def _hours(hours: frozenset[int]) -> str:
    """Describe some hours of the day: as a span if they are consecutive, also across midnight."""
    span = span_of_hours(hours)
    if span is None:
        return f" in the hours {_spans(hours)}"
    first, last = span
    return f" from {first:02}:00 to {last:02}:59"


def span_of_hours(hours: frozenset[int]) -> tuple[int, int] | None:
    """Return the first and the last of consecutive hours of the day, also across midnight; None if there are gaps."""
    starts = [hour for hour in hours if (hour - 1) % 24 not in hours]
    if len(starts) != 1:
        return None
    (first,) = starts
    last = (first + len(hours) - 1) % 24
    return first, last


def _rhythm(members: frozenset[int], span: int, unit: str) -> str:
    """Return ``second`` or ``10 seconds`` if the members are evenly spread from 0 on, otherwise nothing."""
    step = step_of(members, span)
    if step is None:
        return ""
    if step == 1:
        return unit
    return f"{step} {unit}s"


def step_of(members: frozenset[int], span: int) -> int | None:
    """Return the distance of members that are evenly spread from 0 on, otherwise None."""
    step = span // len(members)
    is_even = span % step == 0 and members == set(range(0, span, step))
    return step if is_even and len(members) > 1 else None


def _days(days: Days) -> str:
    match days:
        case MonthDays(days=numbers):
            if len(numbers) == 31:
                return ""
            return f"on {_numbered(numbers)} of the month"
        case LastDay(before=0, working=working):
            return f"on the last {'working day' if working else 'day'} of the month"
        case LastDay(before=before, working=working):
            day = f"{counted(before, 'day')} before the last day of the month"
            return f"on the working day nearest to {day}" if working else day
        case NearestWorkingDay(day=day):
            return f"on the working day nearest to day {day} of the month"
        case Weekdays(weekdays=weekdays):
            if len(weekdays) == 7:
                return ""
            return _week(weekdays)
        case LastWeekday(weekday=weekday):
            return f"on the last {_WEEKDAYS[weekday]} of the month"
        case NthWeekday(weekday=weekday, nth=nth):
            return f"on the {_ORDINALS[nth]} {_WEEKDAYS[weekday]} of the month"
        case EitherDay(month_days=month_days, weekdays=weekdays):
            return f"{_days(month_days)} or on {_week(weekdays.weekdays)}"
    assert_never(days)


def _numbered(numbers: frozenset[int]) -> str:
    noun = "day" if len(numbers) == 1 else "days"
    return f"{noun} {_spans(numbers)}"


def _week(weekdays: frozenset[int]) -> str:
    """Describe weekdays from Monday on, so that Saturday and Sunday are neighbours."""
    from_monday = [(day - 2) % 7 for day in weekdays]
    names = (*_WEEKDAYS[2:], _WEEKDAYS[1])
    return _spans(from_monday, names)


def _spans(members: Iterable[int], names: Sequence[str] | None = None) -> str:
    """Describe a set of numbers, three or more consecutive ones as a span: ``1, 3 and 5 to 9``."""
    said: list[str] = []
    for row in rows_of(members):
        words = [str(member) for member in row] if names is None else [names[member] for member in row]
        if len(row) > 2:
            said.append(f"{words[0]} to {words[-1]}")
        else:
            said += words
    return _listed(said)


def rows_of(members: Iterable[int]) -> Sequence[Sequence[int]]:
    """Return a set of numbers as rows of consecutive ones."""
    rows: list[list[int]] = []
    for member in sorted(members):
        if rows and rows[-1][-1] == member - 1:
            rows[-1].append(member)
        else:
            rows.append([member])
    return rows


def _listed(words: Sequence[str]) -> str:
    *others, last = words
    if not others:
        return last
    return f"{', '.join(others)} and {last}"
