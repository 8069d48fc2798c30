"""A session on the bare tree: what ``Session`` promises, without a wire.

Every request takes a while to arrive and a while to be answered, in the order in which they were sent; in between
anything may happen.  Reads come from a server that may lag behind, but never behind what this session has seen, as
ZooKeeper promises.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from random import Random
from typing import Generic, TypeVar, cast

from aioelasticjob.errors import Conflict, NodeMissing, OutcomeUnknown, SessionEnded, Suspended
from aioelasticjob.ground.latest import Latest
from aioelasticjob.host.guard import Start
from aioelasticjob.model import ClockReading
from aioelasticjob.registry.codec import CHILDREN, Codec
from aioelasticjob.registry.lease import Cancellable
from aioelasticjob.registry.session import Session, SessionState, SessionStatus
from aioelasticjob.registry.settings import MAX_REQUEST
from aioelasticjob.registry.transaction import Committed, Op
from aioelasticjob.registry.tree import Node, Stat, Tree
from aioelasticjob.registry.watches import Roots, Watcher, Watches
from tests.simulation.bare.registry import BareRegistry
from tests.simulation.bare.server import Connection, Past

T = TypeVar("T")

SLOWEST = 0.1
"""Seconds that a request or an answer is on its way at most."""


@dataclass(frozen=True, slots=True)
class BareTenure:
    """For how long nobody else gets the items claimed under a session: here instances that wait find out otherwise."""

    incarnation: int
    left: float = inf
    margin: float = 0.0

    def starting(self) -> AbstractAsyncContextManager[Start]:
        """Fail: the handlers of this simulation start no processes."""
        raise AssertionError("no process is started here")

    def watching(self, group: int) -> AbstractAsyncContextManager[None]:
        """Fail: the handlers of this simulation start no processes."""
        raise AssertionError(f"no process is started here, so there is no group {group}")


class _Lost(Exception):
    """The connection broke before the answer."""


@dataclass(eq=False, slots=True)
class _Request(Generic[T]):
    """A request under way; ``act`` is what the registry does with it."""

    act: Callable[[], T]
    answer: asyncio.Future[T]
    write: bool
    arrived: bool = False


class BareSession(Session):
    """What ``Session`` promises, on the bare tree; a process has one, over all its incarnations.

    It takes from the package's session what that makes of single requests: ``subtree``, ``wait_deleted`` and more.
    """

    clock_skew: float | None = 0.0
    timeout = margin = 10.0
    host = "10.0.0.1"
    zxid = 0
    max_request = MAX_REQUEST
    _codec = Codec("", private=False)

    def __init__(self, registry: BareRegistry, past: Past, dice: Random, incarnation: int) -> None:
        self.status = Latest(SessionStatus(SessionState.CONNECTED, incarnation))
        self.over = False
        """Whether the registry has ended the session."""
        self.late = False
        """Whether nobody can prove that the session lives, for the connection is away for too long."""
        self.calm = False
        """Whether the network is fast."""
        self._registry, self._past, self._dice = registry, past, dice
        self._flying: list[_Request[object]] = []
        self._bound: dict[Cancellable, None] = {}
        self._outages: deque[tuple[float, float]] = deque(maxlen=32)
        self._away_since: float | None = None
        self._sleeps = False
        self._unheard_since: float | None = None
        """Since when nothing is known of the registry, because the process has slept."""
        self._watches = Watches()
        self._connection = self._connect()
        registry.observers.append(lambda _session, _before: self._connection.hear())

    @property
    def incarnation(self) -> int:
        """The present session's id."""
        return self.status.value.incarnation

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection."""
        return self.status.value.state is SessionState.CONNECTED

    def is_proven(self) -> bool:
        """Say whether the session is known to live: its process knows of its end before the registry does."""
        return not (self.over or self.late)

    def run_lease(self, incarnation: int) -> BareTenure:  # type: ignore[override]
        """Return under which session what was claimed is nobody else's."""
        return BareTenure(incarnation)

    def steady_time(self) -> float:
        """Return the time that no step of a clock changes."""
        return self._registry.now

    # What befalls it.

    def fall_asleep(self) -> None:
        """Note that the process sleeps: it asks nothing, and sees no answer."""
        self._sleeps = True
        if self._unheard_since is None:
            self._unheard_since = self._registry.now

    def wake(self) -> None:
        """Note that the process runs again: it hears of what has happened before its next heartbeat is answered."""
        self._sleeps = False
        connection = self._connection

        def heard() -> None:
            if not self._sleeps:
                self._unheard_since = None

        def answer() -> None:
            connection.sync()
            connection.replies.send(heard)

        connection.requests.send(answer)

    def cut(self) -> None:
        """Break the connection; what is under way may have arrived, or not."""
        if not self.is_connected:
            return
        self._away_since = self._registry.now
        self._connection.close()
        for request in self._flying:
            if request.write and not request.arrived and not self.over and self._dice.random() < 0.5:
                with suppress(Conflict):
                    request.act()
            if not request.answer.done():
                request.answer.set_exception(_Lost())
        self._flying.clear()
        self.status.set(SessionStatus(SessionState.SUSPENDED, self.incarnation))

    def lose_proof(self) -> None:
        """Be cut off for so long that handlers are cancelled."""
        self.late = True
        self._cancel_bound()

    def expire(self) -> None:
        """Let the registry end the session; the process hears of it when it is connected again."""
        self.cut()
        self.over = True
        self._cancel_bound()
        self._registry.expire(self.incarnation)

    def mend(self, fresh: int) -> None:
        """Connect again: with the same session if it lives, else with a ``fresh`` one."""
        self.late = False
        incarnation, self.over = (fresh, False) if self.over else (self.incarnation, False)
        if self._away_since is not None:
            self._outages.append((self._away_since, self._registry.now))
            self._away_since = None
        self._connection = self._connect()
        self._unheard_since = None
        self._ask(self._watches.roots)
        self.status.set(SessionStatus(SessionState.CONNECTED, incarnation))
        self._watches.reset()

    def _connect(self) -> Connection:
        return Connection(self._past, self.zxid, self._watches, self._dice, self._takes)

    def _cancel_bound(self) -> None:
        loop, bound = asyncio.get_running_loop(), tuple(self._bound)
        self._bound.clear()
        for scope in bound:
            loop.call_soon(scope.cancel)

    # What the package calls.

    def watch(self, roots: Roots, watcher: Watcher) -> None:
        """Tell a watcher of what happens at and below ``roots``."""
        self._ask(self._watches.add(roots, watcher))

    def unwatch(self, roots: Iterable[str], watcher: Watcher) -> None:
        """Tell a watcher no more."""
        self._ask(self._watches.remove(roots, watcher))

    def _ask(self, roots: Sequence[str]) -> None:
        """Ask the server for the watches that some roots need."""
        if roots:
            self._connection.watch({root: self._watches.shallow(root) for root in roots})

    def bind(self, scope: Cancellable, incarnation: int) -> None:
        """Cancel a scope when the session cannot be proven alive any more, until it is unbound."""
        if incarnation != self.incarnation or not self.is_proven():
            scope.cancel()
        else:
            self._bound[scope] = None

    def unbind(self, scope: Cancellable) -> None:
        """Let a scope go."""
        self._bound.pop(scope, None)

    async def connected(self) -> None:
        """Wait for a connection."""
        await self.status.until(lambda now: now.state is SessionState.CONNECTED)

    def commit(self, ops: Sequence[Op], *, incarnation: int) -> asyncio.Future[Committed]:
        """Write all of ``ops`` or none, under the session ``incarnation`` or not at all."""
        return asyncio.get_running_loop().create_task(self._commit(ops, incarnation))

    async def _commit(self, ops: Sequence[Op], incarnation: int) -> Committed:
        session = self.admit(incarnation)
        try:
            return await self._send(lambda: self._apply(ops, session), write=True)
        except _Lost:
            raise OutcomeUnknown("the connection broke before the reply") from None

    def admit(self, incarnation: int) -> int:
        """Return the session to write under, or refuse."""
        if incarnation != self.incarnation:
            raise SessionEnded("the session is over; nothing was written")
        if not self.is_connected:
            raise Suspended("no connection; nothing was written")
        return incarnation

    async def exists(self, path: str) -> Stat | None:
        """Read a node's Stat."""
        node = (await self._read()).get(path)
        return None if node is None else node.stat

    async def children(self, path: str) -> tuple[str, ...]:
        """Read the names below a node, sorted."""
        (names,) = await self.children_many([path])
        if names is None:
            raise NodeMissing(path)
        return names

    async def sync(self) -> None:
        """Catch up with everything committed before."""
        await self._read(Connection.sync)

    def read_clocks(self) -> ClockReading:
        """Read the clocks; here all of them agree."""
        now = self._registry.now
        going_on = () if self._away_since is None else ((self._away_since, now),)
        ages = tuple((now - began, now - ended) for began, ended in (*self._outages, *going_on))
        unheard = 0.0 if self._unheard_since is None else now - self._unheard_since
        return ClockReading(now, now, outages=ages, zxid=self.zxid, unheard=unheard)

    async def server_time(self, _path: str) -> float:
        """Return the registry's time."""
        await self._read()
        return self._registry.now

    def pause_after(self, failures: int) -> float:
        """Return the seconds for which others go first before something is tried again."""
        return float(0.05 * min(2**failures, 16))

    async def back_off(self, failures: int) -> None:
        """Let others go first before something is tried again."""
        await asyncio.sleep(self.pause_after(failures))

    async def _many(
        self, paths: Sequence[str], kinds: Callable[[str], Sequence[int]], *, large: bool = False
    ) -> list[Node | list[str] | None]:
        tree, found = await self._read(), list[Node | list[str] | None]()
        for path in paths:
            for kind in kinds(path):
                found.append(list(tree.children(path)) if kind == CHILDREN and path in tree else tree.get(path))
        return found

    async def _read(self, read: Callable[[Connection], Tree] = Connection.read) -> Tree:
        """Wait for a connection, not for ever, and return the nodes as our server has them."""
        while True:
            if not self.is_connected and self._dice.random() < 0.3:
                raise Suspended("no connection, after some retries")
            await self.connected()
            with suppress(_Lost):
                return await self._send(lambda: read(self._connection), write=False)

    async def _send(self, act: Callable[[], T], *, write: bool) -> T:
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        request = _Request(act, answer, write)
        self._flying.append(cast(_Request[object], request))
        self._connection.requests.send(partial(self._arrive, request))
        return await answer

    def _arrive(self, request: _Request[T]) -> None:
        request.arrived = True
        error: Exception | None = None
        try:
            found = request.act()
        except (Conflict, SessionEnded) as refused:
            error = refused
        if request.write:
            self._connection.sync()  # a server answers a write when it has made it itself

        def answer() -> None:
            self._flying.remove(cast(_Request[object], request))
            self.zxid = max(self.zxid, zxid)
            if request.answer.done():  # the caller has been cancelled
                return
            if error is None:
                request.answer.set_result(found)
            else:
                request.answer.set_exception(error)

        zxid = self._registry.zxid if request.write else self._connection.zxid
        self._connection.replies.send(answer)

    def _apply(self, ops: Sequence[Op], session: int) -> Committed:
        if self.over:
            raise SessionEnded("the registry has ended the session; nothing was written")
        return self._registry.commit(ops, session)

    def _takes(self) -> float:
        """Return how long something is on its way: mostly not long."""
        return SLOWEST * (0.02 if self.calm else float(self._dice.random() ** 3))
