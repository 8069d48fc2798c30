"""The health of the console itself: its own database, its registries, and their event stores."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from aioelasticjob.console.watching.registry_watch import RegistryWatch
from aioelasticjob.ground.times import moment


@dataclass(frozen=True, slots=True)
class RegistryHealth:
    """How one registry and its event store are."""

    name: str
    lost: str | None
    """Why the registry does not answer; None while it does."""
    since: float
    """When it was lost, or found, in seconds since the epoch."""
    has_store: bool
    store_lost: str | None
    """Why the event store does not answer; None while it does, and without one."""
    jobs: int
    processes: int
    """Processes that cannot do something at present, as they say themselves."""
    unwritten: int
    """Events that wait in these processes, because the event store does not take them."""

    @classmethod
    def of(cls, watch: RegistryWatch) -> RegistryHealth:
        """Return how a registry is."""
        snapshot = watch.snapshot.value
        store_lost = watch.store_problem
        if watch.store is not None:
            store_lost = watch.store.snapshot.lost
        waiting = [one.problems.event_store.waiting for one in snapshot.processes if one.problems.event_store]
        return cls(
            name=watch.settings.name,
            lost=snapshot.lost,
            since=snapshot.since,
            has_store=watch.settings.event_store is not None,
            store_lost=store_lost,
            jobs=len(snapshot.jobs),
            processes=len(snapshot.processes),
            unwritten=sum(waiting),
        )


@dataclass(frozen=True, slots=True)
class ConsoleHealth:
    """How a console is."""

    database: str | None
    """Why the console's own database cannot be used; None while it can."""
    registries: tuple[RegistryHealth, ...]
    live_pages: int
    """Live pages that are open."""

    @classmethod
    def of(cls, registries: Iterable[RegistryWatch], database: str | None, live_pages: int) -> ConsoleHealth:
        """Return how a console with these registries is."""
        return cls(database, tuple(map(RegistryHealth.of, registries)), live_pages)

    @property
    def is_good(self) -> bool:
        """Whether everything that the console needs answers."""
        return self.database is None and all(one.lost is None and one.store_lost is None for one in self.registries)

    @property
    def status(self) -> Literal["up", "suspended"]:
        """``suspended`` while something does not answer that the console needs."""
        return "up" if self.is_good else "suspended"

    def status_code(self, asked: Literal["health", "live", "ready"]) -> int:
        """Return the status of an answer by HTTP: a console that answers is alive, and does not need a restart."""
        return 200 if asked == "live" or self.is_good else 503

    def as_json(self) -> dict[str, object]:
        """Return the health with names and reasons, for those who run the console."""
        return {
            "status": self.status,
            "alive": True,
            "ready": self.is_good,
            "database": self.database,
            "registries": [_registry_as_json(one) for one in self.registries],
        }

    def without_names(self) -> dict[str, object]:
        """Return the health as anybody may see it who has not signed in: numbers only."""
        lost = sum(one.lost is not None for one in self.registries)
        stores = [one for one in self.registries if one.has_store]
        stores_lost = sum(one.store_lost is not None for one in stores)
        return {
            "status": self.status,
            "database": "up" if self.database is None else "down",
            "registries": {"up": len(self.registries) - lost, "down": lost},
            "event_stores": {"up": len(stores) - stores_lost, "down": stores_lost},
        }


def _registry_as_json(one: RegistryHealth) -> dict[str, object]:
    return {
        "name": one.name,
        "lost": one.lost,
        "since": moment(one.since).isoformat(),
        "event_store_lost": one.store_lost,
        "jobs": one.jobs,
        "processes_with_problems": one.processes,
        "events_not_written": one.unwritten,
    }
