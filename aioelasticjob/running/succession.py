"""What became of the schedule that an instance has followed: by which others it was replaced, and when."""

from __future__ import annotations

from collections.abc import Iterable

from aioelasticjob.coordination.view import FormerSchedule, JobView
from aioelasticjob.cron import Cron
from aioelasticjob.running.unattended import given_at

ROUNDED = 0.001


class Succession:
    """How a schedule, dated in seconds by the registry, whose clock may have been set since, stands in a newer view."""

    def __init__(self, followed: Cron | None, since: float, view: JobView) -> None:
        self._view = view
        self.between: list[FormerSchedule] = _after(view, since)
        """The schedules that came and went since the one followed was read."""
        self.has_changed = view.config.schedule != followed or any(one.cron != followed for one in self.between)
        """Whether another schedule is in force, or the same one, back in force after another."""
        self.ended = self.between[0].since if self.between else int(view.scheduled_since * 1000)
        """When the schedule followed was replaced, if it was, in milliseconds."""

    def given_away_since(self, items: Iterable[int]) -> frozenset[int]:
        """Return the items that went to another instance after the schedule of the view was written.

        That instance follows the new schedule only, so it does not know which moments of the last one they missed.
        """
        since = int(self._view.scheduled_since * 1000)
        return frozenset(item for item in items if given_at(self._view, item) >= since)

    def handed_on(self, items: Iterable[int], me: str) -> frozenset[int]:
        """Return the items that another instance was given before the schedule ended: it reports what they missed.

        It goes by their records; to tell of the newest moments only would hide those before them, if they come back.
        """
        given = (item for item in items if self._view.assignment.get(item, me) != me)
        return frozenset(item for item in given if given_at(self._view, item) < self.ended)


def _after(view: JobView, since: float) -> list[FormerSchedule]:
    """Return the schedules noted after the one of a date and before the one in force; any clock may have dated them."""
    noted = [one.since / 1000 for one in view.former_schedules]
    same = [n for n, date in enumerate([*noted, view.schedule_dated]) if abs(date - since) <= ROUNDED]
    if same:
        return list(view.former_schedules[same[-1] + 1 :])
    return [one for one in view.former_schedules if one.since / 1000 > since]  # it was written over before it was noted
