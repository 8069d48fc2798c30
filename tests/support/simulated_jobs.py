"""A registry and applications in one virtual loop, for tests of how jobs run."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio

from aioelasticjob import ElasticJob, ItemContext
from aioelasticjob.core.layout import Layout
from aioelasticjob.core.records import decode
from aioelasticjob.engine.job_scheduler import JobScheduler
from aioelasticjob.engine.life import Life
from aioelasticjob.errors import NodeMissing
from aioelasticjob.events import JobEvent
from aioelasticjob.model import Record
from aioelasticjob.registry.session import ConnectionSettings, Session, open_session
from aioelasticjob.registry.transaction import Create, Op
from aioelasticjob.testing import Faults, VirtualClock, run
from aioelasticjob.testing.loop import START
from aioelasticjob.zookeeper.connection import MAX_FRAME
from aioelasticjob.zookeeper.server import serve
from aioelasticjob.zookeeper.settings import Settings

LAYOUT = Layout("job")
REGISTRY = "10.0.9.9"
Handler = Callable[[Any], Awaitable[object]]


@dataclass
class SimulatedJobs:
    """A registry, somebody who looks into it, and what the handlers did."""

    address: str
    observer: Session
    start: float
    faults: Faults
    runs: list[tuple[float, int, str, float]] = field(default_factory=list)
    """Seconds after the start, item, source, scheduled second after the start."""
    apps: list[ElasticJob] = field(default_factory=list)
    events: list[JobEvent] = field(default_factory=list)

    def now(self) -> float:
        return VirtualClock().now() - self.start

    def app(self, handler: Handler | None = None, *, work: float = 0.0, **settings: Any) -> ElasticJob:
        """Return an application with one job; by default its handler notes the run and works for a while."""

        async def note(context: ItemContext) -> None:
            fired = context.fire_time.timestamp() - self.start
            self.runs.append((round(self.now(), 1), context.item, context.source.value, round(fired, 1)))
            await anyio.sleep(work)

        app = ElasticJob(self.address, clock=VirtualClock(), session_timeout=10)
        app.add(handler or note, name="job", **settings)
        self.apps.append(app)
        return app

    async def until(self, second: float) -> None:
        await anyio.sleep(second - self.now())

    async def write(self, *operations: Op) -> None:
        await self.observer.commit(operations, incarnation=self.observer.incarnation)

    async def trigger(self, id: str = "by-hand", **fields: object) -> None:
        """Ask for a run as people do who write a request by hand."""
        await self.write(Create(LAYOUT.request(id), json.dumps({"kind": "TRIGGER", **fields}).encode()))

    async def flag(self, path: str) -> None:
        await self.write(Create(path))

    async def record(self, item: int, job: Layout = LAYOUT) -> Record:
        record = decode((await self.observer.get(job.item(item).execution)).data)
        assert record is not None
        return record

    async def names(self, path: str) -> tuple[str, ...]:
        try:
            return await self.observer.children(path)
        except NodeMissing:
            return ()

    def starts(self, item: int = 0) -> list[tuple[float, str, float]]:
        return [(at, source, fired) for at, one, source, fired in self.runs if one == item]


@asynccontextmanager
async def simulated_jobs(max_frame: int = MAX_FRAME) -> AsyncIterator[SimulatedJobs]:
    """Run a registry that takes requests of up to ``max_frame`` bytes."""
    faults, address = Faults(), f"zk://{REGISTRY}:2181/office"
    server = faults.start("registry", REGISTRY, partial(_registry, Settings(tick_time=1000, max_frame=max_frame)))
    async with open_session(ConnectionSettings.parse(address), clock=VirtualClock()) as observer:
        yield SimulatedJobs(address, observer, START, faults)
    server.terminate()


async def _registry(settings: Settings) -> None:
    async with serve("0.0.0.0", 2181, clock=VirtualClock().now, settings=settings):
        await anyio.sleep_forever()


@asynccontextmanager
async def listening(here: SimulatedJobs, app: ElasticJob) -> AsyncIterator[None]:
    """Collect the application's events while the block is open."""
    with app.events() as events:
        async with anyio.create_task_group() as tasks:

            async def collect() -> None:
                async for event in events:
                    here.events.append(event)

            tasks.start_soon(collect)
            yield
            tasks.cancel_scope.cancel()


def simulate(
    scene: Callable[[SimulatedJobs], Awaitable[None]], *, seed: int = 0, max_frame: int = MAX_FRAME
) -> SimulatedJobs:
    """Play a scene in virtual time, starting at a whole minute, and return the office as it is afterwards."""

    async def main() -> SimulatedJobs:
        async with simulated_jobs(max_frame) as here:
            await scene(here)
            return here

    return run(main, seed=seed)


def running_job(app: ElasticJob, job: str) -> JobScheduler:
    """Return what runs a job in a process."""
    assert app._here.jobs is not None
    return next(one for one in app._here.jobs.running if one.vitals.name == job)


def present_life(app: ElasticJob, job: str = "job") -> Life:
    """Return a job's life in the present session."""
    life = running_job(app, job)._tasks.owner
    assert isinstance(life, Life)
    return life


def end_life(app: ElasticJob, error: Exception, job: str = "job") -> None:
    """End a job's life in the present session with an error, as if one of its tasks had raised it."""
    present_life(app, job).fail(error)
