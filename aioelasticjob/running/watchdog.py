"""Notices that the event loop is blocked, and logs which code blocks it.

A blocked loop sends no heartbeats.  If it is blocked for too long, the session is lost with all its locks.  Only a
thread can notice that while it happens.  If a call into C keeps the interpreter's lock, not even a thread can run; then
the code is logged as soon as it gives the lock back.  (``faulthandler.dump_traceback_later`` needs no lock, but a
process has only one, which belongs to the user's program, and it writes to a file.)
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TypeAlias

from aioelasticjob.code_origin import is_ours_or_pythons
from aioelasticjob.limited_log import MOST, LimitedLog
from aioelasticjob.logging import logger

BEAT = 0.2
"""Seconds between two beats, with which the loop shows that it is not blocked."""
BLOCKED = 0.7
"""Seconds without a beat after which the loop counts as blocked; so it is logged within a second."""
WORKED = 0.15
"""Seconds of processor time after which a thread counts as having worked, rather than having been stopped."""
BUSY = 0.1
"""The same as a share of the elapsed time: other processes may have used most of the processor."""
END_TIMEOUT = 0.2
"""Seconds that the loop waits at the end until the thread has ended.

The thread needs less than a millisecond, unless it is logging at that time and a log handler waits for the loop.  So
this is shorter than ``BLOCKED``.
"""

_LOOPS = (asyncio.runners.__file__, asyncio.base_events.__file__)
"""Files whose functions run a loop.  What calls them waits for as long as the loop runs, and blocks nothing."""
_IDLE = "Its event loop ran none of your code: the process or its machine was stopped, or a thread waited with the lock"

log = logger(__name__)
Frames: TypeAlias = Sequence[tuple[FrameType, int]]


@contextmanager
def watchdog() -> Iterator[None]:
    """Watch the running event loop from a thread.  On a host that allows no threads, nothing is watched."""
    watch = _Watch(asyncio.get_running_loop())
    thread = threading.Thread(target=watch.look, name="aioelasticjob-watchdog", daemon=True)
    with suppress(RuntimeError):
        thread.start()
    watch.beat()
    try:
        yield
    finally:
        watch.stop()
        if thread.ident is not None:
            thread.join(END_TIMEOUT)


class _Watch:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._thread, self._clock = loop, threading.get_ident(), _own_clock()
        self._alive = time.monotonic()
        self._stopped = threading.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._limited_log = LimitedLog(loop)

    def beat(self) -> None:
        """Note that the loop is not blocked.  This runs in the loop."""
        self._alive = time.monotonic()
        self._timer = self._loop.call_later(BEAT, self.beat)

    def stop(self) -> None:
        """Let the thread end, and end the beats."""
        self._stopped.set()
        self._limited_log.close()
        if self._timer is not None:
            self._timer.cancel()

    def look(self) -> None:
        """Check for beats until stopped.  This runs in the thread."""
        blocked_since: float | None = None
        looked, spent = time.monotonic(), self._spent()
        while not self._stopped.wait(BEAT / 2):
            before, looked, alive = looked, time.monotonic(), self._alive
            since, spent = spent, self._spent()
            if looked - before > BLOCKED:  # this thread was blocked as well
                if self._held_up(looked - before, spent[0] - since[0], spent[1] - since[1]):
                    blocked_since = blocked_since or (alive if looked - alive > BLOCKED else None)
                elif blocked_since is None:
                    self._alive = looked
            alive = self._alive
            if blocked_since is not None and alive != blocked_since:
                seconds, blocked_since = alive - blocked_since, None
                self._log(logging.WARNING, f"the event loop runs again; it was blocked for {seconds:.1f} s", seconds)
            if blocked_since is None and time.monotonic() - alive > BLOCKED:
                blocked_since = alive
                text = f"the event loop has been blocked for {BLOCKED:g} s, and no job of this process goes on"
                self._log(logging.ERROR, text, BLOCKED, f".  It is at:\n{self._stack()}")

    def _held_up(self, seconds: float, by_loop: float, by_all: float) -> bool:
        """Log why this thread was blocked, and return whether the loop caused it.

        The stacks still show the cause, because the other threads have hardly run since.
        """
        worked = max(WORKED, BUSY * seconds)
        level = logging.ERROR
        if by_loop > worked:
            what, where = "code in the event loop kept the interpreter's lock", f"It is at:\n{self._stack()}"
        elif by_all > worked:
            what, where = "a thread kept the interpreter's lock", f"It is one of these:\n{self._stacks()}"
        else:  # the process was stopped, or a thread waits and keeps the lock, so log the stack
            level = logging.WARNING
            frames = self._frames()
            at = f"Its event loop was at:\n{_shown(frames)}" if _are_of_users(frames) else _IDLE
            what, where = "the whole process stood still", at
        self._log(level, f"{what} for {seconds:.1f} s", seconds, f".  {where}")
        return by_loop > worked

    def _log(self, level: int, text: str, seconds: float, where: str = "") -> None:
        """Write a line, with the stack that shows the cause if there is one, unless there were too many lines."""
        if self._limited_log.admits(log, None, "the event loop was blocked", each=MOST, newest=text):
            log.log(level, "%s%s", text, where, extra={"seconds": round(seconds, 1)})

    def _spent(self) -> tuple[float, float]:
        """Return the processor time of the loop's thread, if the platform has it, and of all threads."""
        by_loop = 0.0
        if self._clock is not None:
            with suppress(OSError):  # the thread has ended
                by_loop = time.clock_gettime(self._clock)
        return by_loop, time.process_time()

    def _frames(self) -> Frames:
        """Return the frames of the loop's thread, the innermost first."""
        frame = sys._current_frames().get(self._thread)
        return list(traceback.walk_stack(frame)) if frame else ()

    def _stack(self) -> str:
        return _shown(self._frames()) or "(the thread has ended)"

    def _stacks(self) -> str:
        """Return the stacks of all threads except this one and those that wait in ``threading``."""
        found = {
            ident: list(traceback.walk_stack(frame))  # first all frames: reading source lines lets other threads run
            for ident, frame in sys._current_frames().items()
            if ident != threading.get_ident() and frame.f_code.co_filename != threading.__file__
        }
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        return "\n".join(f"thread {names.get(ident, ident)}:\n{_shown(frames)}" for ident, frames in found.items())


def _own_clock() -> int | None:
    """Return the id of the clock of this thread's processor time; None if the platform has no such clock."""
    of_thread = getattr(time, "pthread_getcpuclockid", None)
    return None if of_thread is None else int(of_thread(threading.get_ident()))


def _are_of_users(frames: Frames) -> bool:
    """Return whether the loop runs code that is neither this package's nor Python's; frames outside it do not count."""
    for frame, _ in frames:
        file = frame.f_code.co_filename
        if file in _LOOPS and frame.f_code.co_name.startswith("run"):
            return False
        if not is_ours_or_pythons(file):
            return True
    return False


def _shown(frames: Frames) -> str:
    summary = traceback.StackSummary.extract(frames)
    summary.reverse()
    return "".join(summary.format()).rstrip()
