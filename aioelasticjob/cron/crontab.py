"""Unix crontab's dialect: 5 fields, minutes first, weekdays from 0 = Sunday, and ``@daily`` and its like.

croniter reads the fields; this is its only importer.  A grammar in front of it keeps out what croniter 7 reads as
something else than was written, and the search over the sets is ours: docs/why/cron.md.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

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
_ITEM = re.compile(r"(\*|[0-9]{1,3}|[A-Z]{3})(?:-([0-9]{1,3}|[A-Z]{3}))?(?:/([0-9]{1,3}))?")


@dataclass(frozen=True, slots=True)
class Column:
    """A field of the line: its name, bounds, the largest step, and its values' names."""

    name: str
    low: int
    high: int
    largest_step: int
    names: tuple[str, ...] = ()


MINUTE = Column("minute", 0, 59, 59)
HOUR = Column("hour", 0, 23, 23)
MONTH_DAY = Column("day-of-month", 1, 31, 31)
MONTH = Column("month", 1, 12, 12, MONTH_NAMES)
WEEKDAY = Column("day-of-week", 0, 7, 7, WEEKDAY_NAMES)  # 0 and 7 are Sunday
COLUMNS = (MINUTE, HOUR, MONTH_DAY, MONTH, WEEKDAY)


def read_crontab(tokens: list[str]) -> Fields:
    """Read the 5 fields of a crontab line, which must be ASCII.

    Raises: FieldError
    """
    from croniter import CroniterError, croniter  # here: its import takes longer than that of this whole folder

    columns = zip(COLUMNS, tokens, strict=True)
    line = " ".join(_vetted_field(column, token.upper()) for column, token in columns)
    try:
        members, _ = croniter.expand(line)
    except CroniterError as error:
        raise FieldError(f"{line!r} cannot be read: {error}") from error
    minutes, hour_members, month_days, months, weekdays = members
    hours = _numbers(HOUR, hour_members)
    return Fields(
        seconds=frozenset({0}),
        minutes=_numbers(MINUTE, minutes),
        hours=hours,
        days=_days(month_days, weekdays),
        months=_numbers(MONTH, months),
        years=EVERY_YEAR,
        roving=is_roving(tokens[1], hours),
    )


def _numbers(column: Column, members: Sequence[int | str]) -> frozenset[int]:
    if "*" in members:
        return frozenset(range(column.low, column.high + 1))
    return frozenset(int(member) for member in members)


def _days(month_day_members: Sequence[int | str], weekday_members: Sequence[int | str]) -> Days:
    """Join the day fields as crontab does: ``*`` restricts nothing, two restrictions are an "or"."""
    month_days = MonthDays(_numbers(MONTH_DAY, month_day_members))
    weekdays = Weekdays(frozenset(day % 7 + 1 for day in _numbers(WEEKDAY, weekday_members)))
    if "*" in weekday_members:
        return month_days
    if "*" in month_day_members:
        return weekdays
    if len(month_days.days) == 31 or len(weekdays.weekdays) == 7:
        return EVERY_DAY
    return EitherDay(month_days, weekdays)


def _vetted_field(column: Column, text: str) -> str:
    try:
        return ",".join(_vetted(column, item) for item in text.split(","))
    except FieldError as error:
        raise FieldError(f"{column.name} {text!r}: {error}") from None


def _vetted(column: Column, item: str) -> str:
    """Return an item in numbers and as croniter reads it rightly.

    Raises: FieldError
    """
    found = _ITEM.fullmatch(item)
    if not item:
        raise FieldError("a value is missing before or after a comma")
    if found is None:
        expected = f"{item!r} is not one of '*', a, a-b, and these with /n"
        if re.search("[?LW#]", item):
            expected += " (Quartz's ?, L, W and # need its 6 or 7 fields, seconds first)"
        raise FieldError(expected)
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
    if last is not None:
        stop = _value(column, last)
    elif column is WEEKDAY:  # croniter means "a to the end" by a/n, but counts on from Saturday to a second Sunday
        stop = 6
    else:
        stop = column.high
    if start == stop or (column is WEEKDAY and (start, stop) == (7, 0)):  # croniter reads these as the whole field
        return str(start)
    if step is None:
        return f"{start}-{stop}"
    if stop < start:  # croniter begins the step anew after the wrap, Quartz continues it
        raise FieldError(f"{item!r}: a range that wraps takes no step: write two ranges")
    return f"{start}-{stop}/{step}"


def _value(column: Column, text: str) -> int:
    if not text.isdigit() and text not in column.names:
        names = f" or {', '.join(column.names)}" if column.names else ""
        raise FieldError(f"{text!r} is unknown: expected numbers {column.low} to {column.high}{names}")
    if text.isdigit():
        value = int(text)
    else:
        value = column.low + column.names.index(text)
    if not column.low <= value <= column.high:
        raise FieldError(f"{text} is out of range, {column.low} to {column.high}")
    return value
