"""Notices that the event loop is blocked, and logs which code blocks it.

A blocked loop sends no heartbeats.  If it is blocked for too long, the session is lost with all its locks.  Only a
thread can notice that while it happens.  If the thread was held up as well, it says so afterwards: a call into C may
have kept the interpreter's lock, the process may have been stopped, or other programs may have used the processors.
From inside these look the same, so none of them is claimed.  (``faulthandler.dump_traceback_later`` needs no lock, but
a process has only one, which belongs to the user's program, and it writes to a file.)
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

from aioelasticjob.ground.limited_log import MOST, LimitedLog
from aioelasticjob.host.code_origin import is_installed, is_ours_or_pythons
from aioelasticjob.logging import logger

BEAT = 0.2
"""Seconds between two beats, with which the loop shows that it is not blocked."""
BLOCKED = 0.7
"""Seconds without a beat after which the loop counts as blocked; so it is logged within a second."""
END_TIMEOUT = 0.2
"""Seconds that the loop waits at the end until the thread has ended.

The thread needs less than a millisecond, unless it is logging at that time and a log handler waits for the loop.  So
this is shorter than ``BLOCKED``.
"""

_LOOPS = (asyncio.runners.__file__, asyncio.base_events.__file__)
"""Files whose functions run a loop.  What calls them waits for as long as the loop runs, and blocks nothing."""
HELD_UP = "a call kept the interpreter's lock, the process was stopped, or it was given no processor"
"""All that can be said of why no thread of the process ran."""

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
        self._loop = loop
        self._thread = threading.get_ident()
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
        looked = time.monotonic()
        while not self._stopped.wait(BEAT / 2):
            before = looked
            looked = time.monotonic()
            if looked - before > BLOCKED:
                self._log_held_up(looked - before)
                if blocked_since is None:
                    self._alive = looked  # the loop has yet to show whether it goes on
            alive = self._alive
            if blocked_since is not None and alive != blocked_since:
                seconds = alive - blocked_since
                blocked_since = None
                self._log(logging.WARNING, f"the event loop runs again; it was blocked for {seconds:.1f} s", seconds)
            if blocked_since is None and looked - alive > BLOCKED:
                blocked_since = alive
                text = f"the event loop has been blocked for {BLOCKED:g} s, and no job of this process goes on"
                self._log(logging.ERROR, text, BLOCKED, f".  It is at:\n{self._stack()}")

    def _log_held_up(self, seconds: float) -> None:
        """Log that no thread ran, with the stacks of threads that run users' code: they have hardly gone on since."""
        text = f"the event loop was blocked for {seconds:.1f} s, and all threads of this process with it: {HELD_UP}"
        stacks = self._stacks()
        where = f".  Your code is at:\n{stacks}" if stacks else ""
        self._log(logging.WARNING, text, seconds, where)

    def _log(self, level: int, text: str, seconds: float, where: str = "") -> None:
        """Write a line, with the stack that shows the cause if there is one, unless there were too many lines."""
        if self._limited_log.admits(log, None, "the event loop was blocked", each=MOST, newest=text):
            log.log(level, "%s%s", text, where, extra={"seconds": round(seconds, 1)})

    def _frames(self) -> Frames:
        """Return the frames of the loop's thread, the innermost first."""
        frame = sys._current_frames().get(self._thread)
        if frame is None:
            return ()
        return list(traceback.walk_stack(frame))

    def _stack(self) -> str:
        return _shown(self._frames()) or "(the thread has ended)"

    def _stacks(self) -> str:
        """Return the stacks of the threads that run users' code, the loop's first."""
        found = dict[int, Frames]()
        for ident, frame in sys._current_frames().items():  # first all frames: reading source lines lets others run
            if ident == threading.get_ident():
                continue
            frames = list(traceback.walk_stack(frame))
            is_shown = _are_of_users(frames) if ident == self._thread else _have_users_files(frames)
            if is_shown:
                found[ident] = frames
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        names[self._thread] = "the event loop"
        loop_first = sorted(found, key=lambda ident: ident != self._thread)
        stacks = [f"thread {names.get(ident, ident)}:\n{_shown(found[ident])}" for ident in loop_first]
        return "\n".join(stacks)


def _are_of_users(frames: Frames) -> bool:
    """Return whether a thread runs code that is neither this package's nor Python's; callers of a loop do not count."""
    for frame, _ in frames:
        file = frame.f_code.co_filename
        if file in _LOOPS and frame.f_code.co_name.startswith("run"):
            return False
        if not is_ours_or_pythons(file):
            return True
    return False


def _have_users_files(frames: Frames) -> bool:
    """Return whether a thread has a frame of users' own files: threads of installed packages mostly wait for work."""
    for frame, _ in frames:
        file = frame.f_code.co_filename
        if not is_ours_or_pythons(file) and not is_installed(file):
            return True
    return False


def _shown(frames: Frames) -> str:
    summary = traceback.StackSummary.extract(frames)
    summary.reverse()
    return "".join(summary.format()).rstrip()
