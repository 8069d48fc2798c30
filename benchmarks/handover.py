"""From SIGTERM of a process that holds items, idle, to their next holder and to their next run."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from statistics import median
from typing import Final

from aioelasticjob.config.job import JobConfig
from benchmarks.crew import ITEMS, Crew, crew
from benchmarks.crew_member import JOB
from benchmarks.report import Figure
from tests.support.history import Begun

NAME: Final = "graceful hand-over: SIGTERM of an idle holder"


def measure(*, quick: bool) -> Iterator[Figure]:
    """Yield the figures."""
    measured = asyncio.run(_rounds(1 if quick else 5, quick=quick))
    quiet = JobConfig.build(job_name=JOB).sharding_quiet
    for leader, case in ((False, "a process that does not lead"), (True, "the leader's process")):
        assigned, ran = zip(*measured[leader], strict=True)
        yield Figure(NAME, case, "to the next holder's assignment, sharding_quiet included", median(assigned), "s")
        yield Figure(NAME, case, "of which sharding_quiet", quiet, "s")
        yield Figure(NAME, case, "to the next run of all its items, which are due every second", median(ran), "s")


async def _rounds(rounds: int, *, quick: bool) -> dict[bool, list[tuple[float, float]]]:
    """Return, for whether the leader leaves, the time to the new assignment and to the last item's next run."""
    measured: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    async with crew(quick=quick) as processes:
        for _ in range(rounds):
            for leader, times in measured.items():
                times.append(await _round(processes, leader=leader))
    return measured


async def _round(processes: Crew, *, leader: bool) -> tuple[float, float]:
    view = await processes.complete()
    victim = processes.choose(view, leader=leader)
    items = {item for item, holder in view.assignment.items() if holder == victim}
    seen = processes.clock.now()
    await processes.begun(lambda run: run.at > seen + 1 and run.instance == victim)
    await asyncio.sleep(0.2)  # idle again
    process, asked = processes.process(victim), processes.clock.now()
    os.kill(process.pid, signal.SIGTERM)
    await processes.until(
        lambda view: view.assignment_stands and victim not in view.assignment.values() and len(view.assignment) == ITEMS
    )
    assigned = processes.clock.now()

    def elsewhere(item: int) -> Callable[[Begun], bool]:
        return lambda run: run.at > asked and run.item == item and run.instance != victim

    ran = [(await processes.begun(elsewhere(item))).at for item in items]
    await asyncio.to_thread(process.wait)
    processes.join()
    return assigned - asked, max(ran) - asked
