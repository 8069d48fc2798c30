"""Keeper: keeps one session alive over connections that come and go."""

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
from aioelasticjob.registry.lease import BEATS, Lease
from aioelasticjob.registry.settings import ConnectionSettings
from aioelasticjob.registry.watches import Watcher, Watches

log = logging.getLogger(__name__)

SILENCE: Final = 2  # of a server, as a part of the session timeout: half of it is three heartbeats without an answer
CLOSING: Final = 2.0  # seconds to say goodbye at most
SILENT: Final = "silent"  # why a connection was given up
OUTAGES: Final = 32  # that are remembered
NOBODY: Final = bytes(16)  # the password of no session


class SessionState(StrEnum):
    """How things stand between us and the registry."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"  # no connection; the session may still be alive
    EXPIRED = "expired"  # the registry said so; a new session is being made
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class SessionStatus:
    """A state, and the id of the session it is about: the current or last one, 0 before the first."""

    state: SessionState
    incarnation: int


class Keeper:
    """One session: who serves it now, how long it is good for, who watches what.

    Once attached, ``keep`` never waits for a reply: a connection that breaks is found out by its own end, not by a
    request that only ``keep`` itself could rescue.
    """

    def __init__(self, settings: ConnectionSettings, codec: Codec, random: Random) -> None:
        self.settings, self.codec = settings, codec
        self.lease, self.watches, self.backoff = Lease(expired=self._unproven), Watches(), Backoff(settings, random)
        self.status = Latest(SessionStatus(SessionState.SUSPENDED, 0))
        self.connection: Connection | None = None  # set exactly while the state is CONNECTED
        self.host = ""  # our own address
        self.refused: AuthenticationFailed | None = None
        self.reason = "no answer yet"  # why there is no connection
        self.summon: Callable[[], Awaitable[None]] | None = None  # called when no server could be reached
        self._hosts = random.sample(settings.hosts, len(settings.hosts))
        self._password = NOBODY
        self._loop = asyncio.get_running_loop()
        self.outages: deque[tuple[float, float]] = deque(maxlen=OUTAGES)  # from when to when, by the loop's clock
        self.away_since: float | None = None  # the outage that goes on

    async def keep(self) -> None:
        """Connect, stay connected, connect again: until cancelled."""
        while True:
            lived = 0.0
            if (connection := await self._anywhere()) is not None:
                begun = self._loop.time()
                await self._attend(connection)
                lived = self._loop.time() - begun
            elif self.summon is not None:
                await self.summon()
            self.backoff.ended(lived)
            urgent = self.lease.now() < self.lease.proven + self.lease.timeout
            await anyio.sleep(self.backoff.before_connecting(urgent=urgent))

    async def close(self) -> None:
        """End the session, politely if that takes no more than a moment.  ``keep`` must have ended."""
        self.lease.close()
        connection, self.connection = self.connection, None
        self.status.set(SessionStatus(SessionState.CLOSED, self.status.value.incarnation))
        self.watches.reset()
        if connection is None:
            return
        with anyio.move_on_after(min(CLOSING, self.lease.timeout / 3), shield=True):
            await connection.call(CLOSE, b"")
        connection.abort("closed by us")
        with anyio.move_on_after(CLOSING, shield=True):
            await connection.gone.wait()

    def watch(self, root: str, watcher: Watcher, *, shallow: bool = False) -> None:
        """Tell ``watcher`` of everything that happens at ``root`` and below, or at least of what it is to hear of.

        Nothing is awaited: the registry answers in order, so what is read from now on is read after the watch was set.
        """
        if self.watches.add(root, watcher, shallow=shallow):
            self._ask(root)

    def unwatch(self, root: str, watcher: Watcher) -> None:
        """Tell ``watcher`` no more."""
        if self.watches.remove(root, watcher):
            self._ask(root)

    def _ask(self, root: str) -> None:
        """Ask the registry for the watch that is now wanted; the new one takes the old one's place."""
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
        """Try one server, for no longer than leaves time to try another while the session lives, or is waited for."""
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
            self.lease.zxid = seen  # a registry that was wiped counts anew
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
        """Go CONNECTED, all in one round of the loop: nobody's request can come before auth and watches."""
        self.connection, self.host = connection, connection.host
        if self.away_since is not None:
            self.outages.append((self.away_since, self._loop.time()))
            self.away_since = None
        if self.settings.digest is not None:
            connection.call(AUTH, credentials(self.settings.digest)).add_done_callback(self._authenticated)
        for shallow in (False, True):
            for body in self.codec.rewatch(self.watches.those(shallow=shallow), self.lease.zxid, shallow=shallow):
                connection.call(REWATCH, body).add_done_callback(_report)
        log.info("connected", extra={"server": connection.peer, "session": f"{self.lease.incarnation:#x}"})
        self.status.set(SessionStatus(SessionState.CONNECTED, self.lease.incarnation))
        self.watches.reset()

    async def _attend(self, connection: Connection) -> None:
        """Send heartbeats, and end a connection that has fallen silent.

        A heartbeat is a sync: it is answered through the leader, and answers keep their order, so a server that is cut
        off from its leader falls silent too.  Half the session timeout (Java's client: two thirds) leaves time to find
        another server before work has to be cancelled.
        """
        beat = self._loop.time()
        while not connection.lost.is_set():
            now = self._loop.time()
            if now >= beat:
                connection.call(SYNC, self.codec.path("/"))
                beat = now + self.lease.timeout / BEATS
            silent = connection.heard + self.lease.timeout / SILENCE
            with anyio.move_on_after(min(beat, silent) - now):
                await connection.lost.wait()
            await asyncio.sleep(0)  # a loop that was blocked reads first what has come meanwhile, and judges then
            await asyncio.sleep(0)
            if self._loop.time() >= connection.heard + self.lease.timeout / SILENCE:
                connection.abort(SILENT)

    def _lost(self, connection: Connection) -> None:
        if connection is self.connection:  # the end of any other one means nothing
            self.connection, self.reason = None, connection.reason
            self.away_since = connection.heard if connection.reason == SILENT else self._loop.time()
            log.warning("connection lost", extra={"reason": connection.reason})
            self.status.set(SessionStatus(SessionState.SUSPENDED, self.lease.incarnation))

    def _unproven(self) -> None:
        """Connect again where the lease has ended on a connection: the answer says whether the session has lived.

        Otherwise a connection is given up well before that; so this machine was suspended, or the loop was held up.
        """
        if self.connection is not None:
            self.connection.abort("the session may have ended while this process stood still")

    def _expire(self) -> None:
        log.warning("session expired", extra={"session": f"{self.lease.incarnation:#x}"})
        self.status.set(SessionStatus(SessionState.EXPIRED, self.lease.incarnation))
        self.lease.end()
        self._password = NOBODY

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
        """Ask this server last next time."""
        self._hosts.remove(host)
        self._hosts.append(host)

    def _seen(self) -> int:
        """The newest zxid seen: a server that is behind it sends us away.

        Not for ever: when nobody takes us back for long after the session's end, the registry may have been wiped, and
        what we have seen with it.
        """
        return self.lease.zxid if self.lease.now() < self.lease.proven + 2 * self.lease.timeout else 0


def _report(reply: asyncio.Future[Reply]) -> None:
    """Say it when a watch was refused: nothing else would."""
    error = reply.result()[0]
    if error not in (0, LOST):
        log.error("a watch was refused", extra={"error": error})
