"""Sets of moments.  Each answers two questions: which is the first one after a time, and the newest one up to a time.

Times are whole milliseconds since the epoch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from aioelasticjob.cron import Cron
from aioelasticjob.cron.fields import LAST_YEAR
from aioelasticjob.ground.times import moment

LATEST = round(datetime(LAST_YEAR + 1, 1, 1, tzinfo=UTC).timestamp() * 1000) - 1
"""No schedule has a moment after this one."""


class Moments(Protocol):
    """A set of moments."""

    def after(self, time: int) -> int | None:
        """Return the first moment later than a time; None if there is none."""

    def until(self, time: int) -> int | None:
        """Return the newest moment up to a time, which may be that time; None if there is none."""


@dataclass(frozen=True, slots=True)
class CronMoments:
    """The moments of a cron expression."""

    cron: Cron

    def after(self, time: int) -> int | None:
        """Return the first moment later than a time; None if there is none."""
        return _milliseconds(self.cron.next_after(moment(time / 1000)))

    def until(self, time: int) -> int | None:
        """Return the newest moment up to a time; None if there is none."""
        return _milliseconds(self.cron.previous_before(moment((time + 1) / 1000)))


@dataclass(frozen=True, slots=True)
class Interval:
    """Moments with the same time between each two of them."""

    first: int
    every: int

    def after(self, time: int) -> int | None:
        """Return the first moment later than a time; None if there is none."""
        if time < self.first:
            return self.first
        found = self.first + ((time - self.first) // self.every + 1) * self.every
        return found if found <= LATEST else None

    def until(self, time: int) -> int | None:
        """Return the newest moment up to a time; None if there is none."""
        passed = min(time, LATEST) - self.first
        return None if passed < 0 else self.first + passed // self.every * self.every


@dataclass(frozen=True, slots=True)
class Dates:
    """Single moments, each given."""

    moments: tuple[int, ...]
    """In ascending order."""

    def after(self, time: int) -> int | None:
        """Return the first moment later than a time; None if there is none."""
        place = bisect_right(self.moments, time)
        return self.moments[place] if place < len(self.moments) else None

    def until(self, time: int) -> int | None:
        """Return the newest moment up to a time; None if there is none."""
        place = bisect_right(self.moments, time)
        return self.moments[place - 1] if place else None


@dataclass(frozen=True, slots=True)
class Union:
    """The moments of several sets; one that several of them have is one moment."""

    parts: tuple[Moments, ...]

    def after(self, time: int) -> int | None:
        """Return the first moment later than a time; None if there is none."""
        return min(_known(part.after(time) for part in self.parts), default=None)

    def until(self, time: int) -> int | None:
        """Return the newest moment up to a time; None if there is none."""
        return max(_known(part.until(time) for part in self.parts), default=None)


@dataclass(frozen=True, slots=True)
class Between:
    """The moments of a set from ``first`` to ``last``, both included."""

    moments: Moments
    first: int
    last: int

    def after(self, time: int) -> int | None:
        """Return the first moment later than a time; None if there is none."""
        found = self.moments.after(max(time, self.first - 1))
        return found if found is not None and found <= self.last else None

    def until(self, time: int) -> int | None:
        """Return the newest moment up to a time; None if there is none."""
        found = self.moments.until(min(time, self.last))
        return found if found is not None and found >= self.first else None


def _known(found: Iterable[int | None]) -> list[int]:
    return [one for one in found if one is not None]


def _milliseconds(found: datetime | None) -> int | None:
    return None if found is None else round(found.timestamp() * 1000)
