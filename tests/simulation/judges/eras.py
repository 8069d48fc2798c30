"""The spans in which a job's configuration stayed the same."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from aioelasticjob.config.job import JobConfig
from aioelasticjob.ground.times import moment

AROUND = 5.0
"""Seconds before and after a span whose moments are known, too."""


@dataclass(frozen=True, slots=True)
class Era:
    """A span in which a job's configuration stayed the same, and the moments (ms) of its schedule then."""

    start: float
    end: float
    config: JobConfig
    moments: tuple[int, ...]

    @classmethod
    def of(cls, start: float, end: float, data: bytes, job: str) -> Era:
        """Return the span in which the node ``config`` of a job held ``data``."""
        config = JobConfig.from_json(data, job)
        return cls(start, end, config, tuple(_moments(config, start - AROUND, end + AROUND)))

    def passed(self, first: int, last: int) -> tuple[int, ...]:
        """Return the moments from ``first`` to ``last``."""
        return self.moments[bisect_left(self.moments, first) : bisect_right(self.moments, last)]

    def counted(self, first: int, last: int) -> tuple[int, ...]:
        """Return the moments that the schedule has from ``first`` to ``last``, whenever it was in force; 17 at most."""
        return tuple(islice(_moments(self.config, (first - 1) / 1000, last / 1000 + 0.001), 17))


def _moments(config: JobConfig, start: float, end: float) -> Iterator[int]:
    cron = config.schedule
    following = None if cron is None else cron.next_after(moment(start))
    while cron is not None and following is not None and following.timestamp() < end:
        yield round(following.timestamp() * 1000)
        following = cron.next_after(following)
