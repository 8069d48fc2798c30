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
from aioelasticjob.running.executors import Executors
from aioelasticjob.running.health import JobHealth
from aioelasticjob.running.limited_log import LimitedLog
from aioelasticjob.running.schedule import Starts
from aioelasticjob.running.stopping import Stopping

JOINING_AT_ONCE = 250
"""Jobs of one process that register at the same time."""


class Running(Protocol):
    """A job that runs here, as the rest of its process sees it."""

    stopping: Stopping

    @property
    def standing(self) -> tuple[str, int, bool]:
        """The job, how many of its items are held here, and whether this instance leads."""

    @property
    def health(self) -> JobHealth:
        """What the job holds and runs here."""

    @property
    def is_refusing(self) -> bool:
        """Whether nothing is run because the clocks differ by more than the job tolerates."""

    @property
    def shutdown_timeout(self) -> float:
        """Seconds that running items may take to finish when the job leaves."""

    def leave(self) -> None:
        """Claim nothing any more, and leave once nothing runs."""

    def cut(self) -> None:
        """Cancel what runs."""

    def look_again(self) -> None:
        """Look anew at what is due: the time was set."""

    async def ask_time(self) -> None:
        """Ask the registry what time it is; a RegistryError says why it cannot."""


@dataclass(frozen=True, slots=True)
class ProcessContext:
    """What all jobs of a process share."""

    clock: Clock
    events: Events
    executors: Executors
    dispatcher: ErrorDispatcher
    runners: dict[Running, None] = field(default_factory=dict)  # a set that keeps its order, so simulations repeat
    standing_by: dict[str, JobHealth] = field(default_factory=dict)
    """The jobs that cannot run here for the time being, by name."""
    joining: Semaphore = field(default_factory=lambda: Semaphore(JOINING_AT_ONCE))
    """Held by the jobs that join: if thousands joined at once, the loop would be blocked until all were through."""
    comparing: Latest[bool] = field(default_factory=lambda: Latest(False))
    """Whether a job is asking the registry for its time, which the others wait for."""
    starts: Starts = field(default_factory=Starts)
    limited_log: LimitedLog = field(default_factory=LimitedLog)
    refusals: dict[str, Refusals] = field(default_factory=dict)
    """What the registry refuses, by job."""

    def refusals_of(self, job: str) -> Refusals:
        """Return what the registry refuses to a job in this process."""
        return self.refusals.setdefault(job, Refusals(job, self.clock.now))
