"""The runs of a job over time: from the event store where there is one, else those that the console has observed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from aioelasticjob.clock import moment
from aioelasticjob.console.registry_watch import ObservedRun, RegistryWatch
from aioelasticjob.errors import ElasticJobError
from aioelasticjob.observers.sql import EventStore, Filter, RunEntry
from aioelasticjob.operations import JobStatus

LIMIT: Final = 1000
"""Rows of one question."""
PAGES: Final = 3
"""Questions for one timeline: what it could not show is not asked for."""


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs of a job, and how they are known."""

    seen: Sequence[ObservedRun]
    stored: bool
    """Whether they come out of an event store; else the console remembers only what it saw."""
    problem: str | None = None
    """Why the event store did not answer."""


async def runs_between(registry: RegistryWatch, status: JobStatus, start: float, end: float) -> Runs:
    """Return the runs of a job between two moments (seconds since the epoch), those in flight among them."""
    now = int(end * 1000)
    in_flight = [
        ObservedRun(item.item, _ms(item.run.since), now, "", "running", item.run.instance)
        for item in status.items
        if item.run is not None
    ]
    remembered, problem = list(registry.runs.get(status.name, ())), None
    if registry.store is not None:
        try:
            stored = await _stored(registry.store.store, status.name, start, end)
            if stored or not remembered:  # its applications may write no history at all
                return Runs([*stored, *in_flight], stored=True)
        except ElasticJobError as error:
            problem = str(error)
    return Runs([*remembered, *in_flight], stored=False, problem=problem)


async def _stored(store: EventStore, job: str, start: float, end: float) -> list[ObservedRun]:
    runs = Filter(job=job, since=moment(start), until=moment(end))
    found, after = list[ObservedRun](), None
    for _ in range(PAGES):
        page = await store.history(runs, after=after, limit=LIMIT)
        found += [seen for run in page.rows if (seen := _seen(run)) is not None]
        if (after := page.next) is None:
            break
    misfires = await store.states(replace(runs, state="TASK_MISFIRED"), limit=LIMIT)
    for state in misfires.rows:
        at = state.fire_time or state.at
        items = [int(part) for part in state.item.split(",") if part.strip().isdecimal()]
        found += [ObservedRun(item, _ms(at), _ms(at), "CRON", "misfired", state.instance) for item in items if at]
    return found


def _seen(run: RunEntry) -> ObservedRun | None:
    if run.began is None or run.outcome == "running":  # the registry knows the runs in flight, and knows them better
        return None
    ended = run.ended if run.ended is not None else run.began
    return ObservedRun(run.item, _ms(run.began), _ms(ended), run.source, run.outcome, run.instance)


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)
