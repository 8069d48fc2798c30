"""Quartz's dialect: 6 or 7 fields, seconds first, weekdays from 1 = Sunday.  Text in, explicit sets out.

Held to fire times computed by Quartz 2.3.2.  What Quartz accepts by accident (text after a complete token, ``99`` for
``*``, ``W`` or ``#`` inside a list …) is refused: docs/why/cron.md.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from datetime import datetime

from aioelasticjob.cron.fields import (
    EVERY_YEAR,
    FIRST_YEAR,
    LAST_YEAR,
    MONTH_NAMES,
    WEEKDAY_NAMES,
    Days,
    FieldError,
    Fields,
    LastDay,
    LastWeekday,
    MonthDays,
    NearestWorkingDay,
    NthWeekday,
    Weekdays,
    is_roving,
)
from aioelasticjob.cron.search import Search


@dataclass(frozen=True, slots=True)
class Unit:
    """A field of the expression: its name, bounds, the largest step of ``*/n`` and ``a/n``, and its values' names."""

    name: str
    low: int
    high: int
    largest_step: int
    names: tuple[str, ...] = ()


SECOND = Unit("second", 0, 59, 59)
MINUTE = Unit("minute", 0, 59, 59)
HOUR = Unit("hour", 0, 23, 23)
MONTH_DAY = Unit("day-of-month", 1, 31, 31)
MONTH = Unit("month", 1, 12, 12, MONTH_NAMES)
WEEKDAY = Unit("day-of-week", 1, 7, 7, WEEKDAY_NAMES)
YEAR = Unit("year", FIRST_YEAR, LAST_YEAR, 9_999)
UNITS = (SECOND, MINUTE, HOUR, MONTH_DAY, MONTH, WEEKDAY, YEAR)

_LARGEST_RANGE_STEP = 2**31 - 1  # Java's int; a range takes any step
_ITEM = re.compile(r"(?P<first>\*|[0-9]+|[A-Z]+)?(?:(?P<dash>-)(?P<last>[0-9]+|[A-Z]+))?(?:/(?P<step>[0-9]+))?")
_LAST_DAY = re.compile(r"L(?:-([0-9]{1,3}))?(W)?")
_WORKING_DAY = re.compile(r"([0-9]{1,3})W")
_LAST_WEEKDAY = re.compile(r"([0-9]{1,3}|[A-Z]{3})L")
_NTH_WEEKDAY = re.compile(r"([0-9]{1,3}|[A-Z]{3})#([0-9]{1,3})")


def read_quartz(tokens: list[str]) -> Fields:
    """Read the 6 or 7 fields of an expression, which must be ASCII.

    Raises: FieldError
    """
    second, minute, hour, month_day, month, weekday = (token.upper() for token in tokens[:6])
    hours = _read(HOUR, hour)
    years = _read(YEAR, tokens[6].upper()) if len(tokens) == 7 else EVERY_YEAR
    return Fields(
        seconds=_read(SECOND, second),
        minutes=_read(MINUTE, minute),
        hours=hours,
        days=_read_days(month_day, weekday, tokens),
        months=_read(MONTH, month),
        years=years,
        roving=is_roving(hour, hours),
    )


def suggestion(tokens: list[str]) -> str:
    """Return what to write in place of a wrong expression; empty if that would be wrong, too, or would never fire."""
    try:
        fields = read_quartz(tokens)
    except FieldError:
        return ""
    first_fire = Search(fields).next(datetime(FIRST_YEAR, 1, 1))
    if first_fire is None:
        return ""
    return f": write '{' '.join(tokens)}'"


def _read(unit: Unit, text: str) -> frozenset[int]:
    try:
        members: set[int] = set()
        for item in text.split(","):
            members.update(_read_item(unit, item))
    except FieldError as error:
        raise FieldError(f"{unit.name} {text!r}: {error}") from None
    return frozenset(members)


def _read_days(month_day: str, weekday: str, tokens: list[str]) -> Days:
    """Read both day fields, of which exactly one is ``?``."""
    for unit, text in ((MONTH_DAY, month_day), (WEEKDAY, weekday)):
        if "?" in text and text != "?":
            raise FieldError(f"{unit.name} {text!r}: '?' stands alone in its field")
    if (month_day == "?") == (weekday == "?"):
        raise FieldError(_which_day_field(month_day, weekday, tokens))
    if month_day == "?":
        return _read_weekday(weekday)
    return _read_month_day(month_day)


def _read_month_day(text: str) -> Days:
    if (found := _LAST_DAY.fullmatch(text)) is not None:
        before = int(found[1] or 0)
        if before > 30:
            raise FieldError(f"{MONTH_DAY.name} {text!r}: at most 30 days before the last one, as in L-30")
        return LastDay(before, found[2] is not None)
    if (found := _WORKING_DAY.fullmatch(text)) is not None:
        if not 1 <= int(found[1]) <= 31:
            raise FieldError(f"{MONTH_DAY.name} {text!r}: W follows a day from 1 to 31, as in 15W")
        return NearestWorkingDay(int(found[1]))
    return MonthDays(_read(MONTH_DAY, text))


def _read_weekday(text: str) -> Days:
    if text == "L":
        return Weekdays(frozenset({WEEKDAY.high}))
    try:
        if (found := _LAST_WEEKDAY.fullmatch(text)) is not None:
            return LastWeekday(_value(WEEKDAY, found[1]))
        if (found := _NTH_WEEKDAY.fullmatch(text)) is not None:
            if not 1 <= int(found[2]) <= 5:
                raise FieldError("a number from 1 to 5 follows '#', as in 6#3, the third Friday")
            return NthWeekday(_value(WEEKDAY, found[1]), int(found[2]))
    except FieldError as error:
        raise FieldError(f"{WEEKDAY.name} {text!r}: {error}") from None
    return Weekdays(_read(WEEKDAY, text))


def _read_item(unit: Unit, item: str) -> range | frozenset[int]:
    """Read ``*``, ``a``, ``a-b`` and these with ``/n``; a range may wrap, and its step goes on across the wrap."""
    found = _ITEM.fullmatch(item)
    if found is None or not item:
        raise FieldError(_unreadable(unit, item))
    first = found["first"]
    last = found["last"]
    step = found["step"]
    if last is None:
        if first is None or first == "*":  # "/5" is Quartz's short form of "*/5"
            return range(unit.low, unit.high + 1, _step(unit, step, unit.largest_step) or 1)
        start = _value(unit, first)
        if step is None:
            return frozenset({start})
        _no_names(unit, item, first)
        stride = _step(unit, step, unit.largest_step)
        if stride == 0:
            return frozenset({start})
        return range(start, unit.high + 1, stride)
    if first is None or first == "*":
        raise FieldError(f"{item!r} is no range: write both ends, as in {unit.low}-{unit.high}")
    return _read_range(unit, item, (first, last), step)


def _read_range(unit: Unit, item: str, ends: tuple[str, str], step: str | None) -> frozenset[int]:
    first, last = ends
    start = _value(unit, first)
    stop = _value(unit, last)
    if first.isdigit() != last.isdigit():
        raise FieldError(f"{item!r} mixes a name and a number: write {start}-{stop}")
    if step is not None:
        _no_names(unit, item, first)
    stride = _step(unit, step, _LARGEST_RANGE_STEP)
    if stride == 0:
        return frozenset({start})
    if stop >= start:
        return frozenset(range(start, stop + 1, stride))
    if unit is YEAR:
        raise FieldError(f"{item!r} runs backwards: write {stop}-{start}")
    span = unit.high - unit.low + 1
    values = range(start, stop + span + 1, stride)  # those beyond the highest one begin again at the lowest
    return frozenset(unit.low + (value - unit.low) % span for value in values)


def _value(unit: Unit, text: str) -> int:
    if not text.isdigit():
        if text in unit.names:
            return unit.low + unit.names.index(text)
        raise FieldError(_unreadable(unit, text))
    value = int(text) if len(text) <= 10 else unit.high + 1
    if not unit.low <= value <= unit.high:
        hint = ", where 1 is Sunday and 7 is Saturday" if unit is WEEKDAY else ""
        raise FieldError(f"{text} is out of range, {unit.low} to {unit.high}{hint}")
    return value


def _step(unit: Unit, text: str | None, largest: int) -> int:
    """Return the step, 1 if there is none; 0 is Quartz's "no step at all"."""
    if text is None:
        return 1
    step = int(text) if len(text) <= 10 else largest + 1
    if step > largest:
        raise FieldError(f"the step {text} is too large: at most {largest}")
    return step


def _no_names(unit: Unit, item: str, first: str) -> None:
    if not first.isdigit():  # Quartz ignores such a step without a word
        numbers = re.sub("[A-Z]+", lambda name: str(_value(unit, name[0])), item)
        raise FieldError(f"{item!r}: a name takes no step: write {numbers}")


def _which_day_field(month_day: str, weekday: str, tokens: list[str]) -> str:
    if month_day == weekday == "?":
        month_day = "*"
        weekday = "?"
        what = "day-of-month and day-of-week are both '?'"
    elif weekday == "*":
        weekday = "?"
        what = "exactly one of day-of-month and day-of-week must be '?'"
    elif month_day == "*":
        month_day = "?"
        what = "exactly one of day-of-month and day-of-week must be '?'"
    else:
        return (
            f"day-of-month {month_day!r} and day-of-week {weekday!r} cannot be combined: "
            "put '?' into one of them and use two jobs if both are meant"
        )
    return what + suggestion([*tokens[:3], month_day, tokens[4], weekday, *tokens[6:]])


def _unreadable(unit: Unit, item: str) -> str:
    """Return an error that explains what is wrong with an item."""
    if not item:
        return "a value is missing before or after a comma"
    if item == "?":
        return "only day-of-month and day-of-week can be '?'"
    if item.endswith("/"):
        return f"{item!r}: '/' must be followed by a number"
    if item.startswith("L") or re.fullmatch(r"(?:\w+-)?[0-9]+[LW]|\w+#\w*|\w{3}L", item):
        if unit not in (MONTH_DAY, WEEKDAY):
            return f"{item!r}: L, W and # belong to the day fields"
        where = "L, L-3, LW, 15W in day-of-month; L, 6L, 6#3 in day-of-week"
        return f"{item!r}: L, W and # stand alone in their field: {where}"
    found = re.search("[A-Z]+", item)
    word = "" if found is None else found[0]
    near = [name for name in unit.names if word.startswith(name)]
    if not near:
        near = difflib.get_close_matches(word, unit.names, 1, 0.5)
    if near:
        return f"{word!r} is no name: did you mean {near[0]}?"
    if unit.names:
        return f"{item!r} cannot be read: expected numbers {unit.low} to {unit.high} or {', '.join(unit.names)}"
    return f"{item!r} cannot be read: expected '*', numbers {unit.low} to {unit.high}, a-b, or either with /n"
