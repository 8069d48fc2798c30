"""The only reader of wall time.  Everything else is handed a clock, so tests and simulations can bend it."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Where the time comes from."""

    def now(self) -> float:
        """Return the wall time in seconds since the epoch."""
        ...


class SystemClock:
    """The host's wall clock."""

    def now(self) -> float:
        """Return the wall time in seconds since the epoch."""
        return time.time()


def moment(seconds: float) -> datetime:
    """Return ``seconds`` since the epoch as an aware datetime in UTC."""
    return datetime.fromtimestamp(seconds, UTC)
