"""What explains the log lines of a soak: which action is followed by which line."""

from __future__ import annotations

from typing import Final

from tests.chaos.stage import LEAVE
from tests.soak.log import BUSY, BUSY_MEMBER, RUNS_ON, Cause
from tests.support.worker_journal import START

MEMBER: Final = "restart-member"
KILL: Final = "kill-worker"
LOST: Final = "lost-connection"
"""The kind of action that a line stands for which says that a process has lost its connection or session."""
STORE: Final = "slow-event-store"
"""The kind of action that a line stands for which tells that a process could not write the event store for a while."""
WRITTEN: Final = 30.0
"""Seconds after which a process has written what has collected meanwhile: each write of it may take 10 s once more."""
MOVING: Final = (START, LEAVE, KILL, LOST)
"""What makes items move to other workers."""
SUMMED_UP: Final = 90.0
"""Seconds after which lines that were left out are counted at the latest."""

CAUSES: Final = (
    Cause(
        "an attempt fails on purpose, and is made again",
        r"failed on purpose; the next one begins|answered 503.*; the next one begins"
        r"|left out, about .*attempts fail with (OnPurpose|RequestFailed)",
    ),
    Cause(
        "a run fails on purpose, for its worker leaves or its item moves",
        r"ERROR retried(-request)?-\d+: item \d+ .*(OnPurpose|answered 503)",
        anyones=MOVING,
    ),
    Cause(
        "a process waits for a processor",
        r"event loop .*blocked|process stood still",
        own=(BUSY,),
        longer=RUNS_ON,
    ),
    Cause(
        "a process starts, or its member waits for a processor",
        r"does not answer \(no answer yet\)",
        own=(START, BUSY),
        anyones=(BUSY_MEMBER,),
    ),
    Cause(
        "a process starts while a member restarts",
        r"does not answer \((closed by the server before it answered|\[Errno \d+\])",
        anyones=(MEMBER,),
    ),
    Cause(
        "a member restarts, or who connects waits for a processor",
        r"connection to the registry was lost|cannot connect to the registry|session \S+ has expired"
        r"|joins the job again: (no connection|the session was lost)",
        own=(BUSY,),
        anyones=(MEMBER, BUSY_MEMBER),
        becomes=LOST,
    ),
    Cause("a connection was lost", r"missed .*: the registry (could not be reached|refused to claim)", own=(LOST,)),
    Cause(
        "items move: a worker starts, leaves, is killed or loses its connection",
        r"missed .*: (the assignment of items was being changed|another instance|the run was cut off, and failover)"
        r"|missed .*: (\S+, which ran before, was gone|an earlier session of this process)"
        r"|missed .*: given up|GivenUp: given up",
        anyones=MOVING,
    ),
    Cause("a run begins late, or is slow", r"missed .*: the last run was still going on", (BUSY,), MOVING),
    Cause("a run is slow elsewhere", r"missed .*: another instance is still running the item", anyones=(BUSY,)),
    Cause("a process was slow", r"missed .*: this process was too slow or was suspended", own=(BUSY,)),
    Cause(
        "several moments are missed at a time",
        r"left out, about .*: (the registry (could not|refused to)|the assignment of items|another instance"
        r"|the run was cut off|the last run was still|this process was too slow|\S+, which ran before, was gone"
        r"|an earlier session of this process)",
        own=(BUSY,),
        anyones=MOVING,
        longer=SUMMED_UP,
    ),
    Cause(
        "lines that report a state are summed up",
        r"left out: (the event loop was blocked|(the connection to .*|the event store) comes and goes)",
        own=(BUSY, LOST, STORE),
        anyones=(MEMBER,),
        longer=SUMMED_UP,
    ),
    Cause(
        "who writes the event store waits for a processor",
        r"event store .*(no answer within|again; dropped)",
        anyones=(BUSY,),
        becomes=STORE,
    ),
    Cause(
        "a worker has left before the event store could be written",
        r"application ends before all events were written",
        own=(STORE,),
        longer=WRITTEN,
    ),
    Cause("a worker leaves", r"instance stops, and waits", own=(LEAVE,)),
)
