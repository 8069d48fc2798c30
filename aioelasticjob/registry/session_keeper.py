"""Session keeper: keeps one session alive while connections to servers come and go."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from random import Random
from struct import error as Malformed  # noqa: N812  # a class, whatever its name
from typing import Final, TypeAlias

import anyio

from aioelasticjob.clock import Clock
from aioelasticjob.errors import AuthenticationFailed, ElasticJobError
from aioelasticjob.ground.latest import Latest
from aioelasticjob.ground.limited_log import MOST, LimitedLog
from aioelasticjob.logging import logger
from aioelasticjob.registry.access import log_in, read_access
from aioelasticjob.registry.backoff import Backoff
from aioelasticjob.registry.codec import (
    AUTH,
    CLOSE,
    LOST,
    SYNC,
    THROTTLED,
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
from aioelasticjob.registry.dialling import dial, why_failed
from aioelasticjob.registry.host_names import addresses, is_ip
from aioelasticjob.registry.lease import HEARTBEATS_PER_TIMEOUT, Lease
from aioelasticjob.registry.request_limit import RequestLimit, note_end, try_sizes
from aioelasticjob.registry.settings import ConnectionSettings
from aioelasticjob.registry.watches import Roots, Watcher, Watches

log = logger(__name__)

SILENT_PART_OF_TIMEOUT: Final = 2
"""A server that is silent for 1/2 of the session timeout, three heartbeats without an answer, is given up."""
CLOSE_TIMEOUT: Final = 2.0  # seconds that the request which ends the session may take
# why a connection was given up
SILENT_REASON: Final = "silent"
STOOD_STILL: Final = "this process stood still (its event loop was blocked, or it or the machine was suspended)"
MAX_OUTAGES: Final = 32  # outages that are remembered
NO_PASSWORD: Final = bytes(16)  # the password of no session

Outages: TypeAlias = tuple[tuple[float, float], ...]


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
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        codec: Codec,
        random: Random,
        clock: Clock,
        ensure_server: Callable[[], Awaitable[str]] | None,
    ) -> None:
        self.settings = settings
        self.codec = codec
        self.clock = clock
        self.lease = Lease(expired=self._unproven, ends_worker=settings.exit_at_lease_end)
        self.watches = Watches()
        self.backoff = Backoff(settings, random)
        self.status = Latest(SessionStatus(SessionState.SUSPENDED, 0))
        self.request_limit = RequestLimit(settings.max_request)
        self.connection: Connection | None = None  # set exactly while the state is CONNECTED
        self.host = ""  # our own address
        self.refused: AuthenticationFailed | None = None
        self.reason = "no answer yet"  # why there is no connection
        self.failure: ElasticJobError | None = None  # the last reason that somebody has to see to: TLS, a login, a file
        self._certain = False  # whether that is known to be the reason, and no guess
        self._ensure_server = ensure_server  # called when no server could be reached
        self._random = random
        self._hosts = random.sample(settings.hosts, len(settings.hosts))
        self._logged = ""  # the failure that was logged last
        self._limited_log = LimitedLog()
        self._kept = True  # until ``keep`` has ended, after which nothing sends heartbeats
        self._password = NO_PASSWORD
        self._loop = asyncio.get_running_loop()
        self.outages: deque[tuple[float, float]] = deque(maxlen=MAX_OUTAGES)  # from when to when, by the lease's clock
        self.away_since: float | None = None  # the outage that goes on

    def ages_of_outages(self) -> Outages:
        """Return how many seconds ago each of the last outages began and ended, oldest first; 0 if it goes on."""
        now = self.lease.now()
        outages = [*self.outages]
        if self.away_since is not None:
            outages.append((self.away_since, now))
        return tuple((now - began, now - ended) for began, ended in outages)

    async def keep(self) -> None:
        """Connect, stay connected, connect again: until cancelled."""
        try:
            if self.lease.guard.ends_worker:
                await self.lease.guard.start()
            while True:
                lived = 0.0
                connection = await self._anywhere()
                if connection is not None:
                    begun = self._loop.time()
                    await self._attend(connection)
                    lived = self._loop.time() - begun
                elif self.failure is not None and self._certain and not self.status.value.incarnation:
                    raise self.failure  # at the start nothing depends on us, and the settings given may be wrong
                elif self._ensure_server is not None:
                    self.reason = await self._ensure_server() or self.reason
                self.backoff.ended(lived)
                urgent = self.lease.now() < self.lease.proven + self.lease.timeout
                await anyio.sleep(self.backoff.before_connecting(urgent=urgent))
        finally:
            self._kept = False

    async def close(self) -> None:
        """End the session, and tell the server so if it answers within two seconds.  ``keep`` must have ended."""
        self.lease.close()
        self._limited_log.close()
        connection = self.connection
        self.connection = None
        self.status.set(SessionStatus(SessionState.CLOSED, self.status.value.incarnation))
        self.watches.reset()
        if connection is None:
            return
        with anyio.move_on_after(min(CLOSE_TIMEOUT, self.lease.timeout / 3), shield=True):
            await connection.call(CLOSE, b"")
        connection.abort("closed by us")
        with anyio.move_on_after(CLOSE_TIMEOUT, shield=True):
            await connection.gone.wait()

    def watch(self, roots: Roots, watcher: Watcher) -> None:
        """Tell ``watcher`` of every change at ``roots`` and below; a shallow watcher only of the names below them.

        Nothing is awaited: the registry answers in order, so every read sent from now on is answered after the watch
        has been set.
        """
        self._ask(self.watches.add(roots, watcher))

    def unwatch(self, roots: Iterable[str], watcher: Watcher) -> None:
        """Tell ``watcher`` no more."""
        self._ask(self.watches.remove(roots, watcher))

    def _ask(self, roots: Sequence[str]) -> None:
        """Ask the registry for the watches that ``roots`` now need, besides or instead of those that were there."""
        connection = self.connection
        if connection is None or not roots:
            return
        needed = {root: self.watches.shallow(root) for root in roots}
        for root, depth in needed.items():
            if depth is None:
                connection.call(UNWATCH, self.codec.remove_watch(root))
        watched = {root: depth for root, depth in needed.items() if depth is not None}
        for body in self.codec.watch(watched, self.lease.zxid, self.request_limit.bytes):
            judge = partial(_judge_watch, connection, self._limited_log)
            connection.call(WATCH, body).add_done_callback(judge)

    async def _anywhere(self) -> Connection | None:
        for host in tuple(self._hosts):
            found = await self._addresses(host)
            for address in found:
                connection = await self._attach(host, address, len(self._hosts) - 1 + len(found))
                if connection is not None:
                    return connection
            self._last(host)
        return None

    async def _addresses(self, host: tuple[str, int]) -> list[str]:
        """Return the addresses that a name has now, in any order; none if they are not known in time."""
        if is_ip(host[0]):
            return [host[0]]
        time_limit = self._attempt_time(len(self._hosts))
        try:
            with anyio.fail_after(time_limit):
                found = await addresses(*host)
        except OSError as error:
            if isinstance(error, TimeoutError):
                self.reason = f"no address of {host[0]} within {time_limit:g} s"
            else:
                self.reason = str(error)
            return []
        if len(found) == 1:
            return found
        return self._random.sample(found, len(found))

    def _attempt_time(self, count: int) -> float:
        """Return how long one attempt of ``count`` may take: there must be time for another one before the session
        ends.
        """
        session_timeout = self.lease.timeout or self.settings.session_timeout
        part = 3 if count == 1 else 6
        return min(session_timeout / part, self.settings.connection_timeout / (count + 1))

    async def _attach(self, host: tuple[str, int], address: str, count: int) -> Connection | None:
        """Try one address of one server; ``count`` is how many addresses there are to be tried."""
        time_limit = self._attempt_time(count)
        connection = Connection(self.lease, self._event, self._lost)
        try:
            with anyio.fail_after(time_limit):
                access = await read_access(self.settings, self.clock.now())
                await dial(connection, self.settings, host, address, access.tls)
                asked = self.lease.incarnation
                seen = self._seen()
                sent = self.lease.now()
                greeting = attach(asked, self._password, self.settings.session_timeout, seen)
                session, password, timeout = attached(await connection.greet(greeting))
                if session and not connection.lost.is_set():
                    self.lease.zxid = seen  # a registry whose data was deleted counts from the beginning
                    self.lease.begin(session, timeout, sent)
                    self._password = password
                    if access.sasl is not None:
                        await log_in(connection, access.sasl)
                    if not await try_sizes(self.request_limit, connection, self.codec, self._limited_log):
                        return await self._attach(host, address, count)
        except (OSError, Malformed, ElasticJobError) as error:  # a timeout and the end of a connection are OSErrors
            self._failed(error, connection, host, time_limit)
            return None
        except BaseException:
            connection.abort("cancelled")
            raise
        if session and not connection.lost.is_set():
            self._last(host)
            self._begin(connection, access.digest)
            return connection
        connection.abort("refused")
        if session or not asked:
            self.reason = "refused"
            return None
        self._expire()
        # a server that knows the end of a session can begin the next one
        return await self._attach(host, address, count)

    def _failed(self, error: Exception, connection: Connection, host: tuple[str, int], time_limit: float) -> None:
        """Note why an attempt has failed; if somebody has to see to it, log it once."""
        connection.abort(str(error))
        server = f"{host[0]}:{host[1]}"
        new = not self.status.value.incarnation
        found, guessed = why_failed(error, connection, self.settings.tls, server, new=new)
        if isinstance(found, TimeoutError):
            self.reason = f"no answer within {time_limit:g} s"
        else:
            self.reason = str(found)
        if isinstance(found, ElasticJobError):
            self.failure = found
            self._certain = not guessed
            if not new and str(found) != self._logged:
                self._logged = str(found)
                text = f"cannot connect to the registry: {found.with_page()}"
                if self._admits(text):
                    log.warning("%s", text, extra={"server": server, "reason": self._logged})

    def _begin(self, connection: Connection, digest: str | None) -> None:
        """Go CONNECTED in one turn of the loop, so that credentials and watches are sent before any other request."""
        self.connection = connection
        self.host = connection.host
        self._logged = ""
        self.failure = None
        if self.away_since is not None:
            self.outages.append((self.away_since, self.lease.now()))
            self.away_since = None
        if digest is not None:
            reply = connection.call(AUTH, credentials(digest))
            reply.add_done_callback(self._authenticated)
        self._ask(self.watches.roots)
        session = f"{self.lease.incarnation:#x}"
        text = f"connected to {self.settings.place}, with the session {session}"
        if self._admits(text):
            log.info("%s", text, extra={"server": connection.peer, "session": session})
        self.status.set(SessionStatus(SessionState.CONNECTED, self.lease.incarnation))
        self.watches.reset()

    async def _attend(self, connection: Connection) -> None:
        """Send heartbeats, and end a connection whose server does not answer.

        A heartbeat is a sync request: the server answers it through its leader, and answers keep their order, so a
        server that has lost its leader stops answering too.  A silent connection is given up after half the session
        timeout (Java's client waits two thirds), which leaves time to find another server before work is cancelled.
        If the event loop was blocked for most of that time, the server was asked nothing.  Then its silence proves
        nothing, and the reason is that this process stood still.
        """
        beat = self._loop.time()
        longest_silence = self.lease.timeout / SILENT_PART_OF_TIMEOUT
        while not connection.lost.is_set():
            now = self._loop.time()
            if now >= beat:
                connection.call(SYNC, self.codec.path("/"))
                beat = now + self.lease.timeout / HEARTBEATS_PER_TIMEOUT
            silence_ends = connection.heard + longest_silence
            wait = max(min(beat, silence_ends) - now, 0)
            with anyio.move_on_after(wait):
                await connection.lost.wait()
            late = self._loop.time() - now - wait
            # after the loop was blocked, read first what has arrived meanwhile, and only then judge the silence
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            if self._loop.time() >= connection.heard + longest_silence:
                stood_still = late > (self._loop.time() - connection.heard) / 2
                connection.abort(STOOD_STILL if stood_still else SILENT_REASON)

    def _lost(self, connection: Connection) -> None:
        if connection is not self.connection:  # the end of an older connection changes nothing
            return
        self.connection = None
        self.reason = connection.reason
        note_end(self.request_limit, connection, self.codec)
        self.away_since = self.lease.now()
        if connection.reason == SILENT_REASON:  # the outage began when the server fell silent
            self.away_since -= self._loop.time() - connection.heard
        text = f"the connection to the registry was lost: {connection.reason}"
        if self._admits(text):
            log.warning("%s", text, extra={"reason": connection.reason})
        self.status.set(SessionStatus(SessionState.SUSPENDED, self.lease.incarnation))

    def _unproven(self) -> None:
        """Connect again when the lease has ended on a living connection: the server's answer says whether the session
        lives.

        A silent connection is given up long before its lease ends.  So this happens only when the machine was
        suspended or the loop was blocked, or when handlers run on after everything was cancelled.
        """
        if self.connection is None:
            return
        if self._kept:
            self.connection.abort(f"{STOOD_STILL}, so the session may have ended")
        else:
            self.connection.abort("this process is stopping, and sends no heartbeats any more")

    def _expire(self) -> None:
        session = f"{self.lease.incarnation:#x}"
        text = f"the session {session} has expired; a new one is opened"
        if self._admits(text):
            log.warning("%s", text, extra={"session": session})
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
        if error:
            self.refused = AuthenticationFailed("the registry refused the digest: check user and password")
        else:
            self.refused = None

    def _last(self, host: tuple[str, int]) -> None:
        """Move this server to the end of the list, so that it is tried last next time."""
        self._hosts.remove(host)
        self._hosts.append(host)

    def _admits(self, text: str) -> bool:
        """Whether a line may be written that reports the state of the connection to the registry."""
        kind = f"the connection to {self.settings.place} comes and goes"
        return self._limited_log.admits(log, None, kind, each=MOST, newest=text)

    def _seen(self) -> int:
        """The newest zxid seen: a server that has not seen it yet refuses the connection.

        If no server accepts us for long after the session's end, 0: the registry's data may have been deleted, and
        then no server will ever reach the zxid that we have seen.
        """
        given_up = self.lease.proven + 2 * self.lease.timeout
        return self.lease.zxid if self.lease.now() < given_up else 0


def _judge_watch(connection: Connection, limited_log: LimitedLog, reply: asyncio.Future[Reply]) -> None:
    """Handle the answer to a watch, which no caller awaits: the registry may have refused it.

    If the registry is overloaded, all watches are set again on another connection, after a pause.
    """
    error = reply.result()[0]
    if error == THROTTLED:
        connection.abort("the registry is overloaded and has refused a watch")
    elif error not in (0, LOST) and limited_log.admits(log, None, f"the registry refuses watches, with error {error}"):
        log.error(
            "the registry refused a watch, with error %d; changes may be noticed late", error, extra={"error": error}
        )
