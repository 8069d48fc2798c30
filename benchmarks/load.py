"""How many one-second jobs a process can take, how late they are, and what starting them takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from benchmarks.child import ask
from benchmarks.report import Figure, percentile
from benchmarks.servers import measured_server
from benchmarks.worker import Load, Measured

NAME: Final = "one-second jobs in one process"
STARTING: Final = "starting them"
JAVA: Final = {
    10: {"fires": "10", "p50": "33", "p99": "191", "start": "1.3", "memory": "323", "threads": "65"},
    100: {"fires": "100", "p50": "84", "p99": "131", "start": "6.2", "memory": "428", "threads": "425"},
    300: {"fires": "300", "p50": "247", "p99": "318", "start": "14.7", "memory": "568", "threads": "1,225"},
}
"""Elastic-Job 3.0.4; its figures for ten jobs are of an earlier measurement."""
JAVA_CPU: Final = {10: ("8.9", "5.9"), 100: ("1.9", "1.24"), 300: ("1.7", "1.0")}
GOALS: Final = {
    300: {"start": "≤ 4", "memory": "≤ 120"},
    1000: {"fires": "1,000", "p99": "< 50"},
}
LONGEST: Final = 180.0  # seconds a worker may take to start and to leave


def measure(*, quick: bool) -> Iterator[Figure]:
    """Yield the figures."""
    seconds, starts = 1 if quick else 20, list[Figure]()
    for jobs in (20,) if quick else (10, 100, 300, 1000):
        with measured_server(quick=quick) as server:
            address = f"zk://{server.address}/load"
            found = run_worker(Load(jobs, seconds, address, warm_up=0 if quick else 15, server_pid=server.pid))
        bare = run_worker(Load(jobs, seconds))
        yield from _lateness(jobs, seconds, found, bare)
        starts += _start(jobs, found)
    yield from starts


def run_worker(load: Load, longest: float = LONGEST) -> Measured:
    """Run a worker as a process of its own and return what it measured; it may take ``longest`` beyond its windows.

    Raises: RuntimeError when it fails.
    """
    measured = ask("benchmarks.worker", load, longest + 2 * (load.warm_up + load.seconds))
    timers = measured.pop("timers")
    return Measured(**measured, timers=timers and Measured(**timers))


def _lateness(jobs: int, seconds: int, found: Measured, bare: Measured) -> Iterator[Figure]:
    case, java, goal = f"{jobs:,} jobs", JAVA.get(jobs, {}), GOALS.get(jobs, {})
    fires = max(1, len(found.late))
    yield Figure(
        NAME, case, "fires per second", len(found.late) / seconds, "", goal.get("fires", ""), java.get("fires", "")
    )
    for name, part in (("p50", 0.5), ("p99", 0.99), ("max", 1.0)):
        late = 1000 * percentile(found.late, part)
        yield Figure(NAME, case, f"late, {name}", late, "ms", goal.get(name, ""), java.get(name, ""))
        floor = 1000 * percentile(bare.late, part)
        yield Figure(NAME, case, f"late, {name}, bare timers", floor, "ms")
    own, server = JAVA_CPU.get(jobs, ("", ""))
    yield Figure(NAME, case, "own processor time per fire", 1000 * found.own_cpu / fires, "ms", java=own)
    yield Figure(NAME, case, "ZooKeeper's processor time per fire", 1000 * found.server_cpu / fires, "ms", java=server)


def _start(jobs: int, found: Measured) -> Iterator[Figure]:
    case, java, goal = f"{jobs:,} jobs", JAVA.get(jobs, {}), GOALS.get(jobs, {})
    yield Figure(STARTING, case, "until all have joined", found.joined_after, "s")
    assigned = found.assigned_after
    yield Figure(
        STARTING, case, "until all items are assigned", assigned, "s", goal.get("start", ""), java.get("start", "")
    )
    yield Figure(STARTING, case, "own processor time", found.start_cpu, "s")
    memory = found.resident / 1e6
    yield Figure(STARTING, case, "memory", memory, "MB", goal.get("memory", ""), java.get("memory", ""))
    yield Figure(STARTING, case, "threads", found.threads, "", java=java.get("threads", ""))
