"""Sends claims shortly before their moment, so that the registry has answered when the moment comes.

All claims of a process for one moment are sent together, as one request.  If anything changes before the moment comes
(the view, the time, or the job leaves), a claim that has not been sent is withdrawn, and one that has been sent is
given back without a run.  Then the scheduler computes anew which items are due.
"""

from __future__ import annotations

from asyncio import Future, get_running_loop
from zlib import crc32

from aioelasticjob.registry.session import Session
from aioelasticjob.registry.transaction import Delay

LEADS = (100, 140, 180, 220, 260, 300, 340, 380)
"""Milliseconds before a moment at which its claim is prepared.  Each job has one of them, to spread the work."""
EARLY = 80
"""Milliseconds before its moment at which a claim is sent, so that it has been answered when the moment comes."""
ASLEEP = 500
"""A claim is given back if this process comes so many milliseconds too late, say because the machine slept.

The session may have ended meanwhile.
"""


class Starts:
    """Lets all jobs of a process that wait for the same moment begin together: they share one timer."""

    def __init__(self) -> None:
        self._waiting: dict[int, list[Future[bool]]] = {}

    def at(self, slot: int, ahead: int) -> Future[bool]:
        """Return a future that becomes True at the moment ``slot``, which is ``ahead`` milliseconds away.

        A job that takes its claim back sets its future to False before.
        """
        loop = get_running_loop()
        if slot not in self._waiting:
            self._waiting[slot] = []
            loop.call_at(loop.time() + ahead / 1000, self._open, slot)
        start: Future[bool] = loop.create_future()
        self._waiting[slot].append(start)
        return start

    def _open(self, slot: int) -> None:
        for start in self._waiting.pop(slot):
            if not start.done():
                start.set_result(True)


class ClaimAhead:
    """The claim of one job that waits for its moment, if there is one.  Times are in milliseconds."""

    def __init__(self, session: Session, starts: Starts, job: str) -> None:
        self._session, self._starts = session, starts
        self.lead = LEADS[crc32(job.encode()) % len(LEADS)]
        """How long before a moment the job's claim is prepared."""
        self._hold: Delay | None = None
        self._start: Future[bool] | None = None

    def hold(self, moment: int, now: int) -> Delay:
        """Return the delay after which the claim is sent, unless it is taken back."""
        self._hold = Delay(get_running_loop().time() + (moment - now - EARLY) / 1000)
        return self._hold

    def take_back(self) -> None:
        """Withdraw the claim if it has not been sent, and end the wait for its moment: the decision may be outdated."""
        if self._hold is not None:
            self._session.withdraw(self._hold)
        if self._start is not None and not self._start.done():
            self._start.set_result(False)

    async def wait(self, moment: int, now: int) -> bool:
        """Wait for a moment, at most 80 ms: else a clock set back by an hour would keep the items locked for an hour.

        Return True when the moment has come, and False if the claim was taken back meanwhile.
        """
        start = self._start = self._starts.at(moment, min(moment - now, EARLY))
        try:
            return await start
        finally:
            self._hold = self._start = None
