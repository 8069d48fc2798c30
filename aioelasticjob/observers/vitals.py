"""The present state of this process, for metrics: cheap enough to be read every few seconds with a thousand jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anyio import CapacityLimiterStatistics

from aioelasticjob.registry.session_keeper import SessionState

if TYPE_CHECKING:
    from aioelasticjob.observers.sql.writer import StoreCounts
    from aioelasticjob.registry.session import Session


@dataclass(frozen=True, slots=True)
class JobVitals:
    """One job in this process."""

    name: str
    held: int
    """Items assigned to this instance."""
    leads: bool


@dataclass(frozen=True, slots=True)
class Vitals:
    """This process."""

    running: bool
    state: SessionState | None
    """The state of the session with the registry; None while the application does not run."""
    margin: float
    """Seconds until handlers would be cancelled if the registry did not answer any more; 0 without a session."""
    skew: float | None
    """Seconds by which this host's clock is ahead of the registry's."""
    requests: int
    """Requests sent to the registry since the application was started."""
    jobs: tuple[JobVitals, ...]
    store: StoreCounts | None
    """The counts of the event store, if there is one."""
    calls: Mapping[str, CapacityLimiterStatistics]
    """The calls of plain functions that run and that wait, by executor; empty while the application does not run."""
    unwritten: float = 0.0
    """For how many seconds the oldest events have waited that the event store does not take; 0 while all is well."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """By job, how many kinds of requests the registry refuses at present; without jobs to which it refuses none."""

    @classmethod
    def of(
        cls,
        session: Session | None,
        jobs: tuple[JobVitals, ...],
        store: StoreCounts | None,
        calls: Mapping[str, CapacityLimiterStatistics],
        unwritten: float,
        refused: Mapping[str, int],
    ) -> Vitals:
        """Return the present state; without a session the application does not run."""
        if session is None:
            return cls(False, None, 0.0, None, 0, jobs, store, calls, unwritten, refused)
        state = session.status.value.state
        margin = max(0.0, session.margin)
        return cls(True, state, margin, session.clock_skew, session.requests, jobs, store, calls, unwritten, refused)
