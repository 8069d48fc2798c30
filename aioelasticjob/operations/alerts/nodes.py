"""Where the states of alerts are kept: in nodes of the registry, which several commands share, or in a file of one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from aioelasticjob.core.layout import ALERTS, child
from aioelasticjob.errors import Conflict, InvalidSetting, OutcomeUnknown, SessionEnded, Suspended
from aioelasticjob.logging import logger
from aioelasticjob.operations.alerts.state import AlertKey, AlertState, decode, encode
from aioelasticjob.registry.mirror import follow_value
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.transaction import Create, Delete, Op, Set
from aioelasticjob.registry.tree import Tree

log = logger(__name__)

NOT_WRITTEN = (Conflict, SessionEnded, Suspended, OutcomeUnknown)
"""What happens to a write if another command was faster, or the registry is away: the states are read again."""
TOGETHER = 100
"""So many states are written in one transaction."""


class AlertStore(Protocol):
    """Keeps the states of alerts."""

    @property
    def states(self) -> Mapping[AlertKey, AlertState]:
        """The states as they were read or written last."""
        ...

    async def write(self, changes: Mapping[AlertKey, AlertState | None]) -> bool:
        """Write states, or remove them; return whether that was done.  If not, the states are to be read again."""
        ...


async def alerts(session: Session) -> tuple[AlertState, ...]:
    """Read the alerts of a namespace: those that fire, and those of the last day that are over.

    Raises:
        RegistryError: the registry could not be read.
    """
    await session.sync()
    return _alerts_in(await session.subtree([ALERTS]))


@asynccontextmanager
async def watch_alerts(session: Session) -> AsyncIterator[AsyncIterator[tuple[AlertState, ...]]]:
    """Follow the alerts of a namespace: the iterator gives the present ones, then newer states.

    Raises:
        RegistryError: the registry may not be read, or the session is closed.
    """
    async with follow_value(session, ALERTS, _alerts_in) as states:
        yield states


def _alerts_in(tree: Tree) -> tuple[AlertState, ...]:
    """Return the alerts of a namespace; nodes that somebody has made by hand are left out."""
    found = list[AlertState]()
    for name in tree.children(ALERTS):
        node = tree.get(child(ALERTS, name))
        state = None if node is None else decode(node.data)
        if state is not None and state.key.name == name:
            found.append(state)
    return tuple(found)


class AlertNodes:
    """The alerts of a namespace, in the registry.  A node that somebody has made by hand is replaced if need be."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._versions: dict[str, int] = {}
        """By the names of the nodes that are there."""
        self._has_parent = False
        self.states: dict[AlertKey, AlertState] = {}

    async def read(self) -> None:
        """Read all states.

        Raises:
            RegistryError: the registry could not be read.
        """
        await self._session.sync()
        tree = await self._session.subtree([ALERTS])
        self._has_parent = ALERTS in tree
        nodes = {name: tree.get(child(ALERTS, name)) for name in tree.children(ALERTS)}
        self._versions = {name: node.stat.version for name, node in nodes.items() if node is not None}
        self.states = {state.key: state for state in _alerts_in(tree)}

    async def write(self, changes: Mapping[AlertKey, AlertState | None]) -> bool:
        """Write states by the versions that were read; return whether all were written."""
        operations = [self._operation(key, state) for key, state in changes.items()]
        above: list[Op] = [] if self._has_parent else [Create(ALERTS)]
        try:
            done = await self._session.commit([*above, *operations], incarnation=self._session.incarnation)
        except NOT_WRITTEN:
            return False
        self._has_parent = True
        for (key, state), version in zip(changes.items(), done.versions[len(above) :], strict=True):
            if state is None:
                self._versions.pop(key.name, None)
                self.states.pop(key, None)
            else:
                self._versions[key.name] = version
                self.states[key] = state
        return True

    def _operation(self, key: AlertKey, state: AlertState | None) -> Op:
        path = child(ALERTS, key.name)
        version = self._versions.get(key.name)
        if state is None:
            return Delete(path, -1 if version is None else version)
        return Create(path, encode(state)) if version is None else Set(path, encode(state), version)


class AlertFile:
    """The one alert that a command alone can see, in a file: a registry that is away cannot hold its own alert."""

    def __init__(self, path: Path | None) -> None:
        """Read the file; without a path the alert is forgotten when the command ends.

        Raises:
            InvalidSetting: the file cannot be read or written.
        """
        self._path = path
        self.states: dict[AlertKey, AlertState] = {}
        if path is None:
            return
        try:
            if path.exists():
                state = decode(path.read_bytes())
                if state is not None:
                    self.states[state.key] = state
            self._keep(path)
        except OSError as error:
            raise InvalidSetting("state_file", str(path), f"cannot be read and written: {error}") from error

    async def write(self, changes: Mapping[AlertKey, AlertState | None]) -> bool:
        """Write the alert; if the disk is full, say so and go on without the file."""
        for key, state in changes.items():
            if state is None:
                self.states.pop(key, None)
            else:
                self.states[key] = state
        if self._path is not None:
            try:
                self._keep(self._path)
            except OSError as error:
                text = (
                    "%s cannot be written, so a new start of this command will not know that the registry is away: %s"
                )
                log.warning(text, self._path, error, extra={"reason": str(error)})
        return True

    def _keep(self, path: Path) -> None:
        """Write all of the file beside it, and put it in its place."""
        beside = path.with_name(f"{path.name}.new")
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(b"".join(map(encode, self.states.values())))
        beside.replace(path)
