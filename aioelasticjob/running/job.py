"""One job in this process: join, coordinate and run until asked to leave, session after session."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from uuid import uuid4

from anyio import TASK_STATUS_IGNORED, CancelScope, Event, create_task_group, move_on_after, sleep
from anyio.abc import TaskStatus

from aioelasticjob.coordination.coordinator import coordinate
from aioelasticjob.coordination.membership import Member, join, leave
from aioelasticjob.coordination.view import JobView, read
from aioelasticjob.errors import ElasticJobError, RegistryError
from aioelasticjob.jobs.base import Job
from aioelasticjob.latest import Latest
from aioelasticjob.layout import Layout
from aioelasticjob.model import instance_id
from aioelasticjob.registry.mirror import mirror
from aioelasticjob.registry.session import Session, SessionState
from aioelasticjob.running.runner import Runner, Surroundings

AGAIN_AFTER = 1.0
"""Seconds before a job that could not join under a new session tries again."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Host:
    """The machine and process that instances are named after."""

    ip: str
    name: str
    pid: int


async def run_job(
    job: Job,
    session: Session,
    host: Host,
    shared: Surroundings,
    leaving: Event,
    *,
    task_status: TaskStatus[None] = TASK_STATUS_IGNORED,
) -> None:
    """Run a job until ``leaving`` is set or an operator shuts the instance down.

    Raises:
        InvalidSetting: at the start only; the job cannot be joined.
        RegistryError: at the start only; the registry could not be read.
    """
    joined = Event()
    while not leaving.is_set():
        status = await session.status.until(lambda now: now.state in (SessionState.CONNECTED, SessionState.CLOSED))
        if status.state is SessionState.CLOSED:
            return
        name = instance_id(host.ip, host.pid, uuid4().hex[:8])
        member = Member(session, Layout(job.config.job_name), name, host.ip, host.name, host.pid, status.incarnation)
        try:
            stays = await _live(job, member, shared, leaving, joined, task_status)
        except RegistryError as error:
            if not joined.is_set():
                raise
            log.warning("not joined yet: %s", error, extra={"job": job.config.job_name})
            await sleep(AGAIN_AFTER)
            continue
        except ElasticJobError as error:
            if not joined.is_set():
                raise
            log.error("job given up: %s", error, extra={"job": job.config.job_name})
            return
        if not stays:
            return


async def _live(
    job: Job, member: Member, shared: Surroundings, leaving: Event, joined: Event, task_status: TaskStatus[None]
) -> bool:
    """Live one session's life; return whether there is to be another."""
    async with mirror(member.session, member.layout.mirrored) as trees:
        config = await join(member, job.config, trees)
        views = Latest(read(trees.value, member.layout, config))
        runner = Runner(job, member, views, shared)
        if not joined.is_set():
            joined.set()
            task_status.started()
        shared.runners.add(runner)
        try:
            async with create_task_group() as tasks:

                async def keep() -> None:
                    if await coordinate(member, trees, views):
                        await retire(runner)
                    else:
                        tasks.cancel_scope.cancel()

                tasks.start_soon(keep)
                if leaving.is_set():
                    runner.leave()
                await runner.run()
                with CancelScope(shield=True), move_on_after(AGAIN_AFTER):
                    await _say_goodbye(member, views)
                tasks.cancel_scope.cancel()
        finally:
            shared.runners.discard(runner)
            runner.done.set()
    return member.session.incarnation != member.incarnation


async def retire(runner: Runner) -> None:
    """Ask a runner to leave and give its items their grace."""
    runner.leave()
    with move_on_after(runner.shutdown_timeout):
        await runner.done.wait()
    runner.cut()
    await runner.done.wait()


async def _say_goodbye(member: Member, views: Latest[JobView]) -> None:
    try:
        await leave(member, views.value)
    except RegistryError as error:  # the session's end removes the instance all the same
        log.debug("left without a word: %s", error, extra={"job": member.layout.job})
