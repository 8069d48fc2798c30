"""The time that a job uses: this host's, or the registry's if the two clocks are too far apart."""

from __future__ import annotations

from collections.abc import Iterable

from aioelasticjob.config.job import JobConfig, tolerates
from aioelasticjob.errors import ClockSkew
from aioelasticjob.model import ClockReading

ASTRAY = 1.0
"""Seconds by which this host's clock may differ from the registry's before jobs use the registry's."""
AHEAD = 3_000
"""Milliseconds by which records and dates may lie in the future: clocks differ slightly, and claims are sent early."""
STEP = 2 * ASTRAY
"""Seconds by which the time must jump to count as set.  Changing over to the other clock causes smaller jumps."""
STEADY = 10.0
"""Seconds to wait after a jump before records are lowered: a clock that was set back by mistake is soon corrected."""
JUMPS = 8
"""How many jumps ahead are remembered, to report the moments that they skipped."""


def is_astray(skew: float) -> bool:
    """Whether a host's clock differs so much from the registry's, in seconds, that jobs use the registry's."""
    return abs(skew) > ASTRAY


class ClockSkewMonitor:
    """Compares this host's clock with the registry's, and notices when the time that jobs use is set.

    It reads no clock itself: its owner passes readings to ``take``, and all answers refer to the newest reading.
    """

    def __init__(self, reading: ClockReading) -> None:
        self._keep(reading)
        self.now = int(self._seconds * 1000)
        """The time in milliseconds since the epoch."""
        self._lead = self._seconds - reading.steady
        """How far the time is ahead of the clock that nobody sets, in seconds."""
        self.jumped_at = reading.steady
        """When the time was set last, by the clock that nobody sets; or when this object was made."""
        self.skipped: tuple[tuple[int, int], ...] = ()
        """The start and end of each of the last jumps ahead, oldest first, in milliseconds."""

    def take(self, reading: ClockReading) -> int:
        """Note what the clocks show, and return the time in milliseconds: the registry's, if this host's is wrong.

        A host whose clock is ahead would claim moments that have yet to come; one whose clock is behind would run its
        items late.
        """
        self._keep(reading)
        before = self.now
        self.now = int(self._seconds * 1000)
        lead = self._seconds - reading.steady
        step = lead - self._lead
        self._lead = lead
        if abs(step) > STEP:
            self.jumped_at = reading.steady
            if step > 0:
                start = int((self._seconds - step) * 1000)
                self.skipped = (*self.skipped, (start, self.now))[-JUMPS:]
        if self.now < before:  # these moments come again
            self.skipped = tuple(span for span in self.skipped if span[1] <= self.now)
        return self.now

    def _keep(self, reading: ClockReading) -> None:
        self.host = reading.host
        self.steady = reading.steady
        """The times of this host's clock and of the clock that nobody sets, in seconds."""
        self._skew = reading.skew
        self._unheard = reading.unheard
        self._outages = reading.outages
        self._seconds = reading.host - (reading.skew if self.is_astray else 0.0)

    @property
    def is_astray(self) -> bool:
        """Whether jobs use the registry's clock, because this host's is wrong."""
        return is_astray(self._skew)

    @property
    def heard(self) -> int:
        """Up to when this process is known to have heard of each change in the registry, in milliseconds."""
        return self.now - round(self._unheard * 1000)

    def is_soon(self, moment: int) -> bool:
        """Whether a moment is still to come, and so soon that a clock which is right may have given it."""
        return self.now < moment <= self.now + AHEAD

    @property
    def unsteady(self) -> float:
        """For how many more seconds it is too early to lower records because of the last jump of the clock.

        While the registry cannot be reached, nobody can see that a clock that was set back has been put right.
        """
        since = self.jumped_at
        if self._outages:
            _, ended = self._outages[-1]
            since = max(since, self.steady - ended)
        return max(0.0, since + STEADY - self.steady)

    def intolerable(self, config: JobConfig) -> ClockSkew | None:
        """Return an error with the clock skew if the job does not tolerate it, else None."""
        return None if tolerates(config, self._skew) else ClockSkew.of(self._skew, config.max_time_diff_seconds)

    def outages(self) -> tuple[tuple[int, int], ...]:
        """Return the start and end of each outage of the registry, oldest first, in milliseconds."""
        return self.spans(self._outages)

    def spans(self, ages: Iterable[tuple[float, float]]) -> tuple[tuple[int, int], ...]:
        """Return the start and end of each span in milliseconds, given how many seconds ago it began and ended."""
        found = list[tuple[int, int]]()
        for began, ended in ages:
            start = self.now - round(began * 1000)
            end = self.now - round(ended * 1000)
            found.append((start, end))
        return tuple(found)

    def was_away(self, moment: int) -> bool:
        """Whether this process could not reach the registry at a moment."""
        return bool(self._outages) and any(began <= moment <= ended for began, ended in self.outages())
