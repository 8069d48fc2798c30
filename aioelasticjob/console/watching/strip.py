"""The health strip of a registry: what an operator has to see within five seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

from aioelasticjob.console.watching.health import Health, HealthGroups
from aioelasticjob.console.watching.instance_log import Gone, Rescue
from aioelasticjob.console.watching.partial_registry import SeenRegistry
from aioelasticjob.console.watching.registry_watch import RegistrySnapshot
from aioelasticjob.console.watching.store_watch import StoreSnapshot
from aioelasticjob.model import is_failure
from aioelasticjob.observers.missed import Count, total_of
from aioelasticjob.operations.observed_runs import MISFIRED

WINDOW: Final = 3600.0
"""Seconds over which failures, missed moments and processes that have gone are counted."""
AGE: Final = 1.0
"""Seconds after which they are counted anew, if nothing has changed otherwise."""


@dataclass(frozen=True, slots=True)
class Strip:
    """What the strip shows."""

    lost: str | None
    """Why the registry is not there."""
    since: float | None
    """Since when it is not."""
    store: StoreSnapshot | None
    """The event store as it was when it last answered; None without one."""
    known_since: float | None
    """Since when the console has seen processes; what was before that is not known."""
    whole_hour: bool
    """Whether it has seen them for an hour."""
    processes: int
    gone: tuple[Gone, ...]
    """Processes that have gone within the last hour, the oldest first."""
    rescue: Rescue | None
    failures: Count
    missed: Count
    """Moments that were missed."""
    excused: Count
    """How many of them are no fault, such as those of a restart that was announced."""
    counted: bool
    """Whether the event store has counted failures and missed moments; else the console has, as far as it has seen."""
    nobody_there: int
    """Jobs without an instance."""


def strip_of(registry: SeenRegistry, snapshot: RegistrySnapshot, health: HealthGroups, now: float) -> Strip:
    """Return what the strip shows at a moment, in seconds since the epoch."""
    store = None if registry.store is None else registry.store.snapshot
    counted = store is not None and store.lost is None and store.as_of is not None
    since = now - WINDOW
    known = registry.instances.since
    if store is not None and counted:
        failures = Count(sum(store.failures.values()))
        missed = total_of(one for jobs in store.missed.values() for one in jobs)
    else:
        failures, missed = _seen(registry, since)
    return Strip(
        lost=snapshot.lost,
        since=snapshot.since if snapshot.lost else None,
        store=store,
        known_since=known,
        whole_hour=known is not None and known <= since,
        processes=len(registry.instances.there),
        gone=tuple(one for one in registry.instances.gone if one.at >= since),
        rescue=registry.instances.rescue,
        failures=failures,
        missed=missed,
        excused=health.excused(snapshot.jobs.values()),
        counted=counted,
        nobody_there=sum(map(_is_nobody_there, health.of.values())),
    )


def _is_nobody_there(health: Health) -> bool:
    """Whether a job has no instance, also if somebody has acknowledged that."""
    reasons = [*health.reasons, *(reason for reason, _ in health.acknowledged)]
    return any(reason.kind == "nobody there" for reason in reasons)


class Strips:
    """The strip of each registry, which is counted once for all open pages."""

    def __init__(self) -> None:
        self._kept: WeakKeyDictionary[SeenRegistry, tuple[RegistrySnapshot, StoreSnapshot | None, float, Strip]]
        self._kept = WeakKeyDictionary()

    def of(self, registry: SeenRegistry, snapshot: RegistrySnapshot, health: HealthGroups, now: float) -> Strip:
        """Return what the strip shows at a moment, in seconds since the epoch."""
        kept = self._kept.get(registry)
        store = None if registry.store is None else registry.store.snapshot
        if kept is None or kept[0] is not snapshot or kept[1] is not store or not 0 <= now - kept[2] < AGE:
            kept = self._kept[registry] = snapshot, store, now, strip_of(registry, snapshot, health, now)
        return kept[3]


def _seen(registry: SeenRegistry, since: float) -> tuple[Count, Count]:
    """Return how many runs have failed since then, and how many moments were missed, as far as the console knows.

    It may have missed some of them, or have forgotten them.
    """
    failures = 0
    for runs in registry.runs.values():
        for run in runs:
            if run.outcome != MISFIRED and run.ended / 1000 >= since:
                failures += is_failure(run.outcome)
    missed = total_of(one for reports in registry.missed.values() for one in reports if one.last >= since)
    return Count(failures, is_least=True), Count(missed.number, is_least=True)
