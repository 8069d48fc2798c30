"""What the processes of a registry say that they cannot do, put together for the top of every page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aioelasticjob.core.processes import RefusedToProcess
from aioelasticjob.operations import ProcessStatus


@dataclass(frozen=True, slots=True)
class Unwritten:
    """Processes whose events wait, because the event store does not take them."""

    processes: Sequence[ProcessStatus]
    since: float
    """Since when the oldest event has waited, in seconds since the epoch."""
    why: str
    waiting: int


@dataclass(frozen=True, slots=True)
class Lost:
    """Processes of whose events the event store will never have some."""

    processes: Sequence[ProcessStatus]
    number: int
    first: float
    last: float


@dataclass(frozen=True, slots=True)
class WrongClocks:
    """Processes on hosts whose clocks differ from the registry's."""

    processes: Sequence[ProcessStatus]
    """The worst first."""
    seconds: float
    """By how many seconds the worst is ahead; below 0: behind."""


@dataclass(frozen=True, slots=True)
class Refusals:
    """Processes to which the registry refuses requests."""

    processes: Sequence[ProcessStatus]
    worst: RefusedToProcess
    """What has been refused for longest."""


@dataclass(frozen=True, slots=True)
class ProcessNotices:
    """One notice of each kind at most, however many processes there are."""

    unwritten: Unwritten | None = None
    lost: Lost | None = None
    clocks: WrongClocks | None = None
    refusals: Refusals | None = None


def notices(processes: Sequence[ProcessStatus]) -> ProcessNotices:
    """Return what is to be said of processes."""
    return ProcessNotices(_unwritten(processes), _lost(processes), _clocks(processes), _refusals(processes))


def _unwritten(processes: Iterable[ProcessStatus]) -> Unwritten | None:
    found = {one: store for one in processes if (store := one.problems.event_store) is not None}
    if not found:
        return None
    oldest = min(found.values(), key=lambda store: store.since)
    return Unwritten(tuple(found), oldest.since, oldest.why, sum(store.waiting for store in found.values()))


def _lost(processes: Iterable[ProcessStatus]) -> Lost | None:
    found = {one: lost for one in processes if (lost := one.problems.lost) is not None}
    if not found:
        return None
    losses = found.values()
    return Lost(
        processes=tuple(found),
        number=sum(lost.number for lost in losses),
        first=min(lost.first for lost in losses),
        last=max(lost.last for lost in losses),
    )


def _clocks(processes: Iterable[ProcessStatus]) -> WrongClocks | None:
    differences = {one: seconds for one in processes if (seconds := one.problems.clock_differs) is not None}
    if not differences:
        return None
    worst_first = sorted(differences, key=lambda one: -abs(differences[one]))
    return WrongClocks(worst_first, differences[worst_first[0]])


def _refusals(processes: Iterable[ProcessStatus]) -> Refusals | None:
    found = [one for one in processes if one.problems.refused]
    if not found:
        return None
    refusals = [each for one in found for each in one.problems.refused]
    return Refusals(found, min(refusals, key=lambda each: each.since))
