"""ElasticJob: declare jobs, and run them inside an event loop that runs already, or as a process of their own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from anyio import CancelScope, CapacityLimiter, Event, create_task_group
from pydantic import BaseModel

from aioelasticjob import error_handlers
from aioelasticjob.clock import Clock, SystemClock
from aioelasticjob.config.following import check_following
from aioelasticjob.config.job import JobConfig
from aioelasticjob.config.links import checked_console_url
from aioelasticjob.config.types import DURATION, parts_of
from aioelasticjob.core.strategies import find
from aioelasticjob.engine.application import RunningApp
from aioelasticjob.engine.executors import DEFAULT_THREADS, Executors, Processes, processors
from aioelasticjob.engine.health import Health
from aioelasticjob.errors import InvalidSetting, InvalidState, RegistryError, unwrapped
from aioelasticjob.events import Counts, Events
from aioelasticjob.events import EventReader as EventListener
from aioelasticjob.ground.limited_log import LimitedLog
from aioelasticjob.ground.plural import counted
from aioelasticjob.host.event_loop import require_asyncio
from aioelasticjob.host.importable import refuse_while_imported
from aioelasticjob.host.process import (
    await_signals,
    collect_garbage_seldom,
    forced_exit,
    freeze_garbage_collector,
    loop_factory,
    open_standard_descriptors,
)
from aioelasticjob.host.signals import end_process_1_on_signals
from aioelasticjob.jobs import executors as function_executors
from aioelasticjob.jobs import kinds
from aioelasticjob.jobs.base import Handler, InstanceHandler, ItemHandler, Job, check_per
from aioelasticjob.jobs.dependencies import Provider
from aioelasticjob.jobs.handlers import AllowedKind, NamedHandler
from aioelasticjob.jobs.listeners import Listener, checked
from aioelasticjob.logging import logger
from aioelasticjob.observers.endpoint import Endpoint
from aioelasticjob.observers.recorder import Recorder
from aioelasticjob.observers.tracing import find_tracer
from aioelasticjob.observers.vitals import Vitals
from aioelasticjob.registry.addresses import Address
from aioelasticjob.registry.session import ConnectionSettings, Session
from aioelasticjob.registry.settings import ConnectionOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioelasticjob.ground.rates import Rate
    from aioelasticjob.jobs.dataflow import Dataflow, DeclareDataflow, RetryStrategy
    from aioelasticjob.jobs.settings import DataflowSettings, JobSettings, RequestSettings, ScriptSettings
    from aioelasticjob.observers.sql import EventStore, EventStoreSettings
    from aioelasticjob.operations import Asked, OperationResult, RequestStatus, RunOptions
    from aioelasticjob.operations.streams import Streams
    from aioelasticjob.settings import Settings

log = logger(__name__)
F = TypeVar("F", bound=ItemHandler | InstanceHandler)
_NOT_GIVEN = {
    "job_name": "give it as name",
    "job_type": "follows from how the job is declared",
    "handler": "only jobs that app.create() creates name one; this job's handler is its function",
    "options": "give each by its own name; only kinds such as script and http have them",
}
"""Settings of a job that are not given as keyword settings, with what to do instead."""


class ElasticJob:
    """A set of jobs and the registry that they are shared through.

    ``connection`` takes the settings of a connection: ``session_timeout``, ``connection_timeout``, ``base_sleep_time``
    and ``max_sleep_time``, each in seconds, as text such as ``30s``, or a timedelta; ``max_retries`` and
    ``max_request``; ``digest`` and ``sasl``, each ``user:password``, or the files ``digest_file`` and ``sasl_file``;
    ``tls``; and ``ip``, the address of this server.  ``overwrite`` is for all jobs that do not say otherwise: at the
    start, their settings replace those in the registry.

    Raises:
        InvalidSetting: the address or an option makes no sense.
    """

    def __init__(
        self,
        address: str,
        *,
        threads: int = DEFAULT_THREADS,
        processes: int | None = None,
        event_store: str | EventStoreSettings | None = None,
        metrics: int | str | None = None,
        console_url: str | None = None,
        allow_created: Iterable[str] = (),
        clock: Clock | None = None,
        overwrite: bool = False,
        **connection: Unpack[ConnectionOptions],
    ) -> None:
        self._from_outside: Settings | None = None
        if clock is not None and not callable(getattr(clock, "now", None)):
            raise InvalidSetting("clock", clock, "an object with a method now()")
        self._registry = Address.parse(address, **connection)
        if not isinstance(overwrite, bool):
            raise InvalidSetting("overwrite", overwrite, "must be True or False")
        self._overwrite = overwrite
        self._threads = _positive("threads", threads)
        self._processes = processors() if processes is None else _positive("processes", processes)
        self.dependency_overrides: dict[Provider, Provider] = {}
        """For tests: another provider for a provider.  It is read when the application starts, and at each run."""
        self._here = RunningApp(clock or SystemClock(), None if event_store is None else Recorder(event_store))
        if metrics is not None:
            self.serve_metrics(metrics)
        if console_url is not None:
            self._here.console_url = checked_console_url(console_url)
        self.allow_created(allow_created)

    @property
    def address(self) -> str:
        """Where the registry is, as it was given."""
        return self._registry.text

    @property
    def settings(self) -> ConnectionSettings:
        """The settings of the connection to the registry: servers, timeouts, retries."""
        return self._registry.settings

    @classmethod
    def from_settings(cls, file: str | Path | None = None, **arguments: Any) -> ElasticJob:
        """Return an application made from a settings file and the environment; ``arguments`` override both.

        The script and HTTP jobs of the file are declared.  Jobs that code declares later take their settings from it.

        Raises:
            WrongSettings: with all mistakes there are, their files and lines.
        """
        from aioelasticjob.settings import load

        settings = load(file)
        given = {**settings.application.given, **arguments}
        if (registry := given.pop("registry", None)) is None:
            raise InvalidSetting("registry", None, "write registry: zk://host:port/namespace, or set its variable")
        app = cls(registry, **given)
        app._adopt(settings)
        return app

    @property
    def jobs(self) -> tuple[JobConfig, ...]:
        """The configurations of the jobs declared here."""
        return tuple(job.config for job in self._here.declared.values())

    @property
    def handlers(self) -> tuple[str, ...]:
        """The names of the handlers registered here, which created jobs may name."""
        return tuple(self._here.handlers)

    def job(
        self, name: str | None = None, *, listeners: Iterable[Listener] = (), **settings: Unpack[JobSettings]
    ) -> Callable[[F], F]:
        """Declare the decorated function as a job; it stays callable.  The job's name is the function's unless given.

        Raises:
            InvalidSetting: names the setting, its value and what would be right.
        """
        if callable(name):
            raise InvalidSetting("name", name, "write @app.job() with parentheses")
        _check_names_and_types(settings)

        def declare(handler: F) -> F:
            self.add(handler, name=name, listeners=listeners, **settings)
            return handler

        return declare

    def add(
        self,
        handler: ItemHandler | InstanceHandler,
        *,
        name: str | None = None,
        listeners: Iterable[Listener] = (),
        **settings: Unpack[JobSettings],
    ) -> JobConfig:
        """Declare a job without a decorator and return its configuration.

        While the application runs, the job joins at once, and ``wait_joined`` tells when it has.

        Raises:
            InvalidSetting: names the setting, its value and what would be right.
            InvalidState: the application connects or stops, runs in another event loop, or the job still leaves.
        """
        if not callable(handler):
            raise InvalidSetting("handler", handler, "must be a function that takes one context")
        given = _own_name(handler) if name is None else name
        _check_names_and_types(settings)
        config = JobConfig.build(job_name=given, **settings)
        return self._enlist(Job.declare(config, handler, listeners))

    def handler(
        self, name: str, *, parameter: type[BaseModel] | None = None, listeners: Iterable[Listener] = ()
    ) -> Callable[[F], F]:
        """Register the decorated function as a handler that created jobs may name; it stays callable.

        This process runs each job that anybody creates for the handler, now or later.  ``parameter`` is a pydantic
        model of the job parameter: ``context.parameters`` is its value, and jobs whose parameter it refuses do not run
        here.

        Raises:
            InvalidSetting: names the argument, its value and what would be right.
            InvalidState: the application connects or stops, or runs in another event loop.
        """

        def register(function: F) -> F:
            self._here.declare_handler(NamedHandler.declare(name, function, parameter, listeners))
            return function

        return register

    def allow_created(self, kinds: Iterable[str]) -> None:
        """Let this process run created jobs of these kinds, such as ``script`` and ``http``, too.

        Whoever may create jobs in the registry then decides which programs run on this host, so no kind is allowed
        unless this is called.

        Raises:
            InvalidSetting: there is no such kind.
            InvalidState: the application connects or stops, or runs in another event loop.
        """
        if isinstance(kinds, str):
            raise InvalidSetting("allow_created", kinds, f'must be a list of kinds: ["{kinds}"]')
        for kind in dict.fromkeys(kinds):
            if kind not in self._here.handlers:
                self._here.declare_handler(AllowedKind.find(kind))

    def dataflow(
        self,
        name: str | None = None,
        *,
        retry: RetryStrategy | None = None,
        listeners: Iterable[Listener] = (),
        **settings: Unpack[DataflowSettings],
    ) -> DeclareDataflow:
        """Declare the decorated fetch as a dataflow job; the returned object's ``process`` decorates the next function.

        A fetch is a coroutine function that returns a list of records, or an async generator that yields such lists;
        an empty list or None ends the run.

        Raises:
            InvalidSetting: names the setting, its value and what would be right.
        """
        from aioelasticjob.engine.dataflow import DataflowEngine
        from aioelasticjob.jobs.dataflow import Dataflow

        if callable(name):
            raise InvalidSetting("name", name, "write @app.dataflow() with parentheses")
        _check_names_and_types(settings)

        def declare(fetch: Handler) -> Dataflow[Any]:
            given = _own_name(fetch) if name is None else name
            flow: Dataflow[Any] = Dataflow(
                JobConfig.build(job_name=given, job_type="DATAFLOW", **settings), fetch, retry
            )
            self._enlist(Job(flow.config, fetch, False, checked(listeners), engine=DataflowEngine(flow)))
            return flow

        return declare

    def script(self, name: str, *, command: str | Sequence[str], **settings: Unpack[ScriptSettings]) -> JobConfig:
        """Declare a job that runs a command line; ``settings`` are those of `Script` and of every job.

        Raises:
            InvalidSetting: names the setting, its value and what would be right; also if there is no such script.
        """
        return self.kind("script", name, command=command, **settings)

    def http(self, name: str, *, url: str, **settings: Unpack[RequestSettings]) -> JobConfig:
        """Declare a job that makes a request; ``settings`` are those of `Request` and of every job.

        Raises:
            InvalidSetting: names the setting, its value and what would be right; also if aiohttp is missing.
        """
        return self.kind("http", name, url=url, **settings)

    def kind(self, kind: str, name: str, *, listeners: Iterable[Listener] = (), **settings: Any) -> JobConfig:
        """Declare a job of a kind that needs no handler: ``script``, ``http``, or one that a package adds.

        Raises:
            InvalidSetting: names the setting, its value and what would be right.
        """
        _check_names_and_types(settings)
        config = kinds.declared(kind, name, settings)
        return self._enlist(Job.declare(config, kinds.handler(kinds.find(kind)), listeners))

    @property
    def is_configured(self) -> bool:
        """Whether a settings file, or the environment, overrides the settings in the code."""
        return self._from_outside is not None

    def use_registry(self, address: str) -> None:
        """Run the jobs in another registry than the one in the code; the other settings of the connection stay.

        Raises:
            InvalidSetting: the address makes no sense.
            InvalidState: the application runs.
        """
        if self._here.running:
            raise InvalidState("the application runs already: give it another registry before it runs")
        self._registry = self._registry.changed(address)

    def exit_at_lease_end(self) -> None:
        """Let this process be killed if a run goes on although its session may be over.

        Raises:
            InvalidState: the application runs already.
        """
        if self._here.running:
            raise InvalidState("the application runs already: set exit_at_lease_end before it runs")
        self._registry = self._registry.changed(exit_at_lease_end=True)

    def configure(self, file: str | Path | None = None, *, registry: str | None = None) -> None:
        """Let a settings file and the environment override the settings in the code, also for jobs declared later.

        The address ``registry`` overrides all three.

        Raises:
            WrongSettings: with all mistakes there are, their files and lines.
        """
        from aioelasticjob.settings import load

        if self._here.running:
            raise InvalidState("the application runs already: configure it before it runs")
        settings = load(file)
        given = settings.application
        self._registry = self._registry.changed(registry or given.registry, **given.connection)
        self._threads = given.threads or self._threads
        self._processes = given.processes or self._processes
        self._overwrite = self._overwrite if given.overwrite is None else given.overwrite
        if given.event_store is not None:
            self._here.recorder = Recorder(given.event_store)
        if given.metrics is not None:
            self.serve_metrics(given.metrics)
        if given.console_url is not None:
            self._here.console_url = checked_console_url(given.console_url)
        if given.allow_created is not None:
            self.allow_created(given.allow_created)
        self._adopt(settings)

    @contextmanager
    def events(self) -> Iterator[EventListener]:
        """Listen to what the jobs of this process do, as an async iterator of events.

        The iterator ends when the application has left.  A new one then waits until the application runs again.
        """
        with self._events.listen() as listener:
            yield listener

    @property
    def counts(self) -> Mapping[str, Counts]:
        """What has happened to each job in this process: fires, runs, misfires, catch-ups."""
        return self._events.counts

    @property
    def health(self) -> Health:
        """What this process holds and runs, and how things stand with the registry."""
        return self._here.health(self.jobs)

    @property
    def rates(self) -> Mapping[str, tuple[Rate, ...]]:
        """How fast records flow now through the items that this process runs of dataflow jobs, by job."""
        return self._events.rates

    def serve_metrics(self, at: int | str) -> None:
        """Answer Prometheus at this port, or HOST:PORT, under ``/metrics`` while the application runs.

        Raises:
            InvalidSetting: the address makes no sense, or prometheus-client is not installed.
            InvalidState: the application runs.
        """
        if self._here.running:
            raise InvalidState("the application runs already: give it the port for metrics before it runs")
        self._here.endpoint = Endpoint(self, at)

    @property
    def ended_by(self) -> Exception | None:
        """The error of a job that has ended the application (error handler ``raise``); the log has it already."""
        return self._here.ended_by

    @property
    def vitals(self) -> Vitals:
        """The present state of this process, for metrics."""
        return self._here.vitals

    @property
    def event_store(self) -> EventStore | None:
        """The event store with its history; None without one, or while the application does not run."""
        recorder = self._here.recorder
        return None if recorder is None else recorder.store

    def streams(self, job: str) -> Streams:
        """Return the event streams of a job: servers, config, leader, execution.

        Raises:
            InvalidState: the application does not run.
        """
        from aioelasticjob.operations.streams import Streams

        if self._here.session is None:
            raise InvalidState(f"streams of {job}: the application must be running: they need its session")
        return Streams(self._here.session, job)

    async def trigger(
        self,
        name: str,
        parameter: str | Mapping[str, object] | None = None,
        **options: Unpack[RunOptions],
    ) -> Asked:
        """Ask for one run of a job's items, at once, ``at`` a time, or after a ``delay``: seconds, or ``"10m"``.

        The ``items`` are all if none are named.  The runs begin as soon as an instance can make them, however late that
        is, unless the request ``expires``: at a time, or so long after it is due.  A ``parameter`` replaces the job's
        parameter for these runs; a mapping is passed on as JSON, and is ``context.request`` there.  A second request
        with the same ``id`` is the same request, until 7 days after its end.

        Raises:
            TypeError: there is no such option.
            InvalidState: the application does not run.
            InvalidSetting: there is no such job or instance, or an argument makes no sense.
            NotPossible: nobody can answer it.
            ChangedMeanwhile: others have changed the job meanwhile.
            RegistryError: the registry could not be read or written.
        """
        from aioelasticjob import operations

        session = self._session("trigger", name)
        return await operations.ask(session, name, parameter=parameter, by=session.host, **options)

    async def backfill(
        self,
        name: str,
        start: datetime,
        end: datetime,
        items_at_once: int | None = None,
        *,
        items: Iterable[int] | None = None,
        id: str | None = None,
        cascade: bool = False,
    ) -> Asked:
        """Ask for runs of all scheduled moments from ``start`` (included) to ``end`` (not included, not after now).

        Each item runs its moments one after another, oldest first, in turns with the scheduled ones, with the source
        ``BACKFILL``.  Moments that ran before run again.  The schedule is the one of now.  At most ``items_at_once``
        items run at a time in the whole cluster.  With ``cascade`` the jobs that follow run these moments afterwards.

        Raises: as ``trigger`` does.
        """
        from aioelasticjob import operations

        session = self._session("backfill", name)
        return await operations.backfill(
            session, name, start, end, items=items, items_at_once=items_at_once, id=id, by=session.host, cascade=cascade
        )

    async def rerun(
        self,
        name: str,
        fire_time: datetime,
        *,
        items: Iterable[int] | None = None,
        id: str | None = None,
        cascade: bool = False,
    ) -> Asked:
        """Ask for another run of one scheduled moment, which must be one of the schedule's: a backfill of one moment.

        Raises: as ``trigger`` does.
        """
        from aioelasticjob import operations

        session = self._session("rerun", name)
        return await operations.rerun(session, name, fire_time, items=items, id=id, by=session.host, cascade=cascade)

    async def create(
        self,
        name: str,
        *,
        handler: str,
        options: Mapping[str, object] | None = None,
        **settings: Unpack[JobSettings],
    ) -> OperationResult:
        """Create a job in the registry: every process that has the ``handler`` runs it, also those that start later.

        The ``settings`` are those of a declared job.  The ``job_parameter``, which may be a mapping, has to satisfy the
        model of at least one process that has the handler, if there is any.  The ``handler`` may also be a kind of job
        that processes allow, such as ``script``, with the settings of that kind as its ``options``.  If the job exists
        with the same settings already, nothing is done.

        Raises:
            InvalidSetting: names the setting, its value and what would be right.
            JobConflict: there is a job of this name, with other settings or of another kind, or it is being removed.
            InvalidState: the application does not run.
            ChangedMeanwhile: others have changed the job meanwhile.
            RegistryError: the registry could not be read or written.
        """
        from aioelasticjob import operations

        session = self._session("create", name)
        _check_names_and_types(settings)
        given = {**settings, **({} if options is None else {"options": options})}
        return await operations.create(session, name, given, handler=handler, by=session.host)

    async def remove(self, name: str, *, timeout: float | None = None) -> OperationResult:
        """Let all instances of a created job end what they run, then remove the job from the registry.

        Nobody joins the job from the beginning on.  Handlers have ``shutdown_timeout``, as when an application stops.
        Without a ``timeout`` this waits as long as it takes.  In a run of the job itself it would wait for that run.

        Raises:
            InvalidSetting: there is no such job, or no code has created it.
            InvalidState: the application does not run.
            RemovalUnfinished: instances were still there after ``timeout`` seconds.  The job stays marked as being
                removed: another call goes on.
            ChangedMeanwhile: others have changed the job meanwhile.
            RegistryError: the registry could not be read or written.
        """
        from aioelasticjob import operations

        session = self._session("remove", name)
        return await operations.remove_created(session, name, timeout=timeout, by=session.host)

    async def requests(self, name: str) -> tuple[RequestStatus, ...]:
        """Return the requests of a job, and how far each has come; those that have ended are shown for a while.

        Raises:
            InvalidState: the application does not run.
            InvalidSetting: there is no such job.
            RegistryError: the registry could not be read.
        """
        from aioelasticjob import operations

        return await operations.requests(self._session("requests", name), name)

    async def cancel(self, name: str, *, item: int | None = None) -> OperationResult:
        """Stop the runs of a job that are under way, or the run of one item; they end as ``stopped``.

        They are neither rescued nor run again.  An item stays locked until its handler has returned, and until those of
        the other items that its instance runs have.

        Raises:
            InvalidState: the application does not run.
            InvalidSetting: there is no such job or item, or its execution is not
                monitored.
            NotPossible: nothing runs, or workers are too old for that.
            ChangedMeanwhile: others have changed the job meanwhile.
            RegistryError: the registry could not be read or written.
        """
        from aioelasticjob import operations

        session = self._session("cancel", name)
        return await operations.cancel(session, name, item=item, by=session.host)

    async def cancel_request(self, name: str, id: str) -> OperationResult:
        """Cancel a request: nothing more of it is begun.  Runs that have begun go on.

        Raises:
            InvalidState: the application does not run.
            InvalidSetting: there is no such job or request.
            ChangedMeanwhile: others have changed the request meanwhile.
            RegistryError: the registry could not be read or written.
        """
        from aioelasticjob import operations

        session = self._session("cancel_request", name)
        return await operations.cancel_request(session, name, id, by=session.host)

    async def wait_joined(self, name: str) -> None:
        """Wait until a job that was added while the application runs has joined, or has to wait.

        Raises:
            InvalidSetting: what is declared of the job is wrong, its name belongs to another kind of job, or no job of
                this name is declared.
            RegistryError: the registry could not be read or written.
            InvalidState: the application does not run, or the job leaves before it has joined.
        """
        await self._here.joined(name)

    async def leave(self, name: str) -> None:
        """End a job in this process, once what it runs has ended; the job's other instances go on.

        Its configuration stays in the registry, and its schedule goes on.  The job runs here again when it is added
        again, or after a restart that declares it.  Handlers have ``shutdown_timeout``, as when the application stops.
        In a run of the job itself this does not wait: the job leaves when that run has ended.

        Raises:
            InvalidSetting: no job of this name is declared.
            InvalidState: the application does not run.
        """
        await self._here.leave(name)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Session]:
        """Run all jobs in the present event loop while the block is open; at its end, finish running items and leave.

        The block begins when each job has joined or has to wait.  A job waits if this process cannot use what the
        registry holds of it: ``health`` says what is wrong, and the job joins when that has been corrected.

        Raises:
            RegistryUnreachable: no registry answered.
            TlsFailed: no encrypted connection could be made.
            AuthenticationFailed: the registry refused the digest, or the user and password of SASL.
            InvalidSetting: what is declared of a job is wrong, its name belongs to another kind of job, or the present
                event loop is not asyncio's.
        """
        require_asyncio()
        refuse_while_imported()
        if self._here.running:
            raise InvalidState("this application runs already: enter app.running() once")
        jobs = [job.prepared().overwriting(self._overwrite) for job in self._here.declared.values()]
        if self._from_outside is not None:
            self._from_outside.all_declared(self._here.declared)
        threads = CapacityLimiter(self._threads)
        processes = Processes(self._processes)
        limited_log = LimitedLog()
        executors = Executors(threads, processes, self.dependency_overrides, find_tracer(limited_log))
        task = asyncio.current_task()
        async with self._here.open(self._registry, jobs, executors, limited_log) as session:
            yield session
            if asyncio.current_task() is not task:
                text = "use aioelasticjob.integrations.guest(app), for instance in a fixture of pytest-asyncio"
                raise InvalidState(f"app.running() was left in another task than entered: {text}")

    def run(self) -> None:
        """Run all jobs as a whole process: on uvloop (not on Windows), with a graceful stop on SIGTERM, SIGINT, SIGHUP.

        A second signal, more than half a second after the first, stops at once; a handler that cannot be cancelled,
        such as a thread or one that blocks the loop, delays that by 5 s at most.
        Garbage collections become rarer, and when all jobs have joined, all objects of that moment are excluded from
        them (``gc.freeze``).

        Raises:
            InvalidSetting: there is no job, an event loop runs already, this is no main thread, a command imports the
                module that calls this, or as of ``running``.
            RegistryError: no registry answered, or it refused the digest.
        """
        refuse_while_imported()
        if not (self._here.declared or self._here.handlers):
            raise InvalidSetting("jobs", (), "declare at least one: decorate a function with @app.job(cron=…)")
        if asyncio._get_running_loop() is not None:
            raise InvalidState("an event loop runs already: write async with app.running(): … in place of app.run()")
        if threading.current_thread() is not threading.main_thread():
            text = "app.run() needs the main thread, since other threads get no signals"
            raise InvalidState(f"{text}: write async with app.running(): …")
        end_process_1_on_signals()
        open_standard_descriptors()
        try:
            with forced_exit(self._here.busy) as force, asyncio.Runner(loop_factory=loop_factory()) as runner:
                runner.run(self._main(force))
        except (InvalidSetting, InvalidState, RegistryError) as error:
            raise error.with_traceback(
                None
            ) from error.__cause__  # the text says all: the way through here helps nobody

    def _enlist(self, job: Job) -> JobConfig:
        """Add a job to the declared ones, however it was declared."""
        if self._from_outside is not None:
            job = replace(job, config=self._from_outside.applied(job))
            check_per(job.config, "handler", job.handler)
        self._check(job.config)
        self._check_following(job.config)
        self._here.declare(job, overwrite=self._overwrite)
        return job.config

    def _check(self, config: JobConfig) -> None:
        """Check that what a job names is here.

        Raises:
            InvalidSetting: a strategy, an executor or an error handler is not.
        """
        find(config.sharding_strategy)
        function_executors.check(config.executor)
        error_handlers.check(config.error_handler, config.error_handler_options)

    def _check_following(self, config: JobConfig) -> None:
        """Check a job that follows others, and those that follow it, as far as they are declared here.

        Raises:
            InvalidSetting: one of them cannot be followed.
        """
        declared = self._here.declared
        followers = self._here.followers
        for upstream in config.after:
            followers.setdefault(upstream, set()).add(config.job_name)
        concerned = [config] if config.after else []
        concerned += [declared[name].config for name in followers.get(config.job_name, ()) if name in declared]
        if concerned:
            known = {name: job.config for name, job in declared.items()} | {config.job_name: config}
            for one in concerned:
                check_following(one, known, round(self._here.clock.now() * 1000))

    def _adopt(self, settings: Settings) -> None:
        self._from_outside = settings
        declared = self._here.declared
        for name, job in declared.items():
            declared[name] = replace(job, config=settings.applied(job))
            check_per(declared[name].config, "handler", job.handler)
        for job in declared.values():
            self._check_following(job.config)
        for name, kind in settings.jobs.items():
            if kind is not None and name not in declared:
                self._enlist(Job.declare(settings.declared(name), kinds.handler(kinds.find(kind))))

    def _session(self, what: str, job: str) -> Session:
        if self._here.session is None:
            raise InvalidState(f"{what} of {job}: the application must be running: this needs its session")
        return self._here.session

    @property
    def _events(self) -> Events:  # read by the metrics of this application
        return self._here.events

    async def _main(self, force: threading.Timer) -> None:
        with unwrapped(), CancelScope() as everything:
            async with create_task_group() as tasks:
                asked = Event()
                arrived = Event()
                collect_garbage_seldom()
                await tasks.start(await_signals, arrived, asked, everything, force)
                async with self.running():
                    freeze_garbage_collector()
                    arrived.set()
                    names = [job.job_name for job in self.jobs]
                    log.info("running %s: %s", counted(len(names), "job"), ", ".join(names[:20]), extra={"jobs": names})
                    await asked.wait()
                tasks.cancel_scope.cancel()


def _own_name(handler: object) -> str:
    name = getattr(handler, "__name__", "<lambda>")
    if name == "<lambda>":  # or a partial, or an object
        raise InvalidSetting("name", None, "the handler has no name of its own: write name=…")
    return name


def _check_names_and_types(settings: Mapping[str, object]) -> None:
    for setting, expected in _NOT_GIVEN.items():
        if setting in settings:
            raise InvalidSetting(setting, settings[setting], expected)
    for setting, value in settings.items():
        # only files, the environment and command lines have to write numbers and flags as text
        if isinstance(value, str) and setting in JobConfig.model_fields:
            parts = parts_of(JobConfig.model_fields[setting])
            if DURATION not in parts and str not in parts and any(kind in parts for kind in (int, float, bool)):
                wanted = "True or False" if bool in parts else "a number"
                raise InvalidSetting(setting, value, f"must be {wanted}, not text")


def _positive(setting: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidSetting(setting, value, "must be a whole number, 1 or more")
    return value
