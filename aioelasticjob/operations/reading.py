"""What is where, now: the registry's jobs read as values.  Needs a session and nothing else; writes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from aioelasticjob.clock import moment
from aioelasticjob.config import JobConfig
from aioelasticjob.coordination import records
from aioelasticjob.coordination.dump import render
from aioelasticjob.coordination.view import JobView, read
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.layout import Layout
from aioelasticjob.model import Instance, Record
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.tree import Node, Tree


@dataclass(frozen=True, slots=True)
class Run:
    """One item being run, this moment."""

    instance: str
    since: datetime


@dataclass(frozen=True, slots=True)
class ItemStatus:
    """One sharding item."""

    item: int
    parameter: str | None
    holder: str | None
    """The instance it is assigned to; None while it waits for one."""
    run: Run | None
    """Who runs it; None while nobody does.  Always None for a job whose execution is not monitored."""
    rescuer: str | None
    orphaned: bool
    """Whether its run was cut off and it waits for a rescuer."""
    disabled: bool
    misfired: bool
    record: Record | None
    """Its newest run; None before the first, and where the record is unreadable."""


@dataclass(frozen=True, slots=True)
class InstanceStatus:
    """One running copy of the job."""

    id: str
    ip: str
    host: str
    pid: int
    joined: datetime
    leads: bool
    holds: tuple[int, ...]
    runs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """One host and what operators have said about it."""

    ip: str
    host: str
    disabled: bool
    paused: bool
    instances: int


@dataclass(frozen=True, slots=True)
class JobStatus:
    """One job, whole."""

    config: JobConfig
    fault: str | None
    """What is wrong with the configuration in the registry, if anything; ``config`` is then a bare default."""
    leader: str | None
    settled: bool
    """Whether the assignment stands, so that items may be claimed."""
    next_fire: datetime | None
    """The next scheduled moment, in the job's time zone; None without a schedule, or when it has ended."""
    instances: tuple[InstanceStatus, ...]
    servers: tuple[ServerStatus, ...]
    items: tuple[ItemStatus, ...]

    @property
    def name(self) -> str:
        """The job's name."""
        return self.config.job_name

    @property
    def running(self) -> tuple[ItemStatus, ...]:
        """The items being run."""
        return tuple(item for item in self.items if item.run is not None)

    @property
    def state(self) -> str:
        """The job in one word or two, for lists."""
        if self.fault is not None:
            return "faulty"
        if not self.instances:
            return "nobody there"
        if all(server.disabled or server.paused for server in self.servers if server.instances):
            return "switched off"
        if not self.settled:
            return "assigning"
        return "running" if self.running else "waiting"


async def job(session: Session, name: str, *, now: float) -> JobStatus:
    """Read one job; ``now`` (seconds since the epoch) is where the next fire is counted from.

    Raises:
        InvalidSetting: there is no such job.
        RegistryError: the registry could not be read.
    """
    await session.sync()
    found = await _job(session, name, now)
    if found is None:
        raise await _no_such(session, name)
    return found


async def dump(session: Session, name: str, *, masked: bool = False) -> str:
    """Return every node of a job as text, on request without addresses.

    Raises:
        InvalidSetting: there is no such job.
        RegistryError: the registry could not be read.
    """
    await session.sync()
    layout = Layout(name)
    tree = await session.subtree([layout.root]) if _can_be_a_job(name) else Tree()
    if not len(tree):
        raise await _no_such(session, name)
    return render(tree, layout, masked=masked)


async def jobs(session: Session, *, now: float) -> tuple[JobStatus, ...]:
    """Read all jobs of the namespace, by name.

    Raises:
        RegistryError: the registry could not be read.
    """
    await session.sync()
    found = [await _job(session, name, now) for name in await names(session)]
    return tuple(status for status in found if status is not None)


async def names(session: Session) -> tuple[str, ...]:
    """Return the names of the namespace's jobs, sorted; a node without ``config`` is somebody else's.

    Raises:
        RegistryError: the registry could not be read.
    """
    candidates = [name for name in await session.children("/") if _can_be_a_job(name)]
    configs = await session.get_many([Layout(name).config for name in candidates])
    return tuple(name for name, config in zip(candidates, configs, strict=True) if config is not None)


async def _job(session: Session, name: str, now: float) -> JobStatus | None:
    if not _can_be_a_job(name):
        return None
    layout = Layout(name)
    tree = await session.subtree((*layout.mirrored, layout.execution))
    if layout.config not in tree:
        return None
    view = read(tree, layout, JobConfig(job_name=name))
    schedule = view.config.schedule
    items = tuple(_item(view, tree, item) for item in sorted(view.items))
    return JobStatus(
        config=view.config,
        fault=view.fault,
        leader=view.leader,
        settled=view.settled,
        next_fire=None if schedule is None else schedule.next_after(moment(now)),
        instances=tuple(_instance(view, one, items) for one in sorted(view.instances.values(), key=_by_age)),
        servers=tuple(_server(view, tree, ip) for ip in tree.children(layout.servers)),
        items=items,
    )


def _item(view: JobView, tree: Tree, item: int) -> ItemStatus:
    paths = view.layout.item(item)
    executed, running = tree.get(paths.execution), tree.get(paths.running)
    return ItemStatus(
        item=item,
        parameter=view.config.sharding_item_parameters.get(item),
        holder=view.assignment.get(item),
        run=None if running is None else Run(_text(running), moment(running.stat.ctime)),
        rescuer=view.rescues.get(item),
        orphaned=item in view.orphans,
        disabled=item in view.disabled_items,
        misfired=paths.misfire in tree,
        record=None if executed is None or not executed.data else records.decode(executed.data),
    )


def _instance(view: JobView, one: Instance, items: tuple[ItemStatus, ...]) -> InstanceStatus:
    return InstanceStatus(
        id=one.id,
        ip=one.ip,
        host=one.host,
        pid=one.pid,
        joined=moment(one.started),
        leads=view.leader == one.id,
        holds=tuple(item.item for item in items if item.holder == one.id),
        runs=tuple(item.item for item in items if item.run is not None and item.run.instance == one.id),
    )


def _server(view: JobView, tree: Tree, ip: str) -> ServerStatus:
    layout, node = view.layout, tree.get(view.layout.server(ip))
    return ServerStatus(
        ip=ip,
        host="" if node is None else _text(node),
        disabled=layout.server_disabled(ip) in tree,
        paused=layout.server_paused(ip) in tree,
        instances=_count(view.instances, ip),
    )


def _count(instances: Mapping[str, Instance], ip: str) -> int:
    return sum(one.ip == ip for one in instances.values())


def _by_age(instance: Instance) -> tuple[float, str]:
    return instance.started, instance.id


def _text(node: Node) -> str:
    return node.data.decode("utf-8", "replace")


def _can_be_a_job(name: str) -> bool:
    try:
        JobConfig(job_name=name)
    except ValueError:
        return False
    return True


async def _no_such(session: Session, name: str) -> InvalidSetting:
    there = ", ".join(await names(session)) or "none"
    return InvalidSetting("job", name, f"there is no such job in {_where(session)}; there are: {there}")


def _where(session: Session) -> str:
    return f"zk://{session.settings.servers}/{session.settings.namespace}"
