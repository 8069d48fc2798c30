"""A process that is nothing but an application: its signals, its loop, its garbage collector."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from anyio import CancelScope, Event, open_signal_receiver

YOUNG = 10_000
"""Objects made between two looks at the young ones: more than a burst of a thousand fires makes."""
BY_FORCE_AFTER = 5.0
"""Seconds after being told to stop at once until the process ends whatever a handler that cannot be cancelled does."""

log = logging.getLogger(__name__)


def spare_the_collector() -> None:
    """Let the garbage collector pass over what is there now: a process of its own has it to its end.

    With a thousand jobs each full collection would otherwise stop the loop for 150 ms, every few seconds.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])


async def await_signals(
    arrived: Event, asked: Event, everything: CancelScope, force: threading.Timer, *, task_status: Any
) -> None:
    """Set ``asked`` on the first signal, and end everything on the second, or while nothing has begun."""
    with open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for number in signals:
            if asked.is_set():
                log.warning("second signal: stopping at once", extra={"signal": number})
            elif arrived.is_set():
                asked.set()
                continue
            everything.cancel()  # what has not begun has nothing to finish
            force.start()
            return


@contextmanager
def by_force() -> Iterator[threading.Timer]:
    """Yield what ends the process from outside its loop; it need not be started, and does nothing after the block."""

    def end() -> None:
        log.error("ended by force: a handler cannot be cancelled", extra={"seconds": BY_FORCE_AFTER})
        os._exit(1)

    timer = threading.Timer(BY_FORCE_AFTER, end)
    timer.daemon = True
    try:
        yield timer
    finally:
        timer.cancel()


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return what makes the loops of processes of our own: uvloop's, but on Windows, where there is none."""
    if sys.platform == "win32":
        return asyncio.new_event_loop
    from uvloop import new_event_loop  # only who runs a process of ours pays for it

    return new_event_loop
