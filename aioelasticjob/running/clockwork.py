"""The time that a job goes by: this host's, or the registry's if the two are too far apart."""

from __future__ import annotations

from aioelasticjob.clock import Clock
from aioelasticjob.config import JobConfig
from aioelasticjob.errors import ClockSkew
from aioelasticjob.registry.session import Session

ASTRAY = 1.0
"""Seconds by which this host's clock may differ from the registry's before the registry's is followed."""


class Clockwork:
    """A host's clock beside the registry's, of which replies tell."""

    def __init__(self, session: Session, clock: Clock) -> None:
        self._session, self._clock = session, clock

    def now(self) -> int:
        """Return the time in milliseconds: the registry's, if this host's clock is astray.

        One ahead would claim the registry's future; one behind would run its items late, by as much.
        """
        skew = self._session.clock_skew or 0.0
        return int((self._clock.now() - (skew if abs(skew) > ASTRAY else 0.0)) * 1000)

    def intolerable(self, config: JobConfig) -> ClockSkew | None:
        """Return the clocks' difference if it is beyond what the job tolerates."""
        tolerated, skew = config.max_time_diff_seconds, self._session.clock_skew
        if tolerated < 0 or skew is None or abs(skew) <= tolerated:
            return None
        return ClockSkew.of(skew, tolerated)

    def outages(self) -> tuple[tuple[int, int], ...]:
        """Return from when to when this process could not hear the registry, oldest first, in milliseconds."""
        now = self.now()
        return tuple((now - round(began * 1000), now - round(ended * 1000)) for began, ended in self._session.outages)
