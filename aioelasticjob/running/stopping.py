"""How long a process waits for a job that leaves: handlers have ``shutdown_timeout``, the last writes a short time."""

from __future__ import annotations

import logging
from asyncio import get_running_loop
from dataclasses import dataclass
from math import inf

from anyio import CancelScope

from aioelasticjob.coordination.member import Member
from aioelasticjob.latest import Latest
from aioelasticjob.limited_log import LimitedLog
from aioelasticjob.model import Claim
from aioelasticjob.plural import listed_items
from aioelasticjob.registry.session import SessionState

SETTLE_TIMEOUT = 2.0
"""Seconds that settling and leaving may take at most, after the handlers have ended."""
WARN_AFTER = 0.3
"""Seconds of ``SETTLE_TIMEOUT`` after which the log says what the process waits for."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Departures:
    """The jobs of one process that leave, one after another: a thousand of them need more than a second."""

    newest: float = -inf
    """When a job of the process, or its session, has ended last, by the loop's clock."""


class Stopping:
    """The state of a job that leaves, in one session.  As a context, it notes that handlers run inside the block."""

    def __init__(self, member: Member, limited_log: LimitedLog, departures: Departures) -> None:
        self._member, self._log, self._loop = member, limited_log, get_running_loop()
        self.done = False
        """Whether the job has left or its session is over."""
        self.settling: Claim | None = None
        """The claim that is being settled."""
        self.settle_timeout = SETTLE_TIMEOUT
        """Seconds that settling may take when everything is cancelled; 0 after the process has waited long enough."""
        self._departures = departures
        self._handling = Latest(False)
        self._since = 0.0
        """Since when no handler has run, by the loop's clock; not earlier than the call of ``stopped``."""

    def __enter__(self) -> None:
        self._handling.set(True)

    def __exit__(self, *_: object) -> None:
        self._since = self._loop.time()
        self._handling.set(False)

    def end(self) -> None:
        """Note that the job has left or its session is over."""
        self.done, self._departures.newest = True, self._loop.time()
        self._handling.set(False)

    async def stopped(self) -> None:
        """Wait until the job has left, at most ``SETTLE_TIMEOUT`` seconds after its handlers have ended.

        Nothing is logged as long as other jobs of the process leave: then this one only waits for its turn.
        """
        self._since = self._loop.time()
        while not self.done:
            await self._handling.until(lambda handling: not handling)
            if await self._changes_before(self._warn_at) or self._loop.time() < self._warn_at:
                continue
            self._warn(f"and waits up to {SETTLE_TIMEOUT:g} s")
            if not await self._changes_before(self._since + SETTLE_TIMEOUT):
                self._warn("and waits no longer")
                self.settle_timeout = 0.0
                return

    @property
    def _warn_at(self) -> float:
        return min(self._since + SETTLE_TIMEOUT, max(self._since, self._departures.newest) + WARN_AFTER)

    async def _changes_before(self, deadline: float) -> bool:
        """Wait until the job has left or a handler has begun; False if neither happens in time."""
        with CancelScope(deadline=deadline) as limit:
            await self._handling.until(lambda handling: handling or self.done)
        return not limit.cancelled_caught

    def _warn(self, waits: str) -> None:
        """Log what this instance still has to write; if many jobs of a process stop, one is named, the rest counted."""
        claim = self.settling
        connected = self._member.session.status.value.state is SessionState.CONNECTED
        why = "the registry has not accepted it" if connected else "there is no connection to the registry"
        what = "to unregister" if claim is None else f"to settle {listed_items(claim.items)}"
        job, kind = self._member.layout.job, f"an instance stops, {waits} for its last writes, because {why}"
        self._log.warning(log, job, kind, f"this instance stops, {waits} {what}: {why}", most=1)
