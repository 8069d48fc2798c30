"""One job in this process: it joins and lives from session to session, until it leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import uuid4

from anyio import TASK_STATUS_IGNORED, move_on_after
from anyio.abc import TaskStatus

from aioelasticjob.coordination.member import Member
from aioelasticjob.errors import (
    ElasticJobError,
    OutcomeUnknown,
    SessionEnded,
    Suspended,
    unwrapped,
)
from aioelasticjob.jobs.base import Job
from aioelasticjob.latest import Latest
from aioelasticjob.layout import Layout
from aioelasticjob.model import instance_id
from aioelasticjob.registry.session import Session, SessionState, SessionStatus
from aioelasticjob.running.life import History, Life, tell_defect
from aioelasticjob.running.process_context import ProcessContext
from aioelasticjob.running.scheduler import Scheduler
from aioelasticjob.running.state import Items

REJOIN_PAUSE = 1.0
"""Seconds before a job joins again under the session that it had, or tries again what was refused."""

READABLE = (SessionState.CONNECTED, SessionState.CLOSED)


@dataclass(frozen=True, slots=True)
class Host:
    """The machine and process that instances are named after."""

    ip: str
    name: str
    pid: int


class LocalJob:
    """One job in this process, session after session, until it leaves or the process does."""

    def __init__(self, job: Job, session: Session, host: Host, shared: ProcessContext, scheduler: Scheduler) -> None:
        self._job, self._session, self._host, self._shared = job, session, host, shared
        self._scheduler, self._leaving = scheduler, Latest(False)
        self._past = History()
        self._incarnation, self._instance = 0, ""
        self.life: Life | None = None
        """The present life; None before the first, between two, and once the job has left."""
        self.gone = Latest(False)
        """Whether the job has left for good."""

    async def live(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Join, as often as it takes, and return once the job lives; or when it has left.

        It is up when it has joined; and also when what the registry holds of it makes no sense, or requires what is not
        known here: then it waits for its turn, and the other jobs of the process run.

        Raises:
            InvalidSetting: at the start only; what this process declares is wrong, or is another kind of job there.
            RegistryError: at the start only; the registry could not be read.
        """

        def up() -> None:
            if not self._past.is_up:
                self._past.is_up = True
                task_status.started()

        while not self._leaving.value:
            await self._pause()
            status = await self._session.status.until(lambda now: now.state in READABLE)
            if status.state is SessionState.CLOSED:
                break
            life = self.life = Life(self._job, self._member(status), self._shared, self._scheduler, self._over)
            if await self._begin(life, up):
                return
            if await self._end(life):
                break
        up()
        self.gone.set(True)

    def session_changed(self, status: SessionStatus) -> None:
        """Tell the present life that the session's state has changed."""
        if self.life is not None:
            self.life.session_changed(status)

    async def leave(self) -> None:
        """Leave, and give the handlers their time; without a registry the items stay unsettled."""
        self._leaving.set(True)
        if self.life is not None:
            await self.life.retire()

    def close(self) -> None:
        """Follow the registry no more; whatever ran has been cancelled."""
        if self.life is not None:
            self.life.close()

    async def _begin(self, life: Life, up: Callable[[], None]) -> bool:
        """Join; return whether the job lives now.  An error is raised at the start only, later it is told."""
        try:
            with unwrapped():
                lives = await life.tasks.run(life.begin, self._past, self._leaving, up)
            if life.error is not None:
                raise life.error
        except Exception as error:
            cost = Suspended | SessionEnded | OutcomeUnknown  # what a slow start may cost
            if not (self._past.is_up or isinstance(error, cost)):
                await life.end(self._past)
                raise
            self._tell(error)
            return False
        if not lives or life.tasks.over:  # the session may have ended when nothing was left to wait for
            return False
        if self._leaving.value:
            life.leave()
        return True

    def _over(self, life: Life) -> None:
        """End a life once: its session has ended, or its job, or it has failed."""
        if life.is_over:
            return
        life.is_over = True
        if life.lives:
            self._scheduler.tasks.start_soon(self._go_on, life)
        else:  # whoever lets it begin goes on, also if it has begun in this very moment
            life.tasks.cancel()

    async def _go_on(self, life: Life) -> None:
        """End a life, and begin another one unless the job has left."""
        if life.error is not None:
            self._tell(life.error)
        if await self._end(life):
            self.gone.set(True)
        else:
            await self.live()

    async def _end(self, life: Life) -> bool:
        """End a life; return whether the job has left.  What goes wrong with that is this job's, too."""
        told = life.error
        try:
            await life.end(self._past)
            self.life = None
            if life.left:
                self._shared.standing_by.pop(self._job.config.job_name, None)
                config = self._past.config
                await life.remove_what_is_left(hand_over=config is not None and config.failover)
        except Exception as error:
            life.fail(error)
        self.life = None
        if life.error is not None and life.error is not told:
            self._tell(life.error)
        return life.left

    def _tell(self, error: Exception) -> None:
        """Say what has ended a life."""
        if isinstance(error, ElasticJobError):
            self._past.warn_rejoin(error, self._job.config.job_name)
        else:
            tell_defect(self._job.config.job_name, error)

    async def _pause(self) -> None:
        """Wait a moment, if it was not the session's end that ended the last life: its cause may still be there."""
        if self._session.incarnation == self._incarnation:
            with move_on_after(REJOIN_PAUSE):
                await self._session.status.until(lambda now: now.incarnation != self._incarnation)

    def _member(self, status: SessionStatus) -> Member:
        """Return who the job is under a session: a new name for each, so that no two incarnations share one."""
        job, host, incarnation = self._job.config.job_name, self._host, status.incarnation
        self._past.again = incarnation == self._incarnation
        if not self._past.again:
            self._incarnation, self._instance = incarnation, instance_id(host.ip, host.pid, uuid4().hex[:8])
            self._past.items = Items()
        refusals = self._shared.refusals_of(job)
        return Member(
            *(self._session, Layout(job), self._instance, host.ip, host.name, host.pid, incarnation), refusals=refusals
        )
