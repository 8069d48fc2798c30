"""Limits log lines that can repeat: of the lines of one kind some are written, and one line counts the others.

The first line of a kind begins an interval of ``INTERVAL`` seconds.  In it, each job writes at most one line of the
kind, and all jobs of a process together write at most ``MOST``.  At its end, a line says how many were left out.  So
when a process is overloaded, the log names some jobs and counts the others.

Lines that are about no job are limited in the same way.  Some of them report a state, such as whether there is a
connection to the registry.  Then the line that counts also quotes the newest line that was left out, because that one
says what the state is now.
"""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop, TimerHandle, get_running_loop
from dataclasses import dataclass, field
from threading import Lock

from aioelasticjob.ground.plural import counted
from aioelasticjob.ground.repeat_limit import RepeatLimit

INTERVAL = 60.0
"""Seconds in which lines of the same kind are limited."""
MOST = 20
"""Lines of one kind that a process writes in ``INTERVAL`` seconds."""


@dataclass(slots=True)
class _Interval:
    """The lines of one kind, from the first one on."""

    log: logging.Logger
    level: int
    end: TimerHandle | None = None
    limit: RepeatLimit = field(default_factory=lambda: RepeatLimit(INTERVAL))
    """Counts the lines about each job."""
    newest: str = ""
    """The newest line that was left out, if lines of the kind report a state."""


class LimitedLog:
    """Decides which lines of all jobs of a process are written, and counts the others.

    ``loop`` is given if another thread than the loop's writes the lines.
    """

    def __init__(self, loop: AbstractEventLoop | None = None) -> None:
        self._loop = loop
        self._lock = Lock()
        self._intervals: dict[str, _Interval] = {}
        self._closed = False

    def admits(
        self,
        log: logging.Logger,
        job: str | None,
        kind: str,
        *,
        each: int = 1,
        most: int = MOST,
        newest: str = "",
        level: int = logging.WARNING,
    ) -> bool:
        """Whether a line may be written; one that may not is counted.

        ``job`` is None if the line is about no job.  ``kind`` says what the line is about, in words for the line that
        counts.  ``each`` is how many lines of the kind a job may write in one interval, and ``most`` how many the
        process may write.  ``newest`` is the line itself if it reports a state.  ``level`` is that of the line that
        counts.
        """
        with self._lock:
            if self._closed:
                return True
            interval = self._intervals.get(kind)
            if interval is None:
                interval = _Interval(log, level)
                self._intervals[kind] = interval
                if self._loop is None:
                    self._await_end(get_running_loop(), kind)
                else:
                    self._loop.call_soon_threadsafe(self._await_end, self._loop, kind)
            admitted = interval.limit.admits(job or "", each=each, most=most)
            if not admitted:
                interval.newest = newest
            return admitted

    def warning(
        self,
        log: logging.Logger,
        job: str,
        kind: str,
        message: str,
        *,
        each: int = 1,
        most: int = MOST,
        **extra: object,
    ) -> None:
        """Write a warning about a job, if it is admitted."""
        if self.admits(log, job, kind, each=each, most=most):
            log.warning("%s: %s", job, message, extra={"job": job, **extra})

    def close(self) -> None:
        """End all intervals, because the process writes no more of these lines.  Later lines are not limited."""
        with self._lock:
            self._closed = True
        for kind in list(self._intervals):
            self._end(kind)

    def _await_end(self, loop: AbstractEventLoop, kind: str) -> None:
        interval = self._intervals.get(kind)
        if interval is not None:  # it has not been closed meanwhile
            interval.end = loop.call_later(INTERVAL, self._end, kind)

    def _end(self, kind: str) -> None:
        with self._lock:
            interval = self._intervals.pop(kind)
        if interval.end is not None:
            interval.end.cancel()
        left_out = interval.limit.take_left_out()
        lines = left_out.total()
        if not lines:
            return
        verb = "was" if lines == 1 else "were"
        jobs = [job for job in left_out if job]
        about = f", about {counted(len(jobs), 'job')}" if jobs else ""
        newest = f"; the newest: {interval.newest}" if interval.newest else ""
        text = "%s left out%s: %s%s"
        what = f"{counted(lines, 'more line')} {verb}"
        interval.log.log(interval.level, text, what, about, kind, newest, extra={"left_out": lines})
