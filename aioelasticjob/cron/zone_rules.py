"""The rules of a time zone as this process knows them: a database of another release may have other ones."""

from __future__ import annotations

import hashlib
import zoneinfo
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from importlib import resources
from pathlib import Path

from aioelasticjob.cron.zone import zone_named

YEARS = 5
"""For how many years rules are compared: further ones are guesses in every release."""
_STEP = timedelta(days=7)
"""Between two changes of a zone's offset there is more time than this."""


@lru_cache(maxsize=1024)
def rules_digest(name: str, year: int) -> str:
    """Return a digest of how a zone's offset changes from the first of January of ``year`` on; empty if it never does.

    Raises: InvalidSetting
    """
    zone = zone_named(name)
    if zone.utcoffset(None) is not None:  # its offset is fixed
        return ""
    at = datetime(year, 1, 1, tzinfo=UTC)
    end = datetime(year + YEARS, 1, 1, tzinfo=UTC)
    present = _offset(zone, at)
    found = [(at.year, present)]
    while at < end:
        offset = _offset(zone, at + _STEP)
        if offset != present:
            turn = _turn(zone, at, offset)
            found.append((int(turn.timestamp()), offset))
            present = offset
        at += _STEP
    return hashlib.sha256(repr(found).encode()).hexdigest()[:16]


@lru_cache(maxsize=1024)
def database_of(name: str) -> str:
    """Return in words from which database, in which version, this process has the rules of a zone."""
    for place in zoneinfo.TZPATH:
        if Path(place, name).is_file():
            return f"tzdata {_version_in(Path(place))} in {place}"
    text = (resources.files("tzdata") / "__init__.py").read_text(encoding="utf-8")
    _, _, after_name = text.partition("IANA_VERSION")
    first_line, *_ = after_name.strip(" =").splitlines()
    version = first_line.strip('"')
    return f"tzdata {version} of Python's package"


def _offset(zone: tzinfo, at: datetime) -> int:
    offset = at.astimezone(zone).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


def _turn(zone: tzinfo, start: datetime, offset: int) -> datetime:
    """Return the first second of a step at which a zone's offset is that of its end."""
    unturned = 0
    turned = int(_STEP.total_seconds())
    while turned - unturned > 1:
        middle = (turned + unturned) // 2
        if _offset(zone, start + timedelta(seconds=middle)) == offset:
            turned = middle
        else:
            unturned = middle
    return start + timedelta(seconds=turned)


def _version_in(place: Path) -> str:
    """Return the version of a system's database of zones: it is in one of two files, according to the system."""
    for file, mark in (("tzdata.zi", "# version "), ("+VERSION", "")):
        try:
            with (place / file).open(encoding="ascii") as lines:
                line = lines.readline(100).strip()
        except (OSError, ValueError):
            continue
        if line.startswith(mark):
            return line.removeprefix(mark)
    return "of unknown version"
