"""A job in one session: it follows the registry, coordinates and runs until the session is over or the job leaves."""

from __future__ import annotations

import logging
from asyncio import get_running_loop
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from anyio import CancelScope, move_on_after

from aioelasticjob.clock import Clock
from aioelasticjob.config import JobConfig
from aioelasticjob.coordination.claims import Claims
from aioelasticjob.coordination.commit import ENDED_STATES, connected
from aioelasticjob.coordination.coordinator import Coordinator
from aioelasticjob.coordination.diagnostics import missing_features_text
from aioelasticjob.coordination.member import Member
from aioelasticjob.coordination.membership import announce_leaving, join, leave
from aioelasticjob.coordination.record_cache import RecordCache
from aioelasticjob.coordination.unmonitored import note_accounted
from aioelasticjob.coordination.view import JobView, read
from aioelasticjob.errors import ElasticJobError, ForeignData, InvalidSetting, RegistryError
from aioelasticjob.jobs.base import Job
from aioelasticjob.latest import Latest
from aioelasticjob.registry.mirror import Follower
from aioelasticjob.registry.session import SessionState, SessionStatus
from aioelasticjob.running.health import JobHealth
from aioelasticjob.running.job_scheduler import JobScheduler
from aioelasticjob.running.monitor_port import MonitorPort
from aioelasticjob.running.process_context import ProcessContext
from aioelasticjob.running.scheduler import Activity, Scheduler, TaskScope, Work
from aioelasticjob.running.standby import FAREWELL, wait_for_news, wait_until_known
from aioelasticjob.running.state import Items
from aioelasticjob.running.stopping import LAST_WORD

WARNING_INTERVAL = 60.0
"""Seconds after which the log hears the same complaint again."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class History:
    """What a job keeps in this process from one session to the next."""

    since: float | None = None
    """Since when somebody has been there, by the registry's clock, as was known when the first life began."""
    is_up: bool = False
    """Whether the job has joined once, or has to wait before it can."""
    config: JobConfig | None = None
    """The newest configuration that made sense."""
    trouble: str = ""
    """What was complained of last."""
    complained_at: float = -inf
    """When that was, by the loop's clock."""
    again: bool = False
    """Whether the last life was under the present session, too."""
    accounted: int = 0
    """The newest moment that was run here or reported, in milliseconds since the epoch."""
    items: Items = field(default_factory=Items)
    """The same of each item under the present session: an earlier one may not have heard of another schedule."""

    @property
    def up_since(self) -> float:
        """Since when somebody was there for the job, as far as this process can answer for it.

        Without records it cannot: what it did not run between two sessions nobody else knows of.
        """
        recorded = self.config is None or self.config.monitor_execution
        return self.since if self.since is not None and recorded else inf

    def wait(self, job: str, problem: str, shared: ProcessContext, instance: str | None = None) -> None:
        """Say why the job waits for its turn, once for each reason, and show it in the process's health."""
        if problem != self.trouble:
            self.trouble = problem
            log.warning("%s: waits: %s", job, problem, extra={"job": job})
        shared.standing_by[job] = JobHealth(job, instance, problem=problem)

    def resume(self, job: str, shared: ProcessContext) -> None:
        """Say that the job has joined, if it had to wait."""
        if shared.standing_by.pop(job, None):
            self.trouble = ""
            log.info("%s: has joined, what it waited for is mended", job, extra={"job": job})

    def warn_rejoin(self, error: ElasticJobError, job: str) -> None:
        """Say why the job has to join again, once a minute at most while the reason stays the same."""
        now = get_running_loop().time()
        if str(error) != self.trouble or now >= self.complained_at + WARNING_INTERVAL:
            self.trouble, self.complained_at = str(error), now
            log.warning("joining again: %s", error, extra={"job": job})


class Life:
    """A job in one session.  At rest it owns no task: all its parts take turns.

    ``over`` is called whenever the session or the job has ended; then ``end`` ends what is left.
    """

    def __init__(
        self, job: Job, member: Member, shared: ProcessContext, scheduler: Scheduler, over: Callable[[Life], None]
    ) -> None:
        self.member, self._job, self._shared, self._scheduler = member, job, shared, scheduler
        self._over = over
        self.tasks = TaskScope(scheduler, self.fail)
        self.error: Exception | None = None
        """What ended it, unless the session or the job did."""
        self.runner: JobScheduler | None = None
        self._coordinator: Coordinator | None = None
        self._port: MonitorPort | None = None
        self._follower = Follower(
            member.session, member.layout.mirrored, member.layout.shallow, lambda: self._following.wake()
        )
        self._following = Activity(scheduler, self.tasks, self._follow)
        self._activities = [self._following]
        self.lives = self.is_over = False
        """Whether it has begun to run, and whether it is to end."""
        self.left = False
        """Whether the job has left because it was asked to."""

    async def begin(self, past: History, leaving: Latest[bool], up: Callable[[], None]) -> bool:
        """Join, and call ``up`` then, or when the job has to wait before it can; return whether it lives now.

        Raises:
            InvalidSetting: what this process declares is wrong, or is another kind of job there.
            RegistryError: the registry could not be read, or the session is over.
        """
        trees, member, name = self._follower.trees, self.member, self._job.config.job_name
        async with self._shared.joining:
            self._following.wake()
            seen = await trees.changed()
            lacking = member.lacks(seen) if past.config is None else ()
            try:
                if not lacking:
                    await self._join(past)
                    up()
                    return True
            except InvalidSetting as mistake:
                if not (past.is_up or isinstance(mistake, ForeignData)):
                    raise
                past.wait(name, str(mistake), self._shared)
        if not lacking:
            up()
            await wait_for_news(member, trees, seen, leaving)
            return False
        past.wait(name, missing_features_text(lacking), self._shared, member.id)
        up()
        try:
            self.left = not await wait_until_known(member, self._job.config, trees, leaving)
        except ForeignData as mistake:
            past.wait(name, str(mistake), self._shared)
            await wait_for_news(member, trees, seen, leaving)
        return False

    async def _join(self, past: History) -> None:
        """Register the instance, and begin to live."""
        config = await join(self.member, self._job.config, self._follower.trees, past.config, past.up_since)
        past.resume(self._job.config.job_name, self._shared)
        await _compare_clocks(self.member, self._shared)
        await self._live(config, past)

    async def _live(self, config: JobConfig, past: History) -> None:
        """Begin to coordinate and to run."""
        member, shared, trees = self.member, self._shared, self._follower.trees
        views = Latest(read(trees.value, member.layout, config, config.job_type))
        own_port = config.monitor_port == self._job.config.monitor_port  # an operator's keeps no process from starting
        self._port = MonitorPort(member.session, member.layout, views)
        await self._port.move(config.monitor_port, strict=not past.is_up and own_port)
        if past.since is None:
            here = views.value.instances.get(member.id)
            past.since = shared.clock.now() if here is None else here.up_since
        runner = self.runner = JobScheduler(
            self._job, member, views, shared, self.tasks, self._finished, past.since, past.accounted, past.items
        )
        given_up = runner.rescues.given_up
        coordinator = Coordinator(
            member, trees, views, runner.run_counts, shared.clock, given_up, self._dismissed, self._finished
        )
        running = Activity(self._scheduler, self.tasks, runner.turn, is_urgent=False)
        coordinating = Activity(self._scheduler, self.tasks, coordinator.turn)
        listening = Activity(self._scheduler, self.tasks, self._port.turn)
        runner.wake = running.wake
        views.listen(runner.reconsider)
        views.listen(listening.wake)
        trees.listen(coordinating.wake)
        self._activities = [self._following, running, coordinating, listening]
        self._coordinator = coordinator
        shared.runners[runner] = None
        if past.again:
            runner.release_left()
        for activity in (running, coordinating, listening):
            activity.wake()
        self.lives = True

    def session_changed(self, status: SessionStatus) -> None:
        """Go on when there is a connection again; end with the session."""
        if status.state in ENDED_STATES or status.incarnation != self.member.incarnation:
            self._finished()
        elif status.state is SessionState.CONNECTED:
            for activity in self._activities:
                activity.wake()

    def fail(self, error: Exception) -> None:
        """End this life, and nothing else in the process, because of an error; of several the first one says why."""
        if self.error is None:
            self.error = error
        elif not isinstance(error, ElasticJobError):
            tell_defect(self._job.config.job_name, error)
        self._finished()

    def leave(self) -> None:
        """Claim nothing any more, and leave once nothing runs."""
        if self.runner is not None and not self.runner.left:
            self.runner.leave()
            self.tasks.start_soon(_give_notice, self.member)

    async def retire(self) -> None:
        """Leave, and give the handlers their time; without a registry the items stay unsettled."""
        runner = self.runner
        if runner is None:
            return
        self.leave()
        cancel = get_running_loop().call_later(runner.shutdown_timeout, runner.cut)
        try:
            with move_on_after(runner.shutdown_timeout + LAST_WORD):
                await runner.stopping.stopped()
        finally:
            cancel.cancel()

    async def end(self, past: History) -> None:
        """Cancel what is still under way, say goodbye, and note what the next life has to know."""
        try:
            if self.runner is not None:
                self.left = self.left or self.runner.left
                self.runner.cut()
            self.tasks.cancel()
            await self.tasks.ended()
            runner, member = self.runner, self.member
            if runner is not None and self._coordinator is not None:
                view = self._coordinator.view
                runner.end()
                if self.error is None:
                    with CancelScope(shield=True), move_on_after(FAREWELL):
                        await _say_goodbye(runner, member, view, self._shared.clock)
                past.config, past.accounted = view.config, max(past.accounted, runner.accounted)
        finally:
            self.close()

    def close(self) -> None:
        """Follow the registry no more, and listen no more."""
        self._follower.close()
        for activity in self._activities:
            activity.end()
        if self._port is not None:
            self._port.close()
        if self.runner is not None:
            self._shared.runners.pop(self.runner, None)
            self.runner.stopping.end()

    async def remove_what_is_left(self, *, hand_over: bool) -> None:
        """Remove the locks and the instance that the job could not when it left, for the registry was away then.

        The process goes on, and its other jobs keep the session: items would stay locked, and a leader that is not
        there any more would stay in its seat.  If the process leaves as well, the end of its session will do.
        """
        member, clock, failures = self.member, self._shared.clock, 0
        claims = Claims(member, RecordCache(member, lambda: int(clock.now() * 1000)))
        while await connected(member.session, member.incarnation):
            try:
                await claims.release_all(hand_over=hand_over)
                await leave(member)
                break
            except RegistryError as error:
                log.debug("cannot leave yet: %s", error, extra={"job": member.layout.job})
                await member.session.back_off(failures)
                failures += 1

    def _follow(self) -> float | Work:
        return self._catch_up if self._follower.is_behind else inf

    async def _catch_up(self) -> float:
        await self._follower.catch_up()
        return inf

    def _finished(self) -> None:
        self._over(self)

    def _dismissed(self) -> None:
        self.tasks.start_soon(self.retire)


def tell_defect(job: str, error: Exception) -> None:
    """Tell the loop's exception handler of an error that is nobody's but this package's."""
    message = f"{job}: an error in this package; the job joins again, the others go on"
    get_running_loop().call_exception_handler({"message": message, "exception": error})


async def _compare_clocks(member: Member, shared: ProcessContext) -> None:
    """See to it that the registry's clock is known before anything is claimed; once for all jobs of a process."""
    while member.session.clock_skew is None:
        if shared.comparing.value:
            await shared.comparing.until(lambda comparing: not comparing)
            continue
        shared.comparing.set(True)
        try:
            await member.session.server_time(member.layout.system_time)
        finally:
            shared.comparing.set(False)


async def _give_notice(member: Member) -> None:
    """Hand over what is not being run here while the rest is finished; a job with nothing to finish leaves at once."""
    try:
        await announce_leaving(member)
    except RegistryError as error:  # then others wait until we are gone
        log.debug("leaving without notice: %s", error, extra={"job": member.layout.job})


async def _say_goodbye(runner: JobScheduler, member: Member, view: JobView, clock: Clock) -> None:
    try:
        if runner.left:  # nobody else knows what ran here since the last tick
            now = clock.now() - (member.session.clock_skew or 0.0)
            await runner.run_counts.publish(member, view, now)
            await note_accounted(member, view, now)
        await leave(member)
    except RegistryError as error:  # the session's end removes the instance all the same
        log.debug("left without a word: %s", error, extra={"job": member.layout.job})
