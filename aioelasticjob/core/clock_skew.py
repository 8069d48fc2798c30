"""The time that a job uses: this host's, or the registry's if the two clocks are too far apart."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from aioelasticjob.config.job import JobConfig, tolerates
from aioelasticjob.errors import ClockSkew
from aioelasticjob.model import ClockReading

ASTRAY = 1.0
"""Seconds by which this host's clock may differ from the registry's before jobs use the registry's."""
AHEAD = 3_000
"""Milliseconds by which records and dates may lie in the future: clocks differ slightly, and claims are sent early."""
STEP = 2 * ASTRAY
"""Seconds by which the time must jump to count as set.  Changing over to the other clock causes smaller jumps."""
LATE = 60.0
"""Within so many seconds this process is assumed to notice that the registry's clock was set."""
STEADY = 10.0
"""Seconds to wait after a jump before acting on it: a clock that was set back by mistake is soon corrected."""
JUMPS = 8
"""How many jumps are remembered, to report the moments that they skipped, or that came while the job waited."""


class ClockSkewMonitor:
    """Compares this host's clock with the registry's, and notices when the time that jobs use is set.

    It reads no clock itself: its owner passes readings to ``take``, and all answers refer to the newest reading.  Of
    that it keeps the values and not the object, which the garbage collector would have to visit.
    """

    def __init__(self, reading: ClockReading) -> None:
        self._keep(reading)
        self._lead = self._seconds - reading.steady
        """How far the time is ahead of the clock that nobody sets, in seconds."""
        self._set_back = 0.0
        """How many seconds the time is behind what it was before a step back on which the job has not acted yet."""
        self._jumped, self._jumped_at = False, reading.steady
        """Whether the time was set and nobody has asked for that yet; and when it was set last, by the steady clock."""
        self.now = self.set_to = self.since = int(self._seconds * 1000)
        """``now``: the time; ``set_to``: the time to which it was set last; ``since``: when that was, at the earliest.

        All are in milliseconds.  Until the time is set, ``set_to`` and ``since`` are when this object was made.
        """
        self._made_by, self.noticed_by = reading.zxid, 0
        """The newest transactions known when this object was made, and when it noticed last that the time was set."""
        self.skipped: tuple[tuple[int, int], ...] = ()
        """The start and end of each of the last jumps ahead, oldest first, in milliseconds."""
        self.waits: tuple[tuple[int, int], ...] = ()
        """When the job has waited after the last steps back until they were certain, oldest first, in milliseconds."""

    def take(self, reading: ClockReading) -> int:
        """Note what the clocks show, and return the time in milliseconds: the registry's, if this host's is wrong.

        A host whose clock is ahead would claim moments that have yet to come; one whose clock is behind would run its
        items late.
        """
        self._keep(reading)
        seconds, in_doubt = self._seconds, self._set_back > 0
        lead = seconds - reading.steady
        step = lead - self._lead
        self._lead, self.now = lead, int(seconds * 1000)
        if not in_doubt and -STEP <= step <= STEP:
            return self.now
        self._set_back = self._set_back - step if self._set_back - step > STEP else 0.0
        if abs(step) > STEP:
            since = int((seconds - min(reading.gap, LATE)) * 1000)
            # a further step back, before the job has acted on the first, does not make the setting later
            self.since = min(since, self.since) if step < 0 and in_doubt and self.unsteady else since
            self._jumped, self._jumped_at, self.set_to, self.noticed_by = True, reading.steady, self.now, reading.zxid
            if step > 0:
                self.skipped = (*self.skipped, (int((seconds - step) * 1000), self.now))[-JUMPS:]
        return self.now

    def _keep(self, reading: ClockReading) -> None:
        self.host, self.steady = reading.host, reading.steady
        """The times of this host's clock and of the clock that nobody sets, in seconds."""
        self._skew, self._outages = reading.skew, reading.outages
        self._seconds = reading.host - (reading.skew if self.is_astray else 0.0)

    @property
    def is_astray(self) -> bool:
        """Whether jobs use the registry's clock, because this host's is wrong."""
        return abs(self._skew) > ASTRAY

    def is_soon(self, moment: int) -> bool:
        """Whether a moment is still to come, and so soon that a clock which is right may have given it."""
        return self.now < moment <= self.now + AHEAD

    @property
    def may_be_set_back(self) -> bool:
        """Whether the time is earlier than it was before, and the job has not acted on that yet."""
        return self._set_back > 0

    @property
    def is_disturbed(self) -> bool:
        """Whether the time was set and the job has not acted on it yet."""
        return self._jumped or self._set_back > 0

    @property
    def latest(self) -> int:
        """The latest time that it may be: until it is certain that the time was set back, the time as it was before."""
        return int((self._seconds + self._set_back) * 1000)

    @property
    def unsteady(self) -> float:
        """For how many more seconds it is too early to act on the last jump of the clock.

        While the registry cannot be reached, nobody can see that a clock that was set back has been put right.
        """
        since, steady, outages = self._jumped_at, self.steady, self._outages
        if outages and self.may_be_set_back:
            _, ended = outages[-1]
            since = max(since, steady - ended)
        return max(0.0, since + STEADY - steady)

    def has_jumped(self) -> bool:
        """Return whether the time has been set, ahead or back, since the last call of this method."""
        jumped, self._jumped = self._jumped, False
        return jumped

    def is_set_back(self) -> bool:
        """Return True, once, if the time has been set back and has stayed there."""
        if not self.may_be_set_back or self.unsteady:
            return False
        self._set_back = 0.0
        # moments that have yet to come again are not skipped, and nothing has waited then
        self.skipped = tuple(span for span in self.skipped if span[1] <= self.since)
        waits = [span for span in self.waits if span[1] <= self.since]
        self.waits = (*waits, (self.since, self.now))[-JUMPS:]
        return True

    def in_time(self, date: int, zxid: float = inf) -> int:
        """Return the date of a transaction, corrected if the registry's clock was ahead then.

        A date that lies in the future was given before the clock was set last, so it is replaced by the time of that
        setting (``since``).  If the transaction was known when this object was made, or when it noticed that the clock
        was set, it is enough that the date lay in the future then.

        Until it is certain that the time was set back, a date is corrected only if it is later than the time as it was
        before that step back.
        """
        if self.may_be_set_back:
            written_by = corrected = self.latest
        else:
            written_by = self.since if zxid <= self._made_by else self.set_to if zxid <= self.noticed_by else self.now
            corrected = self.since
        possible = self.latest + ASTRAY * 1000  # correct clocks may differ by so much
        return int(min(date if date <= written_by + AHEAD else corrected, possible))

    def intolerable(self, config: JobConfig) -> ClockSkew | None:
        """Return an error with the clock skew if the job does not tolerate it, else None."""
        return None if tolerates(config, self._skew) else ClockSkew.of(self._skew, config.max_time_diff_seconds)

    def outages(self) -> tuple[tuple[int, int], ...]:
        """Return the start and end of each outage of the registry, oldest first, in milliseconds."""
        return self.spans(self._outages)

    def spans(self, ages: Iterable[tuple[float, float]]) -> tuple[tuple[int, int], ...]:
        """Return the start and end of each span in milliseconds, given how many seconds ago it began and ended."""
        return tuple((self.now - round(began * 1000), self.now - round(ended * 1000)) for began, ended in ages)

    def was_away(self, moment: int) -> bool:
        """Whether this process could not reach the registry at a moment."""
        return bool(self._outages) and any(began <= moment <= ended for began, ended in self.outages())
