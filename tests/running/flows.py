"""A dataflow's engine alone, in virtual time: a flight without a registry, and what it did."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any

import anyio

from aioelasticjob.config import JobConfig
from aioelasticjob.coordination.progress import Tally
from aioelasticjob.coordination.view import JobView
from aioelasticjob.events import Events
from aioelasticjob.jobs.base import Job
from aioelasticjob.jobs.context import Context
from aioelasticjob.jobs.dataflow import Dataflow, Strategy
from aioelasticjob.latest import Latest
from aioelasticjob.layout import Layout
from aioelasticjob.model import Claim, Fire, FireSource, Outcome, Record, Seen
from aioelasticjob.registry.tree import Tree
from aioelasticjob.running.blocking import Means
from aioelasticjob.running.dataflow import Engine
from aioelasticjob.running.executor import Flight, execute
from aioelasticjob.running.reins import Reins
from aioelasticjob.testing import run

Handler = Callable[..., Any]


@dataclass
class Saved:
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
class Flown:
    """A flight, and whatever it complained of."""

    config: JobConfig
    fetch: Handler
    process: Handler
    dead: Handler | None = None
    items: Iterable[int] = (0,)
    retry: Strategy | None = None
    saved: Saved = field(default_factory=Saved)
    events: Events = field(default_factory=Events)
    complaints: list[BaseException] = field(default_factory=list)
    means: Means = field(default_factory=Means)
    reins: Reins = field(init=False)
    flight: Flight = field(init=False)

    def __post_init__(self) -> None:
        flow = Dataflow(self.config, self.fetch, self.retry)
        flow.process(self.process)
        if self.dead is not None:
            flow.dead(self.dead)
        engine = Engine(flow)
        self._job = Job(self.config, self.fetch, engine.check(), engine=engine)

    async def fly(self) -> None:
        seen = {item: Seen(Record(), 0) for item in self.items}
        claim = Claim(Fire(0, FireSource.CRON), "me", 1, dict.fromkeys(self.items, 1), seen, {})
        view = JobView(Layout("flow"), Tree(), self.config)
        self.reins = Reins(view, Latest(view), Tally(), self.events)
        self.flight = Flight(self._job, self.config, claim, self.saved, self.means, self._complain, self.reins)
        await execute(self.flight)

    def _complain(self, context: Context, error: BaseException) -> None:
        self.complaints.append(error)

    @property
    def outcomes(self) -> dict[int, Outcome]:
        return self.flight.outcomes

    @property
    def counted(self) -> tuple[int, int]:
        return self.reins.tally.succeeded, self.reins.tally.failed


def dataflow(**settings: Any) -> JobConfig:
    return JobConfig.build(job_name="flow", job_type="DATAFLOW", **settings)


def flown(flight: Flown, *beside: Callable[[], Coroutine[Any, Any, None]]) -> Flown:
    """Fly it in virtual time, with others beside it."""

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            for other in beside:
                tasks.start_soon(other)
            await flight.fly()
            tasks.cancel_scope.cancel()

    run(main)
    return flight
