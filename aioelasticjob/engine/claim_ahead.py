"""Claims that are sent shortly before their moment, so that the registry has answered when the moment comes.

If the view or the time changes before the moment comes, or the job leaves, the claim is given back without a run.  Then
the job's scheduler computes anew which items are due.
"""

from __future__ import annotations

from asyncio import get_running_loop
from zlib import crc32

from aioelasticjob.engine.member import Member
from aioelasticjob.engine.passes import Awaited
from aioelasticjob.engine.settlements import Settlements
from aioelasticjob.errors import SessionEnded
from aioelasticjob.model import Claim

LEADS = (120, 140, 160, 180, 200, 220, 240, 260)
"""Milliseconds before a moment at which its claim is sent.  Each job has one of them, to spread the work.

The shortest is more than a full garbage collection takes with a thousand jobs: the answer to a claim may cause one.
"""


class Starts:
    """Lets all jobs of a process that wait for the same moment begin together: they share one timer."""

    def __init__(self) -> None:
        self.loop = get_running_loop()
        self._waiting: dict[int, list[Awaited]] = {}

    def at(self, time: int, ahead: int, start: Awaited) -> Awaited:
        """Have a start come at a time that is ``ahead`` milliseconds away, unless it comes before."""
        if time not in self._waiting:
            self._waiting[time] = []
            self.loop.call_at(self.loop.time() + ahead / 1000, self._open, time)
        self._waiting[time].append(start)
        return start

    def _open(self, time: int) -> None:
        for start in self._waiting.pop(time):
            if not start.is_there:
                start.come()


class ClaimAhead:
    """The claim of one job that waits for its moment, if there is one.  Times are in milliseconds."""

    def __init__(self, member: Member, starts: Starts, settlements: Settlements) -> None:
        self._member = member
        self._starts = starts
        self._settlements = settlements
        self.lead = LEADS[crc32(member.layout.job.encode()) % len(LEADS)]
        """How long before a moment the job's claim is sent."""
        self._claim: Claim | None = None
        self._start: Awaited | None = None
        """The wait of the claim for its moment."""
        self._is_outdated = False
        """Whether the wait has ended because the decision may be outdated."""

    def wait(self, claim: Claim, ahead: int, *, is_outdated: bool) -> Awaited | bool:
        """Wait for the moment of a claim, ``ahead`` milliseconds away; the answer is False if the claim is given back.

        The timer may ring a little before the clock shows the moment, so the caller looks at the clock again.  The wait
        is never longer than ``lead``: otherwise a clock that was set back by an hour would keep items locked for an
        hour.
        """
        self._claim = claim
        self._is_outdated = False
        if is_outdated or not ahead:
            return not is_outdated
        lead = min(ahead, self.lead)
        self._start = self._starts.at(claim.fire.start, lead, Awaited(self._is_to_be_run))
        return self._start

    def end_wait(self) -> None:
        """End the wait of the claim for its moment, because the decision may be outdated; the claim is given back."""
        if self._start is not None and not self._start.is_there:
            self._is_outdated = True
            self._start.come()

    def begun(self) -> None:
        """Note that no claim waits any more: its run begins, or it was given back."""
        self._claim = None
        self._start = None

    async def give_back(self) -> None:
        """Give back the claim that waits for its moment, if there is one.

        Raises:
            SessionEnded: the session was lost, and with it the claim.
        """
        is_lost = self._claim is not None and not await self._settlements.give_back(self._claim)
        self.begun()
        if is_lost:
            raise SessionEnded("the session was lost before the items of a claim were given back")

    def _is_to_be_run(self) -> bool:
        return not self._is_outdated and self._member.is_proven()
