"""Servers over all jobs: in lists, and one in detail, when a host is slow, broken, or to be shut down."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from aioelasticjob.core.pauses import Pause
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.operations.queries import jobs, listed
from aioelasticjob.operations.status import InstanceStatus, JobStatus, ServerStatus
from aioelasticjob.registry.session import Session


@dataclass(frozen=True, slots=True)
class HostStatus:
    """One server over all jobs."""

    ip: str
    host: str
    jobs: tuple[str, ...]
    """The jobs that know it."""
    instances: int
    holds: int
    """Items held there, over all jobs."""
    disabled_in: tuple[str, ...]
    """The jobs in which it is disabled by itself."""
    paused_in: tuple[str, ...]
    """The jobs in which it is paused by itself."""
    disabled: bool = False
    """Whether it is disabled in all jobs."""
    pause: Pause | None = None
    """Its pause in all jobs; None if it is not paused there."""
    runs: tuple[str, ...] = ()
    """What runs there now: items, each as its job and number."""

    @property
    def paused(self) -> bool:
        """Whether it is paused in all jobs."""
        return self.pause is not None


@dataclass(frozen=True, slots=True)
class RunOnServer:
    """One item that runs on the server now."""

    job: str
    item: int
    since: datetime


@dataclass(frozen=True, slots=True)
class JobOnServer:
    """One job that knows the server."""

    name: str
    state: str
    """The state of the job on all servers, as in lists of jobs."""
    server: ServerStatus
    """What the job says about the server: its flags, and how many runs succeeded and failed there."""
    instances: tuple[InstanceStatus, ...]
    """The job's instances there."""
    items: tuple[int, ...]
    """The items held there."""
    runs: tuple[RunOnServer, ...]
    """What runs there now, the oldest first."""


@dataclass(frozen=True, slots=True)
class ServerDetails:
    """One server, with each job that knows it."""

    host: HostStatus
    jobs: tuple[JobOnServer, ...]

    @property
    def runs(self) -> tuple[RunOnServer, ...]:
        """What runs there now, over all jobs, the oldest first."""
        return tuple(sorted((run for job in self.jobs for run in job.runs), key=_by_age))

    @property
    def succeeded(self) -> int:
        """Runs that succeeded there in the last interval."""
        return sum(job.server.succeeded or 0 for job in self.jobs)

    @property
    def failed(self) -> int:
        """Runs that failed there in the last interval."""
        return sum(job.server.failed or 0 for job in self.jobs)

    @property
    def flags(self) -> tuple[tuple[str, datetime], ...]:
        """What operators have said about it for all jobs, and since when."""
        said = (pair for job in self.jobs for pair in flags_of(job.server) if pair[0].endswith(EVERYWHERE))
        return tuple(dict(said).items())


EVERYWHERE = " in all jobs"
"""The end of those flags of a server that hold for all jobs."""


async def server(session: Session, ip: str, *, now: float) -> ServerDetails:
    """Read one server over all jobs; ``now`` is in seconds since the epoch.

    Raises:
        InvalidSetting: no job knows such a server.
        RegistryError: the registry could not be read.
    """
    statuses = await jobs(session, now=now)
    found = server_details(statuses, ip)
    if found is None:
        there = listed(host.ip for host in by_server(statuses))
        raise InvalidSetting("server", ip, f"no job knows such a server; there are: {there}")
    return found


def server_details(statuses: Iterable[JobStatus], ip: str) -> ServerDetails | None:
    """Return one server over all these jobs; None if none of them knows it."""
    known = [status for status in statuses if any(one.ip == ip for one in status.servers)]
    host = host_of(known, ip)
    return None if host is None else ServerDetails(host, tuple(_job(status, ip) for status in known))


def by_server(statuses: Iterable[JobStatus]) -> tuple[HostStatus, ...]:
    """Return the status of each server over all these jobs."""
    found: dict[str, list[tuple[JobStatus, ServerStatus]]] = {}
    for status in statuses:
        for server in status.servers:
            found.setdefault(server.ip, []).append((status, server))
    return tuple(_host(ip, found[ip]) for ip in sorted(found))


def host_of(statuses: Iterable[JobStatus], ip: str) -> HostStatus | None:
    """Return the status of one server over all these jobs; None if none of them knows it."""
    return next((host for host in by_server(statuses) if host.ip == ip), None)


def flags_of(server: ServerStatus) -> tuple[tuple[str, datetime], ...]:
    """Return each flag of a server, and since when it holds."""
    return tuple(zip(server.flags, server.flagged_at, strict=True))


def _host(ip: str, known: list[tuple[JobStatus, ServerStatus]]) -> HostStatus:
    here = [(job.name, one) for job, _ in known for one in job.instances if one.ip == ip]
    return HostStatus(
        ip=ip,
        host=next((server.host for _, server in known if server.host), ""),
        jobs=tuple(job.name for job, _ in known),
        instances=sum(server.instances for _, server in known),
        holds=sum(len(one.holds) for _, one in here),
        disabled_in=tuple(job.name for job, server in known if server.disabled),
        paused_in=tuple(job.name for job, server in known if server.paused),
        disabled=any(server.disabled_everywhere for _, server in known),
        pause=next((server.pause for _, server in known if server.pause is not None), None),
        runs=tuple(f"{job}/{item}" for job, one in here for item in one.runs),
    )


def _job(status: JobStatus, ip: str) -> JobOnServer:
    instances = tuple(one for one in status.instances if one.ip == ip)
    here = {one.id for one in instances}
    runs = [
        RunOnServer(status.name, item.item, item.run.since)
        for item in status.items
        if item.run is not None and item.run.instance in here
    ]
    return JobOnServer(
        name=status.name,
        state=status.state,
        server=next(one for one in status.servers if one.ip == ip),
        instances=instances,
        items=tuple(sorted(item for one in instances for item in one.holds)),
        runs=tuple(sorted(runs, key=_by_age)),
    )


def _by_age(run: RunOnServer) -> tuple[datetime, str, int]:
    return run.since, run.job, run.item
