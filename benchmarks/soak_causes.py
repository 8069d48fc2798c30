"""What explains the log lines of a soak: which deed is followed by which line."""

from __future__ import annotations

from typing import Final

from benchmarks.chaos_stage import LEAVE
from benchmarks.soak_jobs import PERIOD
from benchmarks.soak_log import BUSY, RUNS_ON, START, Cause

MEMBER: Final = "restart-member"
SUMMED_UP: Final = 90.0
"""Seconds after which lines that were left out are counted at the latest."""
CLAIMED: Final = 2.0 * PERIOD + 10
"""Seconds after which the next holder of an item has seen at the latest that the item's last run was cut off."""

CAUSES: Final = (
    Cause(
        "an attempt fails on purpose, and is made again",
        r"failed on purpose; the next one begins|answered 503.*; the next one begins"
        r"|left out, about .*attempts fail with (OnPurpose|RequestFailed)",
    ),
    Cause(
        "an attempt fails on purpose, and its worker leaves",
        r"ERROR retried(-request)?-\d+: item \d+ .*(OnPurpose|answered 503)",
        own=(LEAVE,),
    ),
    Cause(
        "a process waits for a processor",
        r"event loop .*blocked|process stood still|kept the interpreter's lock",
        own=(BUSY,),
        longer=RUNS_ON,
    ),
    Cause("a process starts", r"does not answer \(no answer yet\)", own=(START,)),
    Cause(
        "a member restarts", r"connection to the registry was lost|cannot connect to the registry", anyones=(MEMBER,)
    ),
    Cause("a worker was killed", r"cut off, and failover is off", anyones=("kill-worker",), longer=CLAIMED),
    Cause("a worker leaves", r"instance stops, and waits", own=(LEAVE,)),
)
