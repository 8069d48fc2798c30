"""The jobs of one process: they start together, share a scheduler, and leave together.

Each of them joins again in every session, until it leaves.
"""

from __future__ import annotations

from asyncio import Event, get_running_loop
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, replace
from uuid import uuid4

from anyio import TASK_STATUS_IGNORED, CancelScope, create_task_group, move_on_after, sleep, sleep_forever
from anyio.abc import TaskStatus

from aioelasticjob.core.clock_skew import ClockSkewMonitor
from aioelasticjob.core.layout import SWITCHES, Layout
from aioelasticjob.engine.health import JobHealth
from aioelasticjob.engine.job_clock import JobClock
from aioelasticjob.engine.job_scheduler import JobScheduler
from aioelasticjob.engine.life import History, Life
from aioelasticjob.engine.member import Member
from aioelasticjob.engine.process_context import REGISTERING_AT_ONCE, ProcessContext
from aioelasticjob.engine.refusals import Refusals, RefusedRequest
from aioelasticjob.engine.turns import Scheduler
from aioelasticjob.errors import ElasticJobError, OutcomeUnknown, RegistryError, SessionEnded, Suspended
from aioelasticjob.host.importable import importable_name
from aioelasticjob.jobs.base import Job
from aioelasticjob.jobs.kinds import CODED
from aioelasticjob.model import instance_id
from aioelasticjob.registry.mirror import Follower
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
READ_SWITCHES = "to read which servers are switched off"
"""The purpose of the reads, for the log line if the registry refuses them."""
READABLE = (SessionState.CONNECTED, SessionState.CLOSED)


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
        self._history = History(job=job.config.job_name, limited_log=shared.limited_log)
        self.ending = self._history.ending
        clock = JobClock(shared.clock, session)
        self._refusals = Refusals(job.config.job_name, clock, shared.limited_log)
        self._incarnation = 0
        self._instance = ""
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

        while not self.ending.value.leaves:
            await self._pause()
            status = await self._session.status.until(lambda now: now.state in READABLE)
            if status.state is SessionState.CLOSED or self.ending.value.leaves:
                break
            member = self._member(status)
            life = self.life = Life(self._job, member, self._shared, self._scheduler, self._history, self._go_on)
            if await self._begin(life, up):
                return
            await self._end_life(life)
        up()
        self.ending.set(self.ending.value.gone())

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
            if not (self._history.is_up or isinstance(error, cost)):
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
        self._shared = shared
        self._tasks = create_task_group()
        self._scheduler = Scheduler(shared.registering)
        self._jobs = [LocalJob(job, session, host, shared, self._scheduler) for job in jobs]

    @property
    def running(self) -> list[JobScheduler]:
        """What runs the jobs that have joined."""
        found = list[JobScheduler]()
        for job in self._jobs:
            running = job.running
            if running is not None:
                found.append(running)
        return found

    def _time_was_set(self) -> None:
        """Have all jobs decide anew, because the time that they use was set."""
        for job in self._jobs:
            if job.life is not None:
                job.life.time_was_set()

    @property
    def health(self) -> list[JobHealth]:
        """The health of each job in this process."""
        return [job.health for job in self._jobs]

    @property
    def refused(self) -> Mapping[str, tuple[RefusedRequest, ...]]:
        """The requests that the registry refuses at present, for each job with such requests."""
        return {job.name: job.refused for job in self._jobs if job.refused}

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

    async def _start(self, waiting: Iterator[LocalJob]) -> None:
        """Start the jobs that nobody else has begun to start, one after another."""
        for job in waiting:
            await self._tasks.start(job.live)

    async def _leave(self) -> None:
        """Let all jobs leave, and deliver the last failures to the error handlers."""
        for job in self._jobs:
            job.leave()
        for job in self._jobs:
            await job.stopped()
        with move_on_after(FINAL_DELIVERY_TIMEOUT):
            await self._shared.dispatcher.wait_until_delivered()

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
                        for one in self._jobs:
                            if one.life is not None:
                                ending.start_soon(one.end_with_process, one.life)
            finally:
                self._scheduler.stop()


async def follow_switches(
    session: Session, shared: ProcessContext, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED
) -> None:
    """Keep ``shared.switches`` up to date until the session is closed.

    The task counts as started once the nodes were read.  It also does if the registry refuses that: then the jobs run
    with what is known, and it is tried again and again.
    """
    refusals = Refusals(SWITCHES, shared.clock, shared.limited_log)
    changed = Event()
    refused = 0

    def show() -> None:
        if follower.trees.value != shared.switches.value:  # after an outage they mostly are as before
            shared.switches.set(follower.trees.value)

    with closing(Follower(session, (SWITCHES,), (), changed.set)) as follower:
        follower.trees.listen(show)
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
