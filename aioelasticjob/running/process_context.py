"""What all jobs of a process share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from anyio import Semaphore

from aioelasticjob.clock import Clock
from aioelasticjob.coordination.refusals import Refusals
from aioelasticjob.error_handlers import ErrorDispatcher
from aioelasticjob.events import Events
from aioelasticjob.latest import Latest
from aioelasticjob.limited_log import LimitedLog
from aioelasticjob.observers.vitals import JobVitals
from aioelasticjob.registry.tree import Tree
from aioelasticjob.running.claim_ahead import Starts
from aioelasticjob.running.executors import Executors
from aioelasticjob.running.health import JobHealth
from aioelasticjob.running.stopping import Departures

JOINING_AT_ONCE = 32
"""How many jobs of one process register at the same time.

With more of them at once, garbage collections take longer and come more often.  With fewer, a process would have to
wait for the answers of a distant registry.
"""


class RunningJob(Protocol):
    """A job that runs in this process, as the rest of the process uses it."""

    @property
    def vitals(self) -> JobVitals:
        """The present state of the job, for metrics."""

    @property
    def health(self) -> JobHealth:
        """The health of the job in this process."""

    @property
    def is_refusing(self) -> bool:
        """Whether the job runs nothing because the clock skew is larger than the job tolerates."""

    @property
    def shutdown_timeout(self) -> float:
        """Seconds that running handlers have to end when the job leaves."""

    def look_again(self) -> None:
        """Compute anew which items are due, because the time was set."""

    def cancel(self) -> None:
        """Cancel the run under way."""

    async def ask_time(self) -> None:
        """Ask the registry for its time.  A RegistryError is raised if it cannot answer."""


@dataclass(frozen=True, slots=True)
class ProcessContext:
    """What all jobs of a process share."""

    clock: Clock
    events: Events
    executors: Executors
    dispatcher: ErrorDispatcher
    limited_log: LimitedLog
    running_jobs: dict[RunningJob, None] = field(default_factory=dict)  # an ordered set, so simulations repeat
    standing_by: dict[str, JobHealth] = field(default_factory=dict)
    """The jobs that have to wait before they can run in this process, by name."""
    joining: Semaphore = field(default_factory=lambda: Semaphore(JOINING_AT_ONCE))
    """Each job holds it while it joins: if thousands joined at once, they would block the loop until all had joined."""
    comparing: Latest[bool] = field(default_factory=lambda: Latest(False))
    """Whether a job is asking the registry for its time; the other jobs wait for the answer."""
    switches: Latest[Tree] = field(default_factory=lambda: Latest(Tree()))
    """The nodes that say which servers are switched off in all jobs."""
    starts: Starts = field(default_factory=Starts)
    departures: Departures = field(default_factory=Departures)
    refusals: dict[str, Refusals] = field(default_factory=dict)
    """The requests that the registry refuses, by job."""

    def refusals_of(self, job: str) -> Refusals:
        """Return the requests of a job that the registry refuses."""
        return self.refusals.setdefault(job, Refusals(job, self.clock, self.limited_log))
