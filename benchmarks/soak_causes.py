"""What explains the log lines of a soak: which deed is followed by which line."""

from __future__ import annotations

from typing import Final

from benchmarks.soak_jobs import PERIOD
from benchmarks.soak_log import BUSY, END, START, Cause

MEMBER: Final = "restart-member"
SUMMED_UP: Final = 90.0
"""Seconds after which lines that were left out are counted at the latest."""
CLAIMED: Final = 2.0 * PERIOD + 10
"""Seconds after which the next holder of an item has seen at the latest that the item's last run was cut off."""

CAUSES: Final = (
    Cause(
        "an attempt fails on purpose", r"failed on purpose|attempts fail with (OnPurpose|RequestFailed)|answered 503"
    ),
    Cause(
        "a process starts, or waits for a processor",
        r"event loop .*blocked|process stood still",
        (START, BUSY),
        longer=5,
    ),
    Cause("a member restarts", r"connection to the registry was lost|cannot connect to the registry", (MEMBER,)),
    Cause("a worker was killed", r"cut off, and failover is off", ("kill-worker",), CLAIMED),
    Cause("a worker leaves", r"instance stops, and waits", (END,), SUMMED_UP),
)
