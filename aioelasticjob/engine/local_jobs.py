"""The jobs of one process: they start together, share a scheduler, and leave together.

Each of them joins again in every session, until it leaves.  Jobs may also be added, and leave, while the others run.
"""

from __future__ import annotations

from asyncio import Event, get_running_loop
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from uuid import uuid4

from anyio import TASK_STATUS_IGNORED, CancelScope, create_task_group, move_on_after, sleep, sleep_forever
from anyio.abc import TaskStatus

from aioelasticjob.core.clock_skew import ClockSkewMonitor
from aioelasticjob.core.layout import COMMON, SWITCHES, Layout
from aioelasticjob.engine.ending import Ending, Stage
from aioelasticjob.engine.health import JobHealth
from aioelasticjob.engine.job_clock import JobClock
from aioelasticjob.engine.job_scheduler import JobScheduler
from aioelasticjob.engine.life import History, Life
from aioelasticjob.engine.member import Member
from aioelasticjob.engine.process_context import REGISTERING_AT_ONCE, ProcessContext
from aioelasticjob.engine.refusals import Refusals, RefusedRequest
from aioelasticjob.engine.tree_follower import follow_roots
from aioelasticjob.engine.turns import Scheduler
from aioelasticjob.errors import (
    ElasticJobError,
    InvalidState,
    OutcomeUnknown,
    RegistryError,
    SessionEnded,
    Suspended,
    error_text,
)
from aioelasticjob.ground.latest import Latest
from aioelasticjob.host.importable import importable_name
from aioelasticjob.jobs.base import Job
from aioelasticjob.jobs.kinds import CODED
from aioelasticjob.logging import logger
from aioelasticjob.model import instance_id
from aioelasticjob.registry.session import Session, SessionState, SessionStatus

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
REJOIN_PAUSE = 1.0
"""Seconds before a job joins again under the same session."""
REMEMBERED_SESSIONS = 10
"""In how many sessions a process remembers what it was called."""
READ_COMMON = "to read which servers are switched off, and the calendars"
"""The purpose of the reads, for the log line if the registry refuses them."""
READABLE = (SessionState.CONNECTED, SessionState.CLOSED)

log = logger(__name__)


@dataclass(frozen=True, slots=True)
class Host:
    """The machine and the process that the names of instances contain."""

    ip: str
    name: str
    pid: int


class LocalJob:
    """One job in this process, through all sessions, until the job leaves or the process ends."""

    def __init__(self, job: Job, session: Session, host: Host, shared: ProcessContext, scheduler: Scheduler) -> None:
        self._job = job
        self._session = session
        self._host = host
        self._shared = shared
        self._scheduler = scheduler
        self._history = History(
            job=job.config.job_name, limited_log=shared.limited_log, keeps_trying=job.config.is_created
        )
        self.ending = self._history.ending
        clock = JobClock(shared.clock, session)
        self._refusals = Refusals(job.config.job_name, clock, shared.limited_log)
        self._incarnation = 0
        self._instance = ""
        self._joining: Event | None = Event()
        """Set once the job has joined, has to wait, or will not join; None from then on."""
        self._until_readable: CancelScope | None = None
        """The wait for the registry before a life begins."""
        self.failure: Exception | None = None
        """Why the job could not join, if it was added while the process ran."""
        self.life: Life | None = None
        """The job's life in the present session; None before the first, between two, and after the job has left."""

    @property
    def running(self) -> JobScheduler | None:
        """What runs the job now; None while the job has not joined, or has left."""
        return None if self.life is None else self.life.job_scheduler

    @property
    def health(self) -> JobHealth:
        """The health of the job in this process."""
        running = self.running
        found = self._history.standing_by if running is None else running.health
        health = found or JobHealth(self._job.config.job_name)
        return replace(health, refused=self.refused)

    @property
    def name(self) -> str:
        """The job's name."""
        return self._job.config.job_name

    @property
    def handler(self) -> str | None:
        """The handler that the job names, if it was created; None if code declares it."""
        return self._job.config.handler

    @property
    def refused(self) -> tuple[RefusedRequest, ...]:
        """The requests of the job that the registry refuses at present."""
        return self._refusals.present

    async def live(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Try to join until the job runs, and return then; return also when the job has left.

        The task counts as started once the job has joined.  It also counts as started if the job's nodes make no sense,
        or require a feature that this release lacks: then the job waits, and the other jobs of the process run.

        Raises:
            InvalidSetting: only at the start: this process declares the job wrongly, or as another kind of job than the
                registry holds.
            RegistryError: only at the start: the registry could not be read.
        """

        def up() -> None:
            if not self._history.is_up:
                self._history.is_up = True
                task_status.started()
            self._end_waits()

        while not self.ending.value.leaves:
            status = await self._readable()
            if status is None or self.ending.value.leaves:
                break
            member = self._member(status)
            life = self.life = Life(self._job, member, self._shared, self._scheduler, self._history, self._go_on)
            if await self._begin(life, up):
                return
            await self._end_life(life)
        up()
        self.ending.set(self.ending.value.gone())

    async def joined(self) -> None:
        """Wait until the job has joined, or has to wait.

        Raises:
            InvalidState: the job leaves, or has left.
            Exception: why the job could not join.
        """
        if self._joining is not None:
            await self._joining.wait()
        if self.failure is not None:
            raise self.failure
        if self.ending.value.leaves:
            why = self.ending.value.dismissal or "the application stops"
            raise InvalidState(f"the job {self.name} does not run in this process: {why}")

    def prepare(self) -> None:
        """Make the checks that need all handlers of the job, which was declared while the process runs.

        Raises:
            InvalidSetting: a handler is missing or cannot be sent to a process, or ``retry`` names no exception.
        """
        self._job = self._job.prepared()

    async def fail(self, error: Exception) -> None:
        """Note why the job, which was added while the process runs, could not join; remove what it has written."""
        self.failure = error
        life = self.life
        self.life = None
        self._history.standing_by = JobHealth(self.name, problem=error_text(error), dismissed=True)
        self.over()
        if life is not None:
            await life.withdraw()

    def over(self) -> None:
        """Let nobody wait any longer for this job to join or to leave: it will do neither."""
        self._end_waits()
        self.ending.set(self.ending.value.gone())

    def dismiss(self, why: str) -> None:
        """Leave once the running handlers have ended, although the process goes on."""
        life = self.life
        if life is not None and life.job_scheduler is not None:
            life.dismissed(why)
            return
        self.ending.set(self.ending.value.dismissed(why))
        if life is not None:
            life.end_soon()
        if self._until_readable is not None:
            self._until_readable.cancel()

    def leave(self) -> None:
        """Leave once the running handlers have ended."""
        ending = self.ending.value
        if ending.process_stops:
            return
        self.ending.set(ending.with_process())
        if self.life is not None:
            self.life.leave()

    async def stopped(self) -> None:
        """Wait until the job that leaves has left.  Without a connection the items stay unsettled."""
        life = self.life
        if life is not None and life.job_scheduler is not None:
            await life.stopping.stopped()

    async def end_with_process(self, life: Life) -> None:
        """End a life, because the process ends.  If the life is ending already, only wait for its tasks."""
        with CancelScope(shield=True):
            if life.is_over:
                await life.tasks.ended()
            else:
                await self._end_life(life)

    async def _begin(self, life: Life, up: Callable[[], None]) -> bool:
        """Join, and return whether the job runs now.  Errors are raised at the start only; later they are reported."""
        try:
            await life.tasks.run(life.begin, up)
            if life.errors:
                raise life.errors.pop(0)
        except Exception as error:
            cost = Suspended | SessionEnded | OutcomeUnknown  # a slow start may cause these
            if self._history.raises and not isinstance(error, cost):
                await life.end()
                raise
            life.errors.insert(0, error)
            return False
        if life.job_scheduler is None or life.tasks.over:  # the session may have ended just after the job had joined
            return False
        if self.ending.value.process_stops:
            life.leave()
        return True

    async def _go_on(self, life: Life) -> None:
        """End a life, and begin the next one unless the job leaves."""
        await self._end_life(life)
        await self.live()

    async def _end_life(self, life: Life) -> None:
        """End a life, and report its error.  Errors in ending it do not go further."""
        life.is_over = True
        self._report_errors(life)  # at once: the end of a life waits for handlers, some of which may hang
        reported = len(life.errors)
        try:
            await life.end()
            self.life = None  # now: what follows may take long
            ending = self.ending.value
            if ending.leaves:
                self._history.standing_by = None
            if ending.dismissal and not ending.process_stops:  # otherwise the process ends, and its session
                problem = f"{ending.dismissal}; restart the process to run the job here again"
                self._history.standing_by = JobHealth(self._job.config.job_name, problem=problem, dismissed=True)
                await life.remove_what_is_left()
        except Exception as error:
            life.fail(error)
        finally:
            self.life = None
            self._report_errors(life, reported)

    def _report_errors(self, life: Life, first: int = 0) -> None:
        """Report the error that has ended a life, and later ones if they are bugs of this package."""
        for number, error in enumerate(life.errors[first:], first):
            if not isinstance(error, ElasticJobError):
                what = "an error in this package; this process joins the job again, and its other jobs go on"
                message = f"{self._job.config.job_name}: {what}"
                get_running_loop().call_exception_handler({"message": message, "exception": error})
            elif number == 0:
                self._history.warn_rejoin(error)

    def _end_waits(self) -> None:
        if self._joining is not None:
            self._joining.set()
            self._joining = None

    async def _readable(self) -> SessionStatus | None:
        """Wait until a life can begin; return None if the session is over, or if the job is dismissed before."""
        try:
            with CancelScope() as self._until_readable:
                await self._pause()
                status = await self._session.status.until(lambda now: now.state in READABLE)
                return None if status.state is SessionState.CLOSED else status
        finally:
            self._until_readable = None  # an unused scope takes two kilobytes
        return None

    async def _pause(self) -> None:
        """Wait a moment if the last life has failed within this session: the cause of the failure may still exist."""
        if self._session.incarnation == self._incarnation:
            with move_on_after(REJOIN_PAUSE):
                await self._session.status.until(lambda now: now.incarnation != self._incarnation)

    def _member(self, status: SessionStatus) -> Member:
        """Return the job's member under a session.  Its id is new for each session, so no two incarnations share it."""
        job = self._job.config.job_name
        host = self._host
        incarnation = status.incarnation
        self._history.again = incarnation == self._incarnation
        if not self._history.again:
            self._incarnation = incarnation
            self._instance = instance_id(host.ip, host.pid, uuid4().hex[:8])
            past = self._history.past
            past.instances = (*past.instances, self._instance)[-REMEMBERED_SESSIONS:]
        handler = importable_name(self._job.handler) if self._job.config.job_type in CODED else ""
        return Member(
            session=self._session,
            layout=Layout(job),
            id=self._instance,
            ip=host.ip,
            host=host.name,
            pid=host.pid,
            incarnation=incarnation,
            refusals=self._refusals,
            limited_log=self._shared.limited_log,
            handler=handler,
            declared=self._job.config,
        )


class LocalJobs:
    """All jobs of one process."""

    def __init__(self, session: Session, jobs: Iterable[Job], host: Host, shared: ProcessContext) -> None:
        self._session = session
        self._host = host
        self._shared = shared
        self.loop = get_running_loop()
        self.is_open = False
        """Whether jobs can be added, and can leave, while the others run."""
        self._tasks = create_task_group()
        self._scheduler = Scheduler(shared.registering)
        self._jobs = {job.config.job_name: self._local(job) for job in jobs}
        self._added = deque[LocalJob]()
        """The jobs that were added while the others run, and that nobody has begun to start."""
        self._starters = 0
        """How many tasks start the jobs that were added."""

    @property
    def running(self) -> list[JobScheduler]:
        """What runs the jobs that have joined."""
        found = list[JobScheduler]()
        for job in self._jobs.values():
            running = job.running
            if running is not None:
                found.append(running)
        return found

    def _time_was_set(self) -> None:
        """Have all jobs decide anew, because the time that they use was set."""
        for job in self._jobs.values():
            if job.life is not None:
                job.life.time_was_set()

    @property
    def health(self) -> list[JobHealth]:
        """The health of each job in this process."""
        return [job.health for job in self._jobs.values()]

    @property
    def refused(self) -> Mapping[str, tuple[RefusedRequest, ...]]:
        """The requests that the registry refuses at present, for each job with such requests."""
        return {job.name: job.refused for job in self._jobs.values() if job.refused}

    def get(self, name: str) -> LocalJob | None:
        """Return the job of this name; None if this process has none, or if it has left."""
        return self._jobs.get(name)

    def has_failed(self, name: str) -> bool:
        """Whether a job of this name was added while the others run, and could not join."""
        return name in self._jobs and self._jobs[name].failure is not None

    def add(self, job: Job) -> None:
        """Let a job join while the others run; ``joined`` raises what keeps it from that.

        Raises:
            InvalidState: a job of this name still leaves.
        """
        name = job.config.job_name
        if name in self._jobs and not self.has_failed(name):
            raise InvalidState(f"the job {name} still leaves this process: await app.leave({name!r}) before you add it")
        local = self._jobs[name] = self._local(job)
        self._added.append(local)
        if self._starters < STARTING_AT_ONCE:
            self._starters += 1
            context = self._scheduler.context.copy()  # not the caller's, which may be that of a request or of a run
            context.run(self._tasks.start_soon, self._start_added)

    async def joined(self, name: str) -> None:
        """Wait until a job has joined, or has to wait.

        Raises:
            KeyError: there is no such job.
            InvalidState: the job leaves, or has left.
            Exception: why the job could not join, if it was added while the others run.
        """
        await self._jobs[name].joined()

    def dismiss(self, name: str, why: str) -> Latest[Ending]:
        """Let a job leave while the others go on; forget it when it has left.  The result says how far that has come.

        Raises:
            KeyError: there is no such job.
        """
        job = self._jobs[name]
        job.ending.listen(partial(self._forget, job))
        job.dismiss(why)
        self._forget(job)
        return job.ending

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Sequence[LocalJob]]:
        """Run the jobs while the block is open.  At its end they leave gracefully; handlers that go on are cancelled.

        Raises:
            InvalidSetting: a job is declared wrongly, or its name belongs to another kind of job.
            RegistryError: the registry could not be read.
        """
        async with self._tasks as tasks:
            tasks.start_soon(self._scheduler.run)
            tasks.start_soon(self._end_when_cancelled)
            tasks.start_soon(self._shared.dispatcher.deliver)
            tasks.start_soon(watch_clock, self._session, lambda: self.running, self._time_was_set)
            tasks.start_soon(self._watch_session)
            self._shared.common.listen(self._look_at_common_nodes)
            await tasks.start(follow_common_nodes, self._session, self._shared)
            declared = tuple(self._jobs.values())
            self.is_open = True
            async with create_task_group() as starting:
                waiting = iter(declared)
                for _ in range(min(len(declared), STARTING_AT_ONCE)):
                    starting.start_soon(self._start, waiting)
            try:
                yield declared
            finally:
                with CancelScope(shield=True):
                    await self._leave()
                tasks.cancel_scope.cancel()

    async def _start(self, waiting: Iterator[LocalJob]) -> None:
        """Start the jobs that nobody else has begun to start, one after another."""
        for job in waiting:
            await self._tasks.start(job.live)

    async def _start_added(self) -> None:
        """Start the jobs that were added, one after another, as far as no other task has begun to."""
        while self._added:
            job = self._added.popleft()
            try:
                job.prepare()
                await self._tasks.start(job.live)
            except Exception as error:  # the process and its other jobs go on
                self._report_failure(job, error)
                await job.fail(error)
        self._starters -= 1

    def _report_failure(self, job: LocalJob, error: Exception) -> None:
        what = "the job was added, and cannot run in this process"
        if isinstance(error, ElasticJobError):
            kind = "jobs were added and cannot run in this process"
            self._shared.limited_log.warning(log, job.name, kind, f"{what}: {error.with_page()}")
        else:
            message = f"{job.name}: an error in this package; {what}"
            self.loop.call_exception_handler({"message": message, "exception": error})

    def _local(self, job: Job) -> LocalJob:
        return LocalJob(job, self._session, self._host, self._shared, self._scheduler)

    def _forget(self, job: LocalJob) -> None:
        """Forget a job that was dismissed, once it has left."""
        if job.ending.value.stage is Stage.GONE and self._jobs.get(job.name) is job:
            del self._jobs[job.name]

    async def _leave(self) -> None:
        """Let all jobs leave, and deliver the last failures to the error handlers."""
        self.is_open = False
        jobs = tuple(self._jobs.values())
        for job in jobs:
            job.leave()
        for job in jobs:
            await job.stopped()
        with move_on_after(FINAL_DELIVERY_TIMEOUT):
            await self._shared.dispatcher.wait_until_delivered()

    def _look_at_common_nodes(self) -> None:
        for job in self._jobs.values():
            if job.life is not None:
                job.life.nodes_changed()

    async def _watch_session(self) -> None:
        """Pass every change of the session's state to all jobs."""
        async for status in self._session.status:
            for job in self._jobs.values():
                if job.life is not None:
                    job.life.session_changed(status)

    async def _end_when_cancelled(self) -> None:
        """When the process's tasks are cancelled, cancel all runs, let all jobs leave, and end what is left of them.

        The block that was cancelled may still go on for long.  If nobody cancelled the runs, a handler that swallows
        its cancellation would be cancelled again in each turn of the loop, which takes a whole processor, and the log
        would not name it.
        """
        try:
            await sleep_forever()
        finally:
            for job in self.running:
                job.cancel()
            try:
                with CancelScope(shield=True):
                    await self._leave()
                    async with create_task_group() as ending:
                        for one in self._jobs.values():
                            if one.life is not None:
                                ending.start_soon(one.end_with_process, one.life)
            finally:
                self._scheduler.stop()
                for one in tuple(self._jobs.values()):
                    one.over()


async def follow_common_nodes(
    session: Session, shared: ProcessContext, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED
) -> None:
    """Keep ``shared.common`` up to date until the session is closed; meanwhile the jobs run with what is known."""
    refusals = Refusals(SWITCHES, shared.clock, shared.limited_log)
    await follow_roots(session, COMMON, shared.common, refusals, READ_COMMON, task_status=task_status)


async def watch_clock(
    session: Session, running: Callable[[], Sequence[JobScheduler]], time_was_set: Callable[[], object]
) -> None:
    """Call ``time_was_set`` when the time was set that the jobs use which are ``running``.

    While the clocks differ, ask the registry for its time again and again.  The registry answers only writes with its
    time, so jobs that write nothing would not notice that a clock was corrected.
    """
    time = ClockSkewMonitor(session.read_clocks())
    pause = CLOCK_CHECK
    asked = 0.0
    turn = 0
    refused = 0
    jumped_at = time.jumped_at
    while True:
        await sleep(CLOCK_CHECK)
        time.take(session.read_clocks())
        jobs = running() if time.is_astray else ()
        is_refusing = any(job.is_refusing for job in jobs)
        wait = min(pause, CLOCK_CHECK_REFUSING) if is_refusing else pause
        if jobs and session.steady_time() >= asked + wait - CLOCK_CHECK / 2:
            asked = session.steady_time()
            pause = CLOCK_CHECK if time.unsteady else min(2 * pause, CLOCK_CHECK_AT_LAST)
            try:
                await jobs[turn % len(jobs)].ask_time()
                refused = 0
            except RegistryError:  # ask through another job next time: the registry may refuse writes to this one
                turn += 1
                refused += 1
                if refused < len(jobs):
                    pause = CLOCK_CHECK
        time.take(session.read_clocks())
        if time.jumped_at != jumped_at:
            jumped_at = time.jumped_at
            pause = CLOCK_CHECK
            time_was_set()
