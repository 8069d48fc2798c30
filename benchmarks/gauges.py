"""What is watched from inside a process while something else runs: its collector, its log, the stalls of its loop."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TextIO

OLDEST: Final = 2
"""The generation whose collection goes through all objects: a full collection."""
TICK: Final = 0.01
"""Seconds between two signs of life of a loop."""


@dataclass(slots=True)
class Collections:
    """What the garbage collector did."""

    full: list[float] = field(default_factory=list)
    """Of each full collection: its processor time, in seconds.

    It never waits, so on an idle machine this is how long it stopped the process; others' work is not added to it.
    """
    garbage: int = 0
    """Objects that collections of any generation found to be unreachable: cyclic garbage."""


@dataclass(slots=True)
class Stall:
    """The longest time that a loop was held up, in seconds."""

    longest: float = 0.0


class LogLines(logging.StreamHandler[TextIO]):
    """Formats and writes each line, as an application's log would, but to nowhere, and counts."""

    def __init__(self, nowhere: TextIO) -> None:
        super().__init__(nowhere)
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        self.count += 1
        super().emit(record)


@contextmanager
def collections() -> Iterator[Collections]:
    """Watch the garbage collector while the block is open."""
    found, began = Collections(), 0.0

    def note(phase: Literal["start", "stop"], about: dict[str, int]) -> None:
        nonlocal began
        if phase == "start":
            began = time.thread_time()
            return
        found.garbage += about["collected"]
        if about["generation"] == OLDEST:
            found.full.append(time.thread_time() - began)

    gc.callbacks.append(note)
    try:
        yield found
    finally:
        gc.callbacks.remove(note)


@contextmanager
def stalls() -> Iterator[Stall]:
    """Watch the running loop while the block is open: how much later than asked a timer of 10 ms comes, at most."""
    loop, found = asyncio.get_running_loop(), Stall()
    due, timer = 0.0, None

    def tick() -> None:
        found.longest = max(found.longest, time.perf_counter() - due)
        arm()

    def arm() -> None:
        nonlocal due, timer
        due = time.perf_counter() + TICK  # the loop's own clock may stand still while the loop does
        timer = loop.call_later(TICK, tick)

    arm()
    try:
        yield found
    finally:
        found.longest = max(found.longest, time.perf_counter() - due)  # a stall that goes on until now
        if timer is not None:
            timer.cancel()


@contextmanager
def logged() -> Iterator[LogLines]:
    """Count what is logged at INFO and above, which is what ``aioelasticjob run`` writes by default."""
    root = logging.getLogger()
    before = root.level
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        lines = LogLines(nowhere)
        root.setLevel(logging.INFO)
        root.addHandler(lines)
        try:
            yield lines
        finally:
            root.removeHandler(lines)
            root.setLevel(before)


def resident() -> int:
    """Return the bytes of memory that this process occupies."""
    return int(_status()["VmRSS"].split()[0]) * 1024


def threads() -> int:
    """Return the threads of this process."""
    return int(_status()["Threads"])


def _status() -> dict[str, str]:
    return dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
