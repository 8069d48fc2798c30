"""`aioelasticjob alert`: calls the error handlers of jobs for which no instance is up to do that itself."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Annotated

import typer
from anyio import create_task_group, move_on_after, sleep

from aioelasticjob import operations
from aioelasticjob.addresses import Address, open_registry
from aioelasticjob.cli import logs
from aioelasticjob.cli.registry import RegistryOptions, on_a_registry
from aioelasticjob.cli.seconds import seconds_from
from aioelasticjob.clock import Clock, SystemClock
from aioelasticjob.error_handlers import ErrorDispatcher
from aioelasticjob.errors import RegistryError, unwrapped
from aioelasticjob.events import Counts
from aioelasticjob.limited_log import LimitedLog
from aioelasticjob.operations.attendance import Attendance
from aioelasticjob.plural import counted
from aioelasticjob.registry.session import Session, SessionState

RETRY_PAUSE = 5.0
"""Seconds before the next attempt to connect, after the registry could not be reached or has ended the session."""

log = logging.getLogger(__name__)


@on_a_registry
def alert(
    where: RegistryOptions,
    after: Annotated[
        float,
        typer.Option(
            parser=seconds_from(1),
            metavar="DURATION",
            help="Report a job when no instance has been up for so long, a minute by default.",
            show_default=False,
        ),
    ] = 60.0,
    log_level: Annotated[logs.LogLevel, typer.Option(help="The lowest level that is logged.")] = logs.LogLevel.INFO,
    log_format: Annotated[logs.LogFormat, typer.Option(help="Text for people, or JSON for programs.")] = (
        logs.LogFormat.TEXT
    ),
) -> None:
    """Run until stopped: call the error handler of each job without an instance, if its alert_on has nobody-there."""
    logs.set_up(log_level, log_format)
    with unwrapped():
        asyncio.run(report_absences(where.shared(), after, SystemClock()))


async def report_absences(registry: Address, after: float, clock: Clock) -> None:
    """Follow all jobs until cancelled, also across outages of the registry.

    Raises:
        Exception: the error of a job whose error handler is ``raise``.
        InvalidSetting: the credentials cannot be used.
    """
    limited_log = LimitedLog()
    admits = partial(limited_log.admits, log, None, "the registry comes and goes", each=2)
    dispatcher, attendance = ErrorDispatcher(clock, defaultdict(Counts), limited_log), Attendance(after)
    async with AsyncExitStack() as stack:
        stack.callback(limited_log.close)
        tasks = await stack.enter_async_context(create_task_group())
        tasks.start_soon(dispatcher.deliver)
        while True:
            try:
                async with open_registry(registry, clock=clock) as session:
                    await _follow(session, attendance, dispatcher, clock, admits)
            except RegistryError as error:
                again = f"the next attempt begins in {RETRY_PAUSE:g} s"
                text = f"cannot follow the registry, {again}: {error.with_page()}"
                if admits(newest=text):
                    log.warning("%s", text)
                attendance.forget()
            await sleep(RETRY_PAUSE)


async def _follow(
    session: Session, attendance: Attendance, dispatcher: ErrorDispatcher, clock: Clock, admits: Callable[..., bool]
) -> None:
    with unwrapped():
        async with operations.watch_all(session, clock=clock) as states:
            jobs = await anext(states)
            text = f"following {counted(len(jobs), 'job')}"
            if admits(newest=text):
                log.info("%s", text, extra={"jobs": [job.name for job in jobs]})
            while True:
                if session.status.value.state is not SessionState.CONNECTED:
                    attendance.forget()
                    await session.connected()
                for job, failure in attendance.look(jobs, clock.now()):
                    dispatcher.report(job.config, failure)
                with move_on_after(attendance.next_due(clock.now())):
                    jobs = await anext(states)
