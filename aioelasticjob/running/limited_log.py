"""Warnings that can repeat: the first are written at once, the others are counted, and the next line says how many.

A job writes one line of each kind in ``INTERVAL`` seconds, and all jobs of a process together write ``MOST``: when a
process has more to do than it can, the log names some jobs and counts the others.
"""

from __future__ import annotations

import logging
from asyncio import get_running_loop
from dataclasses import dataclass, field

INTERVAL = 60.0
"""Seconds between two lines of the same kind about the same job."""
MOST = 20
"""Lines of one kind that a process writes in ``INTERVAL`` seconds."""


@dataclass(slots=True)
class _Kind:
    """The lines of one kind since the last time that all of them were counted."""

    since: float
    """When this count began, by the loop's clock."""
    jobs: dict[str, int] = field(default_factory=dict)
    """How many lines of each job were left out."""
    written: dict[str, float] = field(default_factory=dict)
    """When each job wrote its last line."""
    lines: int = 0


class LimitedLog:
    """Writes the warnings of all jobs of a process."""

    def __init__(self) -> None:
        self._kinds: dict[str, _Kind] = {}

    def warning(self, log: logging.Logger, job: str, kind: str, message: str, **extra: object) -> None:
        """Write a warning, unless its job or the process has written enough of its kind; then it is counted."""
        now = get_running_loop().time()
        seen = self._kinds.setdefault(kind, _Kind(now))
        if now >= seen.since + INTERVAL:
            self._sum_up(log, kind, seen)
            seen = self._kinds[kind] = _Kind(now, seen.jobs, seen.written)
        if now < seen.written.get(job, now - INTERVAL) + INTERVAL or seen.lines >= MOST:
            seen.jobs[job] = seen.jobs.get(job, 0) + 1
            return
        seen.lines += 1
        seen.written[job] = now
        left_out = seen.jobs.pop(job, 0)
        more = f" ({left_out} such lines were left out before this one)" if left_out else ""
        log.warning("%s: %s%s", job, message, more, extra={"job": job, **extra})

    def _sum_up(self, log: logging.Logger, kind: str, seen: _Kind) -> None:
        """Say what was left out because other jobs had written so much."""
        if seen.lines >= MOST and seen.jobs:
            lines, jobs = sum(seen.jobs.values()), len(seen.jobs)
            message = "%d more lines about %d jobs were left out in the last minute: %s"
            log.warning(message, lines, jobs, kind, extra={"left_out": lines})
            seen.jobs.clear()
