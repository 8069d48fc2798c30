"""Notices a blocked event loop, and names what blocks it.

While the loop stands still no heartbeat goes out: long enough, and the session is lost with every item it holds.  Only
a thread can see that while it happens.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress

BEAT = 0.2
"""Seconds between two signs of life."""
BLOCKED = 0.7
"""Seconds without one after which the loop counts as blocked: with two beats more it is said within a second."""

log = logging.getLogger(__name__)


@contextmanager
def watchdog() -> Iterator[None]:
    """Watch the running event loop from a thread; a host that allows no threads goes without."""
    watch = _Watch(asyncio.get_running_loop())
    thread = threading.Thread(target=watch.look, name="aioelasticjob-watchdog", daemon=True)
    with suppress(RuntimeError):
        thread.start()
    watch.beat()
    try:
        yield
    finally:
        watch.stop()


class _Watch:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._thread = loop, threading.get_ident()
        self._alive = time.monotonic()
        self._stopped = threading.Event()
        self._timer: asyncio.TimerHandle | None = None

    def beat(self) -> None:
        """Give a sign of life; runs in the loop."""
        self._alive = time.monotonic()
        self._timer = self._loop.call_later(BEAT, self.beat)

    def stop(self) -> None:
        """End the thread and the beat; does not wait, since the thread may be about to log."""
        self._stopped.set()
        if self._timer is not None:
            self._timer.cancel()

    def look(self) -> None:
        """Look for signs of life; runs in the thread."""
        told_at: float | None = None
        looked = time.monotonic()
        while not self._stopped.wait(BEAT / 2):
            before, looked = looked, time.monotonic()
            if looked - before > BLOCKED:  # this thread stood still as well: nothing in the loop is to blame
                log.warning("the whole process was held up", extra={"seconds": round(looked - before, 1)})
                self._alive = looked
            alive = self._alive
            if told_at is not None and alive != told_at:
                log.warning("the event loop goes on", extra={"seconds": round(alive - told_at, 1)})
                told_at = None
            if told_at is None and time.monotonic() - alive > BLOCKED:
                told_at = alive
                log.error("the event loop is blocked, at:\n%s", self._stack(), extra={"seconds": BLOCKED})

    def _stack(self) -> str:
        frame = sys._current_frames().get(self._thread)
        return "".join(traceback.format_stack(frame)).rstrip() if frame else "(the thread has ended)"
