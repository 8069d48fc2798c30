"""Computes which scheduled moments are due.  Moments that come between two looks are combined into the newest one."""

from __future__ import annotations

from dataclasses import dataclass

from aioelasticjob.clock import moment
from aioelasticjob.cron import Cron

STEPS = 16
"""How many moments are counted one by one; if there are more, the newest one is searched backwards from the end."""


@dataclass(frozen=True, slots=True)
class Passed:
    """Consecutive moments that passed without a run, in milliseconds since the epoch."""

    first: int
    last: int
    count: int = 1
    """The number of moments.  It is counted up to ``STEPS``, so ``STEPS`` means that many or more."""


class Timetable:
    """A cron schedule, and the present position in it.  All moments are in milliseconds since the epoch."""

    def __init__(self, cron: Cron | None, now: int) -> None:
        self._cron = cron
        self.newest = 0
        """The newest moment that is due; 0 if there was none."""
        self.upcoming: int | None = None
        """The next moment; None if there is none."""
        if cron is not None:
            self._search(cron, now)

    def advance(self, now: int) -> int:
        """Move on to ``now``, and return how many moments have become due; the count stops at ``STEPS``."""
        due = 0
        while self.upcoming is not None and self.upcoming <= now and due < STEPS:
            self.newest, due = self.upcoming, due + 1
            self.upcoming = self._after(self.newest)
        if self._cron is not None and self.upcoming is not None and self.upcoming <= now:
            self._search(self._cron, now)
        return due

    def following(self) -> int:
        """Return the moment after the upcoming one; 0 if there is none."""
        return (self._after(self.upcoming) if self.upcoming is not None else None) or 0

    def _search(self, cron: Cron, now: int) -> None:
        last = cron.previous_before(moment((now + 1) / 1000))
        self.newest = 0 if last is None else round(last.timestamp() * 1000)
        self.upcoming = self._after(now)

    def passed(self, after: int, until: int) -> Passed | None:
        """Return the moments later than ``after`` and up to ``until``; None if there are none."""
        first = self._after(after) if self._cron is not None and after < until else None
        if first is None or first > until:
            return None
        last, count, following = first, 1, self._after(first)
        while following is not None and following <= until and count < STEPS:
            last, count, following = following, count + 1, self._after(following)
        if self._cron is not None and following is not None and following <= until:
            newest = self._cron.previous_before(moment((until + 1) / 1000))
            last = last if newest is None else round(newest.timestamp() * 1000)
        return Passed(first, last, count)

    def _after(self, milliseconds: int) -> int | None:
        assert self._cron is not None
        return self._cron.millisecond_after(milliseconds)
