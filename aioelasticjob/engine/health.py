"""The health of this process: its session, its jobs, and the items that it holds."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from aioelasticjob.config.job import JobConfig
from aioelasticjob.core.declaration import Difference, declared_otherwise
from aioelasticjob.core.diagnostics import missing_features_text, unusable_text
from aioelasticjob.core.instances import address_of
from aioelasticjob.core.layout import server_switch
from aioelasticjob.core.pauses import Pause, pause_in
from aioelasticjob.core.processes import NO_PROBLEMS, ProcessProblems
from aioelasticjob.core.view import JobView
from aioelasticjob.engine.own_node import intolerable_difference
from aioelasticjob.engine.refusals import RefusedRequest
from aioelasticjob.ground.times import moment
from aioelasticjob.registry.session import Session, SessionState

Status: TypeAlias = Literal["up", "suspended", "down"]
Phase: TypeAlias = Literal["not started", "starting", "running", "leaving", "ended"]
IDLE: frozenset[Phase] = frozenset({"not started", "ended"})
"""The phases in which an application does not run, start or leave."""
Probe: TypeAlias = Literal["health", "live", "ready"]
"""What somebody asks a process for: how it is, whether it has to be restarted, whether it does its work."""


@dataclass(frozen=True, slots=True)
class SwitchedOff:
    """Something that operators have switched off, because of which a job runs nothing in this process."""

    what: str
    flag: Pause
    """Since when, and as far as its flag says it, until when, by whom and why.  Since 0: that is not known."""


@dataclass(frozen=True, slots=True)
class JobHealth:
    """The health of one job in this process."""

    name: str
    instance: str | None = None
    """The id of the job's instance; None while the job has not joined, or was shut down in this process."""
    leads: bool = False
    holds: tuple[int, ...] = ()
    """The items assigned to this process."""
    running: tuple[int, ...] = ()
    """The items that this process runs now."""
    next_fire: datetime | None = None
    problem: str | None = None
    """Why the job does not run in this process although the registry answers; None if it runs."""
    dismissed: bool = False
    """Whether the process is ready in spite of the problem.

    It is if an operator has had the job leave, or if the job was added while the others ran, and could not join.
    """
    refused: tuple[RefusedRequest, ...] = ()
    """The requests of the job that the registry refuses at present."""
    differs: tuple[Difference, ...] = ()
    """The settings that this process declares otherwise than the registry, whose values apply."""
    blocked: tuple[str, ...] = ()
    """The nodes that somebody has made by hand and that keep items of this process from running until removed."""
    clock_differs: float | None = None
    """By how many seconds this host's clock is ahead of the registry's, if the job refuses all runs because of that."""
    switched_off: tuple[SwitchedOff, ...] = ()
    """Why it runs nothing in this process although nothing is wrong: operators have paused or disabled it."""

    @classmethod
    def of(
        cls, view: JobView, instance: str, running: Sequence[int], now: float, declared: JobConfig, skew: float | None
    ) -> JobHealth:
        """Return the health of an instance that runs these items, according to the newest view.

        ``now`` is in seconds since the epoch.
        ``declared`` is the configuration that this process declares; ``skew`` is by how many seconds this host's clock
        is ahead of the registry's, None if that is not known.
        """
        schedule = view.schedule
        held = [item for item, holder in view.assignment.items() if holder == instance]
        return cls(
            view.config.job_name,
            instance,
            leads=view.leader == instance,
            holds=tuple(sorted(held)),
            running=tuple(running),
            next_fire=None if schedule is None else schedule.next_to_come(moment(now)),
            problem=_problem(view, instance),
            differs=declared_otherwise(declared, view.config),
            clock_differs=intolerable_difference(skew, view.config),
            switched_off=tuple(_switched_off(view, instance)),
        )


@dataclass(frozen=True, slots=True)
class Health:
    """The health of this process: its session and its jobs."""

    status: Status
    """``up``; ``suspended`` while the registry does not answer, so nothing is claimed.

    ``down`` before the application has connected, and after it has ended.
    """
    pid: int
    registry: str | None
    """The registry's address, without credentials."""
    jobs: tuple[JobHealth, ...]
    phase: Phase = "running"
    """``starting`` until all jobs have joined or have to wait, ``leaving`` while it stops, then ``ended``."""
    reason: str | None = None
    """Why the registry does not answer, if the status is ``suspended``."""
    problems: ProcessProblems = NO_PROBLEMS
    """What else the process cannot do, such as write to its event store.  Its jobs run all the same."""

    @classmethod
    def of(
        cls,
        session: Session | None,
        jobs: Iterable[JobHealth],
        phase: Phase = "running",
        problems: ProcessProblems = NO_PROBLEMS,
    ) -> Health:
        """Return the health of an application.  Without a session it has not connected yet, or does not run."""
        address = None if session is None else session.settings.address
        status = _status(session)
        reason = session.reason if session is not None and status == "suspended" else None
        return cls(status, os.getpid(), address, tuple(jobs), phase, reason, problems)

    @property
    def alive(self) -> bool:
        """Whether the application runs, starts or leaves: if it does none of these, only a restart brings it back."""
        return self.phase not in IDLE

    @property
    def ready(self) -> bool:
        """Whether the registry answers, all jobs have joined and none has to wait, and the process does not stop."""
        waits = any(job.problem and not job.dismissed for job in self.jobs)
        return self.status == "up" and self.phase == "running" and not waits

    def status_code(self, asked: Probe) -> int:
        """Return the status of an answer by HTTP: 200 or 503."""
        good = {"live": self.alive, "ready": self.ready, "health": self.status != "down"}
        return 200 if good[asked] else 503

    def as_json(self) -> dict[str, object]:
        """Return the health as a dictionary that can be encoded as JSON."""
        return {
            "status": self.status,
            "reason": self.reason,
            "alive": self.alive,
            "ready": self.ready,
            "phase": self.phase,
            "pid": self.pid,
            "registry": self.registry,
            "problems": self.problems.as_json(),
            "jobs": [_job_as_json(job) for job in self.jobs],
        }


def _job_as_json(job: JobHealth) -> dict[str, object]:
    refused = [{"what": one.what, "why": one.why, "since": moment(one.since).isoformat()} for one in job.refused]
    return {
        "name": job.name,
        "instance": job.instance,
        "leads": job.leads,
        "holds": job.holds,
        "running": job.running,
        "next_fire": None if job.next_fire is None else job.next_fire.isoformat(),
        "problem": job.problem,
        "refused": refused,
        "differs": [one.text(job.name) for one in job.differs],
        "clock_differs": job.clock_differs,
        "blocked": job.blocked,
        "switched_off": [_switched_off_as_json(one) for one in job.switched_off],
    }


def _switched_off_as_json(one: SwitchedOff) -> dict[str, object]:
    flag = one.flag
    return {
        "what": one.what,
        "since": moment(flag.since).isoformat() if flag.since else None,
        "until": moment(flag.until).isoformat() if flag.ends else None,
        "by": flag.by,
        "note": flag.note,
    }


def _switched_off(view: JobView, instance: str) -> Iterator[SwitchedOff]:
    there = view.instances.get(instance)
    ip = address_of(instance) if there is None else there.ip
    layout = view.layout
    flags = {
        "the job is paused": layout.paused,
        "this server is paused in the job": layout.server_paused(ip),
        "this server is disabled in the job": layout.server_disabled(ip),
        "this server is paused in all jobs": server_switch(ip, "paused"),
        "this server is disabled in all jobs": server_switch(ip, "disabled"),
    }
    for what, path in flags.items():
        node = view.flag(path)
        if node is not None:
            yield SwitchedOff(what, pause_in(node))


def _problem(view: JobView, instance: str) -> str | None:
    if instance in view.lacking:
        return missing_features_text(view.lacking[instance])
    return unusable_text(view.unusable) if instance in view.unable else None


def _status(session: Session | None) -> Status:
    state = SessionState.CLOSED if session is None else session.status.value.state
    if state is SessionState.CONNECTED:
        return "up"
    return "down" if state is SessionState.CLOSED else "suspended"
