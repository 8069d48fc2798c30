"""One job in this process: it joins again in every session, until it leaves."""

from __future__ import annotations

from asyncio import get_running_loop
from collections.abc import Callable
from dataclasses import dataclass, replace
from uuid import uuid4

from anyio import TASK_STATUS_IGNORED, move_on_after
from anyio.abc import TaskStatus

from aioelasticjob.coordination.member import Member
from aioelasticjob.coordination.refusals import Refusals
from aioelasticjob.errors import ElasticJobError, OutcomeUnknown, SessionEnded, Suspended, unwrapped
from aioelasticjob.jobs.base import Job
from aioelasticjob.jobs.kinds import CODED
from aioelasticjob.latest import Latest
from aioelasticjob.layout import Layout
from aioelasticjob.model import instance_id
from aioelasticjob.names import importable_name
from aioelasticjob.registry.session import Session, SessionState, SessionStatus
from aioelasticjob.running.health import JobHealth
from aioelasticjob.running.job_scheduler import JobScheduler
from aioelasticjob.running.life import History, Life
from aioelasticjob.running.process_context import ProcessContext
from aioelasticjob.running.scheduler import Scheduler
from aioelasticjob.running.state import Items

REJOIN_PAUSE = 1.0
"""Seconds before a job joins again under the same session."""

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
        self._job, self._session, self._host, self._shared = job, session, host, shared
        self._scheduler, self._leaving = scheduler, False
        self._past = History(job=job.config.job_name, limited_log=shared.limited_log)
        self._refusals = Refusals(job.config.job_name, shared.clock, shared.limited_log)
        self._incarnation, self._instance = 0, ""
        self.life: Life | None = None
        """The job's life in the present session; None before the first, between two, and after the job has left."""
        self.gone = Latest(False)
        """Whether the job has left for good."""

    @property
    def running(self) -> JobScheduler | None:
        """What runs the job now; None while the job has not joined, or has left."""
        return None if self.life is None else self.life.job_scheduler

    @property
    def health(self) -> JobHealth:
        """The health of the job in this process."""
        running = self.running
        found = self._past.standing_by if running is None else running.health
        return replace(found or JobHealth(self._job.config.job_name), refused=self._refusals.present)

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
            if not self._past.is_up:
                self._past.is_up = True
                task_status.started()

        while not self._leaving:
            await self._pause()
            status = await self._session.status.until(lambda now: now.state in READABLE)
            if status.state is SessionState.CLOSED or self._leaving:
                break
            member = self._member(status)
            life = self.life = Life(self._job, member, self._shared, self._scheduler, self._past, self._go_on)
            if await self._begin(life, up):
                return
            if await self._end(life):
                break
        up()
        self.gone.set(True)

    def leave(self) -> None:
        """Leave once the running handlers have ended."""
        self._leaving = True
        if self.life is not None:
            self.life.leave(process_stops=True)

    async def stopped(self) -> None:
        """Wait until the job that leaves has left.  Without a connection the items stay unsettled."""
        if self.running is not None:
            await self.running.stopping.stopped()

    def close(self) -> None:
        """Stop following the registry.  The caller has cancelled all tasks."""
        if self.life is not None:
            self.life.close()

    async def _begin(self, life: Life, up: Callable[[], None]) -> bool:
        """Join, and return whether the job runs now.  Errors are raised at the start only; later they are reported."""
        try:
            with unwrapped():
                await life.tasks.run(life.begin, up)
            if life.errors:
                raise life.errors.pop(0)
        except Exception as error:
            cost = Suspended | SessionEnded | OutcomeUnknown  # a slow start may cause these
            if not (self._past.is_up or isinstance(error, cost)):
                await life.end()
                raise
            life.errors.insert(0, error)
            return False
        if life.job_scheduler is None or life.tasks.over:  # the session may have ended just after the job had joined
            return False
        if self._leaving:
            life.leave(process_stops=True)
        return True

    async def _go_on(self, life: Life) -> None:
        """End a life, and begin the next one unless the job has left."""
        if await self._end(life):
            self.gone.set(True)
        else:
            await self.live()

    async def _end(self, life: Life) -> bool:
        """End a life, and report its error; return whether the job has left.  Errors in ending it do not go further."""
        try:
            await life.end()
            self.life = None
            if life.left:
                self._past.standing_by = None
            if life.dismissal:  # otherwise the process ends, and its session
                problem = f"{life.dismissal}; restart the process to run the job here again"
                self._past.standing_by = JobHealth(self._job.config.job_name, problem=problem, dismissed=True)
                await life.remove_what_is_left()
        except Exception as error:
            life.fail(error)
        finally:
            self.life = None
            self._report_errors(life)
        return life.left

    def _report_errors(self, life: Life) -> None:
        """Report the error that has ended a life, and later ones if they are bugs of this package."""
        for number, error in enumerate(life.errors):
            if not isinstance(error, ElasticJobError):
                what = "an error in this package; this process joins the job again, and its other jobs go on"
                message = f"{self._job.config.job_name}: {what}"
                get_running_loop().call_exception_handler({"message": message, "exception": error})
            elif number == 0:
                self._past.warn_rejoin(error)

    async def _pause(self) -> None:
        """Wait a moment if the last life has failed within this session: the cause of the failure may still exist."""
        if self._session.incarnation == self._incarnation:
            with move_on_after(REJOIN_PAUSE):
                await self._session.status.until(lambda now: now.incarnation != self._incarnation)

    def _member(self, status: SessionStatus) -> Member:
        """Return the job's member under a session.  Its id is new for each session, so no two incarnations share it."""
        job, host, incarnation = self._job.config.job_name, self._host, status.incarnation
        self._past.again = incarnation == self._incarnation
        if not self._past.again:
            self._incarnation, self._instance = incarnation, instance_id(host.ip, host.pid, uuid4().hex[:8])
            self._past.items = Items()
        return Member(
            *(self._session, Layout(job), self._instance, host.ip, host.name, host.pid, incarnation),
            refusals=self._refusals,
            limited_log=self._shared.limited_log,
            handler=importable_name(self._job.handler) if self._job.config.job_type in CODED else "",
        )
