"""The moments that several sets of moments have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from aioelasticjob.schedules.moments import Moments

FARTHEST = 366 * 86_400_000
"""How far away, in milliseconds, a common moment is looked for: a year."""
MAX_STEPS = 10_000
"""After so many steps without a common moment there counts as none: two sets may miss each other by a second."""


@dataclass(frozen=True, slots=True)
class Common:
    """The moments that all of several sets have."""

    parts: tuple[Moments, ...]

    def after(self, time: int) -> int | None:
        """Return the first common moment later than a time; None if there is none within a year."""
        return self._meet(time, time + FARTHEST, lambda part, reached: part.after(reached - 1), first=time + 1)

    def until(self, time: int) -> int | None:
        """Return the newest common moment up to a time; None if there is none within a year."""
        return self._meet(time, time - FARTHEST, lambda part, reached: part.until(reached), first=time)

    def _meet(
        self, time: int, farthest: int, nearest: Callable[[Moments, int], int | None], *, first: int
    ) -> int | None:
        """Return the moment at which all parts meet, going on from ``first``.

        ``nearest`` returns the moment of a part at which it arrives next, which may be where it is.
        """
        reached = first
        for _ in range(MAX_STEPS):
            start = reached
            for part in self.parts:
                found = nearest(part, reached)
                if found is None or abs(found - time) > abs(farthest - time):
                    return None
                reached = found
            if reached == start:
                return reached
        return None
