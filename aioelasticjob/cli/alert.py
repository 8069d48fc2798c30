"""`aioelasticjob alert`: tells people of faults of jobs and of the registry, while they last and when they are over.

Which faults there are, and which messages are due, is decided in ``operations.alerts``.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import shlex
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Generic, TypeVar

import typer
from anyio import CancelScope, Event, create_task_group, move_on_after, open_signal_receiver, sleep
from anyio.abc import TaskGroup

from aioelasticjob import operations
from aioelasticjob.cli import FAILED, logs
from aioelasticjob.cli.registry import RegistryOptions, on_a_registry
from aioelasticjob.cli.seconds import seconds_from
from aioelasticjob.clock import Clock, SystemClock
from aioelasticjob.config.links import checked_console_url, console_link, filled_links
from aioelasticjob.core.layout import ALERTS
from aioelasticjob.error_handlers import AlertPart, Failure, call_handler, check
from aioelasticjob.error_handlers.alerts import call
from aioelasticjob.errors import ElasticJobError, FaultAlert, InvalidSetting, RegistryError, Suspended, unwrapped
from aioelasticjob.ground.limited_log import LimitedLog
from aioelasticjob.ground.plural import counted
from aioelasticjob.ground.times import moment, time_text
from aioelasticjob.host.signals import stopping_signals
from aioelasticjob.logging import logger
from aioelasticjob.operations import JobStatus
from aioelasticjob.operations.alerts.conditions import Facts, conditions, next_change
from aioelasticjob.operations.alerts.messages import failure_of
from aioelasticjob.operations.alerts.nodes import AlertFile, AlertNodes
from aioelasticjob.operations.alerts.observed import ObservedRuns
from aioelasticjob.operations.alerts.plan import Condition, Planner, Target
from aioelasticjob.operations.alerts.sending import IN_LOG, AlertSender
from aioelasticjob.operations.alerts.state import AlertKey, AlertState
from aioelasticjob.registry.addresses import Address, open_registry
from aioelasticjob.registry.beside import beside
from aioelasticjob.registry.session import Session, SessionState

RETRY_PAUSE = 5.0
"""Seconds before the next attempt to connect, after the registry could not be reached or has ended the session."""
DELIVERY_TIMEOUT = 5.0
"""Seconds that messages on their way have when the command is stopped."""
HEARTBEAT_INTERVAL = 60.0
MAX_WAIT = 30.0
"""After so many seconds everything is looked at again, since clocks may be set."""
STUCK = 120.0
"""After so many seconds without a look the heartbeat stops: the command does not do its work."""

log = logger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AlertOptions:
    """What the command was asked to do."""

    after: float = 60.0
    repeat: float = 4 * 3600.0
    to: Target | None = None
    heartbeat: str = ""
    console_url: str = ""
    """Where the console shows the registry, without a slash at its end; empty if it is not known."""
    state: AlertFile = field(default_factory=partial(AlertFile, None))
    """Where the command keeps that the registry is away."""


@on_a_registry
def alert(
    where: RegistryOptions,
    test: Annotated[
        str | None,
        typer.Option(
            metavar="JOB", help="Only send one message by the error handler of this job, and say whether it arrived."
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="HANDLER",
            envvar="AIOELASTICJOB_ALERT_TO",
            help='Where faults go that belong to no job: "webhook url=https://…", "email host=… sender=… to=…".',
        ),
    ] = None,
    after: Annotated[
        float,
        typer.Option(
            parser=seconds_from(1),
            metavar="DURATION",
            help="Tell of a job that nobody could run or lead for so long, a minute by default.",
            show_default=False,
        ),
    ] = 60.0,
    repeat: Annotated[
        float,
        typer.Option(
            parser=seconds_from(60),
            metavar="DURATION",
            help="Tell again of what lasts, every four hours by default.",
            show_default=False,
        ),
    ] = 4 * 3600.0,
    heartbeat: Annotated[
        str | None, typer.Option(metavar="URL", help="Call this address each minute, so that it notices our end.")
    ] = None,
    console_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="AIOELASTICJOB_CONSOLE_URL",
            help="Where the console shows this registry, such as https://jobs.example.org/r/billing.",
        ),
    ] = None,
    state_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where it keeps that the registry is away; a file of this user by default."),
    ] = None,
    log_level: Annotated[logs.LogLevel, typer.Option(help="The lowest level that is logged.")] = logs.LogLevel.INFO,
    log_format: Annotated[logs.LogFormat, typer.Option(help="Text for people, or JSON for programs.")] = (
        logs.LogFormat.TEXT
    ),
) -> None:
    """Run until SIGTERM or Ctrl-C: tell of each fault when it begins, while it lasts, and when it is over.

    A fault of a job goes to the job's error handler, if its setting alert_on names the kind: nobody-there, failing,
    late and others.  Faults that belong to no job, such as that the registry is away, go to --to.
    """
    logs.set_up(log_level, log_format)
    registry = where.shared()
    console = checked_console_url(console_url) if console_url else ""
    if test is not None:
        where.look(partial(send_test, job=test, console_url=console))
        return
    options = AlertOptions(
        after=after,
        repeat=repeat,
        to=None if to is None else read_target(to),
        heartbeat=heartbeat or "",
        console_url=console,
        state=AlertFile(state_file) if state_file is not None else usual_state(registry),
    )
    with unwrapped():
        asyncio.run(_run(registry, options))


def read_target(text: str) -> Target:
    """Return the target that a person names: the error handler and its options, as in ``webhook url=https://…``.

    Raises:
        InvalidSetting: there is no such handler, or an option is wrong.
    """
    try:
        handler, *parts = shlex.split(text)
    except ValueError:
        raise InvalidSetting("to", "…", 'write a handler and its options, such as "webhook url=https://…"') from None
    options = dict[str, str]()
    for part in parts:
        name, equals, value = part.partition("=")
        if not equals:
            raise InvalidSetting("to", name, "write each option as NAME=VALUE")
        options[name] = value
    check(handler, options)
    return Target.of(handler, options)


def usual_state(registry: Address) -> AlertFile:
    """Return the file of this user for a registry; one in memory where a user has no place for files."""
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    digest = hashlib.sha256(f"{registry.settings.servers}/{registry.settings.namespace}".encode()).hexdigest()[:12]
    try:
        return AlertFile(Path(state, "aioelasticjob", f"alert-{digest}.json").expanduser())
    except (InvalidSetting, RuntimeError) as error:  # a service may have no home
        log.warning("a new start of this command will not know that the registry is away: %s", error)
        return AlertFile(None)


async def send_test(session: Session, *, job: str, console_url: str) -> None:
    """Send one message by a job's error handler, and say what has become of it.

    Raises:
        InvalidSetting: there is no such job.
        RegistryError: the registry could not be read.
    """
    status = await operations.job(session, job, now=SystemClock().now())
    config = status.config
    now = time_text(moment(SystemClock().now()))
    text = "this is a test of the error handler; nothing is wrong"
    link = console_link(console_url, job)
    part = AlertPart("nobody-there", job, "firing", now, "", text, link)
    error = FaultAlert(text)
    failure = Failure(
        job,
        "",
        (),
        "",
        "",
        error,
        what="nobody-there",
        namespace=session.settings.namespace,
        links=filled_links(config.links, job=job),
        link=link,
        alerts=(part,),
    )
    if config.error_handler in (*IN_LOG, "ignore"):
        typer.echo(f"{job}: its error handler is {config.error_handler}, which sends nothing: set error_handler")
        raise typer.Exit(FAILED)
    trouble = await call_handler(config.error_handler, config.error_handler_options, failure)
    if trouble:
        typer.echo(f"{job}: {config.error_handler} could not deliver a message: {trouble}")
        raise typer.Exit(FAILED)
    typer.echo(f"{job}: {config.error_handler} has delivered a message; alert_on = {', '.join(config.alert_on)}")


async def _run(registry: Address, options: AlertOptions) -> None:
    """Tell of faults until a signal comes; a second one ends everything at once."""
    stop = Event()
    async with create_task_group() as tasks:
        tasks.start_soon(_heed_signals, stop, tasks.cancel_scope)
        await tell_of_faults(registry, options, SystemClock(), stop)
        tasks.cancel_scope.cancel()


async def _heed_signals(stop: Event, everything: CancelScope) -> None:
    with open_signal_receiver(*stopping_signals()) as signals:
        async for _ in signals:
            if stop.is_set():
                everything.cancel()
            stop.set()


async def tell_of_faults(registry: Address, options: AlertOptions, clock: Clock, stop: Event) -> None:
    """Follow a namespace, also across outages of the registry, until ``stop`` is set; messages on their way may end.

    Raises:
        InvalidSetting: the credentials, or the state file, cannot be used.
    """
    limited_log = LimitedLog()
    async with AsyncExitStack() as stack:
        stack.callback(limited_log.close)
        tasks = await stack.enter_async_context(create_task_group())
        following = _Following(registry, options, clock, tasks, limited_log)
        tasks.start_soon(following.call_heartbeat)
        tasks.start_soon(following.tell_of_registry)
        tasks.start_soon(following.keep_following)
        await stop.wait()
        await following.end()
        tasks.cancel_scope.cancel()


class _Following:
    """Follows one namespace, and tells of its faults, and of its registry when that is away."""

    def __init__(
        self, address: Address, options: AlertOptions, clock: Clock, tasks: TaskGroup, limited_log: LimitedLog
    ) -> None:
        self._address = address
        self._options = options
        self._clock = clock
        self._admits = partial(limited_log.admits, log, None)
        self._ends = False
        self._skew = 0.0
        """By how many seconds this host's clock is ahead of the registry's, as far as known."""
        self._is_known = False
        """Whether it is known by now that the registry answers, or that it does not."""
        self._away_since: float | None = clock.now()
        """Since when the registry does not answer; None while it does."""
        self._reason = ""
        self._links: Mapping[str, Mapping[str, str]] = {}
        """The links of each job."""
        self._looked_at = clock.now()
        me = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._jobs = self._sender(me, tasks)
        """Sends the alerts that are in the registry."""
        self._registry = self._sender(me, tasks)
        """Sends that the registry is away."""

    def _sender(self, me: str, tasks: TaskGroup) -> AlertSender:
        planner = Planner(me, self._options.after, self._options.repeat)
        return AlertSender(planner, tasks, self._failure_of, self._now)

    async def end(self) -> None:
        """Send nothing new, and let messages that are on their way arrive."""
        self._ends = True
        with move_on_after(DELIVERY_TIMEOUT):
            for sender in (self._jobs, self._registry):
                await sender.idle.wait()

    async def call_heartbeat(self) -> None:
        """Call the address that notices when this command does not do its work any more."""
        while self._options.heartbeat:
            if self._clock.now() - self._looked_at < STUCK:
                try:
                    await call(self._options.heartbeat)
                except ElasticJobError as error:
                    if self._admits("the heartbeat", each=2):
                        log.warning("the heartbeat could not be sent: %s", error)
            await sleep(HEARTBEAT_INTERVAL)

    async def tell_of_registry(self) -> None:
        """Tell that the registry is away, and that it is back: the registry itself cannot hold that alert."""
        while True:
            self._registry.news.clear()
            faults = list[Condition]()
            if self._away_since is not None:
                self._looked_at = self._clock.now()
                where = self._address.settings.address
                text = f"the registry {where} cannot be reached, so no job can be seen: {self._reason}"
                faults.append(Condition(AlertKey("registry-away"), text, self._away_since, begins=self._is_known))
            then = await self._registry.look(
                self._options.state, faults, lambda _: self._options.to, sends=not self._ends
            )
            with move_on_after(self._until(then)):
                await self._registry.news.wait()

    async def keep_following(self) -> None:
        """Follow the jobs in one session after another."""
        while True:
            try:
                async with open_registry(self._address, clock=self._clock, tells_of_waiting=False) as session:
                    with unwrapped():
                        await self._follow(session)
            except RegistryError as error:
                text = f"cannot follow the registry, the next attempt begins in {RETRY_PAUSE:g} s: {error.with_page()}"
                if self._admits("whether the registry answers", each=2, newest=text):
                    log.warning("%s", text)
                self._note_connection(str(error))
            await sleep(RETRY_PAUSE)

    async def _follow(self, session: Session) -> None:
        news = self._jobs.news
        changes = _AlertChanges(news)
        store = AlertNodes(session)
        async with operations.watch_all(session, clock=self._clock) as states:
            jobs = _Newest(await anext(states), states, news)
            text = f"following {counted(len(jobs.value), 'job')}"
            if self._admits("whether the registry answers", each=2, newest=text):
                log.info("%s", text, extra={"jobs": [job.name for job in jobs.value]})
            runs = ObservedRuns(self._now())
            async with operations.watch_processes(session) as noted:
                processes = _Newest(await anext(noted), noted, news)
                with session.watching((ALERTS,), changes):
                    async with (
                        beside(jobs.follow),
                        beside(processes.follow),
                        beside(partial(self._watch_connection, session)),
                    ):
                        while True:
                            await session.connected()
                            runs.see(jobs.value, self._now())
                            facts = Facts(jobs.value, runs, self._now(), processes.value)
                            then = await self._look(session, store, changes, facts)
                            with move_on_after(self._until(then)):
                                await news.wait()

    async def _look(self, session: Session, store: AlertNodes, changes: _AlertChanges, facts: Facts) -> float:
        """Do what has to be done now; return when to look again."""
        self._jobs.news.clear()
        self._looked_at = self._clock.now()
        self._skew = session.clock_skew or 0.0
        try:
            if changes.is_stale:
                changes.is_stale = False
                await store.read()
        except Suspended:
            changes.is_stale = True
            return 0.0
        by_name = {job.name: job for job in facts.jobs}
        self._links = {job.name: job.config.links for job in facts.jobs}
        target_of = partial(self._target_of, by_name)
        then = await self._jobs.look(store, conditions(facts), target_of, sends=not self._ends)
        changes.is_stale = changes.is_stale or not then
        return min(then, next_change(facts.jobs, facts.now))

    async def _watch_connection(self, session: Session) -> None:
        """Note when the connection is lost, and when it is there again."""
        async for status in session.status:
            self._note_connection("" if status.state is SessionState.CONNECTED else session.reason)

    def _note_connection(self, reason: str) -> None:
        """Note whether the registry answers; without a reason it does."""
        self._is_known = True
        if not reason:
            self._away_since = None
        elif self._away_since is None:
            self._away_since = self._now()
            self._jobs.forget()
        self._reason = reason
        self._registry.news.set()
        self._jobs.news.set()

    def _target_of(self, jobs: Mapping[str, JobStatus], key: AlertKey) -> Target | None:
        """Return to whom an alert goes; None if nobody is to be notified."""
        job = jobs.get(key.job)
        if job is None or job.fault is not None:
            return self._options.to
        if job.config.error_handler == "ignore":
            return None
        return Target.of(job.config.error_handler, job.config.error_handler_options)

    def _failure_of(self, alerts: Sequence[AlertState]) -> Failure:
        namespace = self._address.settings.namespace
        return failure_of(alerts, namespace, self._options.console_url, self._now(), self._links)

    def _now(self) -> float:
        """Return the registry's time, as far as known."""
        return self._clock.now() - self._skew

    def _until(self, then: float) -> float:
        """Return the seconds until a time, at most ``MAX_WAIT``."""
        return min(MAX_WAIT, max(0.0, then - self._now()))


class _Newest(Generic[T]):
    """The newest of the states that a stream gives."""

    def __init__(self, value: T, states: AsyncIterator[T], news: asyncio.Event) -> None:
        self.value = value
        self._states = states
        self._news = news

    async def follow(self) -> None:
        """Take each new state."""
        async for value in self._states:
            self.value = value
            self._news.set()


class _AlertChanges:
    """Notes that the nodes of alerts have changed."""

    def __init__(self, news: asyncio.Event) -> None:
        self._news = news
        self.is_stale = True

    def changed(self, kind: int, path: str) -> None:
        """Note that a node has changed."""
        self.reset()

    def reset(self) -> None:
        """Note that anything may have changed."""
        self.is_stale = True
        self._news.set()
