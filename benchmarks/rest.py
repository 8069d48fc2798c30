"""What a job costs a process while it is not due, and how long a full garbage collection takes with a thousand.

Each job's share is the difference to a process that runs an application without jobs, divided by the jobs.  Memory is
the growth of what the process occupies (RSS): that is what its operator pays for, the allocator's own needs and what
starting has left behind included, and watching it costs nothing, while tracemalloc would slow the start down and need
memory of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from benchmarks.report import Figure
from benchmarks.resting import Rest, Rested, rest
from benchmarks.servers import measured_server

NAME: Final = "jobs at rest in app.running()"


def measure(*, quick: bool) -> Iterator[Figure]:
    """Yield the figures."""
    jobs, seconds = (20, 0.2) if quick else (1000, 6)
    with measured_server(quick=quick) as server:
        empty = rest(Rest(f"zk://{server.address}/empty", 0, seconds))
        full = rest(Rest(f"zk://{server.address}/full", jobs, seconds))
    yield from _per_job(f"{jobs:,} jobs", jobs, full, empty)
    yield from _whole("no jobs", empty)
    yield from _whole(f"{jobs:,} jobs", full, "≤ 60")


def _per_job(case: str, jobs: int, full: Rested, empty: Rested) -> Iterator[Figure]:
    def share(whole: float, floor: float) -> float:
        return max(0.0, whole - floor) / jobs

    yield Figure(NAME, case, "memory per job", share(full.grown, empty.grown) / 1e3, "KB", "≤ 35")
    yield Figure(NAME, case, "asyncio tasks per job", share(full.tasks, empty.tasks), "", "≤ 1")
    cpu = 1000 * share(full.start_cpu, empty.start_cpu)
    yield Figure(NAME, case, "processor time to start per job", cpu, "ms", "≤ 1.5")
    cpu = 1000 * share(full.leave_cpu, empty.leave_cpu)
    yield Figure(NAME, case, "processor time to leave per job", cpu, "ms")
    objects = share(full.objects, empty.objects)
    yield Figure(NAME, case, "objects that the collector tracks per job", objects, "", "as few as ≤ 60 ms need")


def _whole(case: str, found: Rested, goal: str = "") -> Iterator[Figure]:
    yield Figure(NAME, case, "full garbage collection", 1000 * found.collection, "ms", goal)
    yield Figure(NAME, case, "memory", found.resident / 1e6, "MB")
    yield Figure(NAME, case, "processor time to start", found.start_cpu, "s")
