"""How long a process waits for a job that leaves: handlers have ``shutdown_timeout``, the last writes a short time."""

from __future__ import annotations

import logging
from asyncio import get_running_loop
from dataclasses import dataclass
from math import inf

from anyio import CancelScope, move_on_after

from aioelasticjob.coordination.member import Member
from aioelasticjob.latest import Latest
from aioelasticjob.limited_log import LimitedLog
from aioelasticjob.model import Claim
from aioelasticjob.plural import listed_items
from aioelasticjob.registry.session import SessionState

SETTLE_TIMEOUT = 2.0
"""Seconds without an accepted write after which the process waits no longer for a job whose handlers have ended."""
WARN_AFTER = 0.3
"""Seconds of ``SETTLE_TIMEOUT`` after which the log says what the process waits for."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Departures:
    """The writes of all jobs of a process that leave.  For thousands of jobs, or a slow registry, they take a while."""

    newest: float = -inf
    """When the registry has accepted such a write last, by the loop's clock."""


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
        self._leaves = False
        """Whether the process waits for the job to leave."""
        self._since = 0.0
        """Since when no handler has run, by the loop's clock; not earlier than the call of ``stopped``."""

    def __enter__(self) -> None:
        self._handling.set(True)

    def __exit__(self, *_: object) -> None:
        self._since = self._loop.time()
        self._handling.set(False)

    def end(self) -> None:
        """Note that the job has left or its session is over."""
        self.done = True
        self._handling.set(False)

    def accepted(self) -> None:
        """Note that the registry has accepted a write of the job; it counts if the job leaves."""
        if self._leaves:
            self._departures.newest = self._loop.time()

    async def stopped(self, seconds: float) -> None:
        """Wait until the job has left, at most so many seconds.

        After the handlers of the job have ended, this gives up if the registry accepts nothing for ``SETTLE_TIMEOUT``
        seconds.  While it accepts writes of other jobs that leave, this job only waits for its turn: nothing is logged.
        """
        self._leaves, self._since = True, self._loop.time()
        with move_on_after(seconds) as limit:
            await self._wait_while_accepted()
        if limit.cancelled_caught and not self._handling.value:
            self._give_up(f"the registry is slow: it has not accepted everything in {seconds:g} s")

    async def _wait_while_accepted(self) -> None:
        patience = WARN_AFTER
        while not self.done:
            await self._handling.until(lambda handling: not handling)
            if await self._changes_before(self._progress + patience) or self._loop.time() < self._progress + patience:
                continue
            if patience == SETTLE_TIMEOUT:
                self._give_up()
                return
            self._warn(f"and waits up to {SETTLE_TIMEOUT:g} s")
            patience = SETTLE_TIMEOUT

    def _give_up(self, why: str = "") -> None:
        self._warn("and waits no longer", why)
        self.settle_timeout = 0.0

    @property
    def _progress(self) -> float:
        """Since when the process has waited in vain."""
        return max(self._since, self._departures.newest)

    async def _changes_before(self, deadline: float) -> bool:
        """Wait until the job has left or a handler has begun; False if neither happens in time."""
        with CancelScope(deadline=deadline) as limit:
            await self._handling.until(lambda handling: handling or self.done)
        return not limit.cancelled_caught

    def _warn(self, waits: str, why: str = "") -> None:
        """Log what this instance still has to write; if many jobs of a process stop, one is named, the rest counted."""
        claim = self.settling
        connected = self._member.session.status.value.state is SessionState.CONNECTED
        if not (why and connected):
            why = "the registry has not accepted it" if connected else "there is no connection to the registry"
        what = "to unregister" if claim is None else f"to settle {listed_items(claim.items)}"
        job, kind = self._member.layout.job, f"an instance stops, {waits} for its last writes, because {why}"
        self._log.warning(log, job, kind, f"this instance stops, {waits} {what}: {why}", most=1)
