"""How long a process waits for a job that leaves: handlers have ``shutdown_timeout``, the last writes a short time."""

from __future__ import annotations

from asyncio import TimerHandle, get_running_loop
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf

from anyio import CancelScope

from aioelasticjob.engine.ending import Ending, Stage
from aioelasticjob.engine.member import Member
from aioelasticjob.ground.latest import Latest
from aioelasticjob.ground.plural import listed_items
from aioelasticjob.logging import logger
from aioelasticjob.registry.session import SessionState

SETTLE_TIMEOUT = 2.0
"""Seconds without an accepted write after which the process waits no longer for a job whose handlers have ended."""
WARN_AFTER = 1.0
"""Seconds of ``SETTLE_TIMEOUT`` after which the log says what the process waits for."""

log = logger(__name__)


@dataclass(slots=True)
class Departures:
    """The writes of all jobs of a process that leave.  For thousands of jobs, or a slow registry, they take a while."""

    newest: float = -inf
    """When the registry has accepted such a write last, by the loop's clock."""
    in_vain: float = -inf
    """When the registry has last let a job wait in vain to unregister, by the loop's clock."""


class Stopping:
    """The state of a job that leaves, in one session.  As a context, it notes that handlers run inside the block.

    Thousands of jobs may leave at the same time, so it has timers, and no task.
    """

    def __init__(self, member: Member, departures: Departures, ending: Latest[Ending]) -> None:
        self.ending = ending
        self._member = member
        self._departures = departures
        self._loop = get_running_loop()
        self.settling = set[int]()
        """The items whose settlement is under way."""
        self._handling = 0
        """How many executions are calling handlers or listeners."""
        self._limit: TimerHandle | None = None
        """Cancels the handlers that run too long, if the job leaves."""
        self._next_look: TimerHandle | None = None
        self._deadline = inf
        """When the process waits no longer for the job, by the loop's clock."""
        self._since = 0.0
        """Since when no handler has run, by the loop's clock; not earlier than the call of ``leave``."""

    def __enter__(self) -> None:
        self._handling += 1

    def __exit__(self, *_: object) -> None:
        self._since = self._loop.time()
        self._handling -= 1

    @property
    def leaves(self) -> bool:
        """Whether the job was asked to leave."""
        return self.ending.value.leaves

    @property
    def has_begun(self) -> bool:
        """Whether ``leave`` was called in this session."""
        return self._limit is not None

    @property
    def settle_timeout(self) -> float:
        """Seconds that settling may take when everything is cancelled; 0 after the process has waited long enough."""
        return 0.0 if self.ending.value.stage is Stage.GIVEN_UP else SETTLE_TIMEOUT

    def leave(self, shutdown_timeout: float, cancel: Callable[[], object]) -> None:
        """Act on it that the job leaves; ``cancel`` is called if its handlers have not ended in so many seconds.

        If the process goes on, because an operator has dismissed the job, nobody waits for the last writes: they are
        tried until the session ends.  If the process stops later, this is called a second time.  Then the last writes
        are given their whole time, but the handlers are not.
        """
        self._since = self._loop.time()
        if self._limit is None:
            self._limit = self._loop.call_later(shutdown_timeout, cancel)
        self._deadline = self._since + shutdown_timeout + SETTLE_TIMEOUT
        if self._next_look is not None:
            self._next_look.cancel()
        self._look(has_warned=False)

    def accepted(self) -> None:
        """Note that the registry has accepted a write of the job; it counts if the job leaves."""
        if self.leaves:
            self._departures.newest = self._loop.time()

    def life_ended(self) -> None:
        """Note that the job has left or its session is over."""
        for timer in (self._limit, self._next_look):
            if timer is not None:
                timer.cancel()

    async def stopped(self) -> None:
        """Wait until the job has left, or until it is not worth waiting any more.

        After the handlers of the job have ended, this gives up if the registry accepts nothing for ``SETTLE_TIMEOUT``
        seconds.  While it accepts writes of other jobs that leave, this job only waits for its turn: nothing is logged.
        """
        with CancelScope(deadline=self._deadline) as limit:
            await self.ending.until(lambda ending: not ending.is_awaited)
        if limit.cancelled_caught and not self._handling:
            waited = self._loop.time() - self._since
            self._give_up(f"the registry is slow: it has not accepted everything in {waited:.3g} s")

    def _look(self, *, has_warned: bool) -> None:
        """Warn if the registry has accepted nothing for ``WARN_AFTER``; if the process stops, give up later."""
        if not self.ending.value.is_awaited:
            return
        now = self._loop.time()
        since = now if self._handling else max(self._since, self._departures.newest)
        if has_warned and now >= since + SETTLE_TIMEOUT:
            return self._give_up()
        if not has_warned and now >= since + WARN_AFTER:
            if not self.ending.value.process_stops:
                return self._warn("leaves, and goes on trying")
            self._warn(f"stops, and waits up to {SETTLE_TIMEOUT:g} s")
            has_warned = True
        seconds = SETTLE_TIMEOUT if has_warned else WARN_AFTER
        self._next_look = self._loop.call_at(since + seconds, partial(self._look, has_warned=has_warned))

    def _give_up(self, why: str = "") -> None:
        self._warn("stops, and waits no longer", why)
        self.ending.set(self.ending.value.given_up())

    def _warn(self, does: str, why: str = "") -> None:
        """Log what this instance still has to write; if many jobs of a process stop, one is named, the rest counted."""
        connected = self._member.session.status.value.state is SessionState.CONNECTED
        if not (why and connected):
            why = "the registry has not accepted it" if connected else "there is no connection to the registry"
        what = f"to settle {listed_items(self.settling)}" if self.settling else "to unregister"
        job = self._member.layout.job
        kind = f"an instance {does} to write the last, because {why}"
        self._member.limited_log.warning(log, job, kind, f"this instance {does} {what}: {why}", most=1)
