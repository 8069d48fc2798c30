"""Runs the items of a claim: calls the handlers while the session is certain to live, and settles the items."""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any, TypeVarTuple

from anyio import CapacityLimiter, sleep

from aioelasticjob.config.job import JobConfig
from aioelasticjob.core import records
from aioelasticjob.core.reasons import NOT_RECORDED
from aioelasticjob.core.timeline import Passed
from aioelasticjob.core.view import JobView
from aioelasticjob.engine.cancellation import HandlerScope
from aioelasticjob.engine.driver import StateDriver
from aioelasticjob.engine.early_end import RetryWaits, StreamControl, left_open
from aioelasticjob.engine.execution import JOB_LEAVES, Execution, execute
from aioelasticjob.engine.job_clock import JobClock
from aioelasticjob.engine.listeners import with_listeners
from aioelasticjob.engine.offsets import RunOffsets
from aioelasticjob.engine.process_context import ProcessContext
from aioelasticjob.engine.settlements import Ended, Settlement, Settlements, ended_record
from aioelasticjob.engine.stopping import Stopping
from aioelasticjob.engine.trace import Trace
from aioelasticjob.engine.turns import Activity, TaskScope
from aioelasticjob.errors import SessionEnded
from aioelasticjob.ground.latest import Latest
from aioelasticjob.jobs.base import Job
from aioelasticjob.jobs.context import Context, run_job, run_lease, run_limited_log
from aioelasticjob.logging import logger
from aioelasticjob.model import CUT_OFF, LEFT_OPEN, Claim, EndedItem, FireSource, Outcome, VersionedRecord
from aioelasticjob.registry.transaction import Committed

Ts = TypeVarTuple("Ts")

log = logger(__name__)

DECLARED_VALUE_KEPT = {
    "per": "cannot take what the registry's per gives",
    "executor": "are async, or cannot be sent to the processes that the registry's executor wants",
}
"""Settings whose declared value is used if the handlers cannot have the registry's, and why they cannot."""


@dataclass(slots=True, eq=False)
class OpenRun:
    """A run from its begin until it is settled."""

    claim: Claim
    execution: Execution | None = None
    """Its execution, while that is under way."""
    scope: Execution | HandlerScope | None = None
    """Cuts off the execution under way: it is the execution itself if that is one call of a handler."""
    ended: EndedRun | None = None
    """What is left of it when its handlers have ended, until its settlement begins."""
    settlement: Settlement | None = None
    """Its settlement, once that has begun."""
    trace: Trace | None = None
    """Its trace, while it is being settled."""
    ended_items: set[int] = field(default_factory=set)
    """The items that did not wait for the end of the others.  Their settlement is no part of the run's."""


@dataclass(slots=True)
class EndedRun:
    """What is left of an execution when its handlers have ended: what its settlement needs, and no more.

    A thousand of them may wait until all handlers of one moment have begun.
    """

    claim: Claim
    outcomes: dict[int, Outcome]
    errors: dict[int, str]
    """Why runs have failed, by item."""
    unfinished: frozenset[int]
    trace: Trace | None


class Runs:
    """The runs of one job in one session.  Several may go on at a time, each of other items.

    Each has a task while its handlers run.  Afterwards it waits as a value: for the handlers of other jobs to begin,
    and then for the answer to its settlement.  So this takes turns of its own, apart from the job's passes.
    """

    def __init__(
        self,
        job: Job,
        views: Latest[JobView],
        shared: ProcessContext,
        driver: StateDriver,
        settlements: Settlements,
        stopping: Stopping,
        passes: Activity,
        tasks: TaskScope,
    ) -> None:
        self._job = job
        self._views = views
        self._shared = shared
        self._driver = driver
        self._stopping = stopping
        self._member = driver.member
        self._stats = driver.stats
        self._settlements = settlements
        self._passes = passes
        """Is given a turn when a run was settled."""
        self._tasks = tasks
        self.activity = Activity(tasks, self)
        """Asks for a turn when a run can be settled, or was settled."""
        self._loop = get_running_loop()
        self._retry_waits = RetryWaits(views, stopping.ending)
        self._fitted = (job.config, job.config)
        """The newest configuration in force, and what the handlers make of it."""
        self._open = list[OpenRun]()
        """The runs that are not settled yet."""
        self._ready = list[OpenRun]()
        """Those of them whose handlers have ended, or whose settlement was answered, since the last turn."""
        self.settled = list[tuple[Claim, Mapping[int, VersionedRecord]]]()
        """The runs that were settled and not taken yet, each with what was written."""
        self.ended_items = list[tuple[int, EndedItem]]()
        """The items that have ended without waiting for others of their claim, and were not taken yet."""
        self._turns: CapacityLimiter | None = None
        """Bounds how many items run side by side, if the job has ``items_at_once``."""
        self._calling = set[str]()
        """The runs whose listeners this process calls that are called once in the cluster."""
        self._cancelled = False
        """Whether no handler may begin any more."""

    @property
    def are_over(self) -> bool:
        """Whether no run goes on or is to be settled, and none was settled that nobody has taken yet."""
        return not (self._open or self.settled or self.ended_items)

    @property
    def items(self) -> list[int]:
        """The items whose handlers run now, or will as soon as it is their turn."""
        running = list[int]()
        for run in self._open:
            if run.execution is not None:
                running += [item for item in run.claim.items if item not in run.ended_items]
        return sorted(running)

    @property
    def _executions(self) -> list[Execution]:
        return [run.execution for run in self._open if run.execution is not None]

    def leave(self) -> None:
        """Let no further attempt begin, and no function that waits for a thread or process, because the job leaves."""
        self._retry_waits.leave()
        for execution in self._executions:
            execution.leave()

    def stop_fetching(self) -> None:
        """Let streaming runs end once they have processed the records that they have fetched."""
        for execution in self._executions:
            if execution.stream_control is not None:
                execution.stream_control.end.set()

    def stop_cancelled(self) -> None:
        """Stop the runs that somebody has cancelled, according to the newest view."""
        for execution in self._executions:
            execution.stop_cancelled(self._views.value)

    def cancel(self) -> None:
        """Cancel all executions, and each one whose claim is answered later; their items are settled as cancelled."""
        self._cancelled = True
        for run in self._open:
            if run.scope is not None:
                run.scope.cancel(JOB_LEAVES)

    def begin(self, view: JobView, claim: Claim, offsets: dict[int, str]) -> None:
        """Begin to run claimed items, in a task of their own.

        Raises:
            SessionEnded: the session under which they were claimed is over.
        """
        if claim.is_recorded and claim.incarnation != self._member.session.incarnation:
            raise SessionEnded("the session was lost during a claim")
        run = OpenRun(claim)
        self._open.append(run)
        self._tasks.start_soon(self._run, run, view, offsets)

    def settle(self, claim: Claim, records: Ended) -> None:
        """Begin to settle items that have ended; ``settled`` shows when that is done."""
        run = OpenRun(claim)
        self._open.append(run)
        self._await_settlement(run, self._settle_ended(claim, records))

    async def finish_settlement(self, claim: Claim, records: Ended) -> None:
        """Settle items that have ended.

        Raises:
            SessionEnded: the session was lost before it was written.
        """
        await self._finish_settlement(None, self._settle_ended(claim, records))

    def turn(self) -> float:
        """Begin the settlements of the runs that have ended, and look at the answers to others."""
        ready = self._ready
        self._ready = []
        for run in ready:
            if run.settlement is None:
                self._begin_settlement(run)
            else:
                self._conclude(run, run.settlement)
        return inf

    async def finish(self) -> None:
        """Settle the runs whose handlers have ended, if their settlement has not begun.

        Raises:
            SessionEnded: the session was lost before a settlement was written.
        """
        while self._open:
            ended = self._open.pop(0).ended
            if ended is None or not ended.claim.items:
                continue
            if ended.claim.is_recorded:
                await self._finish_settlement(ended.trace, self._settle(ended))
            else:
                await self._finish_unmonitored(ended)

    async def _run(self, run: OpenRun, view: JobView, offsets: dict[int, str]) -> None:
        """Run the handlers of claimed items; then the run can be settled."""
        execution = self._execution_of(view, run.claim, offsets)
        if view.config.independent_items and (run.claim.is_recorded or run.claim.fire.requested is None):
            execution.items_ended = partial(self._items_ended, run)  # other runs note their end at their request
        try:
            if self._driver.state.clock.now < run.claim.fire.start:
                await self._moment_has_come(run.claim.fire.start)
            await self._handle(view, run, execution)
        finally:  # if this was cancelled, no turn may follow, and the end of the job's life settles the items
            claim = execution.claim
            if run.ended_items:
                others = {item: seen for item, seen in claim.items.items() if item not in run.ended_items}
                claim = replace(claim, items=others)
            run.ended = EndedRun(claim, execution.outcomes, execution.errors, execution.unfinished, execution.trace)
        self._can_go_on(run)  # the handlers of other jobs begin first

    def _items_ended(self, run: OpenRun, execution: Execution, items: Sequence[int]) -> None:
        """Note that items of a run have ended; if others go on, these do not wait for them."""
        claim = run.claim
        now = self._driver.now()
        for item in items:
            record = ended_record(claim.items[item], item, execution.outcomes, execution.errors, now)
            self.ended_items.append((item, EndedItem(claim, record)))
        run.ended_items.update(items)
        if len(run.ended_items) < len(claim.items):
            self._passes.wake()

    def _can_go_on(self, run: OpenRun) -> None:
        """Ask for a turn, in which the next step of a run is made."""
        self._ready.append(run)
        self._tasks.scheduler.go_on(self.activity)

    def _answered(self, run: OpenRun, answer: Future[Committed]) -> None:
        """Note that the settlement of a run was answered; this is a callback of the answer."""
        if not answer.cancelled():
            answer.exception()  # it was looked at, so asyncio need not warn of it
        self._can_go_on(run)

    async def _moment_has_come(self, slot: int) -> None:
        """Wait until the clock shows the moment of a run, unless it was given by a clock that was wrong.

        The moment of a run that was asked for was given by the registry's clock, and that of a rescue by the clock of
        another host.  The clock of this one may be a little behind, or may have gone back a little.
        """
        clock = self._driver.state.clock
        while clock.is_soon(slot):
            await sleep((slot - clock.now) / 1000)
            self._driver.now()

    def _begin_settlement(self, run: OpenRun) -> None:
        """Begin to settle a run whose handlers have ended."""
        ended = run.ended
        run.ended = None
        if ended is None:
            return
        if not ended.claim.items:
            self._close(run, {})
            return
        if not ended.claim.is_recorded:
            if ended.claim.fire.requested is None:
                self._close(run, self._end_unmonitored(ended))
            else:
                self._tasks.start_soon(self._close_after, run, self._finish_unmonitored, ended)
            return
        run.trace = ended.trace
        self._await_settlement(run, self._settle(ended))

    def _await_settlement(self, run: OpenRun, settlement: Settlement) -> None:
        """Have a run closed once its settlement, which has begun, is written."""
        run.settlement = settlement
        if settlement.transaction is None:
            self._tasks.start_soon(self._close_after, run, self._finish_settlement, run.trace, settlement)
            return
        answered = partial(self._answered, run)
        settlement.transaction.answer.add_done_callback(answered, context=self._tasks.scheduler.context)

    def _conclude(self, run: OpenRun, settlement: Settlement) -> None:
        """Close a run whose settlement was answered, or do what is left if it was not accepted whole."""
        if self._settlements.settled(settlement):
            self._note_settled(run.trace, settlement)
            self._close(run, settlement.written)
        else:
            self._tasks.start_soon(self._close_after, run, self._finish_settlement, run.trace, settlement)

    async def _close_after(
        self, run: OpenRun, finish: Callable[[*Ts], Awaitable[Mapping[int, VersionedRecord]]], *args: *Ts
    ) -> None:
        """Finish the settlement of a run, and close the run; if the session is over, the job's life ends."""
        try:
            written = await finish(*args)
        except SessionEnded:
            self._tasks.owner.end_soon()
        else:
            self._close(run, written)

    def _close(self, run: OpenRun, written: Mapping[int, VersionedRecord]) -> None:
        """Note that a run is over and settled, and give the job's passes a turn."""
        self._open.remove(run)
        self.settled.append((run.claim, written))
        self._tasks.scheduler.go_on(self._passes)

    async def _finish_settlement(self, trace: Trace | None, settlement: Settlement) -> Mapping[int, VersionedRecord]:
        """Return what a settlement has written.

        Raises:
            SessionEnded: the session was lost before it was written.
        """
        if not await self._settlements.finish(settlement):
            raise SessionEnded("the session was lost before the items of the run were settled")
        self._note_settled(trace, settlement)
        return settlement.written

    def _note_settled(self, trace: Trace | None, settlement: Settlement) -> None:
        self._stopping.settling.difference_update(settlement.written)
        self._stopping.accepted()
        if settlement.handed_over and trace is not None:
            trace.handed_over(settlement.handed_over)

    def _execution_of(self, view: JobView, claim: Claim, offsets: dict[int, str]) -> Execution:
        if self._fitted[0] is not view.config:  # a check of the handlers may take long
            self._fitted = view.config, self._job.fitted(view.config)
        config = self._fitted[1]
        if config is not view.config:
            for setting, why in DECLARED_VALUE_KEPT.items():
                kept = getattr(config, setting)
                if kept != getattr(view.config, setting):
                    text = f"{setting} = {kept!r} is used, because the handlers here {why}"
                    self._shared.limited_log.warning(log, config.job_name, f"handlers {why}", text)
        events = self._shared.events
        clock = JobClock(self._shared.clock, self._member.session)
        trace = Trace(claim, config, events, clock) if events.heard else None
        return Execution(
            self._job,
            config,
            claim,
            RunOffsets(self._driver.offsets, claim, offsets),
            self._shared.executors,
            self._failed,
            self._retry_waits,
            trace=trace,
            report_attempt=self._stats.attempt_failed,
            is_proven=self._member.is_proven,
            handling=self._stopping,
            limited_log=self._shared.limited_log,
            turns=self._turns_of(config),
        )

    def _turns_of(self, config: JobConfig) -> CapacityLimiter | None:
        """Return what bounds how many items run side by side, in all runs together; None if nothing does."""
        most = config.items_at_once
        if most is None:
            return None
        if self._turns is None:
            self._turns = CapacityLimiter(most)
        self._turns.total_tokens = most
        return self._turns

    async def _handle(self, view: JobView, run: OpenRun, execution: Execution) -> None:
        """Run the handlers while the session is certain to live."""
        session = self._member.session
        claim = execution.claim
        began = self._loop.time()
        run_lease.set(session.run_lease(claim.incarnation))
        run_limited_log.set(self._shared.limited_log)
        run_job.set(self._member.layout.job)
        if execution.job.engine is not None:
            stream = StreamControl(view, self._views, self._stats.run_counts, self._shared.events)
            execution.stream_control = stream
            has_holder = claim.fire.source is FireSource.FAILOVER and view.assignment_stands
            if self._retry_waits.leaves or has_holder:  # the rescue of an item that has a holder ends after one batch
                stream.end.set()
        catch_up = claim.fire.source is FireSource.MISFIRE and self._driver.state.is_catch_up(claim.fire.slot)
        run.execution = execution
        self._stats.began(execution, catch_up=catch_up)
        execution.stop_cancelled(self._views.value)
        with execution.cancellable() as scope:
            run.scope = scope
            session.bind(scope, claim.incarnation)
            try:
                if not (scope.cancel_called or self._cancelled):  # the claim may be answered too late
                    if self._job.listeners:
                        await with_listeners(execution, self._member, self._views, self._calling)
                    else:
                        await execute(execution)
            finally:
                run.execution = None
                run.scope = None
                session.unbind(scope)
                seconds = self._loop.time() - began
                self._stats.ended(execution, seconds, scope.reason or execution.reason)

    def _settle(self, ended: EndedRun) -> Settlement:
        """Begin to settle the items of a run whose claim was written."""
        claim = ended.claim
        outcomes = ended.outcomes
        unfinished = ended.unfinished
        driver = self._driver
        view = self._views.value
        settled = left_open(claim, unfinished) if unfinished else claim
        hand_over = view.config.failover
        removed = self._member.id not in view.instances
        self._stopping.settling.update(claim.items)
        return self._settlements.settle(
            settled,
            outcomes,
            driver.now(),
            hand_over=hand_over,
            removed=removed,
            unfinished=unfinished,
            errors=ended.errors,
        )

    def _settle_ended(self, claim: Claim, records: Ended) -> Settlement:
        """Begin to settle items that have ended, apart from others of their claim."""
        self._stopping.settling.update(records)
        removed = self._member.id not in self._views.value.instances
        return self._settlements.settle_ended(claim.fire, records, removed=removed)

    def _end_unmonitored(self, ended: EndedRun) -> Mapping[int, VersionedRecord]:
        """End a run of a job that keeps no records; return the records that only this process knows."""
        claim = ended.claim
        outcomes = ended.outcomes
        unfinished = ended.unfinished
        driver = self._driver
        slot = claim.fire.slot
        cut_off = claim.items.keys() - outcomes.keys() - unfinished
        # the next holder finds no record of this run
        driver.state.report(cut_off, Passed(slot, slot), NOT_RECORDED, self._member.id)
        driver.say_all()
        now = driver.now()
        settled = left_open(claim, unfinished) if unfinished else claim
        written = dict[int, VersionedRecord]()
        for item, seen in settled.items.items():
            outcome = outcomes.get(item, Outcome.FAILED)
            written[item] = records.ended(seen, outcome, now)
        return written

    async def _finish_unmonitored(self, ended: EndedRun) -> Mapping[int, VersionedRecord]:
        """End such a run for a request, and note its end there."""
        fire = ended.claim.fire
        written = self._end_unmonitored(ended)
        if fire.requested is None:
            return written
        outcomes = dict[int, str]()
        for item in ended.claim.items:
            if item in ended.unfinished:
                outcomes[item] = LEFT_OPEN
            else:
                outcomes[item] = ended.outcomes.get(item, CUT_OFF)
        sent = self._settlements.begin_unmonitored(fire, outcomes)
        noted = await self._settlements.finish_unmonitored(sent)
        newest = dict[int, VersionedRecord]()
        for item, seen in written.items():
            zxid = noted.get(item, seen.zxid)
            newest[item] = replace(seen, zxid=zxid)
        return newest

    def _failed(self, context: Context, error: Exception, **of_a_part: Any) -> None:
        self._stats.failed(self._views.value.config, context, error, **of_a_part)
