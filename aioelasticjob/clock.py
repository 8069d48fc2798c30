"""The only module that reads wall time.  All others are given a clock; tests and simulations give their own."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
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


def _boot_clock() -> Callable[[], float]:
    if sys.platform == "darwin":
        return partial(time.clock_gettime, time.CLOCK_MONOTONIC)
    number = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic if number is None else partial(time.clock_gettime, number)


boot_time: Callable[[], float] = _boot_clock()
"""Returns seconds of a clock that nobody sets and that goes on while the machine is suspended, if there is such a one.

Linux has CLOCK_BOOTTIME.  On macOS it is CLOCK_MONOTONIC, since ``time.monotonic`` reads another clock there, which
stands still.  Elsewhere it is ``time.monotonic``, which goes on during a suspension on Windows.  A virtual machine does
not know that its hypervisor has stopped it: no clock of the guest goes on then.  A simulation replaces it by its own.
"""
