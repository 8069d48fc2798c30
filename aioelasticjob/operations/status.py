"""A job's status as operators see it: values, and functions that read a tree as such values.  Nothing here waits."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import inf
from typing import Any, Final

from aioelasticjob.config.job import JobConfig
from aioelasticjob.core import records
from aioelasticjob.core.foreign import foreign
from aioelasticjob.core.instances import is_made_by_hand, left_at, unusable_config
from aioelasticjob.core.layout import Layout, server_switch
from aioelasticjob.core.pauses import Pause, pause_in
from aioelasticjob.core.view import JobView, read
from aioelasticjob.core.zone_rules import databases
from aioelasticjob.engine.own_node import noted_clock_difference
from aioelasticjob.engine.refusals import noted_refusals
from aioelasticjob.engine.run_counts import MAX_COUNT_DIGITS
from aioelasticjob.ground.encoding import json_object
from aioelasticjob.ground.times import moment
from aioelasticjob.ground.whole_numbers import whole_number
from aioelasticjob.model import Instance, Outcome, Record, ZoneRules
from aioelasticjob.registry.tree import Node, Tree
from aioelasticjob.schedules import Schedule

STATES: Final = (
    "running",
    "waiting",
    "assigning",
    "partly off",
    "switched off",
    "calendar missing",
    "finished",
    "never fires",
    "nobody there",
    "nobody able",
    "clock differs",
    "faulty",
    "foreign",
)
"""The states of a job."""


@dataclass(frozen=True, slots=True)
class ActiveRun:
    """The present run of one item."""

    instance: str
    since: datetime
    fence: int = 0
    """The transaction that claimed the item."""


@dataclass(frozen=True, slots=True)
class ItemStatus:
    """One sharding item."""

    item: int
    parameter: str | None
    holder: str | None
    """The instance it is assigned to; None while it waits for one."""
    run: ActiveRun | None
    """Its present run; None while no instance runs it, and always for a job whose execution is not monitored."""
    rescuer: str | None
    orphaned: bool
    """Whether its run was cut off and it waits for a rescuer."""
    disabled: bool
    misfired: bool
    """Whether the newest write of its record reports missed moments."""
    record: Record | None
    """Its newest run; None before the first, and if the record is unreadable."""
    blocked_by: str = ""
    """The lock that somebody has made by hand: the item does not run until this node is removed.  Empty without one."""
    offset: str | None = None
    """The handler's checkpoint; None without one, and in lists of jobs, which leave offsets out."""

    @property
    def begun(self) -> datetime | None:
        """When its newest run began."""
        return None if self.record is None else _at(self.record.begun)

    @property
    def ended(self) -> datetime | None:
        """When the newest run that is over ended."""
        return None if self.record is None else _at(self.record.completed_at)

    @property
    def next_fire(self) -> datetime | None:
        """When it fires next, as noted at the beginning of its newest run."""
        return None if self.record is None else _at(self.record.next_fire)

    @property
    def outcome(self) -> str | None:
        """The outcome of the newest run that is over."""
        return None if self.record is None else self.record.outcome or None


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
    leaving: bool = False
    """Whether it only finishes its present runs."""
    lacks: tuple[str, ...] = ()
    """The features that the job requires and this instance lacks; with any, it gets no items and cannot lead."""
    handler: str = ""
    """The function that it calls, as ``module:function``; empty if it has not said so."""
    differs: tuple[str, ...] = ()
    """The settings that its process declares otherwise than the registry, whose values apply."""
    refused: tuple[tuple[str, str, float], ...] = ()
    """What the registry refuses to it: for each kind of request its purpose, the reason, and since when."""
    clock_differs: float | None = None
    """By how many seconds its host's clock is ahead of the registry's, while it refuses all runs because of that."""
    unusable: str = ""
    """Why its process cannot use the configuration, which others can; then it gets no items and cannot lead."""

    zone_rules: ZoneRules | None = None
    """The rules that its process has for the job's time zone; None if it has not said so."""
    incarnation: int = 0
    """The session of its process with the registry: all instances of one process have the same."""

    @property
    def is_able(self) -> bool:
        """Whether it can do what the job requires."""
        return not (self.lacks or self.unusable)


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """One server, with the flags that operators have set on it."""

    ip: str
    host: str
    disabled: bool
    """Whether it is disabled in this job."""
    paused: bool
    """Whether it is paused in this job."""
    instances: int
    succeeded: int | None = None
    """Runs that succeeded there in the last interval; None where none was ever counted."""
    failed: int | None = None
    """Runs that failed there in the last interval; None where none was ever counted."""
    counted_until: float | None = field(default=None, compare=False)
    """When its counts are no longer those of the last interval, in seconds since the epoch; None if both are 0."""
    disabled_everywhere: bool = False
    """Whether it is disabled in all jobs."""
    pause: Pause | None = None
    """Its pause in all jobs; None if it is not paused there."""
    flagged_at: tuple[datetime, ...] = ()
    """When each of its ``flags`` was set, in their order."""

    @property
    def paused_everywhere(self) -> bool:
        """Whether it is paused in all jobs."""
        return self.pause is not None

    @property
    def flags(self) -> tuple[str, ...]:
        """What operators have said about it, in words; empty if it is at work."""
        said = (
            ("disabled", self.disabled),
            ("paused", self.paused),
            ("disabled in all jobs", self.disabled_everywhere),
            ("paused in all jobs", self.paused_everywhere),
        )
        return tuple(word for word, holds in said if holds)

    def at(self, now: float) -> ServerStatus:
        """Return the server at ``now``: with the counts of the last interval, 0 if they are older."""
        if self.pause is not None and self.pause.is_over(now):
            return self._with_its_pause_ended().at(now)
        if self.counted_until is None or now < self.counted_until:
            return self
        succeeded, failed = (None if count is None else 0 for count in (self.succeeded, self.failed))
        return replace(self, succeeded=succeeded, failed=failed, counted_until=None)

    def _with_its_pause_ended(self) -> ServerStatus:
        flagged_at = self.flagged_at[:-1]  # it is the last of the flags
        return replace(self, pause=None, flagged_at=flagged_at)


@dataclass(frozen=True, slots=True)
class UpstreamStatus:
    """A job that another one follows."""

    job: str
    problem: str = ""
    """Why nothing comes from it; empty if all is well."""
    waits_for: tuple[int, ...] = ()
    """Its items that have yet to end the moment for which the follower waits."""


@dataclass(frozen=True, slots=True)
class JobStatus:
    """One job, whole."""

    config: JobConfig
    fault: str | None
    """What is wrong with the configuration in the registry, or that the job is another program's; ``config`` is then a
    default.  None if it is right."""
    leader: str | None
    settled: bool
    """Whether the assignment stands, so that items may be claimed."""
    next_fire: datetime | None
    """The next scheduled moment, in the job's time zone.

    None without a schedule, when it has ended, and while no instance is there that may run the job.
    """
    instances: tuple[InstanceStatus, ...]
    servers: tuple[ServerStatus, ...]
    items: tuple[ItemStatus, ...]
    pause: Pause | None = None
    """The pause of the whole job; None if it is not paused."""
    config_version: int = -1
    """Rises with every change of the configuration."""
    foreign: bool = False
    """Whether the job is another program's: nothing is written to it, and ``fault`` says what shows that."""
    left_at: datetime | None = None
    """When an instance has last left the job gracefully; None if none ever has, and for another program's job."""
    scheduled_since: float = 0.0
    """Since when its schedule is in force, in seconds since the epoch."""
    configured_at: float = 0.0
    """When its configuration was written last, in seconds since the epoch."""
    lacks_handler: bool = False
    """Whether nobody is there because no process has the handler that the job was created for."""
    followed_schedule: Schedule | None = None
    """The schedule that the job has from those that it follows; None if it follows none, or does not yet."""
    upstreams: tuple[UpstreamStatus, ...] = ()
    """The jobs that it follows."""
    waiting_moment: datetime | None = None
    """The oldest moment that has passed, and that the jobs which it follows have yet to end; None if there is none."""

    @property
    def schedule(self) -> Schedule | None:
        """The job's schedule; None if it has none."""
        return self.followed_schedule if self.config.after else self.config.schedule

    @property
    def ignored(self) -> tuple[str, ...]:
        """One sentence for each key of the configuration that this release does not know."""
        return self.config.ignored

    @property
    def name(self) -> str:
        """The job's name."""
        return self.config.job_name

    @property
    def paused(self) -> bool:
        """Whether the whole job is paused."""
        return self.pause is not None

    @property
    def paused_since(self) -> datetime | None:
        """Since when the whole job is paused; None if it is not."""
        return None if self.pause is None else moment(self.pause.since)

    @property
    def paused_until(self) -> datetime | None:
        """When the pause of the whole job ends by itself; None if it does not, or if there is none."""
        return None if self.pause is None or self.pause.until == inf else moment(self.pause.until)

    @property
    def running(self) -> tuple[ItemStatus, ...]:
        """The items being run."""
        return tuple(item for item in self.items if item.run is not None)

    @property
    def orphans(self) -> tuple[ItemStatus, ...]:
        """The items whose run was cut off and that wait for a rescuer."""
        return tuple(item for item in self.items if item.orphaned)

    @property
    def blocked(self) -> tuple[ItemStatus, ...]:
        """The items that do not run until somebody removes a lock that was made by hand."""
        return tuple(item for item in self.items if item.blocked_by)

    @property
    def resting(self) -> tuple[ItemStatus, ...]:
        """The items that are not run at present, because they or the servers of their holders are switched off."""
        off = {server.ip for server in self.servers if server.flags}
        holders = {one.id for one in self.instances if one.ip in off}
        return tuple(item for item in self.items if item.disabled or item.holder in holders)

    @property
    def misfired(self) -> tuple[ItemStatus, ...]:
        """The items of which the newest write of the record reports missed moments."""
        return tuple(item for item in self.items if item.misfired)

    @property
    def last(self) -> Record | None:
        """The newest run of any item; if several began together, one that failed.  None before the first run."""
        found = [item.record for item in self.items if item.record is not None and item.record.begun]
        return max(found, key=_newest_and_worst, default=None)

    @property
    def gone_holders(self) -> frozenset[str]:
        """The instances that hold items and are not there any more."""
        holders = {item.holder for item in self.items if item.holder is not None}
        return frozenset(holders - {one.id for one in self.instances})

    @property
    def differing_handlers(self) -> tuple[str, ...]:
        """The handlers that the instances run, if these differ; empty if all instances run the same."""
        found = sorted({one.handler for one in self.instances if one.handler})
        return tuple(found) if len(found) > 1 else ()

    @property
    def zone_databases(self) -> tuple[str, ...]:
        """The databases of time zones whose rules for the job's zone differ; empty if all instances have the same."""
        return databases(one.zone_rules for one in self.instances)

    @property
    def succeeded(self) -> int:
        """Runs that succeeded in the last interval, on all servers."""
        return sum(server.succeeded or 0 for server in self.servers)

    @property
    def failed(self) -> int:
        """Runs that failed in the last interval, on all servers."""
        return sum(server.failed or 0 for server in self.servers)

    @property
    def state(self) -> str:
        """The job's state in one or two words, for lists: one of ``STATES``."""
        if (hindrance := self._hindrance) is not None:
            return hindrance
        if self.running:
            return "running"
        if self.schedule is not None and self.next_fire is None:
            return "never fires" if self.schedule.never_fires else "finished"
        if not self.settled:
            return "assigning"
        return "partly off" if self.resting else "waiting"

    @property
    def changes_at(self) -> float | None:
        """When it changes although nothing is written, in seconds since the epoch: ``at`` then returns another one."""
        known = [server.counted_until for server in self.servers]
        known.append(None if self.next_fire is None else self.next_fire.timestamp())
        known.append(None if self.paused_until is None else self.paused_until.timestamp())
        known += [server.pause.until for server in self.servers if server.pause is not None]
        return min((at for at in known if at is not None and at != inf), default=None)

    def knowing(self, handlers: Collection[str]) -> JobStatus:
        """Return the status, given the handlers that at least one process has."""
        handler = self.config.handler
        return replace(self, lacks_handler=handler is not None and handler not in handlers and not self.instances)

    def at(self, now: float) -> JobStatus:
        """Return the status at ``now``, seconds since the epoch: its next scheduled moment, and the latest counts."""
        pause = None if self.pause is None or self.pause.is_over(now) else self.pause
        then = replace(self, pause=pause, servers=tuple(server.at(now) for server in self.servers))
        schedule = None if then._hindrance is not None else self.schedule
        next_fire = None if schedule is None else schedule.next_to_come(moment(now))
        return replace(then, next_fire=next_fire)

    @property
    def missing_calendars(self) -> tuple[str, ...]:
        """The calendars that the job names and that the registry does not have: until then the job runs nothing."""
        return () if self.config.schedule is None else self.config.schedule.missing_calendars

    @property
    def _hindrance(self) -> str | None:
        """Why no scheduled moment of the job would be run, in one or two words; None if one would be."""
        if self.foreign:
            return "foreign"
        if self.fault is not None:
            return "faulty"
        if not self.instances:
            return "nobody there"
        if not any(one.is_able for one in self.instances):
            return "nobody able"
        closed = self.paused or all(server.flags for server in self.servers if server.instances)
        if closed or 0 < len(self.items) == len(self.resting):
            return "switched off"
        if self.missing_calendars:
            return "calendar missing"
        able = able_instances(self)
        return "clock differs" if able and all(one.clock_differs is not None for one in able) else None


def able_instances(job: JobStatus) -> tuple[InstanceStatus, ...]:
    """Return the instances that can do what the job requires, and whose servers are not switched off."""
    off = {server.ip for server in job.servers if server.flags}
    return tuple(one for one in job.instances if one.is_able and one.ip not in off)


def status_of(tree: Tree, layout: Layout, now: float, common: Tree | None = None) -> JobStatus | None:
    """Return the status that a job's tree shows; ``now`` is in seconds since the epoch.  None if there is no job.

    ``common`` has the nodes of the servers in all jobs, if ``tree`` does not.
    """
    node = tree.get(layout.config)
    if node is None:
        return None
    view = read(tree, layout, JobConfig(job_name=layout.job), common=common)
    if (error := foreign(tree, layout)) is not None:
        view = replace(view, config=JobConfig(job_name=layout.job), fault=str(error))
    items = tuple(_item(view, tree, item) for item in sorted(view.items))
    paused = tree.get(layout.paused)
    left = None if error is not None else left_at(tree.get(layout.instances))
    return JobStatus(
        config=view.config,
        fault=view.fault,
        leader=view.leader,
        settled=view.assignment_stands,
        next_fire=None,
        instances=_instances(view, items),
        servers=tuple(_server(view, tree, ip) for ip in tree.children(layout.servers)),
        items=items,
        config_version=node.stat.version,
        pause=None if paused is None else pause_in(paused),
        foreign=error is not None,
        left_at=None if left is None else moment(left),
        scheduled_since=max(view.schedules.since / 1000, view.schedules.made_at),
        configured_at=node.stat.mtime,
        followed_schedule=view.schedule if view.config.after else None,
    ).at(now)


def _item(view: JobView, tree: Tree, item: int) -> ItemStatus:
    paths = view.layout.item(item)
    executed, lock, offset = tree.get(paths.execution), tree.get(paths.running), tree.get(paths.offset)
    is_blocked = lock is not None and is_made_by_hand(lock)
    running = None if is_blocked else lock
    record = None if executed is None or not executed.data else records.decode(executed.data)
    return ItemStatus(
        item=item,
        parameter=view.config.sharding_item_parameters.get(item),
        holder=view.assignment.get(item),
        run=None if running is None else ActiveRun(running.text, moment(running.stat.ctime), running.stat.czxid),
        rescuer=view.rescues.get(item),
        orphaned=item in view.orphans,
        disabled=item in view.disabled_items,
        misfired=record is not None and bool(record.owing),
        record=record,
        blocked_by=paths.running if is_blocked else "",
        offset=None if offset is None else offset.text,
    )


def _instances(view: JobView, items: tuple[ItemStatus, ...]) -> tuple[InstanceStatus, ...]:
    holds, runs = dict[str, list[int]](), dict[str, list[int]]()
    for item in items:
        if item.holder is not None:
            holds.setdefault(item.holder, []).append(item.item)
        if item.run is not None:
            runs.setdefault(item.run.instance, []).append(item.item)
    return tuple(
        InstanceStatus(
            id=one.id,
            ip=one.ip,
            host=one.host,
            pid=one.pid,
            joined=moment(one.started),
            leads=view.leader == one.id,
            holds=tuple(holds.get(one.id, ())),
            runs=tuple(runs.get(one.id, ())),
            leaving=one.leaving,
            lacks=view.lacking.get(one.id, ()),
            zone_rules=one.zone_rules,
            incarnation=one.incarnation,
            **_said_of_itself(view, one.id),
        )
        for one in sorted(view.instances.values(), key=_by_age)
    )


def _said_of_itself(view: JobView, instance: str) -> dict[str, Any]:
    """Return what an instance's node says that only people need."""
    node = view.tree.get(view.layout.instance(instance))
    data = {} if node is None else json_object(node.data)
    handler, differs = data.get("handler"), data.get("differs")
    names = differs if isinstance(differs, list) else ()
    return {
        "handler": handler if isinstance(handler, str) else "",
        "differs": tuple(name for name in names if isinstance(name, str)),
        "refused": noted_refusals(data),
        "clock_differs": noted_clock_difference(data),
        "unusable": unusable_config(data)[1] if instance in view.unable else "",
    }


def _server(view: JobView, tree: Tree, ip: str) -> ServerStatus:
    layout, node = view.layout, tree.get(view.layout.server(ip))
    counts = tree.get(layout.success_count(ip)), tree.get(layout.failure_count(ip))  # written together
    counted = max((count.stat.mtime for count in counts if count is not None and _number(count)), default=None)
    here = tree.get(layout.server_disabled(ip)), tree.get(layout.server_paused(ip))
    everywhere = view.common.get(server_switch(ip, "disabled")), view.common.get(server_switch(ip, "paused"))
    return ServerStatus(
        ip=ip,
        host="" if node is None else node.text,
        disabled=here[0] is not None,
        paused=here[1] is not None,
        instances=_count(view.instances, ip),
        succeeded=_number(counts[0]),
        failed=_number(counts[1]),
        counted_until=None if counted is None else counted + 2 * view.config.statistics_interval,
        disabled_everywhere=everywhere[0] is not None,
        pause=None if everywhere[1] is None else pause_in(everywhere[1]),
        flagged_at=tuple(moment(flag.stat.ctime) for flag in (*here, *everywhere) if flag is not None),
    )


def _count(instances: Mapping[str, Instance], ip: str) -> int:
    return sum(one.ip == ip for one in instances.values())


def _by_age(instance: Instance) -> tuple[float, str]:
    return instance.started, instance.id


def _newest_and_worst(record: Record) -> tuple[int, bool, int]:
    """Order runs by age; of the items of one fire, a failure comes last, so that it is the one that is shown."""
    return record.begun, record.outcome not in ("", Outcome.COMPLETED), record.completed_at


def _number(node: Node | None) -> int | None:
    """Return a count; None for text that a person wrote and that is no count."""
    return None if node is None else whole_number(node.text, digits=MAX_COUNT_DIGITS)


def _at(milliseconds: int) -> datetime | None:
    return moment(milliseconds / 1000) if milliseconds else None
