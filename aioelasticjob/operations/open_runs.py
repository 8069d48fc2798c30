"""Runs that the history calls running, because it does not have their ends: what the registry knows of them.

An end may be missing in the history because its process could not write it, or has died since.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from aioelasticjob.events import fence_of
from aioelasticjob.operations.status import ItemStatus, JobStatus

if TYPE_CHECKING:
    from aioelasticjob.observers.sql.history import OutcomeCount, RunEntry

RUNNING: Final = "running"
ENDED: Final = "ended"
"""The outcome that is shown of a run that has ended although the history does not have its end."""


def judged(run: RunEntry, jobs: Mapping[str, JobStatus]) -> RunEntry:
    """Return a run of the history with the outcome that is shown: one that has ended is not shown as running."""
    if run.outcome != RUNNING:
        return run
    return replace(run, outcome=_outcome(run, jobs.get(run.job)))


def recounted(
    counts: Iterable[OutcomeCount], runs: Iterable[RunEntry], start: float, column: int
) -> tuple[OutcomeCount, ...]:
    """Return counts in which those of some runs, which were judged, do not count as running if they have ended.

    ``start`` is when the first column begins, in seconds since the epoch; a column is ``column`` seconds long.
    """
    from aioelasticjob.observers.sql.history import OutcomeCount  # SQLAlchemy, where there is a store to ask

    found = Counter({(one.column, one.outcome): one.runs for one in counts})
    for run in runs:
        if run.outcome == RUNNING or run.began is None:
            continue
        where = int((run.began.timestamp() - start) // column)
        if found[where, RUNNING] > 0:
            found[where, RUNNING] -= 1
            found[where, run.outcome] += 1
    return tuple(OutcomeCount(where, outcome, number) for (where, outcome), number in sorted(found.items()) if number)


def _outcome(run: RunEntry, status: JobStatus | None) -> str:
    if status is None:  # the job was removed, unless the row is another program's
        return RUNNING if run.namespace is None else ENDED
    if not status.config.monitor_execution:  # the registry does not know which items run
        is_there = any(one.id == run.instance for one in status.instances)
        return RUNNING if is_there else ENDED
    item = next((one for one in status.items if one.item == run.item), None)
    if item is None:
        return ENDED
    if _is_under_way(run, item, status):
        return RUNNING
    return _known_end(run, item)


def _is_under_way(run: RunEntry, item: ItemStatus, status: JobStatus) -> bool:
    if item.run is None:
        return False
    if status.config.per == "instance":  # the run has the fence of one of its items
        return item.run.instance == run.instance
    return item.run.fence == fence_of(run.task_id)


def _known_end(run: RunEntry, item: ItemStatus) -> str:
    """Return how a run has ended of which the registry has no lock; what it knows may also be older than the run."""
    record = item.record
    if record is None or run.began is None:
        return RUNNING
    moment = None if run.fire_time is None else round(run.fire_time.timestamp() * 1000)
    if record.instance == run.instance and moment in (record.slot, record.asked):
        return record.outcome if record.completed and record.outcome else ENDED
    is_older = record.begun / 1000 > run.began.timestamp()
    return ENDED if is_older else RUNNING
