"""The spans in which a job's configuration, and the schedule that instances followed, stayed the same."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from aioelasticjob.config.job import JobConfig
from aioelasticjob.core.schedules import Schedules
from aioelasticjob.ground.times import moment
from aioelasticjob.registry.tree import UNREAD_NODE, Node
from aioelasticjob.schedules import Schedule
from aioelasticjob.schedules.calendars import Calendar

AROUND = 5.0
"""Seconds before and after a span whose moments are known, too."""


@dataclass(frozen=True, slots=True)
class Era:
    """A span in which a job's configuration stayed the same, and the moments (ms) of the schedule followed then."""

    start: float
    end: float
    config: JobConfig
    schedule: Schedule | None
    """The schedule that was followed: that of the configuration, or one before it that the leader had noted."""
    is_recorded: bool
    """Whether runs were recorded: both the configuration and the leader's note said so."""
    moments: tuple[int, ...]

    @classmethod
    def of(cls, start: float, end: float, data: bytes, job: str) -> Era:
        """Return the span in which the node ``config`` of a job held ``data``."""
        config = JobConfig.from_json(data, job)
        return cls._between(start, end, config, config.schedule, is_recorded=config.monitor_execution)

    @classmethod
    def _between(
        cls, start: float, end: float, config: JobConfig, schedule: Schedule | None, *, is_recorded: bool
    ) -> Era:
        moments = tuple(_moments(schedule, start - AROUND, end + AROUND))
        return cls(start, end, config, schedule, is_recorded, moments)

    def noted(self, start: float, end: float, note: bytes | None, contents: Mapping[str, Calendar]) -> Era:
        """Return the part of the span in which the leader's note of the schedules was ``note``.

        A schedule is followed when the leader has noted it.  Without any note, that of the configuration is.
        ``contents`` has the contents of calendars that leaders have kept.
        """
        node = None if note is None else Node.of(note, UNREAD_NODE.stat)
        schedules = Schedules.of(self.config, None, node, contents)
        newest = schedules.periods[-1]
        schedule = newest.schedule if schedules.noted else self.config.schedule
        is_recorded = self.config.monitor_execution and newest.recorded
        return self._between(max(start, self.start), min(end, self.end), self.config, schedule, is_recorded=is_recorded)

    def is_like(self, other: Era) -> bool:
        """Whether two eras have the same moments of the same items."""
        one, two = self.config, other.config
        same_items = one.sharding_total_count == two.sharding_total_count
        return self.schedule == other.schedule and same_items and self.is_recorded == other.is_recorded

    def until(self, end: float) -> Era:
        """Return the era as if it had gone on until then."""
        return self._between(self.start, end, self.config, self.schedule, is_recorded=self.is_recorded)

    def passed(self, first: int, last: int) -> tuple[int, ...]:
        """Return the moments from ``first`` to ``last``."""
        return self.moments[bisect_left(self.moments, first) : bisect_right(self.moments, last)]

    def counted(self, first: int, last: int) -> tuple[int, ...]:
        """Return the moments that the schedule has from ``first`` to ``last``, whenever it was in force; 17 at most."""
        return tuple(islice(_moments(self.schedule, (first - 1) / 1000, last / 1000 + 0.001), 17))


def _moments(schedule: Schedule | None, start: float, end: float) -> Iterator[int]:
    following = None if schedule is None else schedule.next_after(moment(start))
    while schedule is not None and following is not None and following.timestamp() < end:
        yield round(following.timestamp() * 1000)
        following = schedule.next_after(following)
