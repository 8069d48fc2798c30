"""One process that joins many jobs, measured from inside: ``python -m benchmarks.joining JOINING`` prints JSON."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import dataclass
from time import perf_counter
from typing import Final

from aioelasticjob import ElasticJob, ItemContext
from benchmarks.at_rest import NEVER
from benchmarks.child import answer, ask
from benchmarks.gauges import resident

HANDLER: Final = "report"
LONGEST: Final = 600.0
"""Seconds that a process may take to join."""
SETTLING: Final = 2.0
"""Seconds after which what follows the start is over."""


@dataclass(frozen=True, slots=True)
class Joining:
    """How many jobs a process joins, where, and whether they were created in the registry or are declared."""

    address: str
    jobs: int
    are_created: bool


@dataclass(frozen=True, slots=True)
class Joined:
    """What came of it."""

    seconds: float
    """Until all jobs had joined."""
    grown: int
    """By how many bytes the resident memory has grown since before the first job was declared."""


def join(asked: Joining) -> Joined:
    """Let a process of its own join jobs and return what it measured; raises as ``ask`` does."""
    return Joined(**ask("benchmarks.joining", asked, LONGEST))


async def measure(asked: Joining) -> Joined:
    """Join the jobs, and return what that takes."""

    async def handler(context: ItemContext) -> None:
        raise AssertionError("nothing is due")

    gc.collect()  # what the imports have left behind is nobody's growth
    before = resident()
    app = ElasticJob(asked.address)
    if asked.are_created:
        app.handler(HANDLER)(handler)
    else:
        for number in range(asked.jobs):
            app.add(handler, name=f"job-{number}", cron=NEVER)
    began = perf_counter()
    async with app.running():
        seconds = perf_counter() - began
        joined = [job for job in app.health.jobs if job.instance is not None]
        if len(joined) != asked.jobs:
            raise RuntimeError(f"{len(joined)} of {asked.jobs} jobs have joined")
        await asyncio.sleep(SETTLING)
        return Joined(seconds, resident() - before)


if __name__ == "__main__":
    answer(Joining, measure)
