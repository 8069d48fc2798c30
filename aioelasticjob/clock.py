"""The only module that reads wall time.  All others are given a clock; tests and simulations give their own."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
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


def boot_time() -> float:
    """Return seconds of a clock that nobody sets and that goes on while the machine is suspended, if there is such a
    one.

    Linux has CLOCK_BOOTTIME.  On macOS it is CLOCK_MONOTONIC, since ``time.monotonic`` reads another clock there, which
    stands still.  Elsewhere it is ``time.monotonic``, which goes on during a suspension on Windows.  A virtual machine
    does not know that its hypervisor has stopped it: no clock of the guest goes on then.
    """
    return _read_boot_time()


def _boot_clock() -> int | None:
    """Return the number of the clock that goes on during a suspension; None if there is only ``time.monotonic``."""
    if sys.platform == "darwin":
        return time.CLOCK_MONOTONIC
    return getattr(time, "CLOCK_BOOTTIME", None)


_BOOT_CLOCK = _boot_clock()
_read_boot_time: Callable[[], float] = (  # a simulation replaces this function by its own
    time.monotonic if _BOOT_CLOCK is None else partial(time.clock_gettime, _BOOT_CLOCK)
)


def moment(seconds: float) -> datetime:
    """Return ``seconds`` since the epoch as an aware datetime in UTC."""
    return datetime.fromtimestamp(seconds, UTC)
