"""Streaming jobs of a simulated cluster: their handlers, and the records that these fetch and process.

The schedule of these jobs lies in the past, so that each of their runs was asked for.  Each run has records of its own:
they are there until they are processed, whichever instance fetches them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING, Any

from anyio import sleep

from aioelasticjob.app import ElasticJob
from aioelasticjob.jobs.context import InstanceContext, ItemContext
from tests.simulation.users import Code
from tests.support.history import Drained

if TYPE_CHECKING:
    from tests.simulation.cluster import JobPlan

CRON, LAST = "* * * * * ? 2024", datetime(2025, 1, 1, tzinfo=UTC)
"""The schedule of streaming jobs, and its end."""
BATCHES = 6
"""The most batches that a run of an item has."""

Record = tuple[int, str, int]
"""The item, the run, and the number of a record."""


class StreamCode(Code):
    """The code of one streaming job in one process."""

    def declare(self, app: ElasticJob, settings: Mapping[str, Any]) -> None:
        """Add the job to an application."""
        app.dataflow(**settings)(self._fetch).process(self._process_record)
        app._events.attach(self)

    async def _fetch(self, context: ItemContext | InstanceContext) -> AsyncIterator[list[Record]]:
        for item, run in zip(context.claimed, self._begin(context), strict=True):
            self._open[context.task_id, item] = run, "completed"
        while left := [one for item in context.claimed for one in self._next(item, context.fire.run)]:
            await sleep(0.02)
            for item, name, number in left:
                dice = self._dice(item, name, number)
                if not self._cluster.peaceful and dice.random() < self._job.failing / BATCHES:
                    raise RuntimeError("this call of fetch was meant to fail")
            yield left

    async def _process_record(self, context: ItemContext | InstanceContext, record: Record) -> None:
        await sleep(0.02 if self._cluster.peaceful else self._dice(*record).uniform(0.05, 1.5))
        self._cluster.processed.add((self._job.name, *record))

    def _next(self, item: int, run: str) -> list[Record]:
        """Return the first record of a run that was not processed; note it if there is none left."""
        cluster, job = self._cluster, self._job.name
        for number in range(1 + self._dice(item, run, 0).randrange(BATCHES)):
            if (job, item, run, number) not in cluster.processed:
                return [(item, run, number)]
        cluster.history.note(Drained(cluster.history.now(), job, item, run))
        return []

    def _dice(self, item: int, run: str, number: int) -> Random:
        return Random(f"{self._cluster.plan.seed} {self._job.name} {item} {run} {number}")


def streaming(job: JobPlan) -> JobPlan:
    """Return a job as a streaming one."""
    settings = {name: value for name, value in job.settings if name != "timeout"}
    return replace(job, cron=CRON, settings=(*settings.items(), ("streaming", True)), is_streaming=True)
