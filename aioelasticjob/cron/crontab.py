"""Unix crontab's dialect: 5 fields, minutes first, weekdays from 0 = Sunday, and ``@daily`` and its like.

croniter reads the fields; this is its only importer.  A grammar in front of it keeps out what croniter 7 reads as
something else than was written, and the search over the sets is ours: docs/why/cron.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from croniter import CroniterError, croniter

from aioelasticjob.cron.fields import (
    EVERY_DAY,
    EVERY_YEAR,
    MONTH_NAMES,
    WEEKDAY_NAMES,
    Days,
    EitherDay,
    FieldError,
    Fields,
    MonthDays,
    Weekdays,
    is_roving,
)

ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = {name.lower(): 1 + at for at, name in enumerate(MONTH_NAMES)}
_WEEKDAYS = {name.lower(): at for at, name in enumerate(WEEKDAY_NAMES)}
_ITEM = re.compile(r"(\*|[0-9]{1,3}|[a-z]{3})(?:-([0-9]{1,3}|[a-z]{3}))?(?:/([0-9]{1,3}))?")


class _Column(NamedTuple):
    name: str
    low: int
    high: int
    largest_step: int
    names: Mapping[str, int]


_COLUMNS = (
    _Column("minute", 0, 59, 59, {}),
    _Column("hour", 0, 23, 23, {}),
    _Column("day-of-month", 1, 31, 31, {}),
    _Column("month", 1, 12, 12, _MONTHS),
    _Column("day-of-week", 0, 7, 7, _WEEKDAYS),  # 7 is Sunday as well
)


def read_crontab(tokens: list[str]) -> Fields:
    """Read the 5 fields of a crontab line, which must be ASCII.

    Raises: FieldError
    """
    minutes, hours, month_days, months, weekdays = (_read(at, token.lower()) for at, token in enumerate(tokens))
    return Fields(
        seconds=frozenset({0}),
        minutes=minutes,
        hours=hours,
        days=_days(month_days, weekdays),
        months=months,
        years=EVERY_YEAR,
        roving=is_roving(tokens[1], hours),
    )


def _days(month_days: frozenset[int], weekdays: frozenset[int]) -> Days:
    """Join the day fields as crontab does: one that allows every day restricts nothing, two restrictions are "or"."""
    either = EitherDay(MonthDays(month_days), Weekdays(frozenset(day + 1 for day in weekdays)))
    if len(weekdays) == 7:
        return either.month_days
    return either.weekdays if either.month_days == EVERY_DAY else either


def _read(at: int, text: str) -> frozenset[int]:
    column = _COLUMNS[at]
    line = ["*"] * 5
    try:
        line[at] = ",".join(_vetted(column, item) for item in text.split(","))
        members = croniter.expand(" ".join(line))[0][at]
    except FieldError as error:
        raise FieldError(f"{column.name} {text!r}: {error}") from None
    except CroniterError as error:
        raise FieldError(f"{column.name} {text!r}: {error}") from error
    if "*" in members:
        return frozenset(range(column.low, column.high + 1)) - ({7} if column.names is _WEEKDAYS else set())
    return frozenset(int(member) for member in members)


def _vetted(column: _Column, item: str) -> str:
    """Return an item in numbers and as croniter reads it rightly.

    Raises: FieldError
    """
    found = _ITEM.fullmatch(item)
    if not item:
        raise FieldError("a value is missing before or after a comma")
    if found is None:
        quartz = " (Quartz's ?, L, W and # need its 6 or 7 fields, seconds first)" if re.search("[?lw#]", item) else ""
        raise FieldError(f"{item!r} is not one of '*', a, a-b, and these with /n{quartz}")
    first, last, step = found.groups()
    if step is not None and not 1 <= int(step) <= column.largest_step:
        raise FieldError(f"the step {step} is out of range, 1 to {column.largest_step}")
    if first == "*":
        if last is not None:
            raise FieldError(f"{item!r} is no range: write both ends, as in {column.low}-{column.high}")
        return item
    start = _value(column, first)
    if last is None and step is None:
        return str(start)
    # croniter means "a to the end" by a/n, but counts on from Saturday to a second Sunday
    stop = _value(column, last) if last is not None else 6 if column.names is _WEEKDAYS else column.high
    if start == stop:  # croniter reads a-a as the whole field
        return str(start)
    if step is None:
        return f"{start}-{stop}"
    if stop < start:  # croniter begins the step anew after the wrap, Quartz continues it
        raise FieldError(f"{item!r}: a range that wraps takes no step: write two ranges")
    return f"{start}-{stop}/{step}"


def _value(column: _Column, text: str) -> int:
    value = int(text) if text.isdigit() else column.names.get(text)
    if value is None:
        names = f" or {', '.join(column.names)}" if column.names else ""
        raise FieldError(f"{text!r} is unknown: expected numbers {column.low} to {column.high}{names}")
    if not column.low <= value <= column.high:
        raise FieldError(f"{text} is out of range, {column.low} to {column.high}")
    return value
