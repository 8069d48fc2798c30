"""Moves records in one of several ways, in a process of its own: ``python -m benchmarks.flows PLAN``.

Each way reads the same batches and calls the same handler, with the same number of calls at a time.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import anyio

from aioelasticjob.config.job import JobConfig
from aioelasticjob.core.layout import Layout
from aioelasticjob.core.view import JobView
from aioelasticjob.engine.dataflow import DataflowEngine
from aioelasticjob.engine.early_end import RetryWaits, StreamControl
from aioelasticjob.engine.ending import Ending
from aioelasticjob.engine.execution import Execution, execute
from aioelasticjob.engine.executors import Executors
from aioelasticjob.engine.run_counts import RunCounts
from aioelasticjob.events import Events
from aioelasticjob.ground.latest import Latest
from aioelasticjob.jobs.base import Job
from aioelasticjob.jobs.context import ItemContext
from aioelasticjob.jobs.dataflow import Dataflow
from aioelasticjob.model import Claim, Fire, FireSource, Outcome, Record, VersionedRecord
from aioelasticjob.registry.tree import Tree

PAGE = 4096
"""Bytes of a page of memory."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is moved, and how."""

    way: str
    records: int
    concurrency: int = 64
    seconds: float = 0.0
    """How long the handler waits; 0 for one that does nothing."""
    fetched: int = 10_000
    """Records of a batch."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What it cost."""

    seconds: float
    cpu: float
    grown: int
    """Bytes of memory at the largest, beyond those at the start."""


Handler = Callable[..., Awaitable[object]]


def batches(plan: Plan) -> Iterator[list[int]]:
    """Yield the records, a batch at a time, as a source would."""
    for start in range(0, plan.records, plan.fetched):
        yield list(range(start, min(plan.records, start + plan.fetched)))


def handler(plan: Plan) -> Handler:
    """Return what is called with a context and a record."""

    async def nothing(context: object, record: object) -> None:
        pass

    async def wait(context: object, record: object) -> None:
        await asyncio.sleep(plan.seconds)

    return wait if plan.seconds else nothing


async def queue(plan: Plan, handle: Handler) -> None:
    """Let workers take records from an asyncio.Queue: what one would write by hand."""
    waiting: asyncio.Queue[int] = asyncio.Queue(2 * plan.concurrency)

    async def work() -> None:
        while True:
            record = await waiting.get()
            await handle(None, record)
            waiting.task_done()

    async with asyncio.TaskGroup() as tasks:
        workers = [tasks.create_task(work()) for _ in range(plan.concurrency)]
        for batch in batches(plan):
            for record in batch:
                await waiting.put(record)
        await waiting.join()
        for worker in workers:
            worker.cancel()


async def memory_stream(plan: Plan, handle: Handler) -> None:
    """Let workers take records from one of anyio's memory object streams."""
    sending, receiving = anyio.create_memory_object_stream[int](2 * plan.concurrency)

    async def work() -> None:
        async for record in receiving:
            await handle(None, record)

    async with anyio.create_task_group() as tasks, sending:
        for _ in range(plan.concurrency):
            tasks.start_soon(work)
        for batch in batches(plan):
            for record in batch:
                await sending.send(record)


async def aiostream(plan: Plan, handle: Handler) -> None:
    """Let aiostream map the records with a task limit."""
    from aiostream import pipe, stream

    async def source() -> AsyncIterator[int]:
        for batch in batches(plan):
            for record in batch:
                yield record

    async def work(record: int, *_: int) -> None:
        await handle(None, record)

    mapped: Any = work  # what their types want of it cannot be said
    await (stream.iterate(source()) | pipe.map(mapped, ordered=False, task_limit=plan.concurrency))


def ours(**settings: Any) -> Callable[[Plan, Handler], Awaitable[None]]:
    """Return our engine with these settings, over one item; everything but the registry, whose work is per run."""

    async def flow(plan: Plan, handle: Handler) -> None:
        given = {"concurrency": plan.concurrency, "prefetch": True, **settings}
        config = JobConfig.build(job_name="flow", job_type="DATAFLOW", streaming=True, **given)

        async def fetch(context: ItemContext) -> AsyncIterator[list[int]]:
            for batch in batches(plan):
                yield batch

        dataflow = Dataflow(config, fetch)
        dataflow.process(handle)
        execution = _flight(config, Job(config, fetch, False, engine=DataflowEngine(dataflow)))
        await execute(execution)
        assert execution.outcomes == {0: Outcome.COMPLETED}
        assert execution.stream_control is not None
        assert execution.stream_control.run_counts.succeeded == plan.records

    return flow


def _flight(config: JobConfig, job: Job) -> Execution:
    claim = Claim(Fire(0, FireSource.SCHEDULE), "me", 1, {0: VersionedRecord(Record(), 0, 1)}, {})
    views = Latest(JobView(Layout("flow"), Tree(), config))
    reins = StreamControl(views.value, views, RunCounts(), Events())
    return Execution(job, config, claim, _NoOffsets(), Executors(), _raise, RetryWaits(views, Latest(Ending())), reins)


class _NoOffsets:
    def get(self, item: int) -> str | None:
        return None

    async def save(self, item: int, value: str) -> None:
        raise NotImplementedError


def _raise(context: object, error: BaseException) -> None:
    raise error


WAYS: dict[str, Callable[[Plan, Handler], Awaitable[None]]] = {
    "dataflow, unordered": ours(),
    "dataflow, ordered": ours(ordered=True),
    "dataflow, batches of 100": ours(batch_size=100),
    "asyncio.Queue": queue,
    "anyio memory stream": memory_stream,
    "aiostream": aiostream,
}


async def move(plan: Plan) -> Cost:
    """Move the records and return what it cost."""
    handle, move_all = handler(plan), WAYS[plan.way]
    await move_all(Plan(plan.way, min(plan.records, 1000), plan.concurrency, 0.0, 100), handler(Plan("", 0)))  # warm up
    gc.collect()
    grown, before = 0, _resident()

    async def watch() -> None:
        nonlocal grown
        while True:
            grown = max(grown, _resident() - before)
            await asyncio.sleep(0.05)

    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(watch())
        began, cpu = time.perf_counter(), time.process_time()
        await move_all(plan, handle)
        cost = Cost(time.perf_counter() - began, time.process_time() - cpu, max(grown, _resident() - before))
        watching.cancel()
    return cost


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE


if __name__ == "__main__":
    print(json.dumps(asdict(asyncio.run(move(Plan(**json.loads(sys.argv[1])))))))
