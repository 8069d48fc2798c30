"""The newest runs of jobs, as their records have shown them one after another.  Nothing here waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from aioelasticjob.model import Record, is_failure
from aioelasticjob.operations.alerts.kinds import MISFIRE_SECONDS, RATED_RUNS
from aioelasticjob.operations.attention import is_excused
from aioelasticjob.operations.observed_runs import new_missed
from aioelasticjob.operations.status import JobStatus


@dataclass(slots=True)
class _Item:
    ended: int = 0
    """When the newest run ended that is counted, in milliseconds."""
    in_a_row: int = 0
    """How many runs have failed since the last one that did not, as far as they were seen."""
    failed_run: str = ""
    """The name of the newest run that failed; empty if the next one had begun before it was seen."""


@dataclass(slots=True)
class JobRuns:
    """The newest runs of one job that were seen."""

    failed: deque[bool] = field(default_factory=lambda: deque(maxlen=RATED_RUNS))
    """Of each of the newest runs, whether it failed; the newest is the last."""
    missed: deque[tuple[float, int]] = field(default_factory=deque)
    """When moments were reported as missed, and how many."""
    _items: dict[int, _Item] = field(default_factory=dict)
    _seen: JobStatus | None = None

    def in_a_row(self, item: int) -> int:
        """Return how many runs of an item have failed since the last one that did not, as far as they were seen."""
        found = self._items.get(item)
        return 0 if found is None else found.in_a_row

    def failed_run(self, item: int) -> str:
        """Return the name of the newest run of an item that failed, as far as it was seen."""
        found = self._items.get(item)
        return "" if found is None else found.failed_run

    def missed_lately(self, now: float) -> int:
        """Return how many moments were reported as missed in the last ``MISFIRE_SECONDS``."""
        while self.missed and self.missed[0][0] <= now - MISFIRE_SECONDS:
            self.missed.popleft()
        return sum(count for _, count in self.missed)

    def see(self, job: JobStatus, now: float) -> None:
        """Take in the present records of the job."""
        before = self._seen
        if job is before:
            return
        self._seen = job
        if before is not None:  # otherwise nobody knows when they were missed
            missed = new_missed({one.item: one for one in before.items}, job.items)
            self.missed += [(now, one.count.number) for one in missed if not is_excused(one, job)]
        for one in job.items:
            if one.record is not None:
                self._see_record(self._items.setdefault(one.item, _Item()), one.record)
        for number in self._items.keys() - {one.item for one in job.items}:
            del self._items[number]

    def _see_record(self, item: _Item, record: Record) -> None:
        if record.completed_at <= item.ended:
            return
        item.ended = record.completed_at
        has_failed = _has_failed(record)
        self.failed.append(has_failed)
        item.in_a_row = item.in_a_row + 1 if has_failed else 0
        item.failed_run = record.run if has_failed and record.outcome else ""


@dataclass(slots=True)
class ObservedRuns:
    """The newest runs of all jobs of a namespace."""

    since: float
    """Since when they are followed, in seconds since the epoch."""
    jobs: dict[str, JobRuns] = field(default_factory=dict)

    def see(self, jobs: Sequence[JobStatus], now: float) -> None:
        """Take in the present records of all jobs; jobs that are gone are forgotten."""
        for name in self.jobs.keys() - _names(jobs):
            del self.jobs[name]
        for job in jobs:
            self.jobs.setdefault(job.name, JobRuns()).see(job, now)


def _names(jobs: Iterable[JobStatus]) -> set[str]:
    return {job.name for job in jobs}


def _has_failed(record: Record) -> bool:
    """Whether the newest run that has ended failed; if another one has begun since, only the error tells."""
    if record.outcome:
        return is_failure(record.outcome)
    return bool(record.error)
