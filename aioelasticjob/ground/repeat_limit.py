"""Counts what is written again and again, such as log lines, alerts and refusals, and says when it is enough."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from math import inf


class RepeatLimit:
    """Says whether one more of a kind may be written in this interval, and counts those that are left out."""

    def __init__(self, interval: float, since: float = -inf) -> None:
        self._interval = interval
        self._since = since
        self._written = Counter[Hashable]()
        self._left_out = Counter[Hashable]()

    @property
    def end(self) -> float:
        """When the interval is over."""
        return self._since + self._interval

    @property
    def left_out(self) -> int:
        """How many were left out and have not been taken by ``take_left_out``."""
        return self._left_out.total()

    def is_full(self, most: int) -> bool:
        """Whether ``most`` of the kind have been written in this interval."""
        return self._written.total() >= most

    def admits(self, subject: Hashable, *, most: int, each: int | None = None) -> bool:
        """Whether one more may be written about a subject; it is counted as written, or as left out.

        ``each`` is how many may be written about one subject, and ``most`` how many about all subjects together.
        """
        if self.is_full(most) or (each is not None and self._written[subject] >= each):
            self.leave_out(subject)
            return False
        self._written[subject] += 1
        return True

    def leave_out(self, subject: Hashable, count: int = 1) -> None:
        """Count what is left out for another reason than this limit."""
        self._left_out[subject] += count

    def renew(self, now: float) -> bool:
        """Begin a new interval if the last one is over; return whether it is.  What was left out stays counted."""
        if now < self.end:
            return False
        self._since = now
        self._written.clear()
        return True

    def take_left_out(self) -> Counter[Hashable]:
        """Return how many were left out of each subject; they are counted from zero again."""
        taken = self._left_out
        self._left_out = Counter()
        return taken
