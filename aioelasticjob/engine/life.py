"""A job's life in one session: it mirrors the job's nodes, coordinates and runs until the session or the job ends."""

from __future__ import annotations

import logging
from asyncio import get_running_loop
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import inf
from operator import is_not
from typing import Any

from anyio import CancelScope, fail_after, move_on_after

from aioelasticjob.config.job import JobConfig
from aioelasticjob.core.account import Past
from aioelasticjob.core.declaration import declared_otherwise, other_handlers
from aioelasticjob.core.diagnostics import missing_features_text
from aioelasticjob.core.effects import EndRun, LostRuns, UpdateRequest
from aioelasticjob.core.foreign import foreign
from aioelasticjob.core.view import JobView, read
from aioelasticjob.engine.claims import OwnLocks
from aioelasticjob.engine.commit import ENDED_STATES, connected, until_answered
from aioelasticjob.engine.coordinator import Coordinator
from aioelasticjob.engine.ending import Ending
from aioelasticjob.engine.health import JobHealth
from aioelasticjob.engine.item_reader import ItemReader
from aioelasticjob.engine.job_scheduler import JobScheduler
from aioelasticjob.engine.member import Member
from aioelasticjob.engine.membership import LEAVE, announce_leaving, dismissed, join, leave
from aioelasticjob.engine.monitor_port import OFF, MonitorPort
from aioelasticjob.engine.process_context import ProcessContext
from aioelasticjob.engine.run_counts import RunCounts
from aioelasticjob.engine.settlements import Settlements
from aioelasticjob.engine.stopping import Stopping
from aioelasticjob.engine.turns import Activity, Scheduler, TaskScope, Work
from aioelasticjob.errors import Conflict, ElasticJobError, ForeignData, InvalidSetting, RegistryError, SessionEnded
from aioelasticjob.ground.latest import Latest
from aioelasticjob.ground.limited_log import MOST, LimitedLog
from aioelasticjob.ground.times import moment
from aioelasticjob.jobs.base import Job
from aioelasticjob.logging import logger
from aioelasticjob.registry.mirror import Follower
from aioelasticjob.registry.session import SessionState, SessionStatus
from aioelasticjob.registry.tree import Tree

LEAVE_TIMEOUT = 1.0
"""Seconds that the last writes of a job may take: publishing its counts, and unregistering its instance."""

log = logger(__name__)


@dataclass(slots=True, kw_only=True)
class History:
    """What a job keeps in this process from one session to the next."""

    job: str
    limited_log: LimitedLog
    past: Past = field(default_factory=Past)
    """The part of it that the core reads."""
    ending: Latest[Ending] = field(default_factory=lambda: Latest(Ending()))
    """Whether the job leaves, for good."""
    is_up: bool = False
    """Whether the job has joined once, or has to wait before it can."""
    keeps_trying: bool = False
    """Whether it is tried again if the first attempt to join fails: nobody waits for the error of a created job."""
    config: JobConfig | None = None
    """The newest valid configuration."""
    standing_by: JobHealth | None = None
    """The health of the job while it cannot run in this process, though the registry answers."""
    again: bool = False
    """Whether the last life was under the present session, too."""

    @property
    def raises(self) -> bool:
        """Whether the error of an attempt to join is raised, and not reported."""
        return not (self.is_up or self.keeps_trying)

    @property
    def up_since(self) -> float:
        """Since when an instance has been up for the job, as far as this process knows; infinity if it cannot know.

        A job without records cannot know it: nobody else has noted the moments that it missed between two sessions.
        """
        recorded = self.config is None or self.config.monitor_execution
        return self.past.since if recorded else inf

    def wait(self, problem: str | InvalidSetting, instance: str | None = None) -> None:
        """Log why the job has to wait before it can run, once for each reason, and keep it for the job's health."""
        if self.standing_by is None or self.standing_by.problem != str(problem):
            why = problem.with_page() if isinstance(problem, InvalidSetting) else problem
            text = f"the job cannot run in this process at present: {why}"
            self.limited_log.warning(log, self.job, "jobs cannot run in this process", text, each=MOST)
        self.standing_by = JobHealth(self.job, instance, problem=str(problem))

    def resume(self) -> None:
        """Log that the job has joined, if it had to wait."""
        if self.standing_by is not None:
            self.standing_by = None
            kind = "jobs can run in this process again"
            if self.limited_log.admits(log, self.job, kind, each=MOST, level=logging.INFO):
                log.info("%s: the job can run in this process now", self.job, extra={"job": self.job})

    def warn_rejoin(self, error: ElasticJobError) -> None:
        """Log why the job has to join again."""
        kind = f"a process joins jobs again: {type(error).__name__}"
        self.limited_log.warning(log, self.job, kind, f"this process joins the job again: {error.with_page()}")


class Life:
    """A job in one session.  It owns no task while it has nothing to do: its parts get turns of the scheduler.

    If the session or the job ends after the job has joined, ``over`` is called in a task of its own; it calls ``end``.
    """

    def __init__(
        self,
        job: Job,
        member: Member,
        shared: ProcessContext,
        scheduler: Scheduler,
        history: History,
        over: Callable[[Life], Coroutine[Any, Any, None]],
    ) -> None:
        self.member = member
        self._job = job
        self._shared = shared
        self._history = history
        self._scheduler = scheduler
        self._over = over
        self.tasks = TaskScope(scheduler, self)
        self.errors = list[Exception]()
        """The error that ended this life, if an error did, and those that came after it."""
        self.job_scheduler: JobScheduler | None = None
        """Runs the job; None until the job has joined."""
        self._port: MonitorPort | None = None
        """The job's monitor port, if it has had one in this session."""
        self._following = Activity(self.tasks, self)
        self._coordinating: Activity | None = None
        self._listening: Activity | None = None
        layout = member.layout
        expected = (member.layout.server(member.ip),)
        self._follower = Follower(member.session, layout.mirrored, layout.shallow, self._following.wake, expected)
        self._wait = CancelScope()
        """The wait until the job can join, which ends if the process leaves; deleted once the job has joined."""
        self.is_over = False
        """Whether this life is to end."""
        self.stopping = Stopping(member, shared.departures, history.ending)

    @property
    def takes_part(self) -> bool:
        """Whether this instance still coordinates: it has not been dismissed, and this life goes on."""
        return not (self.is_over or self._history.ending.value.dismissal)

    async def begin(self, up: Callable[[], None]) -> None:
        """Join the job, or wait until it is worth trying again.  ``up`` is called once it has joined, or has to wait.

        Raises:
            InvalidSetting: this process declares the job wrongly, or as another kind of job than the registry holds.
            RegistryError: the registry could not be read, or the session is over.
        """
        trees = self._follower.trees
        member = self.member
        history = self._history
        async with self._shared.registering:
            self._following.wake()
            # ``session_changed`` may have had the nodes read while this job waited until it may join
            seen = trees.value if self._follower.has_read else await trees.changed()
            lacking = member.lacks(seen) if history.config is None else ()
            problem = missing_features_text(lacking) if lacking else await self._join()
        if problem:
            instance = member.id if lacking else None
            history.wait(problem, instance)
        up()
        if lacking:
            try:
                if why := await self._wait_until_known():
                    self.dismissed(why)
                return
            except InvalidSetting as mistake:
                history.wait(mistake)
        if problem:
            with self._wait:  # nodes of another program may change all the time
                await trees.until(lambda newer: newer is not seen and foreign(newer, member.layout) is None)

    async def _wait_until_known(self) -> str:
        """Register the instance, but run nothing until this release knows all features that the job requires.

        The configuration that this process declares is neither written nor compared with the registry's: the registry's
        may have a meaning that this release does not know.  Return an empty text if the job can be joined now, and
        otherwise why this instance has to leave.
        """
        member = self.member
        config = self._job.config
        trees = self._follower.trees
        await join(member, config, trees, config, year=self._year)
        why = ""
        with self._wait:
            while not why and member.lacks(tree := trees.value):
                view = read(tree, member.layout, config)
                why = await dismissed(member, view)
                if not why:
                    await trees.until(partial(is_not, tree))
        await self.withdraw()
        return why

    async def _join(self) -> InvalidSetting | None:
        """Register the instance, and start the job; return what keeps it from that, if it has to wait."""
        history = self._history
        try:
            trees = self._follower.trees
            common = self._shared.common.value
            config = await join(
                self.member, self._job.config, trees, history.config, history.up_since, common, year=self._year
            )
            history.resume()
            if history.config is None:
                _warn_of_differences(self.member, self._job.config, config, trees.value)
            async with self._shared.comparing:  # the registry's time, once for all jobs, before anything is claimed
                if self.member.session.clock_skew is None:
                    await self.member.session.server_time(self.member.layout.system_time)
            await self._live(config)
        except InvalidSetting as mistake:
            if history.raises and not isinstance(mistake, ForeignData):
                raise
            return mistake
        return None

    @property
    def _year(self) -> int:
        return moment(self._shared.clock.now()).year

    async def _live(self, config: JobConfig) -> None:
        """Start the coordinator, the job's scheduler and the monitor port."""
        member = self.member
        shared = self._shared
        trees = self._follower.trees
        history = self._history
        time = shared.clock.now() - (member.session.clock_skew or 0.0)
        view = read(trees.value, member.layout, config, config.job_type, shared.common.value, time=time)
        views = Latest(view)
        if config.monitor_port != OFF:
            self._port = MonitorPort(member, views)
            await self._port.move(config.monitor_port)
        if history.past.since == inf:
            here = views.value.instances.get(member.id)
            history.past.since = shared.clock.now() if here is None else here.up_since
        job_scheduler = JobScheduler(self._job, member, views, shared, self.tasks, history.past, self.stopping)
        coordinator = Coordinator(member, trees, shared.common, views, job_scheduler.run_counts, shared.clock, self)
        self._coordinating = Activity(self.tasks, coordinator)
        self._follower.follow_besides(view.followed_roots)
        if history.again:
            self.tasks.start_soon(job_scheduler.releases.release_left)
        self.job_scheduler = job_scheduler
        del self._wait  # an unused scope takes two kilobytes
        job_scheduler.passes.activity.wake()
        self._coordinating.wake()
        self._follow_port(views)

    @property
    def _activities(self) -> list[Activity]:
        scheduler = self.job_scheduler
        passes = None if scheduler is None else scheduler.passes.activity
        runs = None if scheduler is None else scheduler.runs.activity
        activities = self._following, passes, runs, self._coordinating, self._listening
        return [activity for activity in activities if activity is not None]

    def view_changed(self) -> None:
        """Have the job's scheduler and its monitor port follow the newest view."""
        if self.job_scheduler is not None:
            self._follower.follow_besides(self.job_scheduler.views.value.followed_roots)
            self.job_scheduler.reconsider()
            self._follow_port(self.job_scheduler.views)

    def _follow_port(self, views: Latest[JobView]) -> None:
        """Have the monitor port follow the newest view, once there is a port."""
        if self._port is None and views.value.config.monitor_port != OFF:
            self._port = MonitorPort(self.member, views)
        if self._port is not None:
            self._listening = self._listening or Activity(self.tasks, self._port)
            self._listening.wake()

    def nodes_changed(self) -> None:
        """Have the coordinator look at the newest nodes: the job's, or those of the servers in all jobs."""
        if self._coordinating is not None:
            self._coordinating.wake()

    def time_was_set(self) -> None:
        """Have the scheduler compute anew what is due, and the coordinator since when the schedule is in force."""
        if self.job_scheduler is not None:
            self.job_scheduler.look_again()
        self.nodes_changed()

    def session_changed(self, status: SessionStatus) -> None:
        """Go on when there is a connection again; end this life if the session is over."""
        if status.state in ENDED_STATES or status.incarnation != self.member.incarnation:
            self.end_soon()
        elif status.state is SessionState.CONNECTED:
            for activity in self._activities:
                activity.wake()

    def fail(self, error: Exception) -> None:
        """End this life because of an error.  The process's other jobs go on."""
        self.errors.append(error)
        self.end_soon()

    def end_soon(self) -> None:
        """Have this life ended, once, because its session is over, the job has left, or an error was raised."""
        if self.is_over:
            return
        self.is_over = True
        if self.job_scheduler is None:  # the caller of ``begin`` waits for that, and then calls ``end``
            self.tasks.cancel()
        else:
            self._scheduler.tasks.start_soon(self._over, self)

    def conclude(self, written: EndRun | UpdateRequest | LostRuns) -> None:
        """Report what this instance has ended as the leader: a run that nobody rescues, or a request."""
        if self.job_scheduler is not None:
            self.job_scheduler.conclude(written)

    def dismissed(self, why: str) -> None:
        """Leave, because an operator has asked for it, or has removed the job or the instance's node."""
        ending = self._history.ending
        ending.set(ending.value.dismissed(why))
        if not self.stopping.has_begun:
            self.leave()

    def leave(self) -> None:
        """Stop claiming, and leave once no handler runs; do not wait any longer until the job can join."""
        if self.job_scheduler is None:
            self._wait.cancel()
            return
        announces = not (self.stopping.has_begun or self.job_scheduler.is_at_rest)  # or it unregisters soon
        self.job_scheduler.leave()
        if announces:
            self.tasks.start_soon(_announce_leaving, self.member, self.stopping)

    async def end(self) -> None:
        """Cancel the tasks that are left, unregister the instance, note what the next life has to know; close all."""
        try:
            job_scheduler = self.job_scheduler
            if job_scheduler is not None:
                job_scheduler.cancel()
            self.tasks.cancel()
            await self.tasks.ended()
            if job_scheduler is not None:
                view = job_scheduler.views.value
                await job_scheduler.end_runs()
                goes_away = not self.errors or isinstance(self.errors[0], ForeignData)
                if goes_away and self.stopping.settle_timeout:
                    await _unregister(job_scheduler.run_counts, self.stopping, self.member, view, self._shared)
                self._history.config = view.config
        finally:
            self._follower.close()
            for activity in self._activities:
                activity.end()
            if self._port is not None:
                self._port.close()
            self.stopping.life_ended()

    async def withdraw(self) -> None:
        """Remove the instance's node, if the job has one and did not come to run; the process goes on."""
        with suppress(RegistryError), move_on_after(LEAVE_TIMEOUT, shield=True):
            await leave(self.member)  # if that fails, the session's end removes the instance

    async def remove_what_is_left(self) -> None:
        """Remove the job's locks and its instance, if that failed when it left because there was no connection.

        The process goes on, and its other jobs keep the session alive.  So without this, the items would stay locked,
        and an instance that has left would stay the leader.
        """
        member = self.member
        config = self._history.config
        settlements = Settlements(member, ItemReader(member), OwnLocks())

        async def attempt() -> None:
            await settlements.release_all(hand_over=config is not None and config.failover)
            try:
                await leave(member)
            except Conflict as conflict:  # many times in a row, say because of nodes made by hand: go on after a pause
                raise RegistryError(str(conflict)) from conflict

        with suppress(SessionEnded):
            await until_answered(member, LEAVE, attempt)

    def turn(self) -> float | Work:
        """Follow the registry."""
        return self._catch_up if self._follower.is_behind else inf

    async def _catch_up(self) -> float:
        await self._follower.catch_up()
        self.nodes_changed()
        return inf


def _warn_of_differences(member: Member, declared: JobConfig, config: JobConfig, tree: Tree) -> None:
    """Log each setting that this process declares otherwise than the registry, and handlers that differ."""
    job = member.layout.job
    for difference in declared_otherwise(declared, config):
        if member.admits(log, "settings are declared otherwise than the registry has them"):
            log.warning("%s", difference.text(job), extra={"job": job})
    for other, handler in other_handlers(tree, member.layout, member.id, member.handler).items():
        both = f"this process runs {member.handler}, but instance {other} runs {handler}"
        text = f"{both}: both are given items of the job; if these are two jobs, give one of them another name"
        member.limited_log.warning(log, job, "instances of one job run different handlers", text, instance=other)


async def _announce_leaving(member: Member, stopping: Stopping) -> None:
    """Announce that this instance leaves, so that idle items move to others while its running handlers end."""
    try:
        await announce_leaving(member)
        stopping.accepted()
    except RegistryError as error:  # then others get the items only after this instance has gone
        job = member.layout.job
        log.debug("%s: this instance could not announce that it leaves: %s", job, error, extra={"job": job})


async def _unregister(
    counts: RunCounts, stopping: Stopping, member: Member, view: JobView, shared: ProcessContext
) -> None:
    """Remove the instance's node, after publishing the counts since the last tick, which only this instance has."""
    loop = get_running_loop()
    departures = shared.departures
    began = loop.time()
    try:
        with fail_after(LEAVE_TIMEOUT, shield=True):
            if not await connected(member):
                return
        async with shared.registering:
            if departures.in_vain > max(began, departures.newest):
                return  # another job has waited in vain while this one waited for its turn
            with fail_after(LEAVE_TIMEOUT, shield=True):
                if stopping.leaves:
                    now = shared.clock.now() - (member.session.clock_skew or 0.0)
                    await counts.publish(member, view, now)
                await leave(member)
        stopping.accepted()
    except (RegistryError, TimeoutError) as error:  # then the session's end removes the instance
        if isinstance(error, TimeoutError):
            departures.in_vain = loop.time()
        job = member.layout.job
        log.debug("%s: this instance could not unregister: %s", job, error, extra={"job": job})
