"""A session on the bare tree, and the steps that a seed plays: coroutines without a loop.

Every request takes a step to arrive and one to be answered; in between anything may happen.  Reads come from a
server that may lag behind, but never behind what this session has seen, as ZooKeeper promises.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from types import coroutine
from typing import TypeAlias, cast

from aioelasticjob.errors import Conflict, NodeMissing, OutcomeUnknown, SessionEnded, Suspended
from aioelasticjob.registry.session import Session, SessionState
from aioelasticjob.registry.tree import Node, Stat
from aioelasticjob.registry.txn import Committed, Hold, Op
from tests.simulation.bare.registry import BareRegistry, Before

Ready: TypeAlias = Callable[[], bool]
Play: TypeAlias = Coroutine[Ready, None, object]

LAG = 6
"""Transactions by which a server that is read from may lag behind."""


def always() -> bool:
    """Be ready at once."""
    return True


@coroutine
def until(ready: Ready) -> Generator[Ready, None, None]:
    """Wait for as many steps as the seed likes, and until something holds."""
    yield ready


async def step() -> None:
    """Let others go first, if the seed likes."""
    await until(always)


@dataclass(eq=False, slots=True)
class Task:
    """A coroutine that is stepped by hand; ``owner`` is whose it is."""

    owner: object
    body: Play
    ready: Ready = always
    over: bool = False

    def step(self) -> None:
        """Go on to the next place where others may come first."""
        try:
            self.ready = self.body.send(None)
        except StopIteration:
            self.over = True

    def stop(self) -> None:
        """End it where it stands, as a process that is killed."""
        self.over = True
        self.body.close()


def play(body: Play, steps: int = 10_000) -> object:
    """Step a coroutine to its end, alone, and return what it returns; what waits must be ready by itself."""
    ready: Ready = always
    for _ in range(steps):
        assert ready(), "it waits for something that nobody will do"
        try:
            ready = body.send(None)
        except StopIteration as end:
            return cast(object, end.value)
    raise AssertionError(f"not over after {steps} steps")


class Past:
    """The last few states of the registry, for servers that lag behind."""

    def __init__(self, registry: BareRegistry) -> None:
        self._registry = registry
        self._states: deque[tuple[int, dict[str, Node]]] = deque(maxlen=LAG)
        registry.observers.append(self._keep)

    def choose(self, seen: int, dice: Random) -> tuple[int, dict[str, Node]]:
        """Return one of the states at or after ``seen``, mostly the newest."""
        newest = (self._registry.zxid, self._registry.nodes)
        if dice.random() < 0.7:
            return newest
        return dice.choice([newest, *(state for state in self._states if state[0] >= seen)])

    def _keep(self, _session: int, _before: Before) -> None:
        self._states.append((self._registry.zxid, dict(self._registry.nodes)))


@dataclass(frozen=True, slots=True)
class BareStatus:
    """How things stand, for those who wait on it."""

    session: BareSession

    @property
    def state(self) -> SessionState:
        """Connected or not."""
        return SessionState.CONNECTED if self.session.connected else SessionState.SUSPENDED

    @property
    def incarnation(self) -> int:
        """The present session's id."""
        return self.session.incarnation

    @property
    def value(self) -> BareStatus:
        """The status now."""
        return self

    async def until(self, holds: Callable[[BareStatus], bool]) -> BareStatus:
        """Wait for a status that satisfies ``holds``."""
        if not holds(self):
            await until(lambda: holds(self))
        return self


@dataclass(eq=False, slots=True)
class _Request:
    ops: Sequence[Op]
    incarnation: int
    lost: bool = False


class BareSession:
    """What ``Session`` promises, on the bare tree; a process has one, over all its incarnations."""

    clock_skew = clock_gap = 0.0

    def __init__(self, registry: BareRegistry, past: Past, dice: Random, incarnation: int) -> None:
        self.incarnation, self.connected, self.late, self.over = incarnation, True, False, False
        self.zxid = 0
        self._registry, self._past, self._dice = registry, past, dice
        self._connection = 0
        self._flying: list[_Request] = []
        self._withdrawn: Hold | None = None
        self._outages: deque[tuple[float, float]] = deque(maxlen=32)
        self._away_since: float | None = None

    @property
    def outages(self) -> tuple[tuple[float, float], ...]:
        """How many seconds ago each outage began and ended; 0 if it goes on."""
        now = self._registry.now
        going_on = () if self._away_since is None else ((self._away_since, now),)
        return tuple((now - began, now - ended) for began, ended in (*self._outages, *going_on))

    @property
    def status(self) -> BareStatus:
        """The state and the incarnation it is about."""
        return BareStatus(self)

    def is_proven(self) -> bool:
        """Say whether the session is known to live: here whoever waits finds out about it in other ways."""
        return True

    def steady_time(self) -> float:
        """Return the time that no step of a clock changes."""
        return self._registry.now

    def as_session(self) -> Session:
        """Return it as what the house takes it for."""
        return cast(Session, self)

    def cut(self) -> None:
        """Break the connection; what is under way may have arrived, or not."""
        if self._away_since is None:
            self._away_since = self._registry.now
        self.connected, self._connection = False, self._connection + 1
        for request in self._flying:
            request.lost = True
            if self._dice.random() < 0.5 and not self.over:
                try:
                    self._registry.commit(request.ops, request.incarnation)
                except Conflict:
                    continue
        self._flying.clear()

    def expire(self) -> None:
        """Let the registry end the session; the process hears of it when it is connected again."""
        self.cut()
        self.over = True
        self._registry.expire(self.incarnation)

    def mend(self, fresh: int) -> None:
        """Connect again: with the same session if it lives, else with a ``fresh`` one."""
        self.late = False
        if self.over:
            self.incarnation, self.over = fresh, False
        self.connected = True
        if self._away_since is not None:
            self._outages.append((self._away_since, self._registry.now))
            self._away_since = None

    async def commit(self, ops: Sequence[Op], *, incarnation: int, hold: Hold | None = None) -> Committed:
        """Write all of ``ops`` or none, under the session ``incarnation`` or not at all."""
        if hold is not None:
            await until(lambda: self._registry.now >= hold.until or hold is self._withdrawn)
            if hold is self._withdrawn or not hold.stands():
                raise Conflict(-1, ops[0].path, "withdrawn")
        request = _Request(ops, self.admit(incarnation))
        self._flying.append(request)
        await step()
        if request.lost:
            raise OutcomeUnknown("the connection broke before the reply")
        self._flying.remove(request)
        connection, answer = self._connection, self._apply(request)
        if self._dice.random() < 0.5:
            await step()
        if connection != self._connection:
            raise OutcomeUnknown("the connection broke before the reply")
        self.zxid = max(self.zxid, self._registry.zxid if isinstance(answer, Conflict) else answer.zxid)
        if isinstance(answer, Conflict):
            raise answer
        return answer

    def withdraw(self, hold: Hold | None) -> None:
        """Let a transaction on hold be refused now; one that has left is not touched."""
        self._withdrawn = hold

    def admit(self, incarnation: int) -> int:
        """Return the session to write under, or refuse."""
        if incarnation != self.incarnation:
            raise SessionEnded("the session is over; nothing was written")
        if not self.connected:
            raise Suspended("no connection; nothing was written")
        return incarnation

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Read many nodes of one state; None where there is none."""
        nodes = await self._read()
        return [nodes.get(path) for path in paths]

    async def exists(self, path: str) -> Stat | None:
        """Read a node's Stat."""
        node = (await self._read()).get(path)
        return None if node is None else node.stat

    async def children(self, path: str) -> tuple[str, ...]:
        """Read the names below a node, sorted."""
        nodes = await self._read()
        if path not in nodes:
            raise NodeMissing(path)
        return tuple(sorted(other.rpartition("/")[2] for other in nodes if other.rpartition("/")[0] == path))

    async def sync(self, _path: str = "/") -> None:
        """Catch up with everything committed before."""
        await self._read()
        self.zxid = max(self.zxid, self._registry.zxid)

    async def back_off(self, _failures: int) -> None:
        """Let others go first before something is tried again."""
        await step()

    async def wait_deleted(self, path: str) -> None:
        """Wait until the node that is there now is gone.  Outlives connections and sessions."""
        while True:
            with suppress(Suspended):
                if await self.exists(path) is None:
                    return
            seen = self.zxid  # what was read may have been old: then there is news already
            await until(lambda seen=seen: self._registry.zxid > seen)  # type: ignore[misc]

    async def _read(self) -> dict[str, Node]:
        """Wait for a connection, not for ever, and return the nodes as our server has them."""
        while True:
            if not self.connected and self._dice.random() < 0.3:
                raise Suspended("no connection, after some retries")
            await until(lambda: self.connected)
            connection = self._connection
            await step()
            if connection == self._connection:
                self.zxid, nodes = self._past.choose(self.zxid, self._dice)
                return nodes

    def _apply(self, request: _Request) -> Committed | Conflict:
        if self.over:
            raise SessionEnded("the registry has ended the session; nothing was written")
        try:
            return self._registry.commit(request.ops, request.incarnation)
        except Conflict as conflict:
            return conflict
