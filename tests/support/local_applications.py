"""Applications on a real loop: what their handlers did, and somebody who watches the registry."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.abc import TaskStatus

from aioelasticjob import ElasticJob, ItemContext, JobConfig
from aioelasticjob.core.layout import Layout
from aioelasticjob.core.view import JobView, read
from aioelasticjob.ground.latest import Latest
from aioelasticjob.registry.mirror import mirror
from aioelasticjob.registry.session import ConnectionSettings, Session, open_session
from aioelasticjob.registry.transaction import Op, Set
from aioelasticjob.registry.tree import Tree
from tests.support.processes import TIMEOUT

EVERY_SECOND = "* * * * * ?"
NEVER = "0 0 0 1 1 ? 2099"


@dataclass(frozen=True, slots=True)
class HandlerRun:
    """One run of one item, as its handler saw it; ``slot`` is in seconds since the epoch."""

    item: int
    slot: float
    source: str
    instance: str
    fence: int
    job: str = "job"


@dataclass
class HandlerRuns:
    """The runs of all applications of a test, in the order in which they began and ended."""

    begun: list[HandlerRun] = field(default_factory=list)
    ended: list[HandlerRun] = field(default_factory=list)
    news: Latest[None] = field(default_factory=lambda: Latest(None))

    def app(
        self,
        address: str,
        *,
        name: str = "job",
        work: float = 0.0,
        may_end: anyio.Event | None = None,
        **settings: Any,
    ) -> ElasticJob:
        """Return an application with one job, whose handler notes the run and works for ``work`` seconds.

        With ``may_end`` no run ends before that event.
        """
        app = ElasticJob(address, session_timeout=10)
        app.add(self.handler(work, may_end), name=name, **settings)
        return app

    def handler(self, work: float = 0.0, may_end: anyio.Event | None = None) -> Callable[[ItemContext], Any]:
        async def note(context: ItemContext) -> None:
            slot = context.fire_time.timestamp()
            run = HandlerRun(
                context.item, slot, context.source.value, context.instance, context.fence, context.job_name
            )
            self.begun.append(run)
            self.news.set(None)
            if work:
                await anyio.sleep(work)
            if may_end is not None:
                await may_end.wait()
            self.ended.append(run)
            self.news.set(None)

        return note

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for what has been noted to satisfy ``holds``."""
        with anyio.fail_after(TIMEOUT):
            await self.news.until(lambda _: holds())

    async def fires(self, count: int, items: Collection[int], job: str = "job") -> list[HandlerRun]:
        """Wait until every one of ``items`` has run ``count`` times from now on, and return the job's runs."""
        past = len(self.ended)

        def enough() -> bool:
            ran = Counter(run.item for run in self.ended[past:] if run.job == job)
            return all(ran[item] >= count for item in items)

        await self.until(enough)
        return [run for run in self.ended[past:] if run.job == job]


@dataclass(frozen=True)
class RegistryObserver:
    """Somebody who follows one job's control part of the registry, and may write there as an operator does."""

    session: Session
    layout: Layout
    trees: Latest[Tree]

    @property
    def view(self) -> JobView:
        return read(self.trees.value, self.layout, JobConfig(job_name=self.layout.job))

    async def until(self, holds: Callable[[JobView], bool]) -> JobView:
        """Wait for a view that satisfies ``holds``."""
        default = JobConfig(job_name=self.layout.job)
        try:
            with anyio.fail_after(TIMEOUT):
                await self.trees.until(lambda tree: holds(read(tree, self.layout, default)))
        except TimeoutError:
            raise AssertionError(f"the registry does not come to that: {list(self.trees.value)}") from None
        return self.view

    async def spread_over(self, instances: int, items: int | None = None) -> JobView:
        """Wait until all items are assigned, to exactly so many instances as are there."""

        def spread(view: JobView) -> bool:
            count = view.config.sharding_total_count if items is None else items
            return (
                view.assignment_stands
                and len(view.instances) == instances
                and view.leader in view.instances
                and view.items == view.assignment.keys() == set(range(count))
                and set(view.assignment.values()) == set(view.eligible[: min(count, instances)])
            )

        return await self.until(spread)

    async def configure(self, **settings: object) -> None:
        """Change the configuration as an operator does."""
        config = self.view.config.changed(**settings)
        await self.write(Set(self.layout.config, config.to_json(), -1))

    async def write(self, *operations: Op) -> None:
        await self.session.commit(operations, incarnation=self.session.incarnation)


@asynccontextmanager
async def registry_observer(
    address: str, job: str = "job", *, digest: str | None = None
) -> AsyncIterator[RegistryObserver]:
    layout = Layout(job)
    async with (
        open_session(ConnectionSettings.parse(address, digest=digest)) as session,
        mirror(session, layout.mirrored) as trees,
    ):
        yield RegistryObserver(session, layout, trees)


@asynccontextmanager
async def applications(*apps: ElasticJob) -> AsyncIterator[list[anyio.Event]]:
    """Run applications at the same time; each leaves when its event is set, all of them at the end of the block."""
    stops = [anyio.Event() for _ in apps]

    async def run(app: ElasticJob, stop: anyio.Event, *, task_status: TaskStatus[None]) -> None:
        async with app.running():
            task_status.started()
            await stop.wait()

    async with anyio.create_task_group() as tasks:
        async with anyio.create_task_group() as starting:
            for app, stop in zip(apps, stops, strict=True):
                starting.start_soon(tasks.start, run, app, stop)
        yield stops
        for stop in stops:
            stop.set()
