"""The jobs of one process: they start together, share a scheduler, and leave together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

from anyio import CancelScope, create_task_group, move_on_after, sleep

from aioelasticjob.errors import RegistryError
from aioelasticjob.jobs.base import Job
from aioelasticjob.registry.session import Session
from aioelasticjob.running.clock_skew import ClockSkewMonitor, Reading
from aioelasticjob.running.job import Host, LocalJob
from aioelasticjob.running.process_context import ProcessContext
from aioelasticjob.running.scheduler import Scheduler

FINAL_DELIVERY_TIMEOUT = 5.0
"""Seconds that error handlers have for what is left to tell when the application ends."""
CLOCK_CHECK = 1.0
"""Seconds between two looks at the time, to see whether it was set."""
CLOCK_CHECK_AT_LAST = 60.0
"""Seconds between two questions for the registry's time when it has long been far from this host's."""
CLOCK_CHECK_REFUSING = 5.0
"""The same while a job refuses to run for it: then nothing is written that would tell that it was put right."""


@asynccontextmanager
async def run_jobs(
    session: Session, jobs: Iterable[Job], host: Host, shared: ProcessContext
) -> AsyncIterator[Sequence[LocalJob]]:
    """Run jobs while the block is open; at its end they leave gracefully, and what goes on is cancelled.

    Raises:
        InvalidSetting: what is declared of a job is wrong, or its name belongs to another kind of job.
        RegistryError: the registry could not be read.
    """
    tasks = create_task_group()
    scheduler = Scheduler(tasks)
    local = [LocalJob(job, session, host, shared, scheduler) for job in jobs]
    try:
        async with tasks:
            tasks.start_soon(scheduler.run)
            tasks.start_soon(shared.dispatcher.deliver)
            tasks.start_soon(watch_clock, session, shared)
            tasks.start_soon(_watch_session, session, local)
            async with create_task_group() as starting:
                for job in local:
                    starting.start_soon(tasks.start, job.live)
            try:
                yield local
            finally:
                with CancelScope(shield=True):
                    await _leave(local, shared, scheduler)
                tasks.cancel_scope.cancel()
    finally:
        for job in local:
            job.close()


async def _leave(jobs: Sequence[LocalJob], shared: ProcessContext, scheduler: Scheduler) -> None:
    """Let all jobs leave, and error handlers tell the last.

    If the block was cancelled, so were the scheduler and what it had begun; then this goes on in a group of its own.
    """
    before = scheduler.tasks
    try:
        async with create_task_group() as tasks:
            scheduler.tasks = tasks
            tasks.start_soon(scheduler.run)
            async with create_task_group() as leaving:
                for job in jobs:
                    leaving.start_soon(job.leave)
            with move_on_after(FINAL_DELIVERY_TIMEOUT):
                await shared.dispatcher.wait_until_delivered()
            tasks.cancel_scope.cancel()
    finally:
        scheduler.tasks = before  # where what did not end in time goes on, and has to be told of if it fails


async def _watch_session(session: Session, jobs: Sequence[LocalJob]) -> None:
    """Tell every job whenever the session's state has changed."""
    async for status in session.status:
        for job in jobs:
            job.session_changed(status)


async def watch_clock(session: Session, shared: ProcessContext) -> None:
    """Let the jobs look again when the time that they go by is set; ask the registry for it while it is far from ours.

    Only writes are answered with the registry's time: jobs that are at rest would follow a clock that was put right.
    """
    time, pause, asked = ClockSkewMonitor(Reading.of(session, shared.clock)), CLOCK_CHECK, 0.0
    turn = refused = 0
    while True:
        await sleep(CLOCK_CHECK)
        time.take(Reading.of(session, shared.clock))
        refusing = time.is_astray and any(runner.is_refusing for runner in shared.runners)
        wait = min(pause, CLOCK_CHECK_REFUSING) if refusing else pause
        if time.is_astray and shared.runners and session.steady_time() >= asked + wait - CLOCK_CHECK / 2:
            asked = session.steady_time()
            pause = CLOCK_CHECK if time.unsteady else min(2 * pause, CLOCK_CHECK_AT_LAST)
            try:
                await tuple(shared.runners)[turn % len(shared.runners)].ask_time()
                refused = 0
            except RegistryError:  # then with the next write, or through another job: this one may not be written
                turn, refused = turn + 1, refused + 1
                if refused < len(shared.runners):
                    pause = CLOCK_CHECK
        time.take(Reading.of(session, shared.clock))
        if time.has_jumped():
            pause = CLOCK_CHECK
            for runner in shared.runners:
                runner.look_again()
