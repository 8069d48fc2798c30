"""A process on the bare tree: the package's own job on a session that needs no connection."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Protocol

from anyio import Event, create_task_group, sleep

from aioelasticjob.config.job import JobConfig
from aioelasticjob.engine.ending import Stage
from aioelasticjob.engine.executors import Executors
from aioelasticjob.engine.local_jobs import Host, LocalJob, LocalJobs
from aioelasticjob.engine.process_context import ProcessContext
from aioelasticjob.error_handlers import ErrorDispatcher
from aioelasticjob.events import Events, JobEvent, Misfired
from aioelasticjob.ground.limited_log import LimitedLog
from aioelasticjob.jobs.base import Job
from aioelasticjob.jobs.context import ItemContext, run_lease
from aioelasticjob.testing.loop import VirtualClock
from aioelasticjob.testing.process import Process as Simulated
from tests.simulation.bare.session import BareSession, BareTenure


class Surroundings(Protocol):
    """What a process needs of the world around it."""

    config: JobConfig
    peaceful: bool

    def begin(self, process: Process, run: ItemContext, incarnation: int) -> None:
        """Note a handler's first step."""

    def end(self, process: Process, item: int, outcome: str) -> None:
        """Note that a handler is over."""

    def report(self, process: Process, event: JobEvent) -> None:
        """Note what a job tells about itself."""

    def left(self, process: Process) -> None:
        """Note that a process has ended by itself."""


class _EventLog(Events):
    """Hands events on at once."""

    def __init__(self, process: Process) -> None:
        super().__init__()
        self._process = process

    def put(self, event: JobEvent) -> None:
        self._process.world.report(self._process, event)


class Process:
    """One process with one instance of the job, over all its sessions."""

    def __init__(
        self, world: Surroundings, number: int, session: BareSession, dice: Random, names: Mapping[int, str]
    ) -> None:
        self.world, self.number, self.session, self._dice, self._names = world, number, session, dice, names
        self._leaving = Event()
        clock, limited_log = VirtualClock(), LimitedLog()
        dispatcher = ErrorDispatcher(clock, {}, limited_log)
        self._shared = ProcessContext(clock, _EventLog(self), Executors(), dispatcher, limited_log)
        self.body = Simulated(f"process {number}", self.ip)

    @property
    def ip(self) -> str:
        """Its host's address."""
        return f"10.0.0.{self.number}"

    @property
    def id(self) -> str:
        """Its instance's name under the present session, empty before it has joined."""
        return self._names.get(self.session.incarnation, "")

    @property
    def leaving(self) -> bool:
        """Whether it was asked to leave."""
        return self._leaving.is_set()

    def start(self) -> None:
        """Let it begin."""
        self.body.start(self._main)

    def leave(self) -> None:
        """Leave gracefully."""
        self._leaving.set()

    async def _main(self) -> None:
        job = Job.declare(self.world.config, self._handler)
        host = Host(self.ip, "", self.number)
        jobs = LocalJobs(self.session, [job], host, self._shared)
        async with jobs.open() as (local,), create_task_group() as tasks:
            tasks.start_soon(self._leave, local)
            await local.ending.until(lambda ending: ending.stage is Stage.GONE)
            tasks.cancel_scope.cancel()
        self.world.left(self)

    async def _leave(self, job: LocalJob) -> None:
        await self._leaving.wait()
        job.leave()

    async def _handler(self, context: ItemContext) -> None:
        claimed = run_lease.get()
        assert isinstance(claimed, BareTenure)
        self.world.begin(self, context, claimed.incarnation)
        outcome = "cut off"
        try:
            if not self.world.peaceful:
                await sleep(self._dice.choice([0.05, 0.3, 1.5]) * self._dice.random())
                if self._dice.random() < 0.2:
                    await context.save_offset(str(context.fire.slot))
            outcome = "failed" if self._dice.random() < 0.1 else "completed"
            if outcome == "failed":
                raise RuntimeError("the dice say so")
        finally:
            self.world.end(self, context.item, outcome)


def describe(event: JobEvent) -> str:
    """Return an event as a line of a trace."""
    if isinstance(event, Misfired):
        return f"reports {event.moments} of {event.items} up to {event.slot}: {event.why}"
    return str(event)
