"""Limits warnings that can repeat: the first are written, later ones are counted, and the next line has the count.

Each job writes at most one line of each kind in ``INTERVAL`` seconds, and all jobs of a process together write at most
``MOST`` of a kind.  So when a process is overloaded, the log names some jobs and counts the others.
"""

from __future__ import annotations

import logging
from asyncio import get_running_loop
from dataclasses import dataclass, field
from math import inf

from aioelasticjob.plural import counted

INTERVAL = 60.0
"""Seconds between two lines of the same kind about the same job."""
MOST = 20
"""Lines of one kind that a process writes in ``INTERVAL`` seconds."""


@dataclass(slots=True)
class _Kind:
    """The lines of one kind in the current interval."""

    log: logging.Logger
    """The log of the newest line."""
    since: float
    """When this count began, by the loop's clock."""
    jobs: dict[str, int] = field(default_factory=dict)
    """How many lines of each job were left out."""
    written: dict[str, float] = field(default_factory=dict)
    """When each job wrote its last line."""
    lines: int = 0
    """How many lines were written."""


class LimitedLog:
    """Writes the warnings of all jobs of a process."""

    def __init__(self) -> None:
        self._kinds: dict[str, _Kind] = {}

    def warning(
        self,
        log: logging.Logger,
        job: str,
        kind: str,
        message: str,
        *,
        each: bool = False,
        most: int = MOST,
        **extra: object,
    ) -> None:
        """Write a warning; if its job or the process has written too many of its kind, count it instead.

        With ``each``, only the limit of the process applies, since each line of the job is about something else.
        ``most`` is that limit.
        """
        now = get_running_loop().time()
        seen = self._kinds.get(kind) or self._new_kind(kind, log, now)
        if now >= seen.since + INTERVAL:
            if seen.lines >= most:
                _count_left_out(kind, seen)
            seen = self._kinds[kind] = _Kind(log, now, seen.jobs, seen.written)
        if (now < seen.written.get(job, -inf) + INTERVAL and not each) or seen.lines >= most:
            seen.jobs[job] = seen.jobs.get(job, 0) + 1
            return
        seen.lines += 1
        seen.written[job] = now
        left_out = seen.jobs.pop(job, 0)
        lines = f"{counted(left_out, 'such line')} {'was' if left_out == 1 else 'were'}"
        more = f" ({lines} left out before this one)" if left_out else ""
        log.warning("%s: %s%s", job, message, more, extra={"job": job, **extra})

    def _new_kind(self, kind: str, log: logging.Logger, now: float) -> _Kind:
        """Begin to count the lines of a kind.  Forget kinds whose interval is over and that have left out no line."""
        self._kinds = {name: seen for name, seen in self._kinds.items() if seen.jobs or now < seen.since + INTERVAL}
        seen = self._kinds[kind] = _Kind(log, now)
        return seen

    def close(self) -> None:
        """Write how many lines were left out and not counted yet, because the process writes no more of them."""
        for kind, seen in self._kinds.items():
            _count_left_out(kind, seen)
        self._kinds.clear()


def _count_left_out(kind: str, seen: _Kind) -> None:
    if seen.jobs:
        lines = sum(seen.jobs.values())
        text = "%s left out, about %s: %s"
        what = counted(lines, "more line") + (" was" if lines == 1 else " were")
        seen.log.warning(text, what, counted(len(seen.jobs), "job"), kind, extra={"left_out": lines})
        seen.jobs.clear()
