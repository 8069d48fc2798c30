"""Why a job needs a person.  Pure rules over the job's status and its newest runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from aioelasticjob.console.registry_watch import ObservedRun
from aioelasticjob.model import GIVEN_UP
from aioelasticjob.operations import ItemStatus, JobStatus

GOOD_OUTCOMES: Final = ("completed", "", "running", "handed over", "stopped", "misfired")
"""Outcomes that are no failure; a misfire is counted by itself, and somebody has stopped what is stopped."""
RECENT_RUNS: Final = 20
"""Runs over which failures and misfires are counted; of a job with many items the last two fires."""
FLAKY_FAILURES: Final = 2
"""Failures among the recent runs from which a job needs attention, although its newest run succeeded."""
SETTLE_LIMIT: Final = 60.0
"""Seconds after which an assignment that does not come to stand needs attention."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason; ``sentence`` is a key of the catalogue, with ``values`` for its blanks."""

    kind: str
    """A word for it; a key of the catalogue."""
    sentence: str
    values: Mapping[str, object] = field(default_factory=dict)
    since: float | None = None
    """Since when, in seconds since the epoch; None where nobody knows."""


def reasons(status: JobStatus, runs: Sequence[ObservedRun], unsettled_for: float = 0.0) -> tuple[Reason, ...]:
    """Return why a job needs a person, the gravest reason first; ``runs`` are its newest runs, the oldest first."""
    if status.fault is not None:
        return (Reason("refused", "configuration refused: {fault}", {"fault": status.fault}),)
    if status.state == "switched off":
        return ()
    return (
        *_nobody(status),
        *_given_up(status.items),
        *_orphans(status),
        *_failing(status.items, runs),
        *_misfiring(status, runs),
        *_not_converging(unsettled_for),
    )


def is_failure(outcome: str) -> bool:
    """Whether a run with this outcome has failed."""
    return outcome not in GOOD_OUTCOMES


def _nobody(status: JobStatus) -> Iterator[Reason]:
    if not status.instances:
        yield Reason("nobody there", "nobody is there to run it")
    elif all(one.lacks for one in status.instances):
        yield Reason("nobody able", "every instance lacks a feature that the job requires")


def _given_up(items: Iterable[ItemStatus]) -> Iterator[Reason]:
    found = [item for item in items if item.outcome == GIVEN_UP]
    if found:
        names = _listed(item.item for item in found)
        since = min(item.record.begun for item in found if item.record is not None) / 1000
        yield Reason("given up", "given up after repeated rescues: items {items}", {"items": names}, since)


def _orphans(status: JobStatus) -> Iterator[Reason]:
    if status.orphans:
        names = _listed(item.item for item in status.orphans)
        yield Reason("cut off", "cut off and waiting for a rescuer: items {items}", {"items": names})


def _failing(items: Sequence[ItemStatus], runs: Sequence[ObservedRun]) -> Iterator[Reason]:
    """Yield one reason if the newest run of an item failed, and another one if failures come and go."""
    failing = [item for item in items if item.outcome not in (None, GIVEN_UP) and is_failure(item.outcome or "")]
    if failing:
        streaks = [_streak(item, runs) for item in failing]
        values = {"items": _listed(item.item for item in failing), "streak": max(len(streak) for streak in streaks)}
        since = min(streak[-1] for streak in streaks) / 1000
        yield Reason("failing", "failing, {streak} in a row: items {items}", values, since)
        return
    recent = _recent(items, runs)
    finished = [run for run in recent if run.outcome != "misfired"]
    failed = [run for run in finished if is_failure(run.outcome)]
    if len(failed) >= FLAKY_FAILURES:
        values = {"failed": len(failed), "runs": len(finished)}
        yield Reason("unreliable", "{failed} of the last {runs} runs failed", values, failed[0].begun / 1000)


def _misfiring(status: JobStatus, runs: Sequence[ObservedRun]) -> Iterator[Reason]:
    marks = [run for run in _recent(status.items, runs) if run.outcome == "misfired"]
    if marks:
        since = min(mark.begun for mark in marks) / 1000
        yield Reason("misfiring", "misfired, {count} of late", {"count": len(marks)}, since)
    elif status.misfired:
        names = _listed(item.item for item in status.misfired)
        yield Reason("misfiring", "misfired: items {items}", {"items": names})


def _not_converging(unsettled_for: float) -> Iterator[Reason]:
    if unsettled_for >= SETTLE_LIMIT:
        yield Reason(
            "not converging", "its items have not been assigned for {seconds} s", {"seconds": int(unsettled_for)}
        )


def _streak(item: ItemStatus, runs: Sequence[ObservedRun]) -> list[int]:
    """Return when the failed runs at the end of an item's runs began, the newest first."""
    begun = item.record.begun if item.record is not None else 0
    found = [begun]
    for run in reversed(runs):
        if run.item != item.item or run.begun >= begun or run.outcome == "misfired":
            continue
        if not is_failure(run.outcome):
            break
        found.append(run.begun)
    return found


def _recent(items: Sequence[ItemStatus], runs: Sequence[ObservedRun]) -> Sequence[ObservedRun]:
    return list(runs)[-max(RECENT_RUNS, 2 * len(items)) :]


def _listed(items: Iterable[int]) -> str:
    found = sorted(items)
    return ", ".join(map(str, found[:5])) + (" …" if len(found) > 5 else "")
