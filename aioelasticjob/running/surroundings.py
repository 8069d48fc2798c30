"""What all jobs of a process share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anyio import Lock

from aioelasticjob.clock import Clock
from aioelasticjob.coordination.refusals import Refusals
from aioelasticjob.error_handlers import Complaints
from aioelasticjob.events import Events
from aioelasticjob.running.blocking import Means
from aioelasticjob.running.health import JobHealth
from aioelasticjob.running.schedule import Starts

if TYPE_CHECKING:
    from aioelasticjob.running.runner import Runner


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all jobs of a process share."""

    clock: Clock
    events: Events
    means: Means
    complaints: Complaints
    runners: dict[Runner, None] = field(default_factory=dict)  # a set that keeps its order, so simulations repeat
    standing_by: dict[str, JobHealth] = field(default_factory=dict)
    """The jobs that cannot run here for the time being, by name."""
    comparing: Lock = field(default_factory=Lock)
    starts: Starts = field(default_factory=Starts)
    refusals: dict[str, Refusals] = field(default_factory=dict)
    """What the registry refuses, by job."""

    def refusals_of(self, job: str) -> Refusals:
        """Return what the registry refuses to a job in this process."""
        return self.refusals.setdefault(job, Refusals(job, self.clock.now))
