"""Processes that share one job and write down what they begin, and somebody who watches them in the registry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from aioelasticjob.config.job import JobConfig
from aioelasticjob.core.layout import Layout
from aioelasticjob.core.view import JobView, read
from aioelasticjob.ground.latest import Latest
from aioelasticjob.registry.mirror import mirror
from aioelasticjob.registry.session import ConnectionSettings, Session, open_session
from aioelasticjob.registry.transaction import Set
from aioelasticjob.registry.tree import Tree
from benchmarks.crew_member import HELD, JOB, Order
from benchmarks.servers import measured_server
from tests.support import worker_journal
from tests.support.history import Begun, Finished, of_kind
from tests.support.processes import ChildProcess, Workers, workers
from tests.support.worker_journal import TrueTime

SIZE, ITEMS = 3, 6
SESSION_TIMEOUT: Final = 4.0
TICK_TIME: Final = 500
TIMEOUT: Final = 90.0
LOOK_EVERY: Final = 0.02
"""Seconds between two looks into the journal; the times are those written there."""


@dataclass
class Crew:
    """The processes, their journal, and a mirror of the job."""

    session: Session
    trees: Latest[Tree]
    starter: Workers
    order: Order
    clock: TrueTime
    members: list[ChildProcess] = field(default_factory=list)
    layout: Layout = field(default_factory=lambda: Layout(JOB))

    @property
    def view(self) -> JobView:
        """What the registry holds."""
        return read(self.trees.value, self.layout, JobConfig(job_name=JOB))

    def join(self) -> None:
        """Start one more process."""
        self.members.append(self.starter.start("-m", "benchmarks.crew_member", self.order.to_json()))

    async def until(self, holds: Callable[[JobView], bool]) -> JobView:
        """Wait for a view of which something holds."""
        default = JobConfig(job_name=JOB)
        async with asyncio.timeout(TIMEOUT):
            return read(
                await self.trees.until(lambda tree: holds(read(tree, self.layout, default))), self.layout, default
            )

    async def complete(self) -> JobView:
        """Wait until all are there and hold items."""
        return await self.until(
            lambda view: (
                view.assignment_stands
                and view.leader in view.instances
                and len(view.instances) == SIZE
                and len(view.assignment) == ITEMS
                and set(view.assignment.values()) == set(view.instances)
            )
        )

    async def begun(self, holds: Callable[[Begun], bool]) -> Begun:
        """Wait for the first run of which something holds."""
        async with asyncio.timeout(TIMEOUT):
            while True:
                for run in of_kind(worker_journal.read(Path(self.order.journal)), Begun):
                    if holds(run):
                        return run
                await asyncio.sleep(LOOK_EVERY)

    async def held(self, item: int) -> Begun:
        """Say that the runs of an item are not to end from now on, and wait for one that does not."""
        asked = self.clock.now()
        await self.hold(item)

        def goes_on(run: Begun) -> bool:
            return run.at > asked and run.item == item and run.run in self._held()

        return await self.begun(goes_on)

    def _held(self) -> set[int]:
        entries = worker_journal.read(Path(self.order.journal))
        return {one.run for one in of_kind(entries, Finished) if one.how == HELD}

    async def hold(self, item: int | None) -> None:
        """Write which item's runs are not to end; None for none."""
        config = self.view.config.changed(job_parameter="" if item is None else str(item))
        write = Set(self.layout.config, config.to_json(), -1)
        await self.session.commit([write], incarnation=self.session.incarnation)

    def process(self, instance: str) -> ChildProcess:
        """Return the process that an instance lives in, no longer a member."""
        pid = self.view.instances[instance].pid
        found = next(member for member in self.members if member.pid == pid)
        self.members.remove(found)
        return found

    def choose(self, view: JobView, *, leader: bool) -> str:
        """Return an instance that leads, or one that does not."""
        return next(name for name in sorted(view.instances) if (name == view.leader) is leader)


@asynccontextmanager
async def crew(*, quick: bool) -> AsyncIterator[Crew]:
    """Yield a full crew before a server of its own."""
    with ExitStack() as stack:
        server = stack.enter_context(measured_server(quick=quick, tick_time=TICK_TIME))
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="benchmark-")))
        starter = stack.enter_context(workers(directory))
        clock, address = TrueTime.of_this_machine(), f"zk://{server.address}/crew"
        order = Order(address, ITEMS, SESSION_TIMEOUT, str(directory / "journal"), clock.epoch)
        async with (
            open_session(ConnectionSettings.parse(address)) as session,
            mirror(session, Layout(JOB).mirrored) as trees,
        ):
            found = Crew(session, trees, starter, order, clock)
            for _ in range(SIZE):
                found.join()
            yield found
