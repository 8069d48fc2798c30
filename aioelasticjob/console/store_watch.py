"""Watches one registry's event store: whether it answers, and what failed and misfired in the last hour."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import anyio

from aioelasticjob.clock import Clock, moment
from aioelasticjob.errors import ElasticJobError
from aioelasticjob.observers.sql.history import Filter

if TYPE_CHECKING:
    from aioelasticjob.observers.sql import EventStore

CHECK_INTERVAL: Final = 5.0
"""Seconds between two questions to the event store."""
WINDOW: Final = timedelta(hours=1)
"""The time over which failures and misfires are counted."""
GOOD: Final = ("running", "completed", "handed over")
"""Outcomes that are no failure."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoreSnapshot:
    """An event store as it was when it last answered."""

    lost: str | None = None
    """Why it does not answer; None while it does."""
    as_of: float | None = None
    """When it last answered, in seconds since the epoch; None if it never has."""
    failures: int = 0
    """Runs of the last hour that did not succeed."""
    misfires: int = 0
    """Misfires of the last hour."""


class StoreWatch:
    """One event store under watch."""

    def __init__(self, store: EventStore, clock: Clock, registry: str) -> None:
        self.store, self._clock, self._registry = store, clock, registry
        self.snapshot = StoreSnapshot()

    async def watch(self) -> None:
        """Ask the store again and again, until cancelled."""
        while True:
            await self.ask()
            await anyio.sleep(CHECK_INTERVAL)

    async def ask(self) -> None:
        """Ask the store once, and note its answer or why there is none."""
        now = self._clock.now()
        since = moment(now) - WINDOW
        try:
            outcomes = await self.store.counts(Filter(since=since))
            misfires = await self.store.count_states(Filter(since=since, state="TASK_MISFIRED"))
        except ElasticJobError as error:
            if self.snapshot.lost is None:
                log.warning("event store lost", extra={"registry": self._registry, "reason": str(error)})
            self.snapshot = replace(self.snapshot, lost=str(error))
            return
        failures = sum(number for outcome, number in outcomes.items() if outcome not in GOOD)
        self.snapshot = StoreSnapshot(None, now, failures, misfires)
