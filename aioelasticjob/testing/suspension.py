"""Machines that are suspended: the monotonic clock of their process stands still, and its timers with it.

``loop.time()`` and ``time.monotonic()``, asked by such a process, are behind by as long as it slept; its wall clock and
CLOCK_BOOTTIME are not.  A process that is only paused (SIGSTOP) wakes to clocks that went on.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq

from aioelasticjob.testing.process import Process, current_process
from aioelasticjob.testing.simulated_loop import SimulatedLoop

ROUNDED = 1e-9
"""Seconds, more than what rounding makes of a sum of times."""


def suspend(loop: SimulatedLoop, process: Process) -> None:
    """Stop a process together with its monotonic clock: what it has set does not come due meanwhile."""
    others = list[asyncio.TimerHandle]()
    for timer in loop._scheduled:
        if _is_of(timer, process) and not timer.cancelled():
            process.timers.append(timer)
        else:
            others.append(timer)
    loop._scheduled[:] = others
    heapq.heapify(loop._scheduled)
    process.suspended_at = loop.boot_time()
    process.pause()


def wake(loop: SimulatedLoop, process: Process) -> None:
    """Let a suspended process go on, with its timers as far ahead of it as they were."""
    if process.suspended_at is None:
        return
    slept = loop.boot_time() - process.suspended_at
    process.suspended_at = None
    process.asleep += slept
    for timer in process.timers:
        timer._when += slept  # type: ignore[attr-defined]  # typeshed leaves it out
        heapq.heappush(loop._scheduled, timer)
    process.timers.clear()
    loop.resume(process)


def monotonic(process: Process, now: float) -> float:
    """Return what a process's monotonic clock shows; in spite of rounding, timers find their moments reached."""
    if not process.asleep:
        return now
    return now - process.asleep + ROUNDED


def _is_of(handle: asyncio.Handle, process: Process) -> bool:
    context: contextvars.Context = handle._context  # type: ignore[attr-defined]  # typeshed leaves it out
    return current_process(context) is process
