"""What this process holds, for those who ask whether it is well."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, TypeAlias

from aioelasticjob.clock import moment
from aioelasticjob.config import JobConfig
from aioelasticjob.coordination.diagnostics import missing_features_text
from aioelasticjob.coordination.refusals import Refusals, RefusedRequest
from aioelasticjob.coordination.view import JobView
from aioelasticjob.model import Claim
from aioelasticjob.registry.session import Session, SessionState

Status: TypeAlias = Literal["up", "suspended", "down"]


@dataclass(frozen=True, slots=True)
class JobHealth:
    """One job, as far as it concerns this process."""

    name: str
    instance: str | None = None
    """Its name in the registry; None while the job is not joined, or was shut down here."""
    leads: bool = False
    holds: tuple[int, ...] = ()
    """The items assigned to this process."""
    running: tuple[int, ...] = ()
    """The items it has claimed and not yet given back."""
    next_fire: datetime | None = None
    problem: str | None = None
    """Why the job does not run here, though the process and the registry are well; None if it does."""
    refused: tuple[RefusedRequest, ...] = ()
    """What the registry refuses to the job in this process at present."""

    @classmethod
    def of(cls, view: JobView, instance: str, claim: Claim | None, now: float) -> JobHealth:
        """Return what the newest view says of an instance; ``now`` in seconds since the epoch."""
        schedule = view.config.schedule
        return cls(
            view.config.job_name,
            instance,
            view.leader == instance,
            tuple(sorted(item for item, holder in view.assignment.items() if holder == instance)),
            () if claim is None else tuple(sorted(claim.items)),
            None if schedule is None else schedule.next_after(moment(now)),
            missing_features_text(view.lacking[instance]) if instance in view.lacking else None,
        )


@dataclass(frozen=True, slots=True)
class Health:
    """This process: its session and its jobs."""

    status: Status
    """``up``; ``suspended`` while the registry does not answer, and nothing is claimed; ``down`` when nothing runs."""
    pid: int
    registry: str | None
    """Its address, without credentials."""
    jobs: tuple[JobHealth, ...]

    @classmethod
    def of(
        cls,
        session: Session | None,
        declared: Iterable[JobConfig],
        joined: Iterable[JobHealth],
        refusals: Mapping[str, Refusals],
    ) -> Health:
        """Return the health of an application; without a session it does not run."""
        known = {job.name: job for job in joined}
        found = [known.get(job.job_name, JobHealth(job.job_name)) for job in declared]
        jobs = tuple(replace(one, refused=refusals[one.name].present) if one.name in refusals else one for one in found)
        if session is None:
            return cls("down", os.getpid(), None, jobs)
        return cls(_status(session), os.getpid(), f"zk://{session.settings.servers}/{session.settings.namespace}", jobs)

    @property
    def ready(self) -> bool:
        """Whether the registry answers, and no job of this process has to wait before it can run."""
        return self.status == "up" and not any(job.problem for job in self.jobs)

    def as_json(self) -> dict[str, object]:
        """Return it as what JSON is made of."""
        return {
            "status": self.status,
            "ready": self.ready,
            "pid": self.pid,
            "registry": self.registry,
            "jobs": [
                {
                    "name": job.name,
                    "instance": job.instance,
                    "leads": job.leads,
                    "holds": job.holds,
                    "running": job.running,
                    "next_fire": None if job.next_fire is None else job.next_fire.isoformat(),
                    "problem": job.problem,
                    "refused": [
                        {"what": one.what, "why": one.why, "since": moment(one.since).isoformat()}
                        for one in job.refused
                    ],
                }
                for job in self.jobs
            ],
        }


def _status(session: Session) -> Status:
    match session.status.value.state:
        case SessionState.CONNECTED:
            return "up"
        case SessionState.CLOSED:
            return "down"
        case _:
            return "suspended"
