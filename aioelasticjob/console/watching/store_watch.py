"""Watches one registry's event store: whether it answers, and what failed and was missed in the last hour."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import anyio

from aioelasticjob.clock import Clock
from aioelasticjob.errors import ElasticJobError
from aioelasticjob.ground.times import moment
from aioelasticjob.logging import logger
from aioelasticjob.model import is_failure
from aioelasticjob.observers.missed import MissedMoments
from aioelasticjob.observers.sql.history import Filter
from aioelasticjob.operations.error_groups import ErrorsByJob, Failure, grouped, kind_of, place_of

if TYPE_CHECKING:
    from aioelasticjob.observers.sql import EventStore

CHECK_INTERVAL: Final = 5.0
"""Seconds between two queries of the event store."""
WINDOW: Final = timedelta(hours=1)
"""The time over which failures and missed moments are counted."""
ERROR_WINDOW: Final = timedelta(days=1)
"""The time over which errors are grouped."""
ERROR_INTERVAL: Final = 60.0
"""Seconds after which errors are read again even if the number of failures in the last hour is the same."""
MAX_FAILURES: Final = 500
"""How many failures are grouped at most: the newest ones.  If there are more, the groups say "at least"."""

log = logger(__name__)


@dataclass(frozen=True, slots=True)
class StoreSnapshot:
    """An event store as it was when it last answered."""

    lost: str | None = None
    """Why it does not answer; None while it does."""
    as_of: float | None = None
    """When it last answered, in seconds since the epoch; None if it never has."""
    failures: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """By job, the runs of the last hour that have failed."""
    missed: Mapping[str, tuple[MissedMoments, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """By job, the moments that were reported as missed in the last hour."""
    errors: ErrorsByJob = field(default_factory=lambda: MappingProxyType({}))
    """By job, the errors of the last day."""

    def of_jobs(self, jobs: Container[str]) -> StoreSnapshot:
        """Return what it says of some jobs."""
        return replace(
            self,
            failures={job: number for job, number in self.failures.items() if job in jobs},
            missed={job: missed for job, missed in self.missed.items() if job in jobs},
            errors={job: errors for job, errors in self.errors.items() if job in jobs},
        )


class StoreWatch:
    """One event store under watch.

    ``on_changes`` is called with the jobs whose errors or missed moments have changed.
    """

    def __init__(
        self,
        store: EventStore,
        clock: Clock,
        registry: str,
        on_changes: Callable[[Iterable[str]], None] = lambda jobs: None,
    ) -> None:
        self.store = store
        self._clock = clock
        self._registry = registry
        self._on_changes = on_changes
        self.snapshot = StoreSnapshot()
        self._places: dict[str, str] = {}
        """By the key of a run that has failed, the place of its error."""
        self._grouped = float("-inf")
        """When the errors were last grouped."""
        self._problem: ElasticJobError | None = None
        """Why the store did not answer when it was last asked."""

    def answering(self) -> EventStore:
        """Return the store for a query of a page, which is not to wait for one that does not answer.

        Raises:
            ElasticJobError: it did not answer when it was last asked.
        """
        if self._problem is not None:
            raise self._problem.with_traceback(None)
        return self.store

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
            outcomes = await self.store.counts_by_job(Filter(since=since))
            missed = await self.store.missed(Filter(since=since))
            failures = _failures(outcomes)
            errors = await self._errors(now, failures)
        except ElasticJobError as error:
            if self.snapshot.lost is None:
                log.warning("event store lost", extra={"registry": self._registry, "reason": str(error)})
            self.snapshot = replace(self.snapshot, lost=str(error))
            self._problem = error
            return
        self._problem = None
        before = self.snapshot
        self.snapshot = StoreSnapshot(None, now, failures, missed, errors)
        changed = _changed(before.errors, errors) | _changed(before.missed, missed)
        if changed:
            self._on_changes(changed)

    async def _errors(self, now: float, failures: Mapping[str, int]) -> ErrorsByJob:
        """Return the errors of the last day; they are read again if a run has failed since, or after a minute."""
        before = self.snapshot
        if failures == before.failures and now < self._grouped + ERROR_INTERVAL:
            return before.errors
        found = await self.store.failures(Filter(since=moment(now) - ERROR_WINDOW), limit=MAX_FAILURES)
        unknown = [one.id for one in found if one.id not in self._places]
        stacks = await self.store.stacks(unknown)
        places = {key: place_of(stack) for key, stack in stacks.items()} | self._places
        self._places = {one.id: places.get(one.id, "") for one in found}
        self._grouped = now
        failed = []
        for one in found:
            kind = kind_of(one.failure, one.outcome)
            failed.append(Failure(one.id, one.job, one.item, one.began.timestamp(), kind, self._places[one.id]))
        return grouped(failed, before.errors, is_least=len(found) == MAX_FAILURES)


def _failures(outcomes: Mapping[str, Mapping[str, int]]) -> Mapping[str, int]:
    """Return by job how many runs have failed; jobs without any are left out."""
    found = dict[str, int]()
    for job, numbers in outcomes.items():
        failed = sum(number for outcome, number in numbers.items() if is_failure(outcome))
        if failed:
            found[job] = failed
    return found


def _changed(before: Mapping[str, object], now: Mapping[str, object]) -> set[str]:
    return {job for job in before.keys() | now.keys() if before.get(job) != now.get(job)}
