"""Time zones: their names, and the moments at which their clocks are changed."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import cache
from importlib import resources
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from aioelasticjob.cron.fields import shortened
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.times import moment, time_text

_OFFSET = re.compile(r"GMT([+-])([0-9]{1,2})(?::?([0-9]{2}))?")
# right/ counts leap seconds, the others mean something else on every host
_NAME = re.compile(r"(?!right/|posix/|localtime$|posixrules$|Factory$)[A-Za-z][A-Za-z0-9_+/-]{0,63}")


def zone_named(name: str) -> tzinfo:
    """Return the time zone of an IANA name, or of an offset as Java writes it: ``GMT+8``, ``GMT-09:30``, east positive.

    Raises: InvalidSetting
    """
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        sign, hours, minutes = offset.groups()
        return _offset_zone(name, sign, int(hours), int(minutes or 0))
    if _NAME.fullmatch(name) is None:
        raise _unknown(name)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:  # OSError: the name of a directory
        raise _unknown(name) from error


def wall_time(setting: str, wall: datetime, zone: tzinfo) -> datetime:
    """Return a wall time that somebody has typed, with its zone.

    Raises:
        InvalidSetting: there is no such time, because the clock is put forward then.
    """
    turn = turn_at(wall, zone)
    if turn is not None and not turn.repeats:
        begin = turn.begins.isoformat()
        end = turn.ends.isoformat()
        expected = f"does not exist in {zone}: the clock is put forward from {begin} to {end}"
        raise InvalidSetting(setting, wall.isoformat(), expected)
    return wall.replace(tzinfo=zone)


def typed_time(setting: str, text: str, zone: tzinfo, expected: str) -> datetime:
    """Return a date or a time that somebody has typed; if it names no zone, it is meant in ``zone``.

    A date is its first moment, also where the clock is put forward at midnight.

    Raises:
        InvalidSetting: it is neither (``expected`` says what would be right), or there is no such time in the zone.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidSetting(setting, text, expected) from None
    if found.tzinfo is not None:
        return found
    if len(text) <= len("2026-01-31"):
        return found.replace(tzinfo=zone)
    return wall_time(setting, found, zone)


def local_time(milliseconds: int, time_zone: str) -> datetime:
    """Return a time in a job's time zone, to the second; in UTC if the zone of a job without cron does not exist."""
    try:
        zone = zone_named(time_zone)
    except InvalidSetting:
        zone = UTC
    return moment(milliseconds // 1000).astimezone(zone)


def local_text(milliseconds: int, time_zone: str) -> str:
    """Return a time in a job's time zone as ISO 8601, such as ``2026-11-01T02:00:00+08:00``."""
    found = local_time(milliseconds, time_zone) + timedelta(milliseconds=milliseconds % 1000)
    return time_text(found, milliseconds=bool(milliseconds % 1000))


@dataclass(frozen=True, slots=True)
class Turn:
    """A zone changes its offset: wall times from ``begins`` up to ``ends`` are skipped, or shown twice."""

    instant: datetime
    """Naive, in UTC."""
    before: timedelta
    after: timedelta

    @property
    def repeats(self) -> bool:
        """The clock is put back, not forward."""
        return self.after < self.before

    @property
    def begins(self) -> datetime:
        """First naive wall time that is skipped or shown twice."""
        return self.instant + min(self.before, self.after)

    @property
    def ends(self) -> datetime:
        """First naive wall time after those."""
        return self.instant + max(self.before, self.after)


def turn_at(wall: datetime, zone: tzinfo) -> Turn | None:
    """Return the turn that skips or repeats a wall time, None if it is ordinary; a wall time's own zone is ignored."""
    if zone.utcoffset(None) is not None:  # its offset is fixed
        return None
    early = wall.replace(tzinfo=zone, fold=0)
    late = wall.replace(tzinfo=zone, fold=1)
    before = early.utcoffset()
    after = late.utcoffset()
    assert before is not None
    assert after is not None
    if before == after:
        return None
    naive = wall.replace(tzinfo=None, fold=0)
    # PEP 495: fold=0 reads with the offset before the turn, fold=1 with the one after it, in gaps as in overlaps.
    # So the turn lies between the two readings, and bisecting the seconds between them finds it.
    low = naive - max(before, after)
    seconds = int(abs(after - before).total_seconds())
    turned = seconds
    unturned = 0
    while turned - unturned > 1:
        middle = (turned + unturned) // 2
        instant = low + timedelta(seconds=middle)
        probe = instant.replace(tzinfo=UTC).astimezone(zone)
        if probe.utcoffset() == before:
            unturned = middle
        else:
            turned = middle
    return Turn(low + timedelta(seconds=turned), before, after)


def _offset_zone(name: str, sign: str, hours: int, minutes: int) -> timezone:
    if hours > 23:
        raise InvalidSetting("time_zone", name, "an offset has at most 23 hours, as in 'GMT+8' or 'GMT-09:30'")
    if minutes > 59:
        raise InvalidSetting("time_zone", name, "the minutes of an offset are 00 to 59, as in 'GMT-09:30'")
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if sign == "-" else offset, f"GMT{sign}{hours:02}:{minutes:02}")


def _unknown(name: str) -> InvalidSetting:
    as_offset = re.sub(r"^(UTC?|Etc/GMT)(?=[+-])", "GMT", name)
    near = list[str]()
    if _OFFSET.fullmatch(as_offset):
        near = [as_offset]
    elif not (name.isupper() and name.isalpha()):  # of CEST, BST or IST, no name that is spelt like it means the same
        near = difflib.get_close_matches(name[:64], _names(), 1)
    if near:
        hint = f"did you mean {near[0]!r}?"
    else:
        hint = "expected a name such as 'Europe/Berlin', or an offset such as 'GMT+8'"
    return InvalidSetting("time_zone", shortened(name), f"there is no such time zone: {hint}")


@cache
def _names() -> tuple[str, ...]:
    """Names for suggestions, from the packaged list: asking the host's database would walk its directories."""
    return tuple((resources.files("tzdata") / "zones").read_text(encoding="ascii").split())
