"""A dataflow's engine alone, in virtual time: an execution without a registry, and what it did."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any

import anyio
from hypothesis import strategies as st

from aioelasticjob import ItemContext
from aioelasticjob.config.job import JobConfig
from aioelasticjob.core.layout import Layout
from aioelasticjob.core.view import JobView
from aioelasticjob.engine.dataflow import DataflowEngine
from aioelasticjob.engine.early_end import StreamControl
from aioelasticjob.engine.execution import Execution, execute
from aioelasticjob.engine.executors import Executors
from aioelasticjob.engine.run_counts import RunCounts
from aioelasticjob.events import Events
from aioelasticjob.ground.latest import Latest
from aioelasticjob.jobs.base import Job
from aioelasticjob.jobs.context import Context
from aioelasticjob.jobs.dataflow import Dataflow, RetryStrategy
from aioelasticjob.model import Claim, Fire, FireSource, Outcome, Record, VersionedRecord
from aioelasticjob.registry.tree import Tree
from aioelasticjob.testing import run
from tests.support.item_turns import turns_of
from tests.support.retry_waits import PlainWaits

SIZES = st.lists(st.integers(1, 12), max_size=8)

Handler = Callable[..., Any]


@dataclass
class SavedOffsets:
    """Offsets, and every save of one."""

    offsets: dict[int, str] = field(default_factory=dict)
    saves: list[tuple[int, str]] = field(default_factory=list)
    failure: Exception | None = None

    def get(self, item: int) -> str | None:
        return self.offsets.get(item)

    async def save(self, item: int, value: str) -> None:
        if self.failure is not None:
            raise self.failure
        self.offsets[item] = value
        self.saves.append((item, value))


@dataclass
class DataflowRun:
    """An execution, and the errors that it reported."""

    config: JobConfig
    fetch: Handler
    process: Handler
    dead: Handler | None = None
    items: Iterable[int] = (0,)
    retry: RetryStrategy | None = None
    saved: SavedOffsets = field(default_factory=SavedOffsets)
    events: Events = field(default_factory=Events)
    errors: list[BaseException] = field(default_factory=list)
    parts: list[tuple[str, bool]] = field(default_factory=list)
    """What of the run has failed, and whether the run went on."""
    executors: Executors = field(default_factory=Executors)
    stream_control: StreamControl = field(init=False)
    execution: Execution = field(init=False)

    def __post_init__(self) -> None:
        flow = Dataflow(self.config, self.fetch, self.retry)
        flow.process(self.process)
        if self.dead is not None:
            flow.dead(self.dead)
        engine = DataflowEngine(flow)
        self._job = Job(self.config, self.fetch, engine.check(self.config.executor), engine=engine)

    async def run(self) -> None:
        seen = {item: VersionedRecord(Record(), 0, 1) for item in self.items}
        claim = Claim(Fire(0, FireSource.SCHEDULE), "me", 1, seen, {})
        view = JobView(Layout("flow"), Tree(), self.config)
        self.stream_control = StreamControl(view, Latest(view), RunCounts(), self.events)
        self.execution = Execution(
            *(self._job, self.config, claim, self.saved, self.executors, self._report_error, PlainWaits()),
            stream_control=self.stream_control,
            turns=turns_of(self.config),
        )
        await execute(self.execution)

    def _report_error(self, context: Context, error: BaseException, part: str = "", run_goes_on: bool = False) -> None:
        self.errors.append(error)
        if part:
            self.parts.append((part, run_goes_on))

    @property
    def outcomes(self) -> dict[int, Outcome]:
        return self.execution.outcomes

    @property
    def counted(self) -> tuple[int, int]:
        return self.stream_control.run_counts.succeeded, self.stream_control.run_counts.failed


def dataflow(**settings: Any) -> JobConfig:
    return JobConfig.build(job_name="flow", job_type="DATAFLOW", **settings)


def run_dataflow(execution: DataflowRun, *beside: Callable[[], Coroutine[Any, Any, None]]) -> DataflowRun:
    """Run it in virtual time, with others beside it."""

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            for other in beside:
                tasks.start_soon(other)
            await execution.run()
            tasks.cancel_scope.cancel()

    run(main)
    return execution


class Source:
    """Hands out batches of ``(item, number)``, and sees who is at work with what."""

    def __init__(self, sizes: list[int], *, work: float = 0.1, fetching: float = 0.05) -> None:
        self.sizes, self.work, self.fetching = sizes, work, fetching
        self.handed: Counter[int] = Counter()
        self.fetched: Counter[int] = Counter()
        self.begun: list[tuple[int, int]] = []
        self.ended: list[tuple[int, int]] = []
        self.busy: Counter[int] = Counter()
        self.most_busy: Counter[int] = Counter()
        self.together = 0
        self.ahead: list[int] = []
        """Batches not through, of the item that was fetched for, whenever a fetch began."""

    def records(self, item: int) -> list[tuple[int, int]]:
        return [(item, number) for number in range(sum(self.sizes))]

    async def batch(self, context: ItemContext) -> list[tuple[int, int]] | None:
        item, n = context.item, self.handed[context.item]
        self.ahead.append(self._open(item))
        await anyio.sleep(self.fetching)
        if n == len(self.sizes):
            return None
        self.handed[item] += 1
        start = self.fetched[item]
        self.fetched[item] += self.sizes[n]
        return [(item, number) for number in range(start, start + self.sizes[n])]

    async def batches(self, context: ItemContext) -> AsyncIterator[list[tuple[int, int]]]:
        while (found := await self.batch(context)) is not None:
            yield found

    def _open(self, item: int) -> int:
        through, open_ = sum(one == item for one, _ in self.ended), 0
        for size in self.sizes[: self.handed[item]]:
            open_ += through < size
            through -= min(size, through)
        return open_

    async def process(self, context: ItemContext, record: tuple[int, int]) -> None:
        self.begun.append(record)
        self.busy[context.item] += 1
        self.most_busy |= self.busy
        self.together = max(self.together, self.busy.total())
        await anyio.sleep(self.work * (1 + record[1] % 3))
        self.busy[context.item] -= 1
        self.ended.append(record)


async def three(context: ItemContext) -> list[int]:
    return [1, 2, 3]


async def ignore(context: Any, record: Any) -> None:
    return None
