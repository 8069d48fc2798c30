"""Finds out by which schedules the one that an instance follows was replaced, and when."""

from __future__ import annotations

from collections.abc import Iterable

from aioelasticjob.coordination.view import FormerSchedule, JobView
from aioelasticjob.cron import Cron
from aioelasticjob.running.unattended import given_at

ROUNDED = 0.001


class Succession:
    """Compares the schedule that an instance follows with a newer view.

    ``since`` is the registry's date of that schedule, in seconds.  The registry's clock may have been set meanwhile.
    """

    def __init__(self, followed: Cron | None, since: float, view: JobView) -> None:
        self._view = view
        self.between: list[FormerSchedule] = _after(view, since)
        """The schedules that came after the one followed and have been replaced since, oldest first."""
        self.has_changed = view.config.schedule != followed or any(one.cron != followed for one in self.between)
        """Whether another schedule is in force, or the same one again after another."""
        self.ended = self.between[0].since if self.between else int(view.scheduled_since * 1000)
        """When the schedule followed was replaced, in milliseconds, if ``has_changed``."""

    def given_away_since(self, items: Iterable[int]) -> frozenset[int]:
        """Return the items that went to another instance after the schedule of the view was written.

        That instance follows the new schedule only, so it does not know which moments of the old one the items missed.
        """
        since = int(self._view.scheduled_since * 1000)
        return frozenset(item for item in items if given_at(self._view, item) >= since)

    def handed_on(self, items: Iterable[int], me: str) -> frozenset[int]:
        """Return the items that another instance was given before the schedule ended.

        That instance reports what they missed, according to their records.  If this instance reported their newest
        moments now, the older ones would count as reported too if the items come back.
        """
        given = (item for item in items if self._view.assignment.get(item, me) != me)
        return frozenset(item for item in given if given_at(self._view, item) < self.ended)


def _after(view: JobView, since: float) -> list[FormerSchedule]:
    """Return the schedules noted after the one with this date and before the one in force.

    Their dates need not be in order, because the clock that dated them may have been set in between.
    """
    noted = [one.since / 1000 for one in view.former_schedules]
    same = [n for n, date in enumerate([*noted, view.schedule_dated]) if abs(date - since) <= ROUNDED]
    if same:
        return list(view.former_schedules[same[-1] + 1 :])
    return [one for one in view.former_schedules if one.since / 1000 > since]  # it was replaced unnoted
