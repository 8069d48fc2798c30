"""Session: the registry as the rest of the package sees it: reads, transactions, deadlines, and connection state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from random import Random

import anyio

from aioelasticjob.clock import Clock, SystemClock
from aioelasticjob.errors import (
    AuthenticationFailed,
    Conflict,
    OutcomeUnknown,
    Overloaded,
    RegistryError,
    RegistryUnreachable,
    SessionEnded,
    Suspended,
)
from aioelasticjob.ground.latest import Latest
from aioelasticjob.host.event_loop import require_asyncio
from aioelasticjob.model import ClockReading
from aioelasticjob.registry import codec as wire
from aioelasticjob.registry.access import read_access
from aioelasticjob.registry.beside import beside
from aioelasticjob.registry.client import Client
from aioelasticjob.registry.codec import Codec
from aioelasticjob.registry.deletion import DeletionWatcher
from aioelasticjob.registry.lease import Cancellable, SessionRunLease
from aioelasticjob.registry.session_keeper import SessionKeeper, SessionState, SessionStatus
from aioelasticjob.registry.settings import ConnectionSettings
from aioelasticjob.registry.transaction import Committed, Create, Op, Set
from aioelasticjob.registry.tree import UNREAD_NODE, Node, Stat, Tree, parent, prefix_below
from aioelasticjob.registry.watches import Roots, Watcher

__all__ = ["ConnectionSettings", "Session", "SessionState", "SessionStatus", "beside", "open_session"]

ATTEMPTS = 5
"""How often a node is made again that somebody removes again and again."""


class Session:
    """One session with the registry after another.  Paths begin with ``/``, the root of the namespace.

    If the connection is lost, a read waits for a short while, then raises Suspended.  A write is never repeated, and is
    bound to the session (``incarnation``) under which it was decided: the registry refuses it under a later one.
    """

    def __init__(self, client: Client, codec: Codec) -> None:
        self.settings = client.settings
        self._client = client
        self._keeper = client.keeper
        self._codec = codec
        self.status: Latest[SessionStatus] = client.keeper.status
        """The session's state, and the incarnation that it is the state of."""
        self.is_proven: Callable[[], bool] = client.keeper.lease.check
        """Returns whether the session is proven alive now; if not, cancels its work and connects again."""
        self.steady_time: Callable[[], float] = client.keeper.lease.now
        """Returns the seconds of a clock that nobody can set and that goes on while the machine is suspended."""
        self.read_clocks: Callable[[], ClockReading] = client.read_clocks

    @property
    def incarnation(self) -> int:
        """ZooKeeper's id of the current or last session."""
        return self._keeper.status.value.incarnation

    @property
    def reason(self) -> str:
        """Why there is no connection, or why the last one that was lost has ended."""
        return self._keeper.reason

    @property
    def timeout(self) -> float:
        """The session timeout the registry granted, in seconds."""
        return self._keeper.lease.timeout

    @property
    def host(self) -> str:
        """Our own address as seen on the connection, or on the last one."""
        return self._keeper.host

    @property
    def zxid(self) -> int:
        """The newest transaction seen in a reply: watchers have been told of all changes up to it."""
        return self._keeper.lease.zxid

    @property
    def requests(self) -> int:
        """How many requests were sent so far, over all sessions, heartbeats among them."""
        return self._keeper.lease.requests

    @property
    def margin(self) -> float:
        """Seconds until work is cancelled unless the registry answers; below 0 there is no session to work under."""
        return self._keeper.lease.left

    def run_lease(self, incarnation: int) -> SessionRunLease:
        """Return for how long no other instance can claim what was claimed under the session ``incarnation``."""
        return SessionRunLease(self._keeper.lease, incarnation)

    @property
    def clock_skew(self) -> float | None:
        """Our clock minus the registry's in seconds, as of the newest transaction that set a node; None before that."""
        return self._client.skew

    @property
    def registry_time(self) -> float:
        """The registry's time in seconds since the epoch; this host's before anything has shown the registry's."""
        return self._client.clock.now() - (self._client.skew or 0.0)

    async def get(self, path: str) -> Node:
        """Read a node.

        Raises: NodeMissing, NotPermitted, Suspended.
        """
        frame = await self._one(wire.GET, path)
        node, _ = wire.node(frame)
        return node

    async def exists(self, path: str) -> Stat | None:
        """Read a node's Stat; None if there is no such node.

        Raises: Suspended; since ZooKeeper 3.9 also NotPermitted.
        """
        error, _, frame = await self._client.read(wire.EXISTS, self._codec.watching(path))
        if error == wire.MISSING:
            return None
        if error:
            raise wire.failure(error, path)
        return wire.stat(frame)

    async def children(self, path: str) -> tuple[str, ...]:
        """Read the names below a node, sorted.

        Raises: NodeMissing, NotPermitted, Suspended.
        """
        frame = await self._one(wire.CHILDREN, path)
        names, _ = wire.names(frame)
        return tuple(sorted(names))

    def is_one_request(self, paths: Collection[str], *, large: bool = False) -> bool:
        """Whether these nodes are read in one request, so that they are shown as they were at one moment.

        A ``large`` request may be as large as the servers allow.
        """
        return len(self._chunks(tuple(paths), large=large)) < 2

    async def children_many(self, paths: Sequence[str]) -> list[tuple[str, ...] | None]:
        """Read the names below many nodes in few requests, in the order asked for; None where there is no node.

        Raises: NotPermitted, Suspended.
        """
        found = list[tuple[str, ...] | None]()
        for names in await self._many(paths, lambda _: (wire.CHILDREN,)):
            if isinstance(names, list):
                found.append(tuple(sorted(names)))
            else:
                found.append(None)
        return found

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Read many nodes in few requests, in the order asked for; None where there is none.

        Raises: NotPermitted, Suspended.
        """
        answers = await self._many(paths, lambda _: (wire.GET,))
        return [node for node in answers if not isinstance(node, list)]

    async def subtree(self, roots: Sequence[str], shallow: Sequence[str] = ()) -> Tree:
        """Read nodes and everything below them, level by level; roots that do not exist are absent.

        Below a ``shallow`` root, the tree only names the children (UNREAD_NODE).

        Raises: NotPermitted, Suspended.
        """
        zxid = self.zxid
        found = dict[str, Node]()
        level = list(dict.fromkeys((*roots, *shallow)))
        while level:
            below = list[str]()
            unread = list[str]()
            answers = await self.list_many(level)
            for path, (node, names) in answers.items():
                if node is not None:
                    found[path] = node
                prefix = prefix_below(path)
                children = [prefix + name for name in names]
                if path in shallow:
                    unread += children
                else:
                    below += children
            level = [path for path in below if path not in found]
            for path in unread:
                found.setdefault(path, UNREAD_NODE)
        return Tree(found, zxid)

    async def list_many(
        self, paths: Sequence[str], listed: Collection[str] | None = None, *, large: bool = False
    ) -> dict[str, tuple[Node | None, Sequence[str]]]:
        """Read many nodes, each in one request with the names below it; ``listed`` limits this to some of the nodes.

        Raises: NotPermitted, Suspended.
        """

        def is_listed(path: str) -> bool:
            return listed is None or path in listed

        def kinds(path: str) -> Sequence[int]:
            return (wire.GET, wire.CHILDREN) if is_listed(path) else (wire.GET,)

        answers = iter(await self._many(paths, kinds, large=large))
        found = dict[str, tuple[Node | None, Sequence[str]]]()
        for path in paths:
            node = next(answers)
            names = next(answers) if is_listed(path) else None
            # both are None where there is no node
            found[path] = (
                node if isinstance(node, Node) else None,
                names if isinstance(names, list) else (),
            )
        return found

    async def sync(self) -> None:
        """Wait until our server knows every transaction that was committed before this call.

        Raises: Suspended.
        """
        await self._one(wire.SYNC, "/")

    async def wait_deleted(self, path: str) -> None:
        """Wait until the node that exists now has been deleted; the wait goes on over lost connections and sessions."""
        gone = DeletionWatcher(path)
        with self.watching((path,), gone):
            czxid = None
            while not gone.deleted:
                gone.news.clear()
                try:
                    stat = await self.exists(path)
                except Suspended:
                    await self.connected()
                    continue
                if stat is None or czxid not in (None, stat.czxid):  # made again while we were away
                    return
                czxid = stat.czxid
                await gone.news.wait()

    @contextmanager
    def watching(self, roots: Sequence[str], watcher: Watcher) -> Iterator[None]:
        """Tell ``watcher`` of all changes at and below ``roots`` while the block runs; the roots need not exist.

        The watch precedes any read inside.
        """
        self.watch(dict.fromkeys(roots, False), watcher)
        try:
            yield
        finally:
            self.unwatch(roots, watcher)

    def watch(self, roots: Roots, watcher: Watcher) -> None:
        """Do as ``watching`` does, until ``unwatch`` is called.

        Below a root for which a shallow watch is enough, only children that come or go are needed.
        """
        self._keeper.watch(roots, watcher)

    def unwatch(self, roots: Iterable[str], watcher: Watcher) -> None:
        """Tell ``watcher`` no more of what happens at and below ``roots``."""
        self._keeper.unwatch(roots, watcher)

    def bind(self, scope: Cancellable, incarnation: int) -> None:
        """Cancel a scope before the registry can have ended the session given; at once if that is over."""
        self._keeper.lease.bind(scope, incarnation)

    def unbind(self, scope: Cancellable) -> None:
        """End what ``bind`` began: the scope has no deadline any more."""
        self._keeper.lease.unbind(scope)

    @property
    def max_request(self) -> int:
        """The largest request that may be sent, in bytes: by the settings, or less if the servers refuse that."""
        return self._keeper.request_limit.bytes

    def is_small_enough(self, ops: Sequence[Op]) -> bool:
        """Whether a transaction is not larger than ``max_request``."""
        return len(self._codec.multi(ops)) <= self.max_request

    def commit(self, ops: Sequence[Op], *, incarnation: int) -> asyncio.Future[Committed]:
        """Write all of ``ops`` or none of them, and only under the session ``incarnation``.

        Raises: Conflict, SessionEnded, Suspended, OutcomeUnknown, NodeTooLarge, NotPermitted.
        """
        return self._client.write(ops, incarnation, self._codec)

    async def server_time(self, path: str) -> float:
        """Touch a node and return its mtime: the registry's clock, in seconds since the epoch.

        Raises: SessionEnded, Suspended, OutcomeUnknown, NotPermitted; RegistryError if the node cannot be made.
        """
        touch = Set(path, b"", -1)
        for _ in range(ATTEMPTS):
            try:
                committed = await self._client.write([touch], self.incarnation, self._codec)
                return committed.time
            except Conflict:
                await _make(self._client, self._codec, path)
        raise RegistryError(f"{path} could not be made within {ATTEMPTS} attempts: something keeps removing it")

    async def create_namespace(self) -> None:
        """Create the namespace, also again in a registry that has come back without its data.

        Raises: SessionEnded, Suspended, OutcomeUnknown, NotPermitted; RegistryError if the node cannot be made.
        """
        whole_registry = Codec("", private=self.settings.authenticated)
        await _make(self._client, whole_registry, self._codec.absolute("/"))

    def pause_after(self, failures: int) -> float:
        """Return how many seconds to wait before a refused request is tried again; it grows with the ``failures``."""
        return self._keeper.backoff.before_reading(failures)

    async def back_off(self, failures: int) -> None:
        """Wait before a refused request is tried again."""
        await anyio.sleep(self.pause_after(failures))

    async def connected(self) -> None:
        """Wait for a connection.

        Raises: SessionEnded when the session was closed.
        """
        await self._client.connected()

    async def _one(self, opcode: int, path: str) -> bytes:
        if opcode == wire.SYNC:
            body = self._codec.path(path)
        else:
            body = self._codec.watching(path)
        error, _, frame = await self._client.read(opcode, body)
        if error:
            raise wire.failure(error, path)
        return frame

    async def _many(
        self, paths: Sequence[str], kinds: Callable[[str], Sequence[int]], *, large: bool = False
    ) -> list[Node | list[str] | None]:
        """Read every path once for each of its ``kinds``; the answers are in that order."""
        asked = list[list[tuple[int, str]]]()  # the reads of each request

        def requests() -> list[bytes]:
            asked.clear()  # the requests that were rendered before may have been too large
            for chunk in self._chunks(paths, large=large):
                reads = [(kind, path) for path in chunk for kind in kinds(path)]
                asked.append(reads)
            return [self._codec.multi_read(reads) for reads in asked]

        replies = await self._client.read_all(wire.MULTI_READ, requests)
        found: list[Node | list[str] | None] = []
        for (error, _, frame), reads in zip(replies, asked, strict=True):
            if error:
                raise wire.failure(error, reads[0][1])
            found += wire.nodes_and_names(frame, [path for _, path in reads])
        return found

    def _chunks(self, paths: Sequence[str], *, large: bool = False) -> list[Sequence[str]]:
        """Split paths into those that one request reads; it may ask twice for each: for the data and for the names."""
        most = self.max_request // 2
        if not large:
            most = min(wire.CHUNK, most)
        return wire.chunked(paths, most, len(self._codec.root))


@asynccontextmanager
async def open_session(
    settings: ConnectionSettings,
    *,
    clock: Clock | None = None,
    seed: int | None = None,
    ensure_server: Callable[[], Awaitable[str]] | None = None,
    creates: bool = True,
    tells_of_waiting: bool = True,
) -> AsyncIterator[Session]:
    """Connect, create the namespace if it is missing, and stay connected; ``seed`` makes random choices repeatable.

    ``ensure_server`` is called whenever no server could be reached; it may start one, and returns why it could not, or
    an empty text.  A session that does not create the namespace finds nothing if it is missing.  ``tells_of_waiting``
    says whether the log has after a while what is waited for.

    Raises: RegistryUnreachable, TlsFailed, AuthenticationFailed, NotPermitted, InvalidSetting.
    """
    require_asyncio()
    clock = clock or SystemClock()
    await read_access(settings, clock.now())  # a file that cannot be used is an error at once
    codec = Codec(settings.namespace, private=settings.authenticated)
    keeper = SessionKeeper(settings, codec, Random(seed), clock, ensure_server)
    session = Session(Client(settings, keeper, clock), codec)
    try:
        async with beside(keeper.keep):
            with anyio.move_on_after(settings.connection_timeout) as waiting:
                if tells_of_waiting:
                    await session._client.first_connection()
                else:
                    await session._client.connected()
                await _check_namespace(session, creates=creates)
            if waiting.cancelled_caught:
                seconds = settings.connection_timeout
                is_slow = keeper.status.value.state is SessionState.CONNECTED
                unreachable = RegistryUnreachable(settings.servers, seconds, keeper.reason, is_slow=is_slow)
                raise keeper.failure or unreachable
            yield session
    finally:
        await keeper.close()


async def _check_namespace(session: Session, *, creates: bool) -> None:
    """Check that our credentials may read the namespace, and create it if it is missing."""
    client = session._client
    codec = session._codec
    settings = session.settings
    while True:
        await client.connected()
        try:
            error, _, _ = await client.read(wire.GET, codec.watching("/"))
            if error == wire.FORBIDDEN and settings.authenticated:
                who = "digest" if settings.sasl is None and settings.sasl_file is None else "SASL user"
                raise AuthenticationFailed(f"the {who} does not open /{settings.namespace}: check user and password")
            if error != wire.MISSING or not creates:
                break
            await session.create_namespace()
        except (Suspended, OutcomeUnknown, SessionEnded):  # no work depends on it yet: try again
            continue
        except Overloaded:
            await session.back_off(0)
    if error not in (0, wire.MISSING):
        raise wire.failure(error, codec.absolute("/"))


async def _make(client: Client, codec: Codec, path: str) -> None:
    """Create only the missing levels of ``path``: creating all of them would need rights on levels that exist."""
    missing: list[str] = []
    while path != "/":
        error, _, _ = await client.read(wire.EXISTS, codec.watching(path))
        if error != wire.MISSING:
            break
        missing.append(path)
        path = parent(path)
    for level in reversed(missing):
        try:
            await client.write([Create(level)], client.keeper.lease.incarnation, codec)
        except Conflict as conflict:  # mostly, somebody else was faster
            if conflict.reason == "no ephemeral children":
                why = f"{parent(level)} is ephemeral, so nothing can be below it until it is removed"
                raise RegistryError(f"{level} cannot be made: {why}") from conflict
