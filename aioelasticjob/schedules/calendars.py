"""Calendars: the days on which jobs that name them do not run, as values and as the text that people write.

The text has a line for each date, with a name of the day if there is one, and a line ``weekdays`` for those that are
closed in each week.  What follows a ``#`` at the beginning of a line is a remark, and is not kept.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cached_property, lru_cache
from typing import Final, Literal, TypeAlias

from aioelasticjob.cron.fields import FIRST_YEAR, LAST_YEAR, shortened
from aioelasticjob.errors import InvalidSetting

WEEKDAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
MAX_DATES: Final = 2_000
"""The most dates of a calendar."""
MAX_CALENDARS: Final = 20
"""The most calendars of a schedule."""
LONGEST_DAY_NAME: Final = 100
"""Characters of the name of a day."""
FARTHEST: Final = 31
"""How many days a moment moves at most to an open day."""
CalendarMode: TypeAlias = Literal["skip", "next", "previous"]
"""What becomes of moments on closed days: they are left out, or they move to an open day."""
_CALENDAR_NAME = re.compile(r"\w[\w.-]{0,99}")
_SEPARATORS = re.compile(r"[,\s]+")
_EXPECTED = "must be a date such as 2026-12-25, maybe with a name behind it, or weekdays such as: weekdays sat, sun"


@dataclass(frozen=True)
class Calendar:
    """Days on which jobs that name the calendar do not run."""

    dates: tuple[tuple[date, str], ...] = ()
    """Single days with their names, which may be empty, in ascending order."""
    weekdays: tuple[int, ...] = ()
    """Days of each week, Monday being 0, in ascending order."""

    @classmethod
    def of(
        cls, dates: Iterable[date | str] | Mapping[date | str, str] = (), weekdays: Iterable[str] | str = ()
    ) -> Calendar:
        """Return the calendar with these dates and weekdays, such as ``"sat, sun"``; dates may have names.

        Raises:
            InvalidSetting: one of them is none, or there are too many.
        """
        named = dates if isinstance(dates, Mapping) else dict.fromkeys(dates, "")
        found = {_date(day): _day_name(name) for day, name in named.items()}
        if len(found) > MAX_DATES:
            raise InvalidSetting("calendar", f"{len(found):,} dates", f"must have at most {MAX_DATES:,} dates")
        words = _SEPARATORS.split(weekdays.strip()) if isinstance(weekdays, str) else weekdays
        closed = {_weekday(word) for word in words if word}
        if len(closed) == len(WEEKDAYS):
            raise InvalidSetting("calendar", "weekdays", "must leave a day of the week open, or no job would ever run")
        return cls(tuple(sorted(found.items())), tuple(sorted(closed)))

    @classmethod
    def of_text(cls, text: str) -> Calendar:
        """Return the calendar that a text describes.

        Raises:
            InvalidSetting: a line says neither a date nor weekdays, or a date is there twice.
        """
        dates = dict[date | str, str]()
        weekdays = list[str]()
        for line in map(str.strip, text.splitlines()):
            word, _, rest = line.partition(" ")
            if not line or line.startswith("#"):
                continue
            if word.rstrip(":") == "weekdays":
                weekdays += _SEPARATORS.split(rest.strip())
            elif (day := _date(word)) in dates:
                raise InvalidSetting("calendar", shortened(line), "is there twice: remove one of the lines")
            else:
                dates[day] = rest.strip()
        return cls.of(dates, weekdays)

    @cached_property
    def text(self) -> str:
        """The calendar as text: the same for equal calendars."""
        lines = list[str]()
        if self.weekdays:
            lines.append(f"weekdays {', '.join(self.weekday_names)}")
        lines += [f"{day.isoformat()} {name}".strip() for day, name in self.dates]
        return "".join(f"{line}\n" for line in lines)

    @cached_property
    def hash(self) -> str:
        """Names these contents: equal calendars have the same."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]

    @cached_property
    def closed_dates(self) -> Mapping[int, str]:
        """The names of the single days by their ordinals."""
        return {day.toordinal(): name for day, name in self.dates}

    @property
    def weekday_names(self) -> tuple[str, ...]:
        """The closed weekdays as they are written."""
        return tuple(WEEKDAYS[one] for one in self.weekdays)

    @property
    def last(self) -> date | None:
        """The last of the single days; None if there is none."""
        return self.dates[-1][0] if self.dates else None

    def closes(self, day: int) -> bool:
        """Whether a day, given by its ordinal, is closed."""
        return (day - 1) % 7 in self.weekdays or day in self.closed_dates

    def name_of(self, day: int) -> str:
        """Return the name of a closed day, or of its weekday."""
        return self.closed_dates.get(day) or f"{date.fromordinal(day):%A}"

    def describe(self) -> str:
        """Return how many dates there are, from when to when, and which weekdays."""
        said = list[str]()
        if self.weekdays:
            said.append(", ".join(self.weekday_names))
        if self.dates:
            said.append(f"{len(self.dates):,} dates from {self.dates[0][0]} to {self.dates[-1][0]}")
        return "; ".join(said) or "no day"


@lru_cache(maxsize=1024)
def calendar_in(data: bytes) -> Calendar | None:
    """Return the calendar that a node holds; None if somebody has written something else there."""
    try:
        return Calendar.of_text(data.decode())
    except (UnicodeDecodeError, InvalidSetting):
        return None


def checked_name(name: str) -> str:
    """Return the name of a calendar.

    Raises:
        InvalidSetting: no calendar can have it.
    """
    if not isinstance(name, str) or _CALENDAR_NAME.fullmatch(name) is None:
        expected = "must be a name of 1 to 100 letters, digits, _, - or ., such as de-holidays"
        raise InvalidSetting("calendar", name, expected)
    return name


@dataclass(frozen=True, slots=True)
class ClosedDays:
    """The days that are closed by any of several calendars."""

    calendars: tuple[tuple[str, Calendar], ...]
    """Each with its name."""

    def is_open(self, day: int) -> bool:
        """Whether a day, given by its ordinal, is closed by none."""
        return not any(calendar.closes(day) for _, calendar in self.calendars)

    def closed_by(self, day: int) -> tuple[str, ...]:
        """Return the names of the calendars that close a day, each with the name of the day."""
        return tuple(f"{name} ({calendar.name_of(day)})" for name, calendar in self.calendars if calendar.closes(day))

    def open_from(self, day: int, step: int) -> int | None:
        """Return the first open day from ``day`` on, or back from it if ``step`` is -1; None if there is none."""
        dates = sum(len(calendar.dates) for _, calendar in self.calendars)
        for _ in range(len(WEEKDAYS) * (dates + 1)):
            if self.is_open(day):
                return day
            day += step
        return None

    def before(self, day: int, step: int) -> Iterator[int]:
        """Yield the closed days just before an open one, the nearest first; with ``step`` -1 those just after it."""
        for _ in range(FARTHEST):
            day -= step
            if self.is_open(day):
                return
            yield day


def _date(given: date | str) -> date:
    try:
        found = date.fromisoformat(given) if isinstance(given, str) else given
    except ValueError:
        raise InvalidSetting("calendar", shortened(str(given)), _EXPECTED) from None
    if not FIRST_YEAR < found.year < LAST_YEAR:
        raise InvalidSetting("calendar", str(given), f"must be a year from {FIRST_YEAR + 1} to {LAST_YEAR - 1}")
    return found


def _day_name(name: str) -> str:
    if len(name) > LONGEST_DAY_NAME or not name.isprintable():
        expected = f"must be a name of at most {LONGEST_DAY_NAME} printable characters"
        raise InvalidSetting("calendar", shortened(name), expected)
    return name.strip()


def _weekday(word: str) -> int:
    short = word.lower()[:3]
    if short not in WEEKDAYS:
        raise InvalidSetting("calendar", shortened(word), f"must be one of {', '.join(WEEKDAYS)}")
    return WEEKDAYS.index(short)
