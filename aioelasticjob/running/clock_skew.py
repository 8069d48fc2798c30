"""The time that a job goes by: this host's, or the registry's if the two are too far apart."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from aioelasticjob.clock import Clock
from aioelasticjob.config import JobConfig
from aioelasticjob.errors import ClockSkew
from aioelasticjob.registry.session import Session

ASTRAY = 1.0
"""Seconds by which this host's clock may differ from the registry's before the registry's is followed."""
AHEAD = 3_000
"""Milliseconds of the future that records and dates may show by small differences between clocks, or claiming early."""
STEP = 2 * ASTRAY
"""Seconds by which the time must jump to count as set; less is what following the other clock comes to."""
LATE = 60.0
"""Seconds for which the registry's clock may have been set already when it is noticed; more would say too little."""
STEADY = 10.0
"""Seconds after a jump before anything is concluded from it: a clock that is set back by mistake is soon put right."""
JUMPS = 8
"""Jumps ahead that are remembered, for the reports of moments that they skipped."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What the clocks show at one moment, in seconds."""

    host: float
    """This host's time since the epoch."""
    steady: float
    """The time of a clock that nobody sets."""
    skew: float = 0.0
    """By how much this host's clock is ahead of the registry's, as far as that is known."""
    gap: float = 0.0
    """How long ago the registry's clock was heard of."""
    outages: tuple[tuple[float, float], ...] = ()
    """How long ago each outage of the registry began and ended, oldest first."""

    @classmethod
    def of(cls, session: Session, clock: Clock) -> Reading:
        """Read the clocks."""
        host = clock.now()
        return cls(host, *session.compare_clocks(host), session.outages)

    @property
    def seconds(self) -> float:
        """The time that a job goes by."""
        return self.host - (self.skew if abs(self.skew) > ASTRAY else 0.0)


class ClockSkewMonitor:
    """A host's clock beside the registry's, of which replies tell; it notices when the time that follows is set.

    It is told what the clocks show, and goes by what it was told last.
    """

    def __init__(self, reading: Reading) -> None:
        self._jumped = self._behind = self._back = False
        self._reading, self._at, seconds = reading, reading.steady, reading.seconds
        self._believed = self._lead = seconds - self._at
        self.now = self.set_to = self.since = int(seconds * 1000)
        """What the time was at the earliest when it was last set, or when this was made, in milliseconds."""
        self.is_disturbed = False
        """Whether the time was set, and that is not concluded from yet."""
        self.skipped: tuple[tuple[int, int], ...] = ()
        """From when to when the time last jumped ahead, oldest first, in milliseconds."""

    def take(self, reading: Reading) -> int:
        """Take in what the clocks show; return the time in milliseconds: the registry's, if this host's is astray.

        One ahead would claim the registry's future; one behind would run its items late, by as much.
        """
        self._reading, steady, seconds = reading, reading.steady, reading.seconds
        before, self._lead = self._lead, seconds - steady
        if abs(self._lead - before) > STEP:
            since = int((seconds - min(reading.gap, LATE)) * 1000)
            back = self._lead < before
            going_on = back and self._back and self.unsteady  # put right in several steps: nothing was concluded yet
            self.since = min(since, self.since) if going_on else since
            self._jumped, self._at, self._back, self.set_to = True, steady, back, int(seconds * 1000)
            self._behind = self._lead < self._believed - STEP
            if not back:
                self.skipped = (*self.skipped, (int((steady + before) * 1000), self.set_to))[-JUMPS:]
        if not self._behind:
            self._believed = self._lead
        self.is_disturbed = self._jumped or self._behind
        self.now = int(seconds * 1000)
        return self.now

    @property
    def steady(self) -> float:
        """The time of the clock that nobody sets, in seconds."""
        return self._reading.steady

    @property
    def is_astray(self) -> bool:
        """Whether the registry's clock is followed."""
        return abs(self._reading.skew) > ASTRAY

    @property
    def unsteady(self) -> float:
        """Return for how many seconds more it is too early to conclude anything from where the time stands."""
        return max(0.0, self._at + STEADY - self._reading.steady)

    def has_jumped(self) -> bool:
        """Say whether the time has been set, either way, since this was last asked."""
        jumped, self._jumped = self._jumped, False
        return jumped

    def is_set_back(self) -> bool:
        """Say, once, that the time has been set back and has stayed there."""
        if not self._behind or self.unsteady:
            return False
        self._behind, self._believed = False, self._lead
        return True

    def believable(self) -> float:
        """Return up to which moment a record may be true, in milliseconds; as long as the time is in doubt, any may."""
        return inf if self.unsteady else self.now

    def in_time(self, date: int, later: float = inf) -> int:
        """Return a date that the registry gave, or one known to be ``later``, or now, if its clock was ahead then."""
        return date if self.may_be_set_back else int(min(date if date <= self.now + AHEAD else self.now, later))

    @property
    def may_be_set_back(self) -> bool:
        """Whether the time stands before where it stood, and that is not concluded from yet."""
        return self._behind

    def intolerable(self, config: JobConfig) -> ClockSkew | None:
        """Return the clocks' difference if it is beyond what the job tolerates."""
        tolerated, skew = config.max_time_diff_seconds, self._reading.skew
        if tolerated < 0 or abs(skew) <= tolerated:
            return None
        return ClockSkew.of(skew, tolerated)

    def outages(self) -> tuple[tuple[int, int], ...]:
        """Return from when to when this process could not hear the registry, oldest first, in milliseconds."""
        return tuple(
            (self.now - round(began * 1000), self.now - round(ended * 1000)) for began, ended in self._reading.outages
        )

    def was_away(self, moment: int) -> bool:
        """Whether this process could not hear the registry at a moment."""
        return any(began <= moment <= ended for began, ended in self.outages())
