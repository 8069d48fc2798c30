"""The mirrored subtree of a job, read as what it means.  Properties only: a view decides nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from aioelasticjob.config import MAX_ITEMS, JobConfig, required
from aioelasticjob.coordination import records
from aioelasticjob.coordination.strategies import in_order
from aioelasticjob.cron import Cron
from aioelasticjob.error_handlers import check
from aioelasticjob.errors import ForeignData, InvalidSetting
from aioelasticjob.jobs.kinds import fits
from aioelasticjob.layout import Layout
from aioelasticjob.model import Instance
from aioelasticjob.registry.tree import Node, Tree

MAX_NUMBER_DIGITS = len(str(MAX_ITEMS))
"""Digits of an item; what is longer was made by somebody else."""
_HOST = re.compile(r"[\w.:%-]{1,255}")


@dataclass(frozen=True, slots=True)
class FormerSchedule:
    """A schedule that is not in force any more; times in milliseconds since the epoch."""

    cron: Cron | None
    since: int
    until: int
    recorded: bool
    """Whether runs were recorded meanwhile."""


@dataclass(frozen=True)
class JobView:
    """One job as the registry has it, at one moment."""

    layout: Layout
    tree: Tree
    config: JobConfig
    """The newest configuration that made sense; but what the job requires is always the newest."""
    fault: str | None = None
    """What is wrong with the configuration now in the registry: it makes none, or its error handler does not work."""

    @cached_property
    def instances(self) -> Mapping[str, Instance]:
        """Everybody registered, by id."""
        return _instances(self.tree, self.layout)

    @cached_property
    def staying(self) -> tuple[str, ...]:
        """Who may lead and be given items, in the order that strategies use."""
        return tuple(one for one in self._admitted if not self.instances[one].leaving)

    @cached_property
    def eligible(self) -> tuple[str, ...]:
        """Who may hold items: who stays, or, while nobody does, those who are leaving."""
        return self.staying or self._admitted

    @cached_property
    def lacking(self) -> Mapping[str, tuple[str, ...]]:
        """The features that the job requires and an instance does not know, by instance; it is not eligible."""
        needed = self.config.requires
        lacks = {one.id: tuple(x for x in needed if x not in one.features) for one in self.instances.values()}
        return {one: features for one, features in lacks.items() if features}

    @cached_property
    def leader(self) -> str | None:
        """The id on the leader's seat."""
        node = self.tree.get(self.layout.host)
        return None if node is None else _text(node.data)

    @cached_property
    def epoch(self) -> int | None:
        """The version that every leader's write checks; None before the first election."""
        node = self.tree.get(self.layout.epoch)
        return None if node is None else node.stat.version

    @cached_property
    def necessary(self) -> int | None:
        """The version of the mark that asks for an assignment, None without it.

        A mark that cannot be removed, because somebody put nodes below it, is answered by an assignment after it.
        """
        node, sharding = self.tree.get(self.layout.necessary), self.tree.get(self.layout.sharding)
        if node is None or (
            self.obstructed(self.layout.necessary) and sharding and sharding.stat.mzxid > node.stat.mzxid
        ):
            return None
        return node.stat.version

    @cached_property
    def processing(self) -> bool:
        """Whether an assignment is being written in several parts."""
        return self.layout.processing in self.tree and not self.obstructed(self.layout.processing)

    @cached_property
    def settled(self) -> bool:
        """Whether the assignment stands, so that items may be claimed."""
        return self.necessary is None and not self.processing

    @cached_property
    def sharding_version(self) -> int:
        """Rises with every assignment."""
        node = self.tree.get(self.layout.sharding)
        return -1 if node is None else node.stat.version

    @cached_property
    def items(self) -> frozenset[int]:
        """The items that have a node, whether or not they should."""
        return frozenset(_numbers(self.tree.children(self.layout.sharding)))

    @cached_property
    def assignment(self) -> Mapping[int, str]:
        """Who holds which item; items without a holder are absent."""
        return _assignment(self.tree, self.layout, self.items)

    @cached_property
    def disabled_items(self) -> frozenset[int]:
        """The items that an operator has switched off."""
        return frozenset(item for item in self.items if self.layout.item(item).disabled in self.tree)

    @cached_property
    def triggered(self) -> frozenset[str]:
        """The instances that are asked to run their items now."""
        return frozenset(self.tree.children(self.layout.triggers))

    @cached_property
    def orphans(self) -> frozenset[int]:
        """The items that wait for a rescuer."""
        return frozenset(_numbers(self.tree.children(self.layout.orphans)))

    @cached_property
    def orphaned(self) -> Mapping[int, tuple[int, str]]:
        """Of the items that wait for a rescuer, the moment of the run cut off and its instance, where that is known."""
        nodes = ((item, self.tree.get(self.layout.item(item).orphan)) for item in self.orphans)
        marks = {item: records.read_mark(node.data) for item, node in nodes if node is not None}
        return {item: mark for item, mark in marks.items() if mark is not None}

    @cached_property
    def rescues(self) -> Mapping[int, str]:
        """Who is rescuing which item."""
        found = {item: self.tree.get(self.layout.item(item).failover) for item in self.items}
        return {item: _text(node.data) for item, node in found.items() if node and node.stat.ephemeral_owner}

    def awaits_rescue(self, item: int) -> bool:
        """Whether an orphan can be taken: it is wanted, and no mark of it was made by hand so that it cannot go."""
        paths = self.layout.item(item)
        blocked = self.obstructed(paths.orphan) or paths.failover in self.tree
        return item in self.orphans and item < self.config.sharding_total_count and not blocked

    def obstructed(self, path: str) -> bool:
        """Whether a node that should have none has children, so that nobody can remove it without theirs."""
        return bool(self.tree.children(path))

    @cached_property
    def up_since(self) -> float:
        """Since when there has always been somebody, by the registry's clock; infinity without any instance.

        Each instance hands it on to those that join after it, so it outlives all that were there at first.
        """
        return min((one.up_since for one in self.instances.values()), default=float("inf"))

    @cached_property
    def configured_at(self) -> float:
        """When the configuration was last written, by the registry's clock."""
        node = self.tree.get(self.layout.config)
        return 0.0 if node is None else node.stat.mtime

    @cached_property
    def scheduled_since(self) -> float:
        """Since when the schedule and ``monitor_execution`` have been as they are, by the registry's clock.

        The leader notes it, so it stays known when another setting is written later.  Until the leader has noted it, it
        is when the configuration was last written.
        """
        return min(self.schedule_dated, self.configured_at)

    @cached_property
    def schedule_dated(self) -> float:
        """What the registry's clock showed when the schedule was written; it was ahead if that is later than now."""
        return float(self.noted_schedules[-1]["since"] / 1000) if self.schedule_is_noted else self.configured_at

    @property
    def scheduled_by(self) -> int:
        """The transaction that dated the schedule, or a later one."""
        node = self.tree.get(self.layout.schedule if self.schedule_is_noted else self.layout.config)
        return 0 if node is None else node.stat.mzxid

    @cached_property
    def schedule_is_noted(self) -> bool:
        """Whether the leader's note is about the schedule in force."""
        noted = self.noted_schedules
        return bool(noted) and scheduling(self.config).items() <= noted[-1].items()

    @cached_property
    def former_schedules(self) -> tuple[FormerSchedule, ...]:
        """The schedules before the one in force that were noted, oldest first."""
        noted = self.noted_schedules[:-1] if self.schedule_is_noted else self.noted_schedules
        ends = [*(one["since"] for one in noted[1:]), int(self.scheduled_since * 1000)]
        return tuple(
            FormerSchedule(
                _cron(one["cron"], one["timeZone"], one["dst"]), one["since"], until, one["monitorExecution"] is True
            )
            for one, until in zip(noted, ends, strict=False)
        )

    @property
    def recorded_schedules(self) -> tuple[FormerSchedule, ...]:
        """Those of them since records were last switched, oldest first: what was recorded before has been removed."""
        former, recorded = self.former_schedules, self.config.monitor_execution
        switched = max((one.until for one in former if one.recorded is not recorded), default=0)
        return tuple(one for one in former if one.until > switched)

    @cached_property
    def noted_schedules(self) -> tuple[Mapping[str, Any], ...]:
        """The schedules that the leader has noted, the newest last, each with the time (ms) at which it was written."""
        node = self.tree.get(self.layout.schedule)
        return () if node is None else _noted(node.data)

    @cached_property
    def _admitted(self) -> tuple[str, ...]:
        lacking = self.lacking
        return in_order([x for x in self.instances.values() if x.id not in lacking and self._server_is_open(x.ip)])

    def _server_is_open(self, ip: str) -> bool:
        closed = (self.layout.server_disabled(ip), self.layout.server_paused(ip))
        return not any(flag in self.tree for flag in closed)


@lru_cache(maxsize=4096)
def _noted(data: bytes) -> tuple[Mapping[str, Any], ...]:
    """Return the schedules that the leader's note names, the newest last; nothing if the note makes no sense."""
    noted = dict(instance_data(data))
    former = noted.pop("former", [])
    schedules = (*former, noted) if isinstance(former, list) else ()
    return schedules if all(map(_is_schedule, schedules)) else ()


def _is_schedule(noted: object) -> bool:
    if not isinstance(noted, dict) or not {"cron", "timeZone", "dst", "monitorExecution", "since"} <= noted.keys():
        return False
    since = noted["since"]
    return isinstance(since, int) and not isinstance(since, bool) and since >= 0


@lru_cache(maxsize=4096)
def _cron(*told: object) -> Cron | None:
    """Return a schedule, None if there is none or it makes no sense: somebody else wrote it."""
    if all(isinstance(one, str) for one in told):
        with suppress(InvalidSetting):
            return Cron.parse(*told)  # type: ignore[arg-type]
    return None


def scheduling(config: JobConfig) -> Mapping[str, object]:
    """Return the settings that decide which moments there are, and whether their runs are recorded."""
    return {
        "cron": config.cron,
        "timeZone": config.time_zone,
        "dst": config.dst,
        "monitorExecution": config.monitor_execution,
    }


def read(tree: Tree, layout: Layout, last: JobConfig, kind: str | None = None) -> JobView:
    """Return the view of a tree; nonsense in ``config`` leaves the last good configuration standing.

    What the job requires is read all the same: the rest may make no sense to us for lack of just that feature.

    ``kind`` is what a running job is and stays; with it, an error handler that does not work here leaves the last good
    one, and nothing else: instances of different releases have to agree on the schedule and the items.
    """
    node = tree.get(layout.config)
    if node is None:
        return JobView(layout, tree, last, f"{layout.config} is missing")
    try:
        config = _fitting(node.data, layout)
        if kind not in (None, config.job_type):
            raise InvalidSetting("job_type", config.job_type, f"the job runs as {kind} and cannot change that")
    except InvalidSetting as mistake:
        return JobView(layout, tree, _requiring(last, node.data), str(mistake))
    if kind is None:  # who only looks need not have the handlers that the job runs with
        return JobView(layout, tree, config)
    return JobView(layout, tree, *with_known_error_handler(config, last))


def _requiring(last: JobConfig, stored: bytes) -> JobConfig:
    """Return the last good configuration with what the job requires now."""
    requires = required(stored)
    return last if requires in (None, last.requires) else last.model_copy(update={"requires": requires})


def with_known_error_handler(config: JobConfig, last: JobConfig) -> tuple[JobConfig, str | None]:
    """Return a configuration whose failures somebody hears of, and what is wrong with its error handler, if anything.

    The handler of ``last``, with its options, stands in for one that does not work here.
    """
    try:
        check(config.error_handler, config.error_handler_options)
    except InvalidSetting as mistake:
        kept = {"error_handler": last.error_handler, "error_handler_options": last.error_handler_options}
        return config.model_copy(update=kept), f"{mistake}; {last.error_handler} goes on being called"
    return config, None


@lru_cache(maxsize=4096)
def parse(data: bytes, layout: Layout) -> JobConfig:
    """Return the configuration that the job's ``config`` holds.

    Raises:
        ForeignData: it is none, or another job's.
    """
    config = JobConfig.from_json(data, layout.config)
    if config.job_name != layout.job:
        raise ForeignData(layout.config, config.job_name, f"the job's name is {layout.job} and never changes")
    return config


@lru_cache(maxsize=4096)
def _fitting(data: bytes, layout: Layout) -> JobConfig:
    config = parse(data, layout)
    fits(config)
    return config


def _instances(tree: Tree, layout: Layout) -> Mapping[str, Instance]:
    found = {}
    for name in tree.children(layout.instances):
        node = tree.get(layout.instance(name))
        if node is not None and node.stat.ephemeral_owner:
            found[name] = instance(name, node)
    return found


def instance(name: str, node: Node) -> Instance:
    """Return what an instance's node says of it."""
    return _instance(name, node.data, node.stat.ctime, node.stat.ephemeral_owner)


@lru_cache(maxsize=65536)
def _instance(name: str, data: bytes, joined: float, incarnation: int) -> Instance:
    told = instance_data(data)
    ip, named, _ = name.partition("@-@")
    if not named and is_host(told.get("ip")):
        ip = str(told["ip"])  # by hand; of ours the name tells, which nobody can change
    host, pid, since = told.get("host"), told.get("pid"), told.get("upSince")
    return Instance(
        name,
        ip,
        str(host) if is_host(host) else "",
        pid if isinstance(pid, int) else 0,
        incarnation,
        joined,
        since if isinstance(since, int | float) and 0 < since < joined else joined,
        told.get("leaving") is True,
        _features(told.get("features")),
    )


def _features(told: object) -> frozenset[str]:
    return frozenset(one for one in told if isinstance(one, str)) if isinstance(told, list) else frozenset()


def instance_data(data: bytes) -> Mapping[str, object]:
    """Return what an instance's node says of it; nothing where it is no object."""
    try:
        told = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def is_host(name: object) -> bool:
    """Whether something is an address or the name of a host, and so can be a node's name."""
    return isinstance(name, str) and _HOST.fullmatch(name) is not None and bool(name.strip("."))


def _assignment(tree: Tree, layout: Layout, items: frozenset[int]) -> Mapping[int, str]:
    found = {item: tree.get(layout.item(item).instance) for item in items}
    return {item: _text(node.data) for item, node in found.items() if node is not None}


def _numbers(names: tuple[str, ...]) -> list[int]:
    return [int(name) for name in names if is_item(name)]


def is_item(name: str) -> bool:
    """Whether a node's name is the number of an item, spelt as we spell it."""
    return len(name) <= MAX_NUMBER_DIGITS and name.isascii() and name.isdigit() and str(int(name)) == name


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
