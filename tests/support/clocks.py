"""Clocks of tests."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class StandingClock:
    """A clock that stands where it was set."""

    time: float

    def now(self) -> float:
        return self.time
