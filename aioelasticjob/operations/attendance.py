"""Notes for which jobs no instance is up, and says when their error handlers are to be called.  Nothing here waits."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Final

from aioelasticjob.error_handlers import Failure
from aioelasticjob.errors import NobodyThere
from aioelasticjob.ground.times import moment, time_text
from aioelasticjob.operations.status import JobStatus

_WHAT: Final = {
    "nobody there": "no instance is up",
    "nobody able": "every instance lacks a feature that the job requires, or cannot use its configuration",
    "clock differs": "every instance that could run the job refuses to, because its host's clock differs",
}
"""By the state of a job that nobody runs, the reason."""


class Attendance:
    """The jobs of a namespace for which no instance is up that may run them.

    Each such job is reported once, when that has lasted for ``after`` seconds, and again after an instance was up.
    """

    def __init__(self, after: float) -> None:
        self._after = after
        self._since: dict[str, float] = {}
        """By the name of a job, since when no instance has been up, in seconds since the epoch."""
        self._reported: set[str] = set()

    def look(self, jobs: Iterable[JobStatus], now: float) -> list[tuple[JobStatus, Failure]]:
        """Return the jobs to be reported now.  A job that is paused, or has no moment to come, misses nothing."""
        alone = {job.name: job for job in jobs if _is_alone(job, now)}
        self._since = {name: self._since.get(name, now) for name in alone}
        self._reported &= alone.keys()
        due = [name for name, since in self._since.items() if since + self._after <= now and name not in self._reported]
        self._reported.update(due)
        return [(alone[name], _failure(alone[name], self._since[name], now)) for name in due]

    def lasts(self, failure: Failure) -> bool:
        """Whether the absence that a failure reports still lasts, as far as is known."""
        return failure.job in self._since

    def forget(self) -> None:
        """Begin to count again: it is not known whether an instance was up while the registry was not connected."""
        self._since = {name: since for name, since in self._since.items() if name in self._reported}

    def next_due(self, now: float) -> float:
        """Return the seconds until ``look`` has to be called again although no job has changed."""
        waiting = (since for name, since in self._since.items() if name not in self._reported)
        return max(0.0, min(waiting, default=inf) + self._after - now)


def _is_alone(job: JobStatus, now: float) -> bool:
    if job.config.schedule is None or job.paused or job.state not in _WHAT:
        return False
    return job.config.schedule.next_after(moment(now)) is not None


def _failure(job: JobStatus, since: float, now: float) -> Failure:
    assert job.config.schedule is not None  # a job without a schedule misses nothing
    following = job.config.schedule.next_after(moment(now))
    assert following is not None
    text = (
        f"{_WHAT[job.state]}, at least since {time_text(moment(since))}: its runs are missed,"
        f" the next one at {time_text(following)}"
    )
    return Failure(job.name, "", (), "", "", NobodyThere(text), what="nobody-there")
