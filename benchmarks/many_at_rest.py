"""Ten thousand jobs at rest in one process: how fast it starts, how much it needs, how long its loop stands still.

A full garbage collection goes through everything that is alive.  The process brings one about while the jobs rest, as
the garbage of an application's other parts does sooner or later, and the longest stall at rest includes it.  In
``app.run()`` fashion the collector was told to pass over the jobs (``freeze_garbage_collector``), which itself begins
with a full collection; that one belongs to the start.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from benchmarks.report import Figure
from benchmarks.resting import Rest, Rested, rest
from benchmarks.servers import measured_server

NAME: Final = "many jobs at rest"


def measure(*, quick: bool) -> Iterator[Figure]:
    """Yield the figures."""
    jobs, seconds = (50, 0.2) if quick else (10_000, 10)
    with measured_server(quick=quick) as server:
        for fashion, goal in (("app.running()", "≤ 500"), ("app.run()", "≤ 200")):
            spared = fashion == "app.run()"
            found = rest(Rest(f"zk://{server.address}/many-{spared}", jobs, seconds, spared))
            yield from _figures(f"{jobs:,} jobs, {fashion}", found, ("≤ 20", "≤ 420", goal))
        empty = rest(Rest(f"zk://{server.address}/none", 0, seconds))
    yield from _figures("no jobs, app.running()", empty, ("", "", ""))


def _figures(case: str, found: Rested, goals: tuple[str, str, str]) -> Iterator[Figure]:
    start, memory, stall = goals
    yield Figure(NAME, case, "until all items are assigned", found.assigned_after, "s", start)
    yield Figure(NAME, case, "memory", found.resident / 1e6, "MB", memory)
    yield Figure(NAME, case, "longest stall of the loop while starting", 1000 * found.start_stall, "ms")
    yield Figure(NAME, case, "longest stall of the loop at rest", 1000 * found.stall, "ms", stall)
    yield Figure(NAME, case, "until all jobs have left", found.left_after, "s")
