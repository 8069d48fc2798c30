"""The jobs of one process: they start together, share a scheduler, and leave together."""

from __future__ import annotations

from asyncio import Event
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from functools import partial

from anyio import TASK_STATUS_IGNORED, CancelScope, create_task_group, move_on_after, sleep, sleep_forever
from anyio.abc import TaskStatus

from aioelasticjob.coordination.refusals import Refusals
from aioelasticjob.errors import RegistryError, SessionEnded
from aioelasticjob.jobs.base import Job
from aioelasticjob.layout import SWITCHES
from aioelasticjob.registry.mirror import Follower
from aioelasticjob.registry.session import Session
from aioelasticjob.running.clock_skew import ClockSkewMonitor
from aioelasticjob.running.health import JobHealth
from aioelasticjob.running.job import Host, LocalJob
from aioelasticjob.running.job_scheduler import JobScheduler
from aioelasticjob.running.process_context import REGISTERING_AT_ONCE, ProcessContext
from aioelasticjob.running.scheduler import Scheduler

STARTING_AT_ONCE = 2 * REGISTERING_AT_ONCE
"""How many jobs start at the same time.  More would only wait until they may join, and own two tasks each meanwhile."""
FINAL_DELIVERY_TIMEOUT = 5.0
"""Seconds that error handlers have for the last failures when the application ends."""
CLOCK_CHECK = 1.0
"""Seconds between two looks at the time, to notice that it was set."""
CLOCK_CHECK_AT_LAST = 60.0
"""The longest pause, in seconds, between two requests for the registry's time while the clocks differ."""
CLOCK_CHECK_REFUSING = 5.0
"""The longest pause while a job runs nothing because of the clock skew: its writes do not bring the time then."""
READ_SWITCHES = "to read which servers are switched off"
"""The purpose of the reads, for the log line if the registry refuses them."""


class LocalJobs:
    """All jobs of one process."""

    def __init__(self, session: Session, jobs: Iterable[Job], host: Host, shared: ProcessContext) -> None:
        self._session, self._shared, self._tasks = session, shared, create_task_group()
        self._scheduler = Scheduler(self._tasks, shared.registering)
        self._jobs = [LocalJob(job, session, host, shared, self._scheduler) for job in jobs]

    @property
    def running(self) -> list[JobScheduler]:
        """What runs the jobs that have joined."""
        return [running for job in self._jobs if (running := job.running) is not None]

    @property
    def health(self) -> list[JobHealth]:
        """The health of each job in this process."""
        return [job.health for job in self._jobs]

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Sequence[LocalJob]]:
        """Run the jobs while the block is open.  At its end they leave gracefully; handlers that go on are cancelled.

        Raises:
            InvalidSetting: a job is declared wrongly, or its name belongs to another kind of job.
            RegistryError: the registry could not be read.
        """
        try:
            async with self._tasks as tasks:
                tasks.start_soon(self._scheduler.run)
                tasks.start_soon(self._shared.dispatcher.deliver)
                tasks.start_soon(watch_clock, self._session, lambda: self.running)
                tasks.start_soon(self._watch_session)
                tasks.start_soon(self._cancel_runs)
                self._shared.switches.listen(self._look_at_switches)
                await tasks.start(follow_switches, self._session, self._shared)
                async with create_task_group() as starting:
                    waiting = iter(self._jobs)
                    for _ in range(min(len(self._jobs), STARTING_AT_ONCE)):
                        starting.start_soon(self._start, waiting)
                try:
                    yield self._jobs
                finally:
                    with CancelScope(shield=True):
                        await self._leave()
                    tasks.cancel_scope.cancel()
        finally:
            for job in self._jobs:
                job.close()

    async def _start(self, waiting: Iterator[LocalJob]) -> None:
        """Start the jobs that nobody else has begun to start, one after another."""
        for job in waiting:
            await self._tasks.start(job.live)

    async def _leave(self) -> None:
        """Let all jobs leave, and deliver the last failures to the error handlers.

        If the block was cancelled, the scheduler and its tasks were cancelled too, so this runs in a task group of its
        own.
        """
        scheduler = self._scheduler
        try:
            async with create_task_group() as tasks:
                scheduler.tasks = tasks
                tasks.start_soon(scheduler.run)
                for job in self._jobs:
                    job.leave()
                for job in self._jobs:
                    await job.stopped()
                with move_on_after(FINAL_DELIVERY_TIMEOUT):
                    await self._shared.dispatcher.wait_until_delivered()
                scheduler.is_over = True
                tasks.cancel_scope.cancel()
        finally:
            scheduler.tasks = self._tasks  # jobs that did not leave in time end there, and their errors are reported

    def _look_at_switches(self) -> None:
        for job in self._jobs:
            if job.life is not None:
                job.life.nodes_changed()

    async def _watch_session(self) -> None:
        """Pass every change of the session's state to all jobs."""
        async for status in self._session.status:
            for job in self._jobs:
                if job.life is not None:
                    job.life.session_changed(status)

    async def _cancel_runs(self) -> None:
        """Cancel all runs when the process's tasks are cancelled.

        Otherwise a handler that swallows its cancellation would be cancelled again in each turn of the loop, which
        takes a whole processor, and the log would not name it.
        """
        try:
            await sleep_forever()
        finally:
            for job in self.running:
                job.cancel()


async def follow_switches(
    session: Session, shared: ProcessContext, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED
) -> None:
    """Keep ``shared.switches`` up to date until the session is closed.

    The task counts as started once the nodes were read.  It also does if the registry refuses that: then the jobs run
    with what is known, and it is tried again and again.
    """
    refusals = Refusals(SWITCHES, shared.clock, shared.limited_log)
    changed, refused = Event(), 0
    with closing(Follower(session, (SWITCHES,), (), changed.set)) as follower:
        follower.trees.listen(partial(_show, follower, shared))
        refusal = await _caught_up(follower)
        task_status.started()
        while not isinstance(refusal, SessionEnded):
            if refusal is None:
                refusals.accepted(READ_SWITCHES)
                refused = 0
                await changed.wait()
                changed.clear()
            else:
                refusals.refused(READ_SWITCHES, refusal)
                await session.back_off(refused)
                refused += 1
            refusal = await _caught_up(follower)


async def _caught_up(follower: Follower) -> RegistryError | None:
    """Read what has changed; return the error if the registry refuses that."""
    try:
        await follower.catch_up()
    except RegistryError as error:
        return error
    return None


def _show(follower: Follower, shared: ProcessContext) -> None:
    if follower.trees.value != shared.switches.value:  # after an outage they mostly are as before
        shared.switches.set(follower.trees.value)


async def watch_clock(session: Session, running: Callable[[], Sequence[JobScheduler]]) -> None:
    """Let the jobs that are ``running`` compute again what is due when the time that they use was set.

    While the clocks differ, ask the registry for its time again and again.  The registry answers only writes with its
    time, so jobs that write nothing would not notice that a clock was corrected.
    """
    time, pause, asked = ClockSkewMonitor(session.read_clocks()), CLOCK_CHECK, 0.0
    turn = refused = 0
    while True:
        await sleep(CLOCK_CHECK)
        time.take(session.read_clocks())
        jobs = running() if time.is_astray else ()
        wait = min(pause, CLOCK_CHECK_REFUSING) if any(job.is_refusing for job in jobs) else pause
        if jobs and session.steady_time() >= asked + wait - CLOCK_CHECK / 2:
            asked = session.steady_time()
            pause = CLOCK_CHECK if time.unsteady else min(2 * pause, CLOCK_CHECK_AT_LAST)
            try:
                await jobs[turn % len(jobs)].ask_time()
                refused = 0
            except RegistryError:  # ask through another job next time: the registry may refuse writes to this one
                turn, refused = turn + 1, refused + 1
                if refused < len(jobs):
                    pause = CLOCK_CHECK
        time.take(session.read_clocks())
        if time.has_jumped():
            pause = CLOCK_CHECK
            for job in running():
                job.look_again()
