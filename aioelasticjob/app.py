"""ElasticJob: declare jobs, and run them inside a loop that is there already or as a process of their own."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from anyio import CancelScope, CapacityLimiter, Event, create_task_group, move_on_after

from aioelasticjob import error_handlers
from aioelasticjob.addresses import Address, open_registry
from aioelasticjob.clock import Clock, SystemClock
from aioelasticjob.config import JobConfig
from aioelasticjob.coordination.strategies import find
from aioelasticjob.coordination.streams import Streams
from aioelasticjob.error_handlers import Complaints
from aioelasticjob.errors import InvalidSetting, unwrapped
from aioelasticjob.events import Counts, Events
from aioelasticjob.events import Listener as EventListener
from aioelasticjob.jobs import kinds
from aioelasticjob.jobs.base import Handler, InstanceHandler, ItemHandler, Job
from aioelasticjob.jobs.dependencies import Provider
from aioelasticjob.jobs.listeners import Listener
from aioelasticjob.observers.endpoint import Endpoint
from aioelasticjob.observers.recorder import Recorder
from aioelasticjob.observers.tracing import find_tracer
from aioelasticjob.observers.vitals import Vitals
from aioelasticjob.process import await_signals, by_force, loop_factory, spare_the_collector
from aioelasticjob.registry.session import ConnectionSettings, Session
from aioelasticjob.running.blocking import THREADS, Means, Processes, pickled, processors
from aioelasticjob.running.health import Health
from aioelasticjob.running.job import Host, retire, run_job
from aioelasticjob.running.runner import Surroundings
from aioelasticjob.running.watchdog import watchdog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioelasticjob.jobs.dataflow import Dataflow, Strategy
    from aioelasticjob.observers.sql import EventStore, EventStoreSettings
    from aioelasticjob.rates import Rate
    from aioelasticjob.settings import Settings

F = TypeVar("F", bound=Callable[..., object])
LAST_COMPLAINTS = 5.0
"""Seconds that error handlers have for what is left to tell when the application ends."""
_NOT_GIVEN = {
    "job_name": "give it as name",
    "job_type": "follows from how the job is declared",
    "options": "give each by its own name; only kinds such as script and http have them",
}
"""Settings of a job that have another way in."""

log = logging.getLogger(__name__)


class ElasticJob:
    """A set of jobs and the registry that they are shared through.

    ``session_timeout``, ``connection_timeout``, ``base_sleep_time`` and ``max_sleep_time`` are seconds;
    ``digest`` is ``user:password``.

    Raises:
        InvalidSetting: the address or an option makes no sense.
    """

    def __init__(
        self,
        address: str,
        *,
        session_timeout: float = 30,
        connection_timeout: float = 15,
        base_sleep_time: float = 1,
        max_sleep_time: float = 3,
        max_retries: int = 3,
        digest: str | None = None,
        threads: int = THREADS,
        processes: int | None = None,
        event_store: str | EventStoreSettings | None = None,
        metrics: int | str | None = None,
        clock: Clock | None = None,
    ) -> None:
        options: dict[str, Any] = {
            "session_timeout": session_timeout,
            "connection_timeout": connection_timeout,
            "base_sleep_time": base_sleep_time,
            "max_sleep_time": max_sleep_time,
            "max_retries": max_retries,
            "digest": digest,
        }
        self._registry = Address.parse(address, **options)
        self._from_outside: Settings | None = None
        self._jobs: dict[str, Job] = {}
        self._threads = _positive("threads", threads)
        self._processes = processors() if processes is None else _positive("processes", processes)
        self.dependency_overrides: dict[Provider, Provider] = {}
        """What is called in place of which provider, for tests; looked at when the application starts, and each run."""
        self._clock = clock or SystemClock()
        self._recorder = None if event_store is None else Recorder(event_store)
        self._events = Events()
        self._endpoint: Endpoint | None = None
        if metrics is not None:
            self.serve_metrics(metrics)
        self._running = False
        self._session: Session | None = None
        self._shared: Surroundings | None = None

    @property
    def address(self) -> str:
        """Where the registry is, as it was given."""
        return self._registry.text

    @property
    def settings(self) -> ConnectionSettings:
        """How to reach the registry, and how patient to be with it."""
        return self._registry.settings

    @property
    def jobs(self) -> tuple[JobConfig, ...]:
        """The configurations of the jobs declared here."""
        return tuple(job.config for job in self._jobs.values())

    def job(self, name: str | None = None, *, listeners: Iterable[Listener] = (), **settings: Any) -> Callable[[F], F]:
        """Declare the decorated function as a job; it stays callable.  The job's name is the function's unless given.

        Raises:
            InvalidSetting: names the setting, its value and what would be right.
        """
        if callable(name):
            raise InvalidSetting("name", name, "write @app.job() with parentheses")

        def declare(handler: F) -> F:
            given = getattr(handler, "__name__", None) if name is None else name
            self.add(handler, name=given, listeners=listeners, **settings)
            return handler

        return declare

    def add(
        self,
        handler: ItemHandler | InstanceHandler,
        *,
        name: str | None = None,
        listeners: Iterable[Listener] = (),
        **settings: Any,
    ) -> JobConfig:
        """Declare a job without a decorator and return its configuration.

        Raises:
            InvalidSetting: names the setting, its value and what would be right.
        """
        if not callable(handler):
            raise InvalidSetting("handler", handler, "must be a function that takes one context")
        for setting, expected in _NOT_GIVEN.items():
            if setting in settings:
                raise InvalidSetting(setting, settings[setting], expected)
        config = JobConfig.build(job_name=name or getattr(handler, "__name__", ""), **settings)
        return self._enlist(Job.declare(config, handler, listeners))

    def dataflow(
        self,
        name: str | None = None,
        *,
        retry: Strategy | None = None,
        listeners: Iterable[Listener] = (),
        **settings: Any,
    ) -> Callable[[Handler], Dataflow]:
        """Declare the decorated fetch as a dataflow job; its ``process`` is declared on what that gives.

        A fetch is a coroutine function that returns a list of records, or an async generator that yields such lists;
        an empty list or None ends the run.

        Raises:
            InvalidSetting: names the setting, its value and what would be right.
        """
        from aioelasticjob.jobs.dataflow import Dataflow
        from aioelasticjob.running.dataflow import Engine

        if callable(name):
            raise InvalidSetting("name", name, "write @app.dataflow() with parentheses")
        for setting in _NOT_GIVEN.keys() & settings.keys():
            raise InvalidSetting(setting, settings[setting], _NOT_GIVEN[setting])

        def declare(fetch: Handler) -> Dataflow:
            given = getattr(fetch, "__name__", "") if name is None else name
            flow = Dataflow(JobConfig.build(job_name=given, job_type="DATAFLOW", **settings), fetch, retry)
            self._enlist(Job(flow.config, fetch, False, tuple(listeners), engine=Engine(flow)))
            return flow

        return declare

    def script(self, name: str, *, command: str | Sequence[str], **settings: Any) -> JobConfig:
        """Declare a job that runs a command line; ``settings`` are those of `Script` and of every job.

        Raises:
            InvalidSetting: names the setting, its value and what would be right; also if there is no such script.
        """
        return self.kind("script", name, command=command, **settings)

    def http(self, name: str, *, url: str, **settings: Any) -> JobConfig:
        """Declare a job that makes a request; ``settings`` are those of `Request` and of every job.

        Raises:
            InvalidSetting: names the setting, its value and what would be right; also if aiohttp is missing.
        """
        return self.kind("http", name, url=url, **settings)

    def kind(self, kind: str, name: str, *, listeners: Iterable[Listener] = (), **settings: Any) -> JobConfig:
        """Declare a job of a kind that needs no handler: ``script``, ``http``, or one that a package brings.

        Raises:
            InvalidSetting: names the setting, its value and what would be right.
        """
        for setting, expected in _NOT_GIVEN.items():
            if setting in settings:
                raise InvalidSetting(setting, settings[setting], expected)
        config = kinds.declared(kind, name, settings)
        return self._enlist(Job.declare(config, kinds.handler(kinds.find(kind)), listeners))

    def _enlist(self, job: Job) -> JobConfig:
        """Take in a job that has been declared in one way or another."""
        if self._from_outside is not None:
            job = replace(job, config=self._from_outside.applied(job.config))
        config = job.config
        find(config.sharding_strategy)
        error_handlers.check(config.error_handler, config.error_handler_options)
        if config.job_name in self._jobs:
            raise InvalidSetting("name", config.job_name, "is declared twice in this application")
        if self._running:
            raise InvalidSetting("name", config.job_name, "jobs are declared before the application runs")
        self._jobs[config.job_name] = job
        return config

    @classmethod
    def from_settings(cls, file: str | Path | None = None, **arguments: Any) -> ElasticJob:
        """Return an application as a settings file and the environment have it; ``arguments`` go before both.

        Its script and HTTP jobs are declared; those of the code that follows find their settings there.

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

    def configure(self, file: str | Path | None = None) -> None:
        """Let a settings file and the environment go before what the code says, also for jobs declared later.

        Raises:
            WrongSettings: with all mistakes there are, their files and lines.
        """
        from aioelasticjob.settings import load

        if self._running:
            raise InvalidSetting("file", file, "an application is configured before it runs")
        settings = load(file)
        given = settings.application
        self._registry = self._registry.changed(given.registry, **given.connection)
        self._threads, self._processes = given.threads or self._threads, given.processes or self._processes
        if given.event_store is not None:
            self._recorder = Recorder(given.event_store)
        if given.metrics is not None:
            self.serve_metrics(given.metrics)
        self._adopt(settings)

    def _adopt(self, settings: Settings) -> None:
        self._from_outside = settings
        for name, job in self._jobs.items():
            self._jobs[name] = replace(job, config=settings.applied(job.config))
        for name, kind in settings.jobs.items():
            if kind is not None and name not in self._jobs:
                self._enlist(Job.declare(settings.declared(name), kinds.handler(kinds.find(kind))))

    @contextmanager
    def events(self) -> Iterator[EventListener]:
        """Listen to what the jobs of this process do, as an async iterator of events."""
        with self._events.listen() as listener:
            yield listener

    @property
    def counts(self) -> Mapping[str, Counts]:
        """What has happened to each job in this process: fires, runs, misfires, catch-ups."""
        return self._events.counts

    @property
    def health(self) -> Health:
        """What this process holds and runs, and how things stand with the registry."""
        joined = self._shared.runners if self._shared else ()
        return Health.of(self._session, self.jobs, (runner.health for runner in joined))

    @property
    def rates(self) -> Mapping[str, tuple[Rate, ...]]:
        """How fast records flow through the items of this process's dataflow jobs, now, by job."""
        return self._events.rates

    def serve_metrics(self, at: int | str) -> None:
        """Answer Prometheus at this port, or HOST:PORT, under ``/metrics`` while the application runs.

        Raises:
            InvalidSetting: the address makes no sense, or prometheus-client is not installed.
        """
        self._endpoint = Endpoint(self, at)

    @property
    def vitals(self) -> Vitals:
        """How things stand at the moment, for those who measure."""
        standings = [runner.standing for runner in self._shared.runners] if self._shared else []
        return Vitals.of(self._session, standings, self._recorder.counts if self._recorder else None)

    @property
    def event_store(self) -> EventStore | None:
        """The event store with its history; None without one, or while the application does not run."""
        return None if self._recorder is None else self._recorder.store

    def streams(self, job: str) -> Streams:
        """Return the event streams of a job: servers, config, leader, execution.

        Raises:
            InvalidSetting: the application does not run.
        """
        if self._session is None:
            raise InvalidSetting("streams", job, "the application must be running: they need its session")
        return Streams(self._session, job)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Session]:
        """Run all jobs while the block is open, inside the present event loop; leave gracefully at its end.

        Raises:
            RegistryUnreachable: no registry answered.
            AuthenticationFailed: the registry refused the digest.
            InvalidSetting: a job cannot be joined.
        """
        if self._running:
            raise InvalidSetting("running", True, "this application runs already")
        for job in tuple(self._jobs.values()):
            if job.engine is not None:
                self._jobs[job.config.job_name] = replace(job, blocking=job.engine.check())
        if self._from_outside is not None:
            self._from_outside.all_declared(self._jobs)
        self._running = True
        failure: Exception | None = None
        try:
            async with AsyncExitStack() as stack:
                stack.enter_context(unwrapped())
                stack.enter_context(watchdog())
                if self._recorder is not None:
                    await stack.enter_async_context(self._recorder.open(self._events, self._clock))
                if self._endpoint is not None:
                    await stack.enter_async_context(self._endpoint.open())
                session = await stack.enter_async_context(open_registry(self._registry, clock=self._clock))
                self._session = session
                stack.callback(self._forget_session)
                await stack.enter_async_context(self._crew(session))
                try:
                    yield session
                except Exception as error:  # the caller's own: kept out of our groups, which would wrap it
                    failure = error
        finally:
            self._running = False
        if failure is not None:
            raise failure

    def run(self) -> None:
        """Run all jobs as a whole process: uvloop where it is installed, graceful stop on SIGTERM and SIGINT.

        A second signal stops at once; a handler that cannot be cancelled, such as a thread, delays that by 5 s at most.
        What is in memory once all jobs have joined stays out of the garbage collector's sight from then on
        (``gc.freeze``).
        """
        with by_force() as force, asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(self._main(force))

    async def _main(self, force: threading.Timer) -> None:
        with unwrapped(), CancelScope() as everything:
            async with create_task_group() as tasks:
                asked, arrived = Event(), Event()
                await tasks.start(await_signals, arrived, asked, everything, force)
                async with self.running():
                    spare_the_collector()
                    arrived.set()
                    log.info("running", extra={"jobs": [job.job_name for job in self.jobs]})
                    await asked.wait()
                tasks.cancel_scope.cancel()

    def _forget_session(self) -> None:
        self._session = self._shared = None

    @asynccontextmanager
    async def _crew(self, session: Session) -> AsyncIterator[None]:
        for job in self._jobs.values():
            if job.blocking and job.engine is None and job.config.executor == "process":
                pickled(job.handler)
        complaints = Complaints(self._clock)
        threads, processes = CapacityLimiter(self._threads), Processes(self._processes)
        means = Means(threads, processes, self.dependency_overrides, find_tracer())
        shared = self._shared = Surroundings(self._clock, self._events, means, complaints)
        host, leaving = Host(session.host, socket.gethostname(), os.getpid()), Event()
        async with means.processes.open(), create_task_group() as tasks:
            tasks.start_soon(complaints.tell)
            async with create_task_group() as starting:
                for job in self._jobs.values():
                    starting.start_soon(tasks.start, run_job, job, session, host, shared, leaving)
            try:
                yield
            finally:
                with CancelScope(shield=True):
                    leaving.set()
                    async with create_task_group() as retiring:
                        for runner in tuple(shared.runners):
                            retiring.start_soon(retire, runner)
                    with move_on_after(LAST_COMPLAINTS):
                        await complaints.told()
                tasks.cancel_scope.cancel()


def _positive(setting: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidSetting(setting, value, "must be a whole number, 1 or more")
    return value
