"""How long a job that leaves is waited for: its handlers have their time; the registry has little once they ended."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from anyio import CancelScope, current_time

from aioelasticjob.coordination.member import Member
from aioelasticjob.latest import Latest
from aioelasticjob.model import Claim
from aioelasticjob.registry.session import SessionState

LAST_WORD = 2.0
"""Seconds that settling and leaving may take at most once the handlers have ended and the process stops."""
SILENT_FOR = 0.3
"""Seconds of them after which the log says what is waited for."""

log = logging.getLogger(__name__)


class Stopping:
    """What a job that leaves still has to do in one session."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self.done = False
        """Whether the job has left or its session is over."""
        self.settling: Claim | None = None
        """What is being settled."""
        self.last_word = LAST_WORD
        """Seconds that settling may take at most when everything is being cancelled; 0 once it has had its time."""
        self._handling = Latest(False)
        self._since = 0.0
        """Since when no handler has run here, by the loop's clock, at the earliest since this is waited for."""

    @contextmanager
    def handling(self) -> Iterator[None]:
        """Note that handlers run inside."""
        self._handling.set(True)
        try:
            yield
        finally:
            self._since = current_time()
            self._handling.set(False)

    def end(self) -> None:
        """Note that the job has left or its session is over."""
        self.done = True
        self._handling.set(False)

    async def stopped(self) -> None:
        """Wait until the job has left; at most LAST_WORD from when its handlers have ended."""
        self._since = current_time()
        while not self.done:
            await self._handling.until(lambda handling: not handling)
            if not await self._news(SILENT_FOR):
                self._say(f"{LAST_WORD:g} s at most")
                if not await self._news(LAST_WORD):
                    self._say("no longer")
                    self.last_word = 0.0
                    return

    async def _news(self, patience: float) -> bool:
        """Wait until the job has left or begun to run something all the same; False if neither comes in time."""
        with CancelScope(deadline=self._since + patience) as limit:
            await self._handling.until(lambda handling: handling or self.done)
        return not limit.cancelled_caught

    def _say(self, how_long: str) -> None:
        job, claim = self._member.layout.job, self.settling
        connected = self._member.session.status.value.state is SessionState.CONNECTED
        why = "the registry does not accept it" if connected else "there is no connection to the registry"
        what = "to leave" if claim is None else f"to settle items {', '.join(map(str, sorted(claim.items)))}"
        log.warning("%s: stopping waits %s %s: %s", job, how_long, what, why, extra={"job": job})
