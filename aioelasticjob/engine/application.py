"""What an application is in one process: its clock, its observers, and, while it runs, its session and its jobs."""

from __future__ import annotations

import os
import socket
from asyncio import _get_running_loop
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from aioelasticjob.clock import Clock
from aioelasticjob.config.job import JobConfig
from aioelasticjob.core.clock_skew import is_astray
from aioelasticjob.core.processes import (
    LostEvents,
    ProcessProblems,
    RefusedToProcess,
    UnwrittenEvents,
    refused_in,
)
from aioelasticjob.engine.created_jobs import CreatedJobs
from aioelasticjob.engine.ending import Stage
from aioelasticjob.engine.executors import Executors
from aioelasticjob.engine.health import IDLE, Health, JobHealth, Phase
from aioelasticjob.engine.job_clock import JobClock
from aioelasticjob.engine.job_scheduler import JobScheduler
from aioelasticjob.engine.local_jobs import Host, LocalJobs
from aioelasticjob.engine.process_context import ProcessContext
from aioelasticjob.engine.process_node import ProcessNode
from aioelasticjob.error_handlers import ErrorDispatcher
from aioelasticjob.errors import InvalidSetting, InvalidState, unwrapped
from aioelasticjob.events import Events
from aioelasticjob.ground.limited_log import LimitedLog
from aioelasticjob.ground.plural import counted, listed_items
from aioelasticjob.host.orphans import collecting_orphans
from aioelasticjob.host.user_code import UserCode
from aioelasticjob.host.watchdog import watchdog
from aioelasticjob.jobs.base import Job
from aioelasticjob.jobs.context import run_job
from aioelasticjob.jobs.handlers import CreatedJobHandler
from aioelasticjob.logging import logger
from aioelasticjob.observers.endpoint import Endpoint
from aioelasticjob.observers.recorder import Recorder
from aioelasticjob.observers.vitals import Vitals
from aioelasticjob.registry.addresses import Address, open_registry
from aioelasticjob.registry.own_address import own_address
from aioelasticjob.registry.session import Session, beside

MAX_NAMED = 10
"""How many jobs are named that are waited for when an application stops."""
LEFT = "the program has called leave()"
"""Why a job leaves if the program says so, while the application goes on."""
OTHER_LOOP = "call this in the event loop in which the application runs; a thread can do that by anyio.from_thread"
"""What to do if jobs are added, or have to leave, from elsewhere."""

log = logger(__name__)


@dataclass(slots=True, eq=False)
class RunningApp:
    """All that an application has for itself in each process, and nothing that its processes have in common."""

    clock: Clock
    recorder: Recorder | None = None
    endpoint: Endpoint | None = None
    events: Events = field(default_factory=Events)
    phase: Phase = "not started"
    session: Session | None = None
    jobs: LocalJobs | None = None
    executors: Executors | None = None
    ended_by: Exception | None = None
    console_url: str = ""
    """Where the console shows the registry: error handlers are given links to it."""
    declared: dict[str, Job] = field(default_factory=dict)
    """The jobs of this process by name: handlers may add some, and have some leave."""
    followers: dict[str, set[str]] = field(default_factory=dict)
    """The names of the jobs declared here that follow a job, which need not be declared here."""
    handlers: dict[str, CreatedJobHandler] = field(default_factory=dict)
    """The handlers that created jobs may name, by name."""
    created: CreatedJobs | None = None

    @property
    def running(self) -> bool:
        """Whether the application runs, starts or leaves."""
        return self.phase not in IDLE

    def declare(self, job: Job, *, overwrite: bool) -> None:
        """Add a job to those of this process; if the others run, it joins.  ``overwrite`` is for jobs that do not say.

        Raises:
            InvalidSetting: there is a job of this name.
            InvalidState: no job can be added now.
        """
        name = job.config.job_name
        if name in self.declared and not (self.jobs is not None and self.jobs.has_failed(name)):
            raise InvalidSetting("name", name, "is declared twice in this application")
        created = None if self.jobs is None else self.jobs.get(name)
        if created is not None and created.handler is not None:
            raise InvalidSetting("name", name, f"runs here already: it was created for the handler {created.handler}")
        if self.running:
            self._open_jobs(f"the job {name} cannot be added now").add(job.overwriting(overwrite))
        self.declared[name] = job

    def declare_handler(self, handler: CreatedJobHandler) -> None:
        """Add a handler to those of this process; if the application runs, the jobs that name it join.

        Raises:
            InvalidSetting: there is a handler of this name.
            InvalidState: no handler can be added now.
        """
        name = handler.name
        if name in self.handlers:
            raise InvalidSetting("name", name, "there is a handler of this name in this application already")
        if self.running:
            self._open_jobs(f"the handler {name} cannot be added now")
            assert self.created is not None
            self.created.add(handler)
        self.handlers[name] = handler

    async def joined(self, name: str) -> None:
        """Wait until a job of this process has joined, or has to wait.

        Raises:
            InvalidSetting: there is no job of this name, or it cannot join.
            InvalidState: the application does not run, or the job leaves.
            RegistryError: the job could not join.
        """
        jobs = self._open_jobs(f"wait_joined of {name}")
        if name not in self.declared:
            raise InvalidSetting("name", name, "no job of this name is declared in this application")
        await jobs.joined(name)

    async def leave(self, name: str) -> None:
        """Let a job leave this process while the others go on, and forget it.  In a run of the job, do not wait.

        Raises:
            InvalidSetting: there is no job of this name.
            InvalidState: the application does not run.
        """
        jobs = self._open_jobs(f"leave of {name}")
        try:
            ending = jobs.dismiss(name, LEFT)
        except KeyError:
            raise InvalidSetting("name", name, "no job of this name is declared in this application") from None
        self.declared.pop(name, None)
        if run_job.get() != name:
            await ending.until(lambda now: now.stage is Stage.GONE)

    def _open_jobs(self, what: str) -> LocalJobs:
        """Return the jobs that run in this process.

        Raises:
            InvalidState: none run, or they run in another event loop.
        """
        jobs = self.jobs
        if jobs is None or not jobs.is_open:
            present = f"at present it is: {self.phase}"
            raise InvalidState(f"{what}: the application must be running; {present}")
        if _get_running_loop() is not jobs.loop:
            raise InvalidState(f"{what}: {OTHER_LOOP}")
        return jobs

    @property
    def vitals(self) -> Vitals:
        """How things stand at the moment, for those who measure."""
        jobs = tuple(job.vitals for job in self.jobs.running) if self.jobs else ()
        calls = self.executors.calls if self.executors else {}
        counts = self.recorder.counts if self.recorder else None
        unwritten = self.recorder.unwritten if self.recorder else None
        refused = self.jobs.refused if self.jobs else {}
        return Vitals.of(
            self.session,
            jobs,
            counts,
            calls,
            unwritten=0.0 if unwritten is None else unwritten.seconds,
            refused={job: len(found) for job, found in refused.items()},
        )

    def health(self, declared: Iterable[JobConfig]) -> Health:
        """Return what is held and run here, and how things stand with the registry."""
        jobs = self.jobs.health if self.jobs else [JobHealth(job.job_name) for job in declared]
        if self.created is not None:
            running = {job.name for job in jobs}
            jobs += [job for job in self.created.refused if job.name not in running]
        return Health.of(self.session, jobs, self.phase, self.problems())

    def problems(self) -> ProcessProblems:
        """Return what this process cannot do at present."""
        skew = (None if self.session is None else self.session.clock_skew) or 0.0
        return ProcessProblems(
            event_store=self._unwritten_events(),
            lost=self._lost_events(),
            clock_differs=round(skew, 1) if is_astray(skew) else None,
            refused=self._refused(),
        )

    def _unwritten_events(self) -> UnwrittenEvents | None:
        recorder = self.recorder
        if recorder is None or recorder.unwritten is None or recorder.counts is None:
            return None
        clock = self.clock if self.session is None else JobClock(self.clock, self.session)
        unwritten = recorder.unwritten
        return UnwrittenEvents(round(clock.now() - unwritten.seconds, 1), unwritten.why, recorder.counts.waiting)

    def _lost_events(self) -> LostEvents | None:
        lost = None if self.recorder is None else self.recorder.lost
        if lost is None:
            return None
        return LostEvents(lost.number, lost.first.timestamp(), lost.last.timestamp())

    def _refused(self) -> tuple[RefusedToProcess, ...]:
        found = {} if self.jobs is None else self.jobs.refused
        return refused_in({job: [(one.what, one.why, one.since) for one in refused] for job, refused in found.items()})

    def busy(self) -> str:
        """Return the jobs that run items at this moment, with the items, for the log."""
        running = [one for one in self.health(()).jobs if one.running]
        return ", ".join(f"{one.name} ({listed_items(one.running)})" for one in running)

    @asynccontextmanager
    async def open(
        self, registry: Address, jobs: Iterable[Job], executors: Executors, limited_log: LimitedLog
    ) -> AsyncIterator[Session]:
        """Run the jobs while the block is open; leave gracefully at its end.  ``limited_log`` is closed then.

        Raises:
            RegistryUnreachable, TlsFailed, AuthenticationFailed, InvalidSetting: as ``ElasticJob.running()``.
        """
        self.phase = "starting"
        failure: Exception | None = None
        try:
            async with AsyncExitStack() as stack:
                stack.callback(setattr, self, "phase", "ended")
                stack.enter_context(unwrapped())
                self.events.limited_log = limited_log
                stack.enter_context(watchdog())
                await stack.enter_async_context(collecting_orphans())
                if self.recorder is not None:
                    recorder = self.recorder.open(self.events, self.clock, registry.settings.namespace)
                    await stack.enter_async_context(recorder)
                if self.endpoint is not None:
                    await stack.enter_async_context(self.endpoint.open())
                session = await stack.enter_async_context(open_registry(registry, clock=self.clock))
                self.session = session
                self.executors = executors
                stack.callback(self._forget_session)
                await stack.enter_async_context(self._run_jobs(session, tuple(jobs), executors, registry))
                block = UserCode("the block")
                try:
                    yield session
                except Exception as error:  # the caller's own: kept out of our groups, which would wrap it
                    failure = error
                    await block.tidy()  # before CPython 3.13 a failed asyncio.TaskGroup leaves a request to cancel us
        except BaseException as ending:  # of a job with error_handler="raise", or a Ctrl-C while the jobs leave
            if failure is not None and isinstance(ending, Exception):
                raise failure from ending
            ending.__context__ = failure or ending.__context__
            raise
        if failure is not None:
            raise failure

    def _forget_session(self) -> None:
        self.session = None
        self.jobs = None
        self.created = None
        self.executors = None

    @asynccontextmanager
    async def _run_jobs(
        self, session: Session, jobs: tuple[Job, ...], executors: Executors, registry: Address
    ) -> AsyncIterator[None]:
        one_machine = registry.private or registry.shared is not None
        ip = own_address(registry.settings.ip, session.host, one_machine=one_machine)
        host = Host(ip, socket.gethostname(), os.getpid())
        limited_log = self.events.limited_log
        namespace = registry.settings.namespace
        dispatcher = ErrorDispatcher(self.clock, self.events.counts, limited_log, namespace, self.console_url)
        shared = ProcessContext(self.clock, self.events, executors, dispatcher, limited_log)
        local = self.jobs = LocalJobs(session, jobs, host, shared)
        created = self.created = CreatedJobs(session, local, host, self.clock, limited_log)
        node = ProcessNode(session, host, self.problems, self.clock, limited_log)
        has_failed = False
        try:
            handlers = tuple(self.handlers.values())
            async with executors.open(), beside(node.keep), local.open(), created.open(handlers):
                self.phase = "running"
                self.events.begin()
                try:
                    yield
                finally:
                    self.phase = "leaving"
                    _log_stopping(local.running)
        except Exception:
            has_failed = True
            raise
        finally:
            self.ended_by = dispatcher.escalated
            limited_log.close()
            if self.phase == "leaving":  # and not if it could not start: the program may try again
                self.events.end()
                if not has_failed:  # a block that was cancelled has ended in an orderly way
                    names = list(self.declared)
                    gone = "the job has left" if len(names) == 1 else f"all {len(names)} jobs have left"
                    log.info("stopped: %s", gone, extra={"jobs": names})


def _log_stopping(jobs: Iterable[JobScheduler]) -> None:
    """Log what is waited for while the jobs leave: the items that they run now, and for how long at most."""
    waited = [(job.health, job.shutdown_timeout) for job in jobs]
    busy = [(one, seconds) for one, seconds in waited if one.running]
    for health, seconds in busy[:MAX_NAMED]:
        items = listed_items(health.running)
        about = {"job": health.name, "items": health.running, "seconds": seconds}
        log.info("stopping: waiting for %s, %s, for at most %g s", health.name, items, seconds, extra=about)
    if len(busy) > MAX_NAMED:
        more = len(busy) - MAX_NAMED
        log.info("stopping: and for %s more", counted(more, "job"), extra={"left_out": more})
    if not busy:
        log.info("stopping: no job runs anything at this moment", extra={"jobs": []})
