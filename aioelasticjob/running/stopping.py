"""How long a process waits for a job that leaves: handlers have ``shutdown_timeout``, the last writes a short time."""

from __future__ import annotations

import logging
from asyncio import get_running_loop
from dataclasses import dataclass

from anyio import move_on_after

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
    """The jobs of one process that leave.  A thousand of them need more than a second, one after another."""

    newest: float = 0.0
    """When a job has left last, by the loop's clock."""


class Stopping:
    """The state of a job that leaves, in one session.  Handlers run in a ``with`` block of it."""

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
        """Wait until the job has left, at most ``SETTLE_TIMEOUT`` seconds.

        They begin when its handlers have ended, and again when another job of the process has left meanwhile.
        """
        self._since = self._loop.time()
        while not self.done:
            await self._handling.until(lambda handling: not handling)
            if not await self._changes_within(WARN_AFTER):
                self._warn(f"and waits up to {SETTLE_TIMEOUT:g} s")
                if not await self._changes_within(SETTLE_TIMEOUT):
                    self._warn("and waits no longer")
                    self.settle_timeout = 0.0
                    return

    async def _changes_within(self, seconds: float) -> bool:
        """Wait until the job has left or a handler has begun; False if neither happens in time."""
        while (rest := max(self._since, self._departures.newest) + seconds - self._loop.time()) > 0:
            with move_on_after(rest) as limit:
                await self._handling.until(lambda handling: handling or self.done)
            if not limit.cancelled_caught:
                return True
        return False

    def _warn(self, waits: str) -> None:
        """Log what this instance still has to write; if many jobs of a process stop, one is named, the rest counted."""
        claim = self.settling
        connected = self._member.session.status.value.state is SessionState.CONNECTED
        why = "the registry has not accepted it" if connected else "there is no connection to the registry"
        what = "to unregister" if claim is None else f"to settle {listed_items(claim.items)}"
        job, kind = self._member.layout.job, f"an instance stops, {waits} for its last writes, because {why}"
        self._log.warning(log, job, kind, f"this instance stops, {waits} {what}: {why}", most=1)
