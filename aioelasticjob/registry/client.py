"""Client: sends requests over the present connection.  A read that got no reply is sent again, a write never is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import anyio

from aioelasticjob.clock import Clock
from aioelasticjob.errors import NodeTooLarge, SessionEnded, Suspended
from aioelasticjob.logging import logger
from aioelasticjob.model import ClockReading
from aioelasticjob.registry.codec import LOST, SESSION_OVER, THROTTLED, Codec, Reply
from aioelasticjob.registry.group_commit import GroupCommit
from aioelasticjob.registry.session_keeper import SessionKeeper, SessionState
from aioelasticjob.registry.settings import ConnectionSettings
from aioelasticjob.registry.transaction import Committed, Create, Op, Set

ASKED_AGAIN = frozenset({LOST, THROTTLED, *SESSION_OVER})
"""The errors after which a read is sent again."""
SILENT_WAIT = 1.0
"""Seconds that the first connection may take before the log says that it is waited for."""

log = logger(__name__)


class Client:
    """Reads and writes over the connections of one session keeper."""

    def __init__(self, settings: ConnectionSettings, keeper: SessionKeeper, clock: Clock) -> None:
        self.settings = settings
        self.keeper = keeper
        self.clock = clock
        self._ahead: float | None = None  # the registry's time, less the lease's clock
        self._times_noted = (0.0, 0.0)
        """When the registry's time was noted last but one, and last."""
        self.group_commit = GroupCommit(keeper, self._note_time)

    def read_clocks(self) -> ClockReading:
        """Read this host's clock and the lease's, and compare them with what the registry has answered."""
        keeper = self.keeper
        host = self.clock.now()
        steady = keeper.lease.now()

        has_been_away = keeper.away_since is not None or bool(keeper.outages)
        ages = keeper.ages_of_outages() if has_been_away else ()  # every fire reads the clocks
        if self._ahead is None:
            return ClockReading(host, steady, outages=ages, zxid=keeper.lease.zxid, unheard=keeper.lease.unheard)
        skew = host - (steady + self._ahead)
        gap = steady - self._times_noted[0]
        return ClockReading(host, steady, skew, gap, ages, keeper.lease.zxid, keeper.lease.unheard)

    @property
    def skew(self) -> float | None:
        """Our clock minus the registry's; computed at each call, since our clock may have been set in between."""
        if self._ahead is None:
            return None
        registry_time = self.keeper.lease.now() + self._ahead
        return self.clock.now() - registry_time

    async def read(self, opcode: int, body: bytes) -> Reply:
        """Send a read until a reply comes, and return it; the caller looks at the reply's error code.

        Raises: Suspended after max_retries, SessionEnded when closed, AuthenticationFailed.
        """
        (reply,) = await self.read_all(opcode, lambda: (body,))
        return reply

    async def read_all(self, opcode: int, render: Callable[[], Sequence[bytes]]) -> list[Reply]:
        """Send several reads at once and return their replies in the same order.

        They are rendered again before they are sent again, because the largest request that may be sent may be a
        smaller one by then.

        Raises: Suspended after max_retries, SessionEnded when closed, AuthenticationFailed, NodeTooLarge.
        """
        retries = 0
        while True:
            overloaded = False
            connection = self.keeper.connection
            if connection is not None:
                bodies = render()
                for body in bodies:
                    self._check_size(opcode, body)
                futures = [connection.call(opcode, body) for body in bodies]
                replies = [await future for future in futures]
                if not any(error in ASKED_AGAIN for error, _, _ in replies):
                    return replies
                overloaded = any(error == THROTTLED for error, _, _ in replies)
            if self.keeper.refused is not None:
                raise self.keeper.refused
            await self._retry(retries, overloaded)
            retries += 1

    def write(self, ops: Sequence[Op], incarnation: int, codec: Codec) -> asyncio.Future[Committed]:
        """Commit a transaction.

        Raises: Conflict, SessionEnded, Suspended, OutcomeUnknown, NodeTooLarge, NotPermitted.
        """
        body = codec.multi(ops)
        if len(body) > self.keeper.request_limit.bytes:
            largest = max(ops, key=_data_size)
            raise self._too_large(largest.path, body)
        return self.group_commit.commit(ops, body, incarnation)

    async def connected(self) -> None:
        """Wait for a connection.

        Raises: SessionEnded when closed.
        """
        ends_waiting = (SessionState.CONNECTED, SessionState.CLOSED)
        status = await self.keeper.status.until(lambda now: now.state in ends_waiting)
        if status.state is SessionState.CLOSED:
            raise SessionEnded("the session was closed")

    async def first_connection(self) -> None:
        """Wait for the first connection; after a while, log what is waited for."""
        with anyio.move_on_after(SILENT_WAIT):
            return await self.connected()
        place = self.settings.place
        reason = self.keeper.reason
        seconds = self.settings.connection_timeout
        about = {"server": self.settings.servers, "reason": reason}
        log.warning("%s does not answer (%s): it is tried for %g s in all", place, reason, seconds, extra=about)
        await self.connected()

    def _note_time(self, time: float, seconds: float) -> None:
        """Learn the registry's time from an answer that took ``seconds``: now it is between ``time`` and ``time +
        seconds``.

        An older estimate within these bounds is kept: a slow answer has wide bounds, and must not make our time early.
        """
        now = self.keeper.lease.now()
        earliest = time - now
        if self._ahead is None:
            self._ahead = earliest
            self._times_noted = (now, now)
            return
        _, last = self._times_noted
        self._times_noted = (last, now)
        self._ahead = min(max(self._ahead, earliest), earliest + seconds)

    async def _retry(self, retries: int, overloaded: bool) -> None:
        """Wait before a read is sent again: for a connection, or, if the registry is overloaded, for the whole pause.

        The pause grows with every retry.
        """
        if self.keeper.status.value.state is SessionState.CLOSED:
            raise SessionEnded("the session was closed")
        if retries == self.settings.max_retries:
            if overloaded:
                why = "the registry is overloaded"
            else:
                why = f"no connection to the registry ({self.keeper.reason})"
            raise Suspended(f"{why}, after {retries} retries")
        pause = self.keeper.backoff.before_reading(retries)
        if overloaded:
            await anyio.sleep(pause)
            return
        with anyio.move_on_after(pause):
            await self.connected()
        # awaiting a reply that is there already does not suspend: without this pause a retry could block the loop
        await asyncio.sleep(0)

    def _check_size(self, opcode: int, body: bytes) -> None:
        if len(body) > self.keeper.request_limit.bytes:
            raise self._too_large(self.keeper.codec.paths(opcode, body)[0], body)

    def _too_large(self, path: str, body: bytes) -> NodeTooLarge:
        limit = self.keeper.request_limit
        return NodeTooLarge(path, len(body), limit.bytes, is_found=limit.is_found)


def _data_size(op: Op) -> int:
    return len(op.data) if isinstance(op, Create | Set) else 0
