"""A thousand one-second jobs in an application that has other things to do as well, and so leaves the collector alone.

The jobs run in ``app.running()`` on uvloop.  The bare timers get a window of the same length in the same process
afterwards, with the jobs paused: so they run beside all the jobs' objects, with the same collector and the same heap,
but do not wait for the jobs' work.  In a process of their own they would be spared the objects; in the jobs' window
they would stand in one line with them, and be no floor.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from benchmarks.load import run_worker
from benchmarks.report import Figure, percentile
from benchmarks.servers import measured_server
from benchmarks.worker import Load, Measured

NAME: Final = "one-second jobs inside app.running()"


def measure(*, quick: bool) -> Iterator[Figure]:
    """Yield the figures."""
    jobs, seconds, warm_up = (20, 1, 0) if quick else (1000, 60, 15)
    with measured_server(quick=quick) as server:
        address = f"zk://{server.address}/embedded"
        load = Load(jobs, seconds, address, warm_up=warm_up, server_pid=server.pid, spared=False, timers_after=True)
        found = run_worker(load)
    goals = {"p99": "< 50", "cpu": "≤ 0.2", "longest": "≤ 30 (or none at all)", "garbage": "0"}
    yield from _figures(f"{jobs:,} jobs, {seconds} s", seconds, found, goals)
    if found.timers is not None:
        yield from _figures(f"{jobs:,} bare timers, {seconds} s", seconds, found.timers, {})


def _figures(case: str, seconds: int, found: Measured, goals: dict[str, str]) -> Iterator[Figure]:
    fires = len(found.late)
    yield Figure(NAME, case, "fires per second", fires / seconds, "/s")
    for name, part in (("p50", 0.5), ("p99", 0.99)):
        yield Figure(NAME, case, f"late, {name}", 1000 * percentile(found.late, part), "ms", goals.get(name, ""))
    cpu = 1000 * found.own_cpu / max(1, fires)
    yield Figure(NAME, case, "own processor time per fire", cpu, "ms", goals.get("cpu", ""))
    yield Figure(NAME, case, "full garbage collections", len(found.full_collections), "")
    longest = 1000 * max(found.full_collections, default=0.0)
    yield Figure(NAME, case, "longest full garbage collection", longest, "ms", goals.get("longest", ""))
    garbage = found.garbage / max(1, fires)
    yield Figure(NAME, case, "objects in garbage cycles per fire", garbage, "", goals.get("garbage", ""))
