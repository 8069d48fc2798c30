"""`aioelasticjob alert`: calls the error handlers of jobs that no instance runs, so that none can do that itself.

Which jobs these are is said by their state, as in lists of jobs: ``operations.attendance`` has the states.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Annotated

import typer
from anyio import CancelScope, Event, create_task_group, move_on_after, open_signal_receiver, sleep

from aioelasticjob import operations
from aioelasticjob.cli import logs
from aioelasticjob.cli.registry import RegistryOptions, on_a_registry
from aioelasticjob.cli.seconds import seconds_from
from aioelasticjob.clock import Clock, SystemClock
from aioelasticjob.error_handlers import ErrorDispatcher
from aioelasticjob.errors import RegistryError, unwrapped
from aioelasticjob.events import Counts
from aioelasticjob.ground.limited_log import LimitedLog
from aioelasticjob.ground.plural import counted
from aioelasticjob.host.signals import stopping_signals
from aioelasticjob.logging import logger
from aioelasticjob.operations.attendance import Attendance
from aioelasticjob.registry.addresses import Address, open_registry
from aioelasticjob.registry.session import Session, SessionState

RETRY_PAUSE = 5.0
"""Seconds before the next attempt to connect, after the registry could not be reached or has ended the session."""

DELIVERY_TIMEOUT = 5.0
"""Seconds that error handlers have for the last alerts when the command is stopped."""

log = logger(__name__)


@on_a_registry
def alert(
    where: RegistryOptions,
    after: Annotated[
        float,
        typer.Option(
            parser=seconds_from(1),
            metavar="DURATION",
            help="Report a job when nobody could run it for so long, a minute by default.",
            show_default=False,
        ),
    ] = 60.0,
    log_level: Annotated[logs.LogLevel, typer.Option(help="The lowest level that is logged.")] = logs.LogLevel.INFO,
    log_format: Annotated[logs.LogFormat, typer.Option(help="Text for people, or JSON for programs.")] = (
        logs.LogFormat.TEXT
    ),
) -> None:
    """Run until SIGTERM or Ctrl-C: call the error handler of each job that nobody can run (alert_on: nobody-there).

    Nobody can run a job if no instance is up, if every instance lacks a feature that the job requires or cannot use
    its configuration, or if all that could run it refuse to because of the clocks of their hosts. A job that is
    paused, or has no scheduled moment to come, misses nothing.
    """
    logs.set_up(log_level, log_format)
    with unwrapped():
        asyncio.run(_run(where.shared(), after))


async def _run(registry: Address, after: float) -> None:
    """Follow all jobs until a signal comes; a second one ends everything at once."""
    stop = Event()
    async with create_task_group() as tasks:
        tasks.start_soon(_heed_signals, stop, tasks.cancel_scope)
        await report_absences(registry, after, SystemClock(), stop)
        tasks.cancel_scope.cancel()


async def _heed_signals(stop: Event, everything: CancelScope) -> None:
    with open_signal_receiver(*stopping_signals()) as signals:
        async for _ in signals:
            if stop.is_set():
                everything.cancel()
            stop.set()


class Uncounted(dict[str, Counts]):
    """Counts that nobody reads.  None are kept: jobs come and go, and their names would stay."""

    def __missing__(self, job: str) -> Counts:
        return Counts()


async def report_absences(registry: Address, after: float, clock: Clock, stop: Event) -> None:
    """Follow all jobs, also across outages of the registry, until ``stop`` is set; then deliver the alerts that wait.

    Raises:
        Exception: the error of a job whose error handler is ``raise``.
        InvalidSetting: the credentials cannot be used.
    """
    limited_log = LimitedLog()
    admits = partial(limited_log.admits, log, None, "whether the registry answers", each=2)
    attendance = Attendance(after)
    dispatcher = ErrorDispatcher(clock, Uncounted(), limited_log, registry.settings.namespace, attendance.lasts)
    async with AsyncExitStack() as stack:
        stack.callback(limited_log.close)
        tasks = await stack.enter_async_context(create_task_group())
        tasks.start_soon(dispatcher.deliver)
        async with create_task_group() as following:
            following.start_soon(_keep_following, registry, attendance, dispatcher, clock, admits)
            await stop.wait()
            following.cancel_scope.cancel()
        with move_on_after(DELIVERY_TIMEOUT):
            await dispatcher.wait_until_delivered()
        tasks.cancel_scope.cancel()


async def _keep_following(
    registry: Address, attendance: Attendance, dispatcher: ErrorDispatcher, clock: Clock, admits: Callable[..., bool]
) -> None:
    while True:
        try:
            async with open_registry(registry, clock=clock, tells_of_waiting=False) as session:
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
