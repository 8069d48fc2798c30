"""The time that jobs use, for what other hosts read: events, the history, and since when something is refused."""

from __future__ import annotations

from aioelasticjob.clock import Clock
from aioelasticjob.core.clock_skew import is_astray
from aioelasticjob.registry.session import Session


class JobClock:
    """This host's clock, or the registry's if this host's is wrong: as ``ClockSkewMonitor`` decides it."""

    def __init__(self, clock: Clock, session: Session) -> None:
        self._clock = clock
        self._session = session

    def now(self) -> float:
        """Return the time in seconds since the epoch."""
        skew = self._session.clock_skew
        now = self._clock.now()
        return now if skew is None or not is_astray(skew) else now - skew
