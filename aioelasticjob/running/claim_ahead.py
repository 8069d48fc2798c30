"""Claims that leave before their moment, so that they have been answered when it comes, and how they are taken back.

All claims of a process for one moment leave together: the registry takes them as one request.  If anything changes
until the moment comes (the view, the time, or that the job leaves), the claim is withdrawn if it has not left, and
given back without a run if it has; what is owed is then looked up anew.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable
from zlib import crc32

from anyio import current_time

from aioelasticjob.registry.session import Session
from aioelasticjob.registry.transaction import Delay
from aioelasticjob.running.schedule import Starts

LEADS = (100, 140, 180, 220, 260, 300, 340, 380)
"""Milliseconds before a moment at which its claim is made ready: the jobs of a process share them out."""
EARLY = 80
"""Milliseconds before its moment that a claim leaves, so that it has been answered when the moment comes."""
ASLEEP = 500
"""Milliseconds after its moment at which a claim that slept through it is given back: its session may have ended."""


class ClaimAhead:
    """The claim of one job that waits for its moment, if there is one; times in milliseconds."""

    def __init__(self, session: Session, starts: Starts, job: str) -> None:
        self._session, self._starts = session, starts
        self.lead = LEADS[crc32(job.encode()) % len(LEADS)]
        """How long before a moment its claim is made ready."""
        self._hold: Delay | None = None
        self._start: Future[bool] | None = None

    def hold(self, moment: int, now: int, still_wanted: Callable[[], bool]) -> Delay:
        """Return what keeps a claim until it is to leave, unless it is not wanted any more by then."""
        self._hold = Delay(current_time() + (moment - now - EARLY) / 1000, still_wanted)
        return self._hold

    def take_back(self) -> None:
        """Withdraw the claim if it has not left, and end the wait for its moment: what was decided may be wrong."""
        if self._hold is not None:
            self._session.withdraw(self._hold)
        if self._start is not None and not self._start.done():
            self._start.set_result(False)

    async def wait(self, moment: int, now: int) -> bool:
        """Wait for a moment; return whether it has come, and the claim was not taken back meanwhile."""
        self._start = self._starts.at(moment, min(moment - now, EARLY))  # a clock set back keeps no items
        return await self._start
