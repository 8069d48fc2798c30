"""The runs of a job over time: from the event store where there is one, else those that the console has observed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from aioelasticjob.console.drawing.timeline import MAX_ROWS, MAX_RUNS, Field, Window, fields_of
from aioelasticjob.console.watching.partial_registry import SeenRegistry
from aioelasticjob.errors import ElasticJobError
from aioelasticjob.ground.times import moment
from aioelasticjob.ground.whole_numbers import whole_number
from aioelasticjob.model import Outcome
from aioelasticjob.observers.missed import MISSED, NOTHING_COUNTED, Count, count_of, read_message
from aioelasticjob.observers.sql import DurationCount, EventStore, Filter, RunEntry
from aioelasticjob.operations import JobStatus
from aioelasticjob.operations.observed_runs import MISFIRED, ObservedRun

MAX_MISFIRES: Final = 1000
"""Reports of missed moments in one timeline: if there are more, the oldest are left out, and the page says so."""


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of a job in a window: singly where they are few, else counted by item and time."""

    singles: Sequence[ObservedRun] | None
    """Every run; None where there are too many."""
    fields: Sequence[Field] = ()
    misfires: Sequence[ObservedRun] = ()
    total: int = 0
    """Runs in the window that have ended, or that are under way according to an event store."""
    stored: bool = True
    """Whether they come from an event store."""
    since: float | None = None
    """Without an event store: when the oldest run began that the console still knows."""
    misfires_left_out: bool = False
    problem: str | None = None
    """Why the event store did not answer."""

    @property
    def missed(self) -> Count:
        """How many moments were missed in the window: those of the reports that are shown."""
        return sum((one.missed for one in self.misfires), NOTHING_COUNTED)


@dataclass(frozen=True, slots=True)
class Durations:
    """How long the completed runs of a job took in a window."""

    columns: Sequence[DurationCount] = ()
    whole: DurationCount | None = None
    """All of them together; None if there are none."""
    stored: bool = True
    """Whether there is an event store, which knows."""
    problem: str | None = None
    """Why the event store did not answer."""


async def durations_in(registry: SeenRegistry, job: str, window: Window) -> Durations:
    """Return how long the completed runs of a job took, as the event store has counted them."""
    if registry.store is None:
        return Durations(stored=False)
    completed = replace(_filter(job, window), outcome=Outcome.COMPLETED.value)
    try:
        store = registry.store.answering()
        columns = await store.durations(completed, column=window.column)
        whole = await store.durations(completed, column=int(window.end - window.start) + 2)
    except ElasticJobError as error:
        return Durations(problem=str(error))
    return Durations(columns, whole[0] if whole else None)


async def runs_in(registry: SeenRegistry, status: JobStatus, window: Window, now: float) -> Runs:
    """Return the runs of a job in a window, including those that are under way."""
    under_way = []
    for item in status.items:
        if item.run is not None:
            begun = _ms(item.run.since)
            under_way.append(ObservedRun(item.item, begun, int(now * 1000), "", "running", item.run.instance))
    kept = list(registry.runs.get(status.name, ()))
    problem = None
    if registry.store is not None:
        try:
            stored = await _stored(registry.store.answering(), status.name, window, under_way)
            if stored.total or stored.misfires or not kept:  # its applications may write no history at all
                return stored
        except ElasticJobError as error:
            problem = str(error)
    return _observed(kept, under_way, window, problem)


async def _stored(store: EventStore, job: str, window: Window, under_way: Iterable[ObservedRun]) -> Runs:
    which = _filter(job, window)
    counts = await store.timeline(which, band=window.band, column=window.column)
    total = sum(one.runs for one in counts)
    reported = Filter(job=job, since=which.since, until=which.until, state=MISSED)
    page = await store.states(reported, limit=MAX_MISFIRES)
    misfires = list[ObservedRun]()
    for state in page.rows:
        at = state.fire_time or state.at
        if at is None:
            continue
        moments, _ = read_message(state.message or "")
        for part in state.item.split(","):
            item = whole_number(part.strip())
            if item is not None and window.first <= item <= window.last:
                missed = count_of(moments)
                misfires.append(
                    ObservedRun(item, _ms(at), _ms(at), "SCHEDULE", MISFIRED, state.instance, missed=missed)
                )
    left_out = page.next is not None
    if not _is_near(total, window):
        fields = [Field(one.band, one.column, one.runs, one.failures) for one in counts]
        return Runs(None, fields, misfires, total, misfires_left_out=left_out)
    history = await store.history(which, limit=MAX_RUNS)
    singles = list[ObservedRun]()
    for run in history.rows:
        ended = _observed_run(run)
        if ended is not None:
            singles.append(ended)
    return Runs([*singles, *misfires, *under_way], (), misfires, total, misfires_left_out=left_out)


def _filter(job: str, window: Window) -> Filter:
    items = (window.first, window.last)
    return Filter(job=job, since=moment(window.start), until=moment(window.end), items=items)


def _observed(
    kept: Sequence[ObservedRun], under_way: Sequence[ObservedRun], window: Window, problem: str | None
) -> Runs:
    since = min((run.begun for run in kept), default=None)
    start = window.start * 1000
    end = window.end * 1000
    shown = [run for run in kept if run.ended >= start and run.begun <= end]
    shown = [run for run in shown if window.first <= run.item <= window.last]
    misfires = [run for run in shown if run.outcome == MISFIRED]
    total = len(shown) - len(misfires)
    found = Runs(
        singles=None,
        misfires=misfires,
        total=total,
        stored=False,
        since=None if since is None else since / 1000,
        problem=problem,
    )
    if _is_near(total, window):
        return replace(found, singles=[*shown, *under_way])
    return replace(found, fields=fields_of(shown, window))


def _is_near(total: int, window: Window) -> bool:
    rows = window.last - window.first + 1
    return rows <= MAX_ROWS and total <= min(MAX_RUNS, 100 * rows)  # more runs would overlap in the drawing


def _observed_run(run: RunEntry) -> ObservedRun | None:
    if run.began is None or run.outcome == "running":  # runs that are under way are read from the registry
        return None
    ended = run.ended if run.ended is not None else run.began
    return ObservedRun(run.item, _ms(run.began), _ms(ended), run.source, run.outcome, run.instance, run.id)


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)
