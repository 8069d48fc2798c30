"""A process that only runs an application: its signals, its event loop, its garbage collector."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from time import monotonic
from typing import Any

from anyio import CancelScope, Event, move_on_after, open_signal_receiver

from aioelasticjob.host.signals import end_process_1_on_signals, stopping_signals
from aioelasticjob.logging import logger

GC_THRESHOLD = 10_000
"""Objects made between two collections of young objects: more than a burst of a thousand fires makes."""
FORCED_EXIT_AFTER = 5.0
"""Seconds that handlers have to end after a signal has cancelled everything; then the process exits by force."""
REPEATED_WITHIN = 0.5
"""Seconds after the first signal in which further ones are repetitions of it.

``timeout`` signals its child and then the group of processes, and supervisors pass on the Ctrl-C that a process got
from the terminal, too: that is one wish to stop, not two.
"""

log = logger(__name__)
_received = set[int]()
"""The signals that this process receives in its event loop now."""


def _release_signals() -> None:
    """Let signals end this process, which was forked from one that receives them in its event loop.

    A fork inherits the descriptor through which Python wakes the loop.  Without this function, a SIGTERM for a child
    would not end the child, but stop the application of its parent.  multiprocessing.Pool ends its children by SIGTERM.
    """
    if _received:
        signal.set_wakeup_fd(-1)
        for number in _received:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        _received.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_signals)


def open_standard_descriptors() -> None:
    """Open the null device in the place of stdin, stdout and stderr, as far as they are closed.

    Otherwise the next file or connection gets such a number, and programs that are started write into it.  uvloop ends
    the process by force when it closes one (``uv__close: Assertion `fd > STDERR_FILENO' failed``).
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # it gets the lowest number that is free
            os.set_inheritable(opened, True)


def collect_garbage_seldom() -> None:
    """Make garbage collections rarer: otherwise they take a fifth of the time in which ten thousand jobs start."""
    young, *older = gc.get_threshold()
    if 0 < young < GC_THRESHOLD:
        gc.set_threshold(GC_THRESHOLD, *older)


def freeze_garbage_collector() -> None:
    """Let the garbage collector pass over all present objects: this process needs most of them until it ends.

    Otherwise, with a thousand jobs, each full collection would stop the loop for up to 150 ms, every few seconds.
    """
    gc.collect()
    gc.freeze()


async def await_signals(
    arrived: Event, asked: Event, everything: CancelScope, force: threading.Timer, *, task_status: Any
) -> None:
    """Set ``asked`` on the first signal.  On a second one, or while jobs are still starting, cancel everything.

    A signal that repeats the first one within ``REPEATED_WITHIN`` seconds is none: it has not started ``force``.
    """
    numbers = stopping_signals()
    with ExitStack() as stack:
        stack.callback(end_process_1_on_signals)  # the receiver leaves Python's defaults behind
        signals = stack.enter_context(open_signal_receiver(*numbers))
        _start_on_a_second_signal(force, numbers)
        _received.update(numbers)
        stack.callback(_received.clear)
        task_status.started()
        async for number in signals:
            if asked.is_set() and not force.is_alive():
                continue
            if asked.is_set():
                log.warning(
                    "second signal: the process stops at once and cancels its handlers", extra={"signal": number}
                )
            elif arrived.is_set():
                asked.set()
                continue
            everything.cancel()  # while jobs are still starting, there is no run to finish
            if not force.is_alive():
                force.start()
            if not asked.is_set():  # a repetition would end the process in the middle of its cleanup
                with move_on_after(REPEATED_WITHIN, shield=True):
                    async for number in signals:
                        log.debug("the signal is repeated", extra={"signal": number})
            return


def _start_on_a_second_signal(force: threading.Timer, numbers: Iterable[signal.Signals]) -> None:
    """Have a second signal start the timer, also while a handler blocks the event loop, in which signals are read.

    The function that notes a signal takes the place of the loop's own, which does nothing that the loop needs: Python
    wakes the loop through a descriptor all the same, and calls the function before the loop reads the signal.  When the
    loop stops receiving signals, it puts Python's defaults in its place.
    """
    times = list[float]()

    def note(*_: object) -> None:
        times.append(monotonic())
        if times[-1] > times[0] + REPEATED_WITHIN and not force.is_alive():
            force.start()

    for number in numbers:
        signal.signal(number, note)
        signal.siginterrupt(number, False)  # as the loop has set it; otherwise calls into C would fail with EINTR


@contextmanager
def forced_exit(running: Callable[[], str]) -> Iterator[threading.Timer]:
    """Yield a timer that ends the process ``FORCED_EXIT_AFTER`` seconds after its start, unless the block has ended.

    ``running`` is called in another thread then, and returns the jobs that still run, for the log; "" if none is known.
    """

    def end() -> None:
        text = "the process is ended by force: a handler still runs %g s after it should have stopped%s"
        try:
            jobs = running()
            log.error(text, FORCED_EXIT_AFTER, jobs and f": {jobs}", extra={"seconds": FORCED_EXIT_AFTER})
        finally:
            os._exit(1)

    timer = threading.Timer(FORCED_EXIT_AFTER, end)
    timer.daemon = True
    try:
        yield timer
    finally:
        timer.cancel()


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return the loop factory for processes of our own: uvloop's, or asyncio's on Windows, where there is no uvloop."""
    if sys.platform == "win32":
        return asyncio.new_event_loop
    from uvloop import new_event_loop  # imported here, so that only processes of our own pay for the import

    return new_event_loop
