"""Async event streams of a job's state: servers, configuration, leader, execution.

Each event carries the whole state, and what has changed since this reader's last event.  A slow reader skips states,
but never the newest one, and delays no other reader.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from aioelasticjob.config.job import JobConfig
from aioelasticjob.core import records
from aioelasticjob.core.layout import SWITCHES, Layout
from aioelasticjob.core.nodes import items_named
from aioelasticjob.core.view import JobView, read
from aioelasticjob.ground.latest import Latest
from aioelasticjob.model import Instance, Record
from aioelasticjob.registry.mirror import mirror
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.tree import Tree

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
    """Whether the newest write of the record reports missed moments."""


@dataclass(frozen=True, slots=True)
class ExecutionChanged:
    """The runs of items have changed."""

    items: Mapping[int, ItemExecution]
    changed: frozenset[int]
    """The items that differ from this reader's last event."""


class Changes(Generic[E]):
    """An async iterator of events: first one for the present state, then one for every newer state that differs.

    ``event`` returns the event for a tree, given the last event; None if nothing has changed since that.
    """

    def __init__(self, trees: Latest[Tree], event: Callable[[Tree, E | None], E | None]) -> None:
        self._trees = trees
        self._event = event
        self._tree: Tree | None = None
        self._last: E | None = None

    def __aiter__(self) -> Changes[E]:
        return self

    async def __anext__(self) -> E:
        while True:
            self._tree = await self._trees.until(lambda newer: newer is not self._tree)
            if (event := self._event(self._tree, self._last)) is not None:
                self._last = event
                return event


class Streams:
    """The event streams of one job; each is opened with ``async with`` and read with ``async for``."""

    def __init__(self, session: Session, job: str) -> None:
        self._session = session
        self._layout = Layout(job)

    def servers(self) -> AbstractAsyncContextManager[Changes[ServersChanged]]:
        """Stream which instances join and leave, and which servers are disabled or paused."""
        return self._changes(self._servers, self._layout.servers, self._layout.instances, SWITCHES)

    def config(self) -> AbstractAsyncContextManager[Changes[ConfigChanged]]:
        """Stream the configuration.  If the registry's is invalid, that is reported, and the last valid one stays."""
        return self._changes(self._config, self._layout.config)

    def leader(self) -> AbstractAsyncContextManager[Changes[LeaderChanged]]:
        """Stream elections."""
        return self._changes(self._leader, self._layout.election)

    def execution(self) -> AbstractAsyncContextManager[Changes[ExecutionChanged]]:
        """Stream the runs of items.  These nodes change at every fire, but only this stream's readers receive them."""
        return self._changes(self._execution, self._layout.execution)

    @asynccontextmanager
    async def _changes(self, event: Callable[[Tree, E | None], E | None], *roots: str) -> AsyncIterator[Changes[E]]:
        async with mirror(self._session, roots, shallow=set(roots).intersection(self._layout.shallow)) as trees:
            yield Changes(trees, event)

    def _view(self, tree: Tree) -> JobView:
        config = JobConfig(job_name=self._layout.job)
        return JobView(self._layout, tree, config, common=tree, time=self._session.registry_time)

    def _servers(self, tree: Tree, last: ServersChanged | None) -> ServersChanged | None:
        layout = self._layout
        view = self._view(tree)
        here = dict[str, list[Instance]]()
        for one in view.instances.values():
            here.setdefault(one.ip, []).append(one)
        found = {}
        for ip in sorted({*tree.children(layout.servers), *here}):  # also if its node was removed by hand
            node = tree.get(layout.server(ip))
            there = tuple(sorted(here.get(ip, ()), key=lambda one: one.id))
            host = node.text if node else next((one.host for one in there), "")
            is_paused = view.server_paused_by(ip) is not None
            found[ip] = Server(ip, host, view.is_disabled(ip), is_paused, there)
        before = {} if last is None else last.servers
        then = _instances(before)
        present = _instances(found)
        is_new = last is None or found != before
        return ServersChanged(found, present - then, then - present) if is_new else None

    def _config(self, tree: Tree, last: ConfigChanged | None) -> ConfigChanged | None:
        known = None if last is None or self._layout.config not in tree else last.config  # it goes with its job
        view = read(tree, self._layout, known or JobConfig(job_name=self._layout.job))
        config = known if view.fault else view.config
        then = None if last is None else last.config
        if last is not None and (config, view.fault) == (then, last.fault):
            return None
        names = JobConfig.model_fields if config else ()
        changed = frozenset(name for name in names if then is None or getattr(then, name) != getattr(config, name))
        return ConfigChanged(config, changed, view.fault)

    def _leader(self, tree: Tree, last: LeaderChanged | None) -> LeaderChanged | None:
        view = self._view(tree)
        now = LeaderChanged(view.leader, view.epoch)
        return None if now == last else now

    def _execution(self, tree: Tree, last: ExecutionChanged | None) -> ExecutionChanged | None:
        found = dict[int, ItemExecution]()
        before = {} if last is None else last.items
        for item in sorted(items_named(tree.children(self._layout.execution))):
            paths = self._layout.item(item)
            node = tree.get(paths.execution)
            running = tree.get(paths.running)
            record = None if node is None else records.decode(node.data)
            runner = None if running is None else running.text
            found[item] = ItemExecution(record, runner, misfired=record is not None and bool(record.owing))
        changed = frozenset(item for item in {*before, *found} if before.get(item) != found.get(item))
        return ExecutionChanged(found, changed) if changed or last is None else None


def _instances(servers: Mapping[str, Server]) -> frozenset[str]:
    return frozenset(one.id for server in servers.values() for one in server.instances)
