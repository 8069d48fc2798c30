"""One process full of jobs at rest, measured from inside: ``python -m benchmarks.resting REST`` prints JSON."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter, process_time
from typing import Final

from aioelasticjob import ElasticJob, ItemContext
from benchmarks.at_rest import NEVER
from benchmarks.child import answer, ask
from benchmarks.gauges import collections, resident, stalls
from benchmarks.worker import started

COLLECTIONS: Final = 3
"""Full collections that are timed, of which the median counts."""
LONGEST: Final = 600.0
"""Seconds that a process may take to start, to be measured and to leave."""


@dataclass(frozen=True, slots=True)
class Rest:
    """How many jobs are to be at rest, where, for how many seconds, and how the collector is treated.

    ``spared`` is the way of ``app.run()``, which lets the collector pass over the jobs.
    """

    address: str
    jobs: int
    seconds: float
    spared: bool = False


@dataclass(frozen=True, slots=True)
class Rested:
    """What came of it; times in seconds, memory in bytes."""

    assigned_after: float
    start_cpu: float
    """Own processor time until all items were assigned."""
    start_stall: float
    """The longest time that the loop was held up until then."""
    grown: int
    """By how much the resident memory has grown since before the first job was declared."""
    resident: int = 0
    tasks: int = 0
    objects: int = 0
    """That the garbage collector tracks."""
    collection: float = 0.0
    """A full garbage collection, the median of three; processor time, which is its duration on an idle machine."""
    stall: float = 0.0
    """The longest time that the loop was held up at rest, one full garbage collection included."""
    left_after: float = 0.0
    """How long all jobs took to leave."""
    leave_cpu: float = 0.0
    """Own processor time until they had left."""


def rest(asked: Rest) -> Rested:
    """Let jobs rest in a process of their own and return what it measured; raises as ``ask`` does."""
    return Rested(**ask("benchmarks.resting", asked, LONGEST))


async def measure(asked: Rest) -> Rested:
    """Start the jobs, let them rest, and return what that takes."""

    async def handler(context: ItemContext) -> None:
        raise AssertionError("nothing is due")

    gc.collect()  # what the imports have left behind is nobody's growth
    before = resident()
    app = ElasticJob(asked.address)
    for number in range(asked.jobs):
        app.add(handler, name=f"job-{number}", cron=NEVER)
    with stalls() as starting:
        async with started(app, spared=asked.spared) as start:
            start_stall = starting.longest
            await asyncio.sleep(asked.seconds / 2)  # so that what follows a start is over
            memory = resident()
            found = Rested(start.assigned_after, start.cpu, start_stall, memory - before, memory)
            found = await _at_rest(found, asked.seconds)
            began, cpu = perf_counter(), process_time()
        return replace(found, left_after=perf_counter() - began, leave_cpu=process_time() - cpu)


async def _at_rest(found: Rested, seconds: float) -> Rested:
    tasks = len(asyncio.all_tasks())
    with stalls() as stall:
        await asyncio.sleep(seconds / 2)
        gc.collect()  # sooner or later the garbage of an application's other parts brings one about
        await asyncio.sleep(seconds / 2)
    with collections() as timed:
        for _ in range(COLLECTIONS):
            gc.collect()
    objects = len(gc.get_objects())
    return replace(found, tasks=tasks, objects=objects, collection=median(timed.full), stall=stall.longest)


if __name__ == "__main__":
    answer(Rest, measure)
