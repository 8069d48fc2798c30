"""Days of a time zone, and which instants of one day have the local times of another one.

Days are ordinals as ``date`` counts them; instants and wall times are whole milliseconds, wall times as if in UTC.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache

from aioelasticjob.ground.times import moment

MILLISECONDS = 86_400_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = _EPOCH.toordinal()


@dataclass(frozen=True, slots=True)
class Stretch:
    """Wall times of a day, from ``begins`` up to ``ends``, with one offset from UTC."""

    begins: int
    ends: int
    offset: int


@dataclass(frozen=True, slots=True)
class Shift:
    """Instants of one day, from ``first`` to ``last``, and by how much they are shifted to another day.

    If the other day has no such local times, because its clock is put forward, all of them are moved to ``gathered``.
    """

    first: int
    last: int
    by: int = 0
    gathered: int | None = None


def day_of(milliseconds: int, zone: tzinfo) -> int:
    """Return the day of an instant."""
    return moment(milliseconds / 1000).astimezone(zone).toordinal()


def start_of(day: int, zone: tzinfo) -> int:
    """Return the first instant of a day."""
    midnight = datetime.fromordinal(day).replace(tzinfo=zone)
    return (midnight - _EPOCH) // timedelta(milliseconds=1)


@lru_cache(maxsize=256)
def shifts(source: int, target: int, zone: tzinfo) -> tuple[Shift, ...]:
    """Return how the instants of a day are moved to the same local times of another day.

    A local time that the other day has twice is the first of the two, and one that it skips is the end of the gap.
    """
    found = list[Shift]()
    away = (target - source) * MILLISECONDS
    for begins, ends, offset, gathered in _targets(target, zone):
        for stretch in _stretches(source, zone):
            first = max(stretch.begins, begins - away) - stretch.offset
            last = min(stretch.ends, ends - away) - stretch.offset - 1
            if first <= last:
                found.append(Shift(first, last, away + stretch.offset - offset, gathered))
    return tuple(found)


def _targets(day: int, zone: tzinfo) -> Iterator[tuple[int, int, int, int | None]]:
    """Yield the wall times of a day without a gap: from and to when, their offset, and where those of a gap are put."""
    known = _wall(day)
    for stretch in _stretches(day, zone):
        if known < stretch.begins:
            yield known, stretch.begins, 0, stretch.begins - stretch.offset
        yield max(known, stretch.begins), stretch.ends, stretch.offset, None
        known = max(known, stretch.ends)
    if known < _wall(day + 1):
        yield known, _wall(day + 1), 0, start_of(day + 1, zone)


def _stretches(day: int, zone: tzinfo) -> tuple[Stretch, ...]:
    """Return the wall times of a day: two stretches if the clock is changed."""
    start = start_of(day, zone)
    end = start_of(day + 1, zone)
    before = _offset(start, zone)
    after = _offset(end - 1, zone)
    if before == after:
        return (Stretch(start + before, end + after, after),)
    unturned = start
    turned = end - 1
    while turned - unturned > 1:
        middle = (turned + unturned) // 2
        if _offset(middle, zone) == before:
            unturned = middle
        else:
            turned = middle
    return Stretch(start + before, turned + before, before), Stretch(turned + after, end + after, after)


def _offset(milliseconds: int, zone: tzinfo) -> int:
    offset = moment(milliseconds / 1000).astimezone(zone).utcoffset()
    assert offset is not None
    return offset // timedelta(milliseconds=1)


def _wall(day: int) -> int:
    return (day - _EPOCH_DAY) * MILLISECONDS
