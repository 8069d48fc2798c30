"""Async event streams of a job's state: servers, configuration, leader, execution.

Each event carries the whole state, and what has changed since this reader's last event.  A slow reader skips states,
but never the newest one, and delays no other reader.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from aioelasticjob.config import JobConfig
from aioelasticjob.coordination import records
from aioelasticjob.coordination.item_nodes import items_named
from aioelasticjob.coordination.view import JobView, read
from aioelasticjob.latest import Latest
from aioelasticjob.layout import SWITCHES, Layout
from aioelasticjob.model import NONE, Instance, Record
from aioelasticjob.registry.mirror import mirror
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.tree import Tree

S = TypeVar("S")
E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class Server:
    """A server, its instances, and whether operators have disabled or paused it, in this job or in all jobs."""

    ip: str
    host: str
    disabled: bool
    paused: bool
    instances: tuple[Instance, ...]


@dataclass(frozen=True, slots=True)
class ServersChanged:
    """The servers and instances of a job have changed."""

    servers: Mapping[str, Server]
    """The servers by address: those that have a node, and those on which an instance runs."""
    joined: frozenset[str]
    """Instances that have come since this reader's last event."""
    left: frozenset[str]
    """Instances that have gone since this reader's last event."""


@dataclass(frozen=True, slots=True)
class ConfigChanged:
    """The configuration in force has changed."""

    config: JobConfig | None
    """None if there is no configuration: before the job exists, and after it was removed."""
    changed: frozenset[str]
    """The settings that differ from this reader's last event; all settings if there was no configuration before."""
    fault: str | None
    """What is wrong with the configuration now in the registry, if it is invalid or missing."""


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    """The leader has changed."""

    leader: str | None
    epoch: int
    """A number that rises with each election; -1 before the first."""


@dataclass(frozen=True, slots=True)
class ItemExecution:
    """The newest run of an item."""

    record: Record | None
    """The item's record; None if the node is missing or holds no record."""
    running: str | None
    """The instance that runs it now."""
    misfired: bool


@dataclass(frozen=True, slots=True)
class ExecutionChanged:
    """The runs of items have changed."""

    items: Mapping[int, ItemExecution]
    changed: frozenset[int]
    """The items that differ from this reader's last event."""


class Changes(Generic[S, E]):
    """An async iterator of events: first one for the present state, then one for every newer state that differs."""

    def __init__(self, trees: Latest[Tree], state: Callable[[Tree], S], event: Callable[[S | None, S], E]) -> None:
        self._trees, self._state, self._event = trees, state, event
        self._tree: Tree | None = None
        self._last: S | None = None

    def __aiter__(self) -> Changes[S, E]:
        return self

    async def __anext__(self) -> E:
        while True:
            self._tree = await self._trees.until(lambda newer: newer is not self._tree)
            before, now = self._last, self._state(self._tree)
            if before is None or before != now:
                self._last = now
                return self._event(before, now)


class Streams:
    """The event streams of one job; each is opened with ``async with`` and read with ``async for``."""

    def __init__(self, session: Session, job: str) -> None:
        self._session, self._layout = session, Layout(job)

    @asynccontextmanager
    async def servers(self) -> AsyncIterator[Changes[Mapping[str, Server], ServersChanged]]:
        """Stream which instances join and leave, and which servers are disabled or paused."""
        async with self._trees((self._layout.servers, self._layout.instances, SWITCHES)) as trees:
            yield Changes(trees, self._servers, _servers_changed)

    @asynccontextmanager
    async def config(self) -> AsyncIterator[Changes[ConfigChanged, ConfigChanged]]:
        """Stream the configuration.  If the registry's is invalid, that is reported, and the last valid one stays."""
        last: JobConfig | None = None

        def state(tree: Tree) -> ConfigChanged:
            nonlocal last
            if self._layout.config not in tree:  # the job was removed, so its configuration is gone
                last = None
            view = read(tree, self._layout, last or JobConfig(job_name=self._layout.job))
            if view.fault is None:
                last = view.config
            return ConfigChanged(last, NONE, view.fault)

        async with self._trees((self._layout.config,)) as trees:
            yield Changes(trees, state, _config_changed)

    @asynccontextmanager
    async def leader(self) -> AsyncIterator[Changes[LeaderChanged, LeaderChanged]]:
        """Stream elections."""
        async with self._trees((self._layout.election,)) as trees:
            yield Changes(trees, self._leader, lambda _, now: now)

    @asynccontextmanager
    async def execution(self) -> AsyncIterator[Changes[Mapping[int, ItemExecution], ExecutionChanged]]:
        """Stream the runs of items.  These nodes change at every fire, but only this stream's readers receive them."""
        async with self._trees((self._layout.execution,)) as trees:
            yield Changes(trees, self._execution, _execution_changed)

    def _trees(self, roots: Sequence[str]) -> AbstractAsyncContextManager[Latest[Tree]]:
        return mirror(self._session, roots, shallow=set(roots).intersection(self._layout.shallow))

    def _view(self, tree: Tree) -> JobView:
        return JobView(self._layout, tree, JobConfig(job_name=self._layout.job), switches=tree)

    def _servers(self, tree: Tree) -> Mapping[str, Server]:
        layout, view, here = self._layout, self._view(tree), dict[str, list[Instance]]()
        for one in view.instances.values():
            here.setdefault(one.ip, []).append(one)
        found = {}
        for ip in sorted({*tree.children(layout.servers), *here}):  # also if its node was removed by hand
            node, there = tree.get(layout.server(ip)), tuple(sorted(here.get(ip, ()), key=lambda one: one.id))
            host = node.text if node else next((one.host for one in there), "")
            is_paused = view.server_paused_by(ip) is not None
            found[ip] = Server(ip, host, view.is_disabled(ip), is_paused, there)
        return found

    def _leader(self, tree: Tree) -> LeaderChanged:
        view = self._view(tree)
        return LeaderChanged(view.leader, view.epoch)

    def _execution(self, tree: Tree) -> Mapping[int, ItemExecution]:
        found = {}
        for item in sorted(items_named(tree.children(self._layout.execution))):
            paths = self._layout.item(item)
            node, running = tree.get(paths.execution), tree.get(paths.running)
            record = None if node is None else records.decode(node.data)
            runner = None if running is None else running.text
            found[item] = ItemExecution(record, runner, paths.misfire in tree)
        return found


def _servers_changed(before: Mapping[str, Server] | None, now: Mapping[str, Server]) -> ServersChanged:
    then, present = _instances(before or {}), _instances(now)
    return ServersChanged(now, present - then, then - present)


def _instances(servers: Mapping[str, Server]) -> frozenset[str]:
    return frozenset(one.id for server in servers.values() for one in server.instances)


def _config_changed(before: ConfigChanged | None, now: ConfigChanged) -> ConfigChanged:
    then = before.config if before else None
    names = JobConfig.model_fields if now.config else ()
    changed = frozenset(name for name in names if then is None or getattr(then, name) != getattr(now.config, name))
    return replace(now, changed=changed)


def _execution_changed(
    before: Mapping[int, ItemExecution] | None, now: Mapping[int, ItemExecution]
) -> ExecutionChanged:
    then = before or {}
    return ExecutionChanged(now, frozenset(item for item in {*then, *now} if then.get(item) != now.get(item)))
