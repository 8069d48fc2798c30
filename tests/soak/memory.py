"""The memory of processes over time, and how fast it grows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import linear_regression
from typing import Final

HOUR: Final = 3600.0
MIB: Final = 1024.0 * 1024.0
FEWEST: Final = 10
"""Samples after the warm-up without which there is no slope."""


@dataclass(frozen=True, slots=True)
class Slope:
    """The memory of a process after its warm-up, in MiB."""

    first: float
    last: float
    most: float
    per_hour: float
    seconds: float


@dataclass
class Memory:
    """Samples of the resident memory of each process: seconds since some moment, and bytes."""

    samples: dict[str, list[tuple[float, int]]] = field(default_factory=dict)

    async def watch(self, now: Callable[[], float], processes: Callable[[], Mapping[str, int]], every: float) -> None:
        """Take samples of these processes, and of those that they have started, until cancelled."""
        while True:
            for name, pid in processes().items():
                self._take(name, pid, now())
                for child in _descendants(pid):
                    self._take(f"{name}, child {child}", child, now())
            await asyncio.sleep(every)

    def _take(self, name: str, pid: int, at: float) -> None:
        with suppress(OSError, KeyError):  # it has ended, or is ending
            status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
            self.samples.setdefault(name, []).append((at, int(status["VmRSS"].split()[0]) * 1024))

    def slopes(self, warm_up: float) -> dict[str, Slope]:
        """Return how the memory of each process has grown, without its first ``warm_up`` seconds."""
        return {name: slope for name, samples in self.samples.items() if (slope := slope_of(samples, warm_up))}


def slope_of(samples: list[tuple[float, int]], warm_up: float) -> Slope | None:
    """Return the slope of a linear regression over what was sampled after the warm-up; None for too few samples."""
    warm = [(at, size / MIB) for at, size in samples if at >= samples[0][0] + warm_up]
    if len(warm) < FEWEST:
        return None
    times, sizes = [at for at, _ in warm], [size for _, size in warm]
    slope, _ = linear_regression(times, sizes)
    return Slope(sizes[0], sizes[-1], max(sizes), slope * HOUR, times[-1] - times[0])


def waited_for_processor(pid: int) -> Mapping[int, float]:
    """Return for how many seconds each thread of a process has waited for a processor so far; nothing if it has ended.

    All threads count: any of them may keep the interpreter's lock, for which the others wait, while it waits itself.
    """
    found: dict[int, float] = {}
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):  # this thread has ended
                found[int(task.name)] = int((task / "schedstat").read_text().split()[1]) / 1e9
    return found


def _descendants(pid: int) -> Iterator[int]:
    children = ""
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            children += (task / "children").read_text()
    for child in map(int, children.split()):
        yield child
        yield from _descendants(child)
