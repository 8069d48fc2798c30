"""Schedules one job in one session: it begins passes, and performs what is commanded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf

from anyio import CancelScope, move_on_after, sleep

from aioelasticjob.core.account import Past
from aioelasticjob.core.choice import Choice
from aioelasticjob.core.commands import (
    AwaitMoment,
    AwaitRescueEnd,
    ClaimItems,
    ClaimResult,
    Command,
    FollowReleases,
    GiveBack,
    JoinRun,
    NewestView,
    RemoveOrphanMark,
    RunItems,
    SettleEnded,
)
from aioelasticjob.core.effects import EndRun, LostRuns, UpdateRequest
from aioelasticjob.core.records import is_cut_off
from aioelasticjob.core.request_runs import ended_as, next_due
from aioelasticjob.core.timeline import Passed
from aioelasticjob.core.view import JobView
from aioelasticjob.engine.claim_ahead import ClaimAhead
from aioelasticjob.engine.claims import Claims, OwnLocks, SentClaim, remove_orphan_mark
from aioelasticjob.engine.commit import until_answered
from aioelasticjob.engine.coordinator import MIRROR_TIMEOUT
from aioelasticjob.engine.driver import StateDriver
from aioelasticjob.engine.health import JobHealth
from aioelasticjob.engine.job_clock import JobClock
from aioelasticjob.engine.listeners import join_run
from aioelasticjob.engine.member import Member
from aioelasticjob.engine.missed_reports import EXPIRED, REMOVED, left_of
from aioelasticjob.engine.passes import Awaited, InTask, Pass, Passes
from aioelasticjob.engine.process_context import ProcessContext
from aioelasticjob.engine.refusals import READ_DUE
from aioelasticjob.engine.runs import Runs
from aioelasticjob.engine.settlements import Settlements
from aioelasticjob.engine.stats import ExecutionStats
from aioelasticjob.engine.stopping import Stopping
from aioelasticjob.engine.turns import TaskScope
from aioelasticjob.errors import RegistryError, SessionEnded, Suspended
from aioelasticjob.ground.latest import Latest
from aioelasticjob.jobs.base import Job
from aioelasticjob.observers.vitals import JobVitals
from aioelasticjob.registry.session import SessionState

MAX_WAIT = 60.0
"""Seconds after which the scheduler reads the clock again: it may have been set, or the machine may have slept."""
UNCERTAIN = 1.0
"""Seconds until another attempt if there is a connection, but it is not certain that the session lives."""
VISIBLE_WITHIN = 1.0
"""The longest wait, in seconds, until the view shows that the rescue of this instance's own items has ended."""
READ_RELEASES = "to read which items run elsewhere"
"""The purpose of the reads, for the log line if the registry refuses them."""
LOOK_AGAIN_AFTER = 1.0
"""Seconds between two reads of the record of a run that the leader has yet to end."""


class JobScheduler:
    """Runs one job in one session.

    Its passes follow one another, so items are never claimed on two decisions at a time.  A pass ends when its run
    begins: the next one decides for the items that do not run.
    """

    def __init__(
        self,
        job: Job,
        member: Member,
        views: Latest[JobView],
        shared: ProcessContext,
        tasks: TaskScope,
        past: Past,
        stopping: Stopping,
    ) -> None:
        self._job = job
        self._member = member
        self._shared = shared
        self.views = views
        self._tasks = tasks
        self._loop = tasks.scheduler.loop
        self._clock = JobClock(shared.clock, member.session)
        self._stats = ExecutionStats(member, self._clock, shared.events, shared.dispatcher)
        driver = StateDriver(member, views.value, self._stats, past)
        self._driver = driver
        self._state = driver.state
        self.passes = Passes(self, driver, tasks)
        locks = OwnLocks()
        self._claims = Claims(member, locks)
        self._settlements = settlements = Settlements(member, driver.reader, locks)
        self.run_counts = self._stats.run_counts
        self._stopping = stopping
        self._ahead = ClaimAhead(member, shared.starts, settlements)
        self.runs = Runs(job, views, shared, driver, settlements, stopping, self.passes.activity, tasks)
        self._choice = Choice(member.id, self._state, self._ahead.lead, driver.offsets.possible)
        self._failures = 0
        """How many passes in a row the registry has refused."""
        self._resume_at = 0.0
        """Before what time of the loop no pass begins again."""
        self._wait_for_view: CancelScope | None = None
        """The wait for a view after an outage; it is cancelled when the job leaves."""

    @property
    def releases(self) -> ItemReleases:
        """Waits for items that other instances still run.  It keeps nothing, so it is made when it is needed."""
        return ItemReleases(self._driver, self._settlements, self._tasks, self._look_at_once)

    @property
    def vitals(self) -> JobVitals:
        """The present state of the job, for metrics."""
        leads = self.views.value.leader == self._member.id
        return JobVitals(self._member.layout.job, len(self._state.held), leads)

    @property
    def health(self) -> JobHealth:
        """The health of the job in this process."""
        now = self._clock.now()
        member = self._member
        skew = member.session.clock_skew
        health = JobHealth.of(self.views.value, member.id, self.runs.items, now, self._job.config, skew)
        blocked = [member.layout.item(item).running for item in self._state.blocked_by_hand()]
        return replace(health, blocked=tuple(blocked)) if blocked else health

    @property
    def is_refusing(self) -> bool:
        """Whether the job runs nothing because the clock skew is larger than the job tolerates."""
        return self._state.intolerable_skew() is not None

    @property
    def is_at_rest(self) -> bool:
        """Whether no pass is under way, no run goes on, and none is to be settled."""
        return self.passes.is_at_rest and self.runs.are_over and not self._state.unsettled

    @property
    def shutdown_timeout(self) -> float:
        """Seconds that running handlers have to end when the job leaves."""
        return self.views.value.config.shutdown_timeout

    def leave(self) -> None:
        """Stop claiming, and leave once no handler runs."""
        self._stopping.leave(self.shutdown_timeout, self.cancel)
        if self._wait_for_view is not None:
            self._wait_for_view.cancel()
        self.runs.leave()
        self._ahead.end_wait()
        self._look_at_once()

    def reconsider(self) -> None:
        """Give back a claim that waits for its moment, stop cancelled runs, and ask for a turn.

        This is called when the view or the time has changed.
        """
        self._driver.now()
        self._state.notice_what_is_off(self.views.value)
        self._ahead.end_wait()
        self.runs.stop_cancelled()
        self.passes.activity.wake()

    def look_again(self) -> None:
        """Compute anew which items are due, because the time was set."""
        self._resume_at = 0.0
        self.reconsider()

    async def ask_time(self) -> None:
        """Ask the registry for its time.  A RegistryError is raised if it cannot answer."""
        await self._member.session.server_time(self._member.layout.system_time)

    def cancel(self) -> None:
        """Give back a claim that waits for its moment, or cancel the execution; its items are settled as cancelled."""
        self._ahead.end_wait()
        self.runs.cancel()

    def begin(self) -> Pass:
        """See the newest view, and run what comes first.

        The result is the seconds until there can be more to run; None if there may be more now.
        """
        self._note_ended_items()
        while self.runs.settled:
            yield from self._choice.ended(*self.runs.settled.pop(0))
        if self._stopping.leaves:
            yield from self._choice.settle(self._state.unsettled)
            if not self.runs.are_over:
                return inf
            with suppress(RegistryError):  # the next holder reports as missed what this one has excused
                yield from self._state.leave(self.views.value)
            self._tasks.owner.end_soon()
            return inf
        if self._state.unsettled:
            yield from self._choice.settle_unclaimed(self.views.value, is_claiming=True)
        pause = self._resume_at - self._loop.time()
        if pause > 0:
            return pause
        view = self.views.value
        if view.tree.outdated:
            view = yield NewestView()
        if self._state.waits_for_runs(view):
            yield from self._choice.settle(self._state.unsettled)
            return inf
        yield from self._state.see(view)
        run = self._choice.next_run(view)
        taken = None if run is None else (yield from run)
        self._failures = 0
        if self._member.refusals.open:
            self._member.refusals.accepted(READ_DUE)
        if taken is None:
            if self._state.unsettled:
                yield from self._choice.settle_unclaimed(view, is_claiming=False)
            return self._rest(view)
        may_be_more = not taken.stale if taken.claim is None else not self._state.all_run
        return None if may_be_more else self._rest(view)

    def _note_ended_items(self) -> None:
        while self.runs.ended_items:
            self._state.item_ended(*self.runs.ended_items.pop(0))

    def refused(self, error: RegistryError) -> float:
        """Return after how many seconds the next pass begins; the items stay due."""
        session = self._member.session
        match error:
            case Suspended():
                connected = session.status.value.state is SessionState.CONNECTED
                return UNCERTAIN if connected else inf  # a new connection wakes it
            case SessionEnded():
                self._tasks.owner.end_soon()
                return inf
        self._member.refusals.refused(READ_DUE, error)
        pause = session.pause_after(self._failures)
        self._failures += 1
        self._resume_at = self._loop.time() + pause
        return pause

    def perform(self, command: Command) -> object:
        """Perform a command, and return its answer, or how it is to be awaited."""
        state = self._state
        match command:
            case ClaimItems():
                return self._claim(command)
            case AwaitMoment(view, claim):
                ahead = max(0, claim.fire.start - state.clock.now)
                is_outdated = self._stopping.leaves or (ahead > 0 and self.views.value is not view)
                return self._ahead.wait(claim, ahead, is_outdated=is_outdated)
            case RunItems(view, claim, offsets):
                self._ahead.begun()
                self.runs.begin(view, claim, offsets)
                return None
            case NewestView():
                view = self.views.value
                return InTask(self._await_new_view) if view.tree.outdated else view
            case GiveBack():
                return InTask(self._ahead.give_back)
            case JoinRun(fire, items):
                return InTask(partial(join_run, self._job.listeners, self._member, fire, items))
            case FollowReleases(items):
                self.releases.follow(items)
                return None
            case SettleEnded(claim, records):
                self.runs.settle(claim, records)
                return None
            case AwaitRescueEnd(items):
                return InTask(partial(self._await_rescue_end, items))
            case RemoveOrphanMark(item, version):
                return InTask(partial(remove_orphan_mark, self._member, item, version))
            case _:
                return InTask(partial(self._driver.perform, command))

    def _claim(self, command: ClaimItems) -> object:
        """Claim items for a fire, whose moment may still be to come."""
        if not command.view.config.monitor_execution:
            # for written claims the registry's client checks this
            is_connected = self._member.session.status.value.state is SessionState.CONNECTED
            if not (is_connected and self._member.is_proven()):
                raise Suspended("it is not certain that the session lives")
            if command.fire.requested is not None:
                return InTask(partial(self._claims.begin_unmonitored, command))
            return ClaimResult(self._claims.unmonitored(command))
        settling = self._settlements.settling_with_claim(command.settling)
        sent = self._claims.send(command, settling)
        return Awaited(self._claimed, (sent,), sent.transaction.answer)

    def _claimed(self, sent: SentClaim) -> object:
        """Return the result of a claim that was answered, or the work that is left to do for it."""
        taken = self._claims.claimed(sent)
        if taken is None:
            return InTask(partial(self._finish_claim, sent))
        self._note_settled_with(sent, taken)
        return taken

    async def _finish_claim(self, sent: SentClaim) -> ClaimResult:
        taken = await self._claims.finish(sent)
        self._note_settled_with(sent, taken)
        return taken

    def _note_settled_with(self, sent: SentClaim, taken: ClaimResult) -> None:
        if taken.claim is not None and sent.settles:
            self._settlements.settled_with_claim(sent.command.settling, taken.claim.items)

    async def _await_rescue_end(self, items: frozenset[int]) -> None:
        with move_on_after(VISIBLE_WITHIN):
            await self.views.until(lambda newer: items.isdisjoint(newer.rescues))

    async def _await_new_view(self) -> JobView:
        """Wait until the view was read anew after an outage, and return it: the schedule may have changed."""
        with move_on_after(MIRROR_TIMEOUT) as self._wait_for_view:
            await self.views.until(lambda view: self._stopping.leaves or not view.tree.outdated)
        self.views.value.tree.accept_as_newest()  # run with the old view rather than not at all
        return self.views.value

    def conclude(self, written: EndRun | UpdateRequest | LostRuns) -> None:
        """Report what this instance has ended as the leader: a run that nobody rescues, or a request."""
        state = self._state
        if isinstance(written, UpdateRequest):
            request = written.request
            unrun = written.unrun
            why = EXPIRED if request.stopped else REMOVED
            for first in sorted(set(unrun.values())):
                items = [item for item, due in unrun.items() if due == first]
                state.report(items, left_of(request.span, first), why)
        elif isinstance(written, LostRuns):
            state.report_lost(written.records, written.why)
        elif error := self._stats.ended_by_leader(self.views.value.config, written):
            run = written.run.record
            state.report([written.item], Passed(run.moment, run.moment), str(error), run.instance, handled=True)
        self._driver.say_all()

    async def end_runs(self) -> None:
        """Settle or give back what waits without a task, and report the runs that can begin here no more.

        The caller has cancelled all tasks.
        """
        self.passes.end_pass()
        self._note_ended_items()
        with move_on_after(self._stopping.settle_timeout, shield=True), suppress(SessionEnded):
            await self.runs.finish()
            unsettled = self._state.take_unsettled(self._state.unsettled)
            for claim, records in self._state.begin_to_settle(unsettled):
                await self.runs.finish_settlement(claim, records)
            await self._ahead.give_back()
        self._driver.say_all()

    def _look_at_once(self) -> None:
        """End a streaming run, and ask for a turn: an item was released, or this instance leaves."""
        self._resume_at = 0.0
        self.runs.stop_fetching()
        self.passes.activity.wake()

    def _rest(self, view: JobView) -> float:
        """Return the seconds until the next moment or the next look at the clock; 0 if there is a newer view."""
        if self.views.value is not view:
            return 0.0
        now = self._state.clock.now
        timeline = self._state.timeline
        waits_for_end = bool(self._state.open) and (self._state.all_run or self._choice.schedule_waits)
        nothing_comes = timeline.upcoming is None or waits_for_end
        delay = MAX_WAIT * 1000 if nothing_comes else max(0, timeline.starts_at - now)
        if view.config.monitor_execution and delay > self._ahead.lead:
            delay -= self._ahead.lead
        planned = next_due(view, self._state.held, now) if view.requested else None
        until_planned = inf if planned is None else max(0.0, (planned - now) / 1000)
        return min(MAX_WAIT, delay / 1000, self._state.steady_in, until_planned)


class ItemReleases:
    """Waits until items run nowhere.  For each such item it tells the state, and then calls ``after``."""

    def __init__(
        self, driver: StateDriver, settlements: Settlements, tasks: TaskScope, after: Callable[[], None]
    ) -> None:
        self._member = driver.member
        self._driver = driver
        self._settlements = settlements
        self._tasks = tasks
        self._after_release = after

    def follow(self, items: Iterable[int]) -> None:
        """Wait for each of these items."""
        for item in sorted(items):
            self._tasks.start_soon(self._until_free, item)

    async def release_left(self) -> None:
        """Remove the locks that the job's earlier life has left under this session, also of other instances' items."""
        with suppress(SessionEnded):  # the end of the session has removed them
            await self._until_answered(
                lambda: self._settlements.release_all(hand_over=self._driver.state.view.config.failover)
            )

    async def _until_free(self, item: int) -> None:
        with suppress(SessionEnded):
            await self._until_answered(lambda: self._ended(item))
            self._driver.released(item)
            self._after_release()

    async def _ended(self, item: int) -> None:
        await self._settlements.release(item, hand_over=self._driver.state.view.config.failover)
        await self._member.session.wait_deleted(self._member.layout.item(item).running)
        while True:
            if not await self._is_to_be_ended(item):
                return
            await sleep(LOOK_AGAIN_AFTER)

    async def _is_to_be_ended(self, item: int) -> bool:
        """Whether the leader has yet to end the item's run, because it was cancelled or rescued too often.

        This changes the record only, and instances do not mirror records.  If this instance did not read the record
        again, the item would count as being rescued, and not run, until another node of the job changes.
        """
        state = self._driver.state
        view = state.view
        if not view.config.failover or item not in state.items:  # the item may have moved away meanwhile
            return False
        found = await self._driver.reader.read([item])
        seen = found[item].seen
        return is_cut_off(seen.record) and bool(ended_as(view, item, seen.record, seen.zxid))

    async def _until_answered(self, attempt: Callable[[], Awaitable[None]]) -> None:
        await until_answered(self._member, READ_RELEASES, attempt)
        self._member.refusals.accepted(READ_RELEASES)
