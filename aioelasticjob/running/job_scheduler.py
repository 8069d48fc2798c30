"""Runs one job in one session: it performs what ``Choice`` commands, one run at a time."""

from __future__ import annotations

from asyncio import get_running_loop, sleep
from collections.abc import Callable
from math import inf

from anyio import CancelScope, get_cancelled_exc_class, move_on_after

from aioelasticjob.coordination.claims import ClaimResult, Claims
from aioelasticjob.coordination.coordinator import MIRROR_TIMEOUT
from aioelasticjob.coordination.effects import EndRun, UpdateRequest
from aioelasticjob.coordination.member import Member
from aioelasticjob.coordination.progress import RunOffsets
from aioelasticjob.coordination.view import JobView
from aioelasticjob.errors import RegistryError, SessionEnded, Suspended
from aioelasticjob.jobs.base import Job
from aioelasticjob.jobs.context import Context, run_lease
from aioelasticjob.latest import Latest
from aioelasticjob.model import SCHEDULED, Claim, Fire, FireSource
from aioelasticjob.observers.vitals import JobVitals
from aioelasticjob.registry.session import SessionState
from aioelasticjob.running.cancellation import HandlerScope
from aioelasticjob.running.choice import Choice
from aioelasticjob.running.claim_ahead import ASLEEP, ClaimAhead
from aioelasticjob.running.commands import (
    AwaitRescueEnd,
    ClaimItems,
    Command,
    FollowReleases,
    JoinRun,
    RemoveOrphanMark,
    RunItems,
)
from aioelasticjob.running.driver import StateDriver
from aioelasticjob.running.execution import Execution, execute
from aioelasticjob.running.health import JobHealth
from aioelasticjob.running.item_releases import ItemReleases
from aioelasticjob.running.listeners import join_run, with_listeners
from aioelasticjob.running.missed import NOT_RECORDED
from aioelasticjob.running.missed_reports import EXPIRED
from aioelasticjob.running.process_context import ProcessContext
from aioelasticjob.running.retry_waits import RetryWaits
from aioelasticjob.running.schedule import Passed
from aioelasticjob.running.scheduler import TaskScope
from aioelasticjob.running.state import Items
from aioelasticjob.running.stats import ExecutionStats
from aioelasticjob.running.stopping import Stopping
from aioelasticjob.running.stream_control import StreamControl, left_open

MAX_WAIT = 60.0
"""Seconds after which the scheduler reads the clock again: it may have been set, or the machine may have slept."""
UNCERTAIN = 1.0
"""Seconds until another attempt if there is a connection, but it is not certain that the session lives."""
VISIBLE_WITHIN = 1.0
"""The longest wait, in seconds, until the view shows that the rescue of this instance's own item has ended."""


class JobScheduler:
    """Runs one job in one session.  Its turns follow one another, so the job never has two executions at a time.
    It has more than twelve methods: a run has many steps, and the process asks for the state of the job.
    """

    def __init__(
        self,
        job: Job,
        member: Member,
        views: Latest[JobView],
        shared: ProcessContext,
        tasks: TaskScope,
        over: Callable[[], None],
        up_since: float,
        accounted: int,
        items: Items,
    ) -> None:
        self._job, self._member, self._views, self._shared = job, member, views, shared
        self._over = over
        self.wake: Callable[[], None] = lambda: None
        """Asks the process's scheduler for a turn."""
        self._stats = ExecutionStats(member, shared.clock, shared.events, shared.dispatcher, shared.limited_log)
        reports = shared.missed_reports(member.id)
        self._state = StateDriver(member, views.value, shared.clock, reports, self._stats, up_since, items)
        self._state.accounted = accounted
        self._claims = Claims(member, self._state.cache)
        self._retry_waits = RetryWaits(views)
        self.run_counts = self._stats.run_counts
        """Counts the runs that ended here; the coordinator publishes the counts."""
        self.releases = ItemReleases(member, self._state, self._claims, tasks, self._look_at_once)
        self.stopping = Stopping(member, shared.limited_log)
        self._ahead = ClaimAhead(member.session, shared.starts, job.config.job_name)
        self._choice = Choice(member.layout, member.id, self._state, self._ahead.lead)
        self.left = False
        """Whether this instance was asked to leave."""
        self._refused = 0
        self._wait_scope: CancelScope | None = None
        self._execution: HandlerScope | None = None
        self._stream: StreamControl | None = None

    @property
    def accounted(self) -> int:
        """The newest moment that this process has run or reported, in milliseconds since the epoch; 0 if none."""
        return max(self._state.accounted, self._state.missed.newest_of_all)

    @property
    def vitals(self) -> JobVitals:
        """The present state of the job, for metrics."""
        return JobVitals(self._member.layout.job, len(self._state.held), self._views.value.leader == self._member.id)

    @property
    def health(self) -> JobHealth:
        """The health of the job in this process."""
        under_way, now = self._stats.under_way, self._shared.clock.now()
        return JobHealth.of(self._views.value, self._member.id, under_way, now, self._job.config)

    @property
    def is_refusing(self) -> bool:
        """Whether the job runs nothing because the clock skew is larger than the job tolerates."""
        return self._state.intolerable_skew() is not None

    @property
    def view(self) -> JobView:
        """The newest view of the job."""
        return self._views.value

    @property
    def shutdown_timeout(self) -> float:
        """Seconds that running handlers have to end when the job leaves."""
        return self._views.value.config.shutdown_timeout

    def leave(self) -> None:
        """Stop claiming, and leave once no handler runs."""
        self.left = True
        self._retry_waits.leave()
        self._ahead.take_back()
        self._look_at_once()

    def reconsider(self) -> None:
        """Take back a claim that waits for its moment, stop cancelled runs, and ask for a turn.

        This is called when the view or the time has changed.
        """
        self._ahead.take_back()
        if self._stats.execution is not None:
            self._stats.execution.stop_cancelled(self._views.value)
        self.wake()

    def look_again(self) -> None:
        """Compute anew which items are due, because the time was set."""
        self._state.now()  # the state notices the jump, also during an execution
        if self._wait_scope is not None:
            self._wait_scope.cancel()
        self.reconsider()

    async def ask_time(self) -> None:
        """Ask the registry for its time.  A RegistryError is raised if it cannot answer."""
        await self._member.session.server_time(self._member.layout.system_time)

    def _stop_fetching(self) -> None:
        """Let a streaming run end once it has processed the records that it has fetched."""
        if self._stream is not None:
            self._stream.end.set()

    def cancel(self) -> None:
        """Give back a claim that waits for its moment, or cancel the execution; its items are settled as cancelled."""
        self._ahead.take_back()
        if self._execution is not None:
            self._execution.cancel()

    async def run(self) -> float:
        """Run all items that are due, and return the seconds until the next turn."""
        while not self.left:
            try:
                rest = await self._run_next()
            except Suspended:
                connected = self._member.session.status.value.state is SessionState.CONNECTED
                return UNCERTAIN if connected else inf  # a new connection wakes it
            except SessionEnded:
                break
            except RegistryError as error:  # the items stay due
                self._member.refusals.refused("to read what is due", error)
                with CancelScope() as self._wait_scope:
                    if not self.left:
                        await self._member.session.back_off(self._refused)
                self._refused += 1
            else:
                if rest is not None:
                    return rest
        self._over()
        return inf

    async def _run_next(self) -> float | None:
        """Run what comes first.  Return the seconds until there can be more to run; None if there may be more now."""
        if (view := self._views.value).tree.outdated:
            view = await self._read_again()
        if begun := await self._state.look(view):
            self.releases.follow(begun)
        taken = await self._state.drive(self._choice.run_next(view), self._perform)
        self._refused = 0
        if self._member.refusals.open:
            self._member.refusals.accepted("to read what is due")
        waits = taken is None or (taken.stale and taken.claim is None)
        return self._rest(view) if waits else None

    async def _read_again(self) -> JobView:
        """Wait until the view was read anew after an outage, and return it: the schedule may have changed."""
        with move_on_after(MIRROR_TIMEOUT):
            while self._views.value.tree.outdated and not self.left:
                with CancelScope() as self._wait_scope:
                    await self._views.changed()
        self._views.value.tree.accept_as_newest()  # run with the old view rather than not at all
        return self._views.value

    async def _perform(self, command: Command) -> object:
        """Perform a command of ``Choice``, and return its answer."""
        match command:
            case ClaimItems(view, fire, items):
                return await self._claim(view, fire, items)
            case RunItems(view, claim, offsets):
                return await self._run_items(view, claim, offsets)
            case JoinRun(fire, items):
                return await join_run(self._job.listeners, self._member, fire, items)
            case FollowReleases(view, fire, items):
                self.releases.refused(view, fire, items)
            case AwaitRescueEnd(item):
                await self._await_rescue_end(item)
            case RemoveOrphanMark(item):
                await self._claims.remove_orphan_mark(item)
            case _:
                return await self._state.perform(command)
        return None

    async def _await_rescue_end(self, item: int) -> None:
        with move_on_after(VISIBLE_WITHIN):
            await self._views.until(lambda newer: item not in newer.rescues)

    async def _run_items(self, view: JobView, claim: Claim, offsets: dict[int, str]) -> JobView | None:
        """Run and settle claimed items.  Return the newest view; None if the claim was given back without a run."""
        if claim.fences and claim.incarnation != self._member.session.incarnation:
            raise SessionEnded("the session was lost during a claim")
        execution = self._execution_of(view, claim, offsets)
        try:
            execution.begun = await self._reach(view, claim.fire)
            if execution.begun:
                await self._handle(view, execution)
        except get_cancelled_exc_class():
            with move_on_after(self.stopping.settle_timeout, shield=True):
                await self._settle(execution)
            raise
        if not await self._settle(execution):
            raise SessionEnded("the session was lost before the items of the run were settled")
        if not execution.begun:
            return None
        return await self._read_again() if self._views.value.tree.outdated else self._views.value

    async def _claim(self, view: JobView, fire: Fire, items: frozenset[int]) -> ClaimResult:
        """Claim items at once, or send the claim shortly before the moment if this is still to come."""
        state, session = self._state, self._member.session
        if not view.config.monitor_execution:
            # for written claims the registry's client checks this
            if session.status.value.state is not SessionState.CONNECTED or not session.is_proven():
                raise Suspended("it is not certain that the session lives")
            return ClaimResult(self._claims.unmonitored(fire, items))
        now, upcoming = state.clock.now, state.timetable.upcoming or 0
        if fire.slot != upcoming or fire.source is not FireSource.CRON:
            return await self._claims.claim(view, fire, items, now, upcoming)
        if self._views.value is not view or self.left:  # later changes take the claim back
            return ClaimResult()
        following, delay = state.timetable.following(), self._ahead.hold(fire.slot, now)
        return await self._claims.claim(view, fire, items, fire.slot, following, delay)

    def _execution_of(self, view: JobView, claim: Claim, offsets: dict[int, str]) -> Execution:
        execution = Execution(
            self._job,
            view.config,
            claim,
            RunOffsets(self._state.offsets, claim, offsets),
            self._shared.executors,
            self._failed,
            retry_waits=self._retry_waits,
            is_proven=self._member.session.is_proven,
            handling=self.stopping.handling,
            limited_log=self._shared.limited_log,
        )
        return self._stats.reporting(execution)

    async def _handle(self, view: JobView, execution: Execution) -> None:
        """Run the handlers while the session is certain to live, then let other jobs' handlers begin first."""
        session, fire, began = self._member.session, execution.claim.fire, get_running_loop().time()
        run_lease.set(session.tenure(self._member.incarnation))
        if execution.job.engine is not None:
            self._stream = StreamControl(view, self._views, self.run_counts, self._shared.events)
            execution.stream_control = self._stream
            if self.left or (fire.source is FireSource.FAILOVER and view.settled):
                self._stop_fetching()  # the rescue of an item whose holder is alive ends after one batch
        catch_up = fire.source is FireSource.MISFIRE and self._state.is_catch_up(fire.slot)
        self._stats.began(execution, catch_up=catch_up)
        execution.stop_cancelled(self._views.value)
        with HandlerScope(execution.log_unheeded_handlers, threads=self._job.blocking) as scope:
            self._execution = scope
            session.bind(scope, self._member.incarnation)
            try:
                if not scope.cancel_called:  # it is if the claim was answered after the lease's end
                    me, listeners = self._member, self._job.listeners
                    await (with_listeners(execution, me, self._views) if listeners else execute(execution))
            finally:
                self._execution = None
                session.unbind(scope)
                self._stats.ended(execution, get_running_loop().time() - began)
        await sleep(0)
        await session.wait_for_delayed()

    async def _reach(self, view: JobView, fire: Fire) -> bool:
        """Wait until the fire's moment has come; False if the view or the time changes before."""
        now = self._state.clock.now
        if fire.slot > now and fire.source in SCHEDULED:
            session, is_outdated = self._member.session, self.left or self._views.value is not view
            if is_outdated or not await self._ahead.wait(fire.slot, now) or self._state.now() - fire.slot > ASLEEP:
                return False
            if session.incarnation != self._member.incarnation or not session.is_proven():
                return False
        if fire.source is FireSource.CRON:
            self._state.reach(fire.slot)  # or this moment would seem to have come during its own execution
        return True

    async def _settle(self, execution: Execution) -> bool:
        """Settle the items; False if the session was lost.  A claim without fences has written nothing."""
        claim, state = execution.claim, self._state
        if execution.begun and claim.fire.source in SCHEDULED:
            state.items.ran(claim.items, claim.fire.slot)
        unfinished = execution.stream_control.unfinished if execution.stream_control is not None else ()
        if not claim.fences:
            state.cache.assume(unfinished, claim.fire.slot - 1)
            if execution.begun:  # the next holder finds no record of this run
                slot, cut_off = Passed(claim.fire.slot, claim.fire.slot), claim.items.keys() - execution.outcomes.keys()
                state.report(cut_off.difference(unfinished), slot, NOT_RECORDED, self._member.id)
            return True
        if not execution.begun:
            return await self._claims.withdraw(claim)
        ended, view = left_open(claim, unfinished) if unfinished else claim, self._views.value
        hand_over, removed = view.config.failover, self._member.id not in view.instances
        self.stopping.settling, outcomes = claim, execution.outcomes
        handed_over = await self._claims.settle(ended, outcomes, state.now(), hand_over=hand_over, removed=removed)
        self.stopping.settling = None
        if handed_over and execution.trace is not None:
            execution.trace.handed_over(handed_over)
        return handed_over is not None

    def conclude(self, written: EndRun | UpdateRequest) -> None:
        """Report what this instance has ended as the leader: a run that nobody rescues, or a request."""
        if isinstance(written, UpdateRequest):
            due = written.request.moment
            self._state.report(written.expired_items, Passed(due, due), EXPIRED)
        elif error := self._stats.ended_by_leader(self._views.value.config, written):
            moment = written.run.moment
            self._state.report([written.item], Passed(moment, moment), str(error), written.run.instance, handled=True)

    def give_up(self) -> None:
        """Report the runs that operators wanted and that cannot begin here any more, because this instance is gone."""
        self._choice.triggers.give_up()
        self._state.say_all()

    def _look_at_once(self) -> None:
        """End waits and a streaming run, and ask for a turn: an item was released, or this instance leaves."""
        if self._wait_scope is not None:
            self._wait_scope.cancel()
        self._stop_fetching()
        self.wake()

    def _failed(self, context: Context, error: Exception) -> None:
        self._stats.failed(self._views.value.config, context, error)

    def _rest(self, view: JobView) -> float:
        """Return the seconds until the next moment or the next look at the clock; 0 if there is a newer view."""
        if self._views.value is not view:
            return 0.0
        upcoming = self._state.timetable.upcoming
        delay = MAX_WAIT * 1000 if upcoming is None else max(0, upcoming - self._state.clock.now)
        if view.config.monitor_execution and delay > self._ahead.lead:
            delay -= self._ahead.lead
        return min(MAX_WAIT, delay / 1000, self._state.steady_in, self._choice.triggers.next_due(view))
