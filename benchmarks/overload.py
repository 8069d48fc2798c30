"""More one-second jobs than a process can take: whether it stays useful, and fair to all of them.

The share of the worst-served job is how often it ran within the window, divided by the mean of all jobs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from benchmarks.load import run_worker
from benchmarks.report import Figure
from benchmarks.servers import measured_server
from benchmarks.worker import Load, Measured

NAME: Final = "overload in one process"
LONGEST: Final = 600.0
"""Seconds the worker may take to start and to leave."""


def measure(*, quick: bool) -> Iterator[Figure]:
    """Yield the figures."""
    jobs, seconds, warm_up = (30, 1, 0) if quick else (3000, 60, 15)
    with measured_server(quick=quick) as server:
        load = Load(jobs, seconds, f"zk://{server.address}/overload", warm_up=warm_up, server_pid=server.pid)
        found = run_worker(load, LONGEST)
    bare = run_worker(Load(jobs, seconds, warm_up=warm_up))
    case = f"{jobs:,} one-second jobs"
    yield Figure(NAME, case, "until all items are assigned", found.assigned_after, "s", "≤ 20")
    yield from _figures(case, seconds, found, ("≥ 2,200", "≤ 20", "≥ 0.5"))
    yield from _figures(f"{jobs:,} bare timers", seconds, bare, ("", "", ""))


def _figures(case: str, seconds: int, found: Measured, goals: tuple[str, str, str]) -> Iterator[Figure]:
    fires, lines, share = goals
    mean = len(found.late) / len(found.served)
    yield Figure(NAME, case, "fires per second", len(found.late) / seconds, "/s", fires)
    yield Figure(NAME, case, "log lines per second", found.log_lines / seconds, "/s", lines)
    worst = min(found.served) / mean if mean else 0.0
    yield Figure(NAME, case, "share of the mean that the worst-served job gets", worst, "", share)
