"""Session keeper: keeps one session alive while connections to servers come and go."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from struct import error as Malformed  # noqa: N812  # a class, whatever its name
from typing import Final

import anyio

from aioelasticjob.errors import AuthenticationFailed
from aioelasticjob.latest import Latest
from aioelasticjob.registry.backoff import Backoff
from aioelasticjob.registry.codec import (
    AUTH,
    CLOSE,
    LOST,
    REWATCH,
    SYNC,
    UNWATCH,
    WATCH,
    Codec,
    Reply,
    attach,
    attached,
    credentials,
    event,
)
from aioelasticjob.registry.connection import Connection
from aioelasticjob.registry.lease import HEARTBEATS_PER_TIMEOUT, Lease
from aioelasticjob.registry.settings import ConnectionSettings
from aioelasticjob.registry.watches import Watcher, Watches

log = logging.getLogger(__name__)

SILENT_PART_OF_TIMEOUT: Final = (
    2  # a server silent for 1/2 of the session timeout, three heartbeats without an answer, is given up
)
CLOSE_TIMEOUT: Final = 2.0  # seconds that the request which ends the session may take
SILENT_REASON: Final = "silent"  # why a connection was given up
MAX_OUTAGES: Final = 32  # outages that are remembered
NO_PASSWORD: Final = bytes(16)  # the password of no session


class SessionState(StrEnum):
    """How things stand between us and the registry."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"  # there is no connection; the session may still be alive
    EXPIRED = "expired"  # the registry has said that the session is over; a new session is being made
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class SessionStatus:
    """A state, and the id of the session it is about: the current or last one, 0 before the first."""

    state: SessionState
    incarnation: int


class SessionKeeper:
    """One session: the server it is connected to, its lease, and its watches.

    Once the session is attached, ``keep`` never waits for a reply: it notices a broken connection by the end of that
    connection.  If it waited for a reply, nobody could end that wait, since only ``keep`` makes new connections.

    It has more than twelve methods: a session has many states, and each change of state is a method.
    """

    def __init__(self, settings: ConnectionSettings, codec: Codec, random: Random) -> None:
        self.settings, self.codec = settings, codec
        self.lease, self.watches, self.backoff = Lease(expired=self._unproven), Watches(), Backoff(settings, random)
        self.status = Latest(SessionStatus(SessionState.SUSPENDED, 0))
        self.connection: Connection | None = None  # set exactly while the state is CONNECTED
        self.host = ""  # our own address
        self.refused: AuthenticationFailed | None = None
        self.reason = "no answer yet"  # why there is no connection
        self.ensure_server: Callable[[], Awaitable[None]] | None = None  # called when no server could be reached
        self._hosts = random.sample(settings.hosts, len(settings.hosts))
        self._password = NO_PASSWORD
        self._loop = asyncio.get_running_loop()
        self.outages: deque[tuple[float, float]] = deque(maxlen=MAX_OUTAGES)  # from when to when, by the loop's clock
        self.away_since: float | None = None  # the outage that goes on

    async def keep(self) -> None:
        """Connect, stay connected, connect again: until cancelled."""
        while True:
            lived = 0.0
            if (connection := await self._anywhere()) is not None:
                begun = self._loop.time()
                await self._attend(connection)
                lived = self._loop.time() - begun
            elif self.ensure_server is not None:
                await self.ensure_server()
            self.backoff.ended(lived)
            urgent = self.lease.now() < self.lease.proven + self.lease.timeout
            await anyio.sleep(self.backoff.before_connecting(urgent=urgent))

    async def close(self) -> None:
        """End the session, and tell the server so if it answers within two seconds.  ``keep`` must have ended."""
        self.lease.close()
        connection, self.connection = self.connection, None
        self.status.set(SessionStatus(SessionState.CLOSED, self.status.value.incarnation))
        self.watches.reset()
        if connection is None:
            return
        with anyio.move_on_after(min(CLOSE_TIMEOUT, self.lease.timeout / 3), shield=True):
            await connection.call(CLOSE, b"")
        connection.abort("closed by us")
        with anyio.move_on_after(CLOSE_TIMEOUT, shield=True):
            await connection.gone.wait()

    def watch(self, root: str, watcher: Watcher, *, shallow: bool = False) -> None:
        """Tell ``watcher`` of every change at ``root`` and below; a shallow watcher only of the names below ``root``.

        Nothing is awaited: the registry answers in order, so every read sent from now on is answered after the watch
        has been set.
        """
        if self.watches.add(root, watcher, shallow=shallow):
            self._ask(root)

    def unwatch(self, root: str, watcher: Watcher) -> None:
        """Tell ``watcher`` no more."""
        if self.watches.remove(root, watcher):
            self._ask(root)

    def _ask(self, root: str) -> None:
        """Ask the registry for the watch that ``root`` now needs; it replaces the watch that was there."""
        if self.connection is None:
            return
        shallow = self.watches.shallow(root)
        if shallow is None:
            self.connection.call(UNWATCH, self.codec.remove_watch(root))
        else:
            self.connection.call(WATCH, self.codec.add_watch(root, shallow=shallow)).add_done_callback(_report)

    async def _anywhere(self) -> Connection | None:
        for host in tuple(self._hosts):
            connection = await self._attach(host)
            if connection is not None:
                return connection
            self._last(host)
        return None

    async def _attach(self, host: tuple[str, int]) -> Connection | None:
        """Try one server; the try is short enough to leave time for another server before the session ends."""
        settings, count = self.settings, len(self._hosts)
        patience = (self.lease.timeout or settings.session_timeout) / (3 if count == 1 else 6)
        patience = min(patience, settings.connection_timeout / (count + 1))
        connection = Connection(self.lease, self._event, self._lost)
        try:
            with anyio.fail_after(patience):
                await self._loop.create_connection(lambda: connection, *host)
                asked, seen, sent = self.lease.incarnation, self._seen(), self.lease.now()
                answer = await connection.greet(attach(asked, self._password, self.settings.session_timeout, seen))
            session, password, timeout = attached(answer)
        except (OSError, Malformed) as error:  # a timeout and the end of a connection are OSErrors
            self.reason = f"no answer within {patience:g} s" if isinstance(error, TimeoutError) else str(error)
            connection.abort(self.reason)
            return None
        except BaseException:
            connection.abort("cancelled")
            raise
        if session and not connection.lost.is_set():
            self.lease.zxid = seen  # a registry whose data was deleted counts its transactions from the beginning
            self.lease.begin(session, timeout, sent)
            self._password = password
            self._last(host)
            self._begin(connection)
            return connection
        connection.abort("refused")
        if session or not asked:
            self.reason = "refused"
            return None
        self._expire()
        return await self._attach(host)  # a server that knows the end of a session can begin the next one

    def _begin(self, connection: Connection) -> None:
        """Go CONNECTED in one turn of the loop, so that credentials and watches are sent before any other request."""
        self.connection, self.host = connection, connection.host
        if self.away_since is not None:
            self.outages.append((self.away_since, self._loop.time()))
            self.away_since = None
        if self.settings.digest is not None:
            connection.call(AUTH, credentials(self.settings.digest)).add_done_callback(self._authenticated)
        for shallow in (False, True):
            for body in self.codec.rewatch(
                self.watches.roots_by_depth(shallow=shallow), self.lease.zxid, shallow=shallow
            ):
                connection.call(REWATCH, body).add_done_callback(_report)
        text, session = "connected to the registry at %s, with the session %s", f"{self.lease.incarnation:#x}"
        log.info(text, connection.peer, session, extra={"server": connection.peer, "session": session})
        self.status.set(SessionStatus(SessionState.CONNECTED, self.lease.incarnation))
        self.watches.reset()

    async def _attend(self, connection: Connection) -> None:
        """Send heartbeats, and end a connection whose server does not answer.

        A heartbeat is a sync request: the server answers it through its leader, and answers keep their order, so a
        server that has lost its leader stops answering too.  A silent connection is given up after half the session
        timeout (Java's client waits two thirds), which leaves time to find another server before work is cancelled.
        """
        beat = self._loop.time()
        while not connection.lost.is_set():
            now = self._loop.time()
            if now >= beat:
                connection.call(SYNC, self.codec.path("/"))
                beat = now + self.lease.timeout / HEARTBEATS_PER_TIMEOUT
            silent = connection.heard + self.lease.timeout / SILENT_PART_OF_TIMEOUT
            with anyio.move_on_after(min(beat, silent) - now):
                await connection.lost.wait()
            # after the loop was blocked, read first what has arrived meanwhile, and only then judge the silence
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            if self._loop.time() >= connection.heard + self.lease.timeout / SILENT_PART_OF_TIMEOUT:
                connection.abort(SILENT_REASON)

    def _lost(self, connection: Connection) -> None:
        if connection is self.connection:  # the end of an older connection changes nothing
            self.connection, self.reason = None, connection.reason
            self.away_since = connection.heard if connection.reason == SILENT_REASON else self._loop.time()
            log.warning(
                "the connection to the registry was lost: %s", connection.reason, extra={"reason": connection.reason}
            )
            self.status.set(SessionStatus(SessionState.SUSPENDED, self.lease.incarnation))

    def _unproven(self) -> None:
        """Connect again when the lease has ended on a living connection: the server's answer says whether the session
        lives.

        A silent connection is given up long before its lease ends.  So this happens only when the machine was
        suspended or the loop was blocked.
        """
        if self.connection is not None:
            self.connection.abort("the session may have ended while this process stood still")

    def _expire(self) -> None:
        text, session = (
            "the session %s has expired; all jobs join again under a new one",
            f"{self.lease.incarnation:#x}",
        )
        log.warning(text, session, extra={"session": session})
        self.status.set(SessionStatus(SessionState.EXPIRED, self.lease.incarnation))
        self.lease.end()
        self._password = NO_PASSWORD

    def _event(self, frame: bytes) -> None:
        kind, path = event(frame)
        if kind > 0:
            self.watches.dispatch(kind, self.codec.relative(path))

    def _authenticated(self, reply: asyncio.Future[Reply]) -> None:
        error = reply.result()[0]
        if error == LOST:
            return
        self.refused = (
            AuthenticationFailed("the registry refused the digest: check user and password") if error else None
        )

    def _last(self, host: tuple[str, int]) -> None:
        """Move this server to the end of the list, so that it is tried last next time."""
        self._hosts.remove(host)
        self._hosts.append(host)

    def _seen(self) -> int:
        """The newest zxid seen: a server that has not seen it yet refuses the connection.

        If no server accepts us for long after the session's end, 0: the registry's data may have been deleted, and
        then no server will ever reach the zxid that we have seen.
        """
        return self.lease.zxid if self.lease.now() < self.lease.proven + 2 * self.lease.timeout else 0


def _report(reply: asyncio.Future[Reply]) -> None:
    """Log that the registry refused a watch: nobody awaits the answer to this request."""
    error = reply.result()[0]
    if error not in (0, LOST):
        log.error(
            "the registry refused a watch, with error %d; changes may be noticed late", error, extra={"error": error}
        )
