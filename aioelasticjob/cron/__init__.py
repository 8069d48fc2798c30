"""Schedules: cron expressions as values, in the dialects of Quartz and of Unix crontab."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice
from typing import Literal, Self, TypeAlias

from aioelasticjob.cron.crontab import ALIASES, read_crontab
from aioelasticjob.cron.daylight import Rule, next_fire, previous_fire
from aioelasticjob.cron.description import sentence
from aioelasticjob.cron.fields import FIRST_YEAR, LAST_YEAR, LONGEST_EXPRESSION, FieldError, Fields, shortened
from aioelasticjob.cron.quartz import read_quartz, suggestion
from aioelasticjob.cron.search import Search
from aioelasticjob.cron.zone import zone_named
from aioelasticjob.errors import InvalidSetting

__all__ = ["Cron", "DaylightSaving", "Fields", "fire_times"]

DaylightSaving: TypeAlias = Literal["cron", "quartz"]

_SECOND = timedelta(seconds=1)
_ZONE = re.compile(r"(?i:CRON_TZ|TZ)=(?P<name>\S*)")
"""A time zone in front of an expression, as some programs read it."""
# Outside these no zone's clock shows a year that can be named; inside them no conversion between zones overflows.
_EARLIEST = datetime(FIRST_YEAR, 1, 1, tzinfo=UTC) - timedelta(days=2)
_LATEST = datetime(LAST_YEAR + 1, 1, 1, tzinfo=UTC) + timedelta(days=2)


def fire_times(
    expression: str, time_zone: str, start: datetime, n: int, *, dst: DaylightSaving = "cron"
) -> list[datetime]:
    """Return the next ``n`` fire times strictly after ``start``, aware in ``time_zone``; fewer if the schedule ends.

    Raises: InvalidSetting
    """
    return Cron.parse(expression, time_zone, dst).times_after(start, n)


@dataclass(frozen=True, slots=True)
class Cron:
    """A schedule: it knows when it fires next, when it fired last, and describes itself in words."""

    expression: str
    time_zone: str
    dst: DaylightSaving
    fields: Fields = field(compare=False, repr=False)
    _search: Search = field(compare=False, repr=False)
    _zone: tzinfo = field(compare=False, repr=False)
    _rule: Rule = field(compare=False, repr=False)

    @classmethod
    def parse(cls, expression: str, time_zone: str = "UTC", dst: DaylightSaving = "cron") -> Self:
        """Read 6 or 7 fields as Quartz does, 5 and ``@daily`` as crontab does; ``dst="quartz"`` takes the former only.

        Raises: InvalidSetting
        """
        if dst not in ("cron", "quartz"):
            raise InvalidSetting("dst", dst, "expected 'cron' or 'quartz'")
        if not isinstance(expression, str):
            raise InvalidSetting("cron", expression, "must be text")
        if not isinstance(time_zone, str):
            raise InvalidSetting("time_zone", time_zone, "must be text")
        try:
            fields = _read(expression, dst)
        except FieldError as error:
            raise InvalidSetting("cron", shortened(expression), shortened(str(error), 600)) from None
        rule: Rule
        if dst == "quartz":
            rule = "quartz"
        elif fields.roving:
            rule = "roving"
        else:
            rule = "fixed"
        return cls(expression, time_zone, dst, fields, Search(fields), zone_named(time_zone), rule)

    def next_after(self, after: datetime) -> datetime | None:
        """Return the first fire time strictly after an aware instant, None if there is no further one."""
        after = _aware(after)
        if after >= _LATEST:
            return None
        instant = max(after, _EARLIEST).astimezone(UTC)
        since = instant.replace(microsecond=0) + _SECOND
        return next_fire(self._rule, self._search, since.astimezone(self._zone), self._zone)

    def previous_before(self, before: datetime) -> datetime | None:
        """Return the last fire time strictly before an aware instant, None if there was none since 1970."""
        before = _aware(before)
        if before <= _EARLIEST:
            return None
        instant = min(before, _LATEST).astimezone(UTC)
        if instant.microsecond:
            until = instant.replace(microsecond=0)
        else:
            until = instant - _SECOND
        return previous_fire(self._rule, self._search, until.astimezone(self._zone), self._zone)

    def times_after(self, start: datetime, n: int) -> list[datetime]:
        """Return the next ``n`` fire times strictly after an aware instant, fewer if the schedule ends."""
        if not isinstance(n, int):
            raise InvalidSetting("n", n, "a whole number")
        return list(islice(self._fires(start), max(n, 0)))

    @property
    def never_fires(self) -> bool:
        """Whether no year has a moment that this schedule names, as with the 30th of February."""
        return self.next_after(_EARLIEST) is None

    def describe(self) -> str:
        """Return the schedule as an English sentence."""
        return f"{sentence(self.fields)}, {self.time_zone}"

    def _fires(self, after: datetime) -> Iterator[datetime]:
        while (fire := self.next_after(after)) is not None:
            yield fire
            after = fire


def _read(expression: str, dst: DaylightSaving) -> Fields:
    if len(expression) > LONGEST_EXPRESSION:
        raise FieldError(f"the expression has more than {LONGEST_EXPRESSION} characters")
    if not expression.isascii():
        odd = next(character for character in expression if not character.isascii())
        raise FieldError(f"the character {odd!r} is not ASCII: type the expression anew")
    # spaces and tabs part the fields; a line's end may close one, as in text read from a file
    text = expression.replace("\t", " ").strip(" \r\n\f\v")
    tokens = [token.strip("\r\n\f\v") for token in text.split(" ") if token]
    if tokens and (zone := _ZONE.fullmatch(tokens[0])) is not None:
        raise FieldError(
            f"an expression has no zone of its own: leave out {tokens[0]}, and set time_zone to {zone['name']!r}"
        )
    if len(tokens) in (6, 7):
        return read_quartz(tokens)
    unix = _alias(text) if text.startswith("@") else tokens
    if len(unix) != 5:
        raise FieldError(
            f"expected 6 or 7 fields (Quartz, seconds first) or 5 (crontab, minutes first), not {len(tokens)}"
        )
    if "?" in text:
        known = "5 fields are crontab's and know no '?': for Quartz add the seconds"
        raise FieldError(known + suggestion(["0", *unix]))
    if dst == "quartz":
        raise FieldError("dst='quartz' reads Quartz's 6 or 7 fields only: add the seconds in front, or use dst='cron'")
    return read_crontab(unix)


def _alias(text: str) -> list[str]:
    line = ALIASES.get(text.lower())
    if line is None:
        raise FieldError(f"there is no such abbreviation: expected one of {', '.join(ALIASES)}")
    return line.split()


def _aware(instant: datetime) -> datetime:
    if not isinstance(instant, datetime) or instant.utcoffset() is None:
        raise InvalidSetting("start", instant, "expected an aware datetime, such as datetime(2026, 3, 8, tzinfo=UTC)")
    return instant
