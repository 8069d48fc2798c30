"""Runs the items of a claim: calls the handlers while the session is certain to live, and settles the items."""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
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
from aioelasticjob.engine.settlements import Settlement, Settlements, ended_record
from aioelasticjob.engine.stopping import Stopping
from aioelasticjob.engine.trace import Trace
from aioelasticjob.engine.turns import Activity, TaskScope
from aioelasticjob.errors import SessionEnded
from aioelasticjob.ground.latest import Latest
from aioelasticjob.jobs.base import Job
from aioelasticjob.jobs.context import Context, run_job, run_lease, run_limited_log
from aioelasticjob.logging import logger
from aioelasticjob.model import CUT_OFF, LEFT_OPEN, Claim, FireSource, Outcome, VersionedRecord
from aioelasticjob.registry.transaction import Committed, Op

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
    left: set[int] = field(default_factory=set)
    """The items whose settlement is no part of the run's: they ended, and were settled, before others did."""


@dataclass(slots=True)
class EndedItem:
    """An item whose run has ended, while others of its claim may go on."""

    run: OpenRun
    record: VersionedRecord
    """The record that its settlement writes, with the version that the claim has written."""


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
    known: Mapping[int, VersionedRecord] = field(default_factory=dict)
    """The records of items that have ended before others did."""


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
        lead: int,
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
        self._lead = lead
        """How many milliseconds before a moment its claim is sent."""
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
        self._ended_items = dict[int, EndedItem]()
        """The items that have ended and are not settled yet, while others of their claim go on or went on."""
        self.ends = list[tuple[int, Claim, VersionedRecord]]()
        """The ends of such items that nobody has taken yet, each with the record that its settlement will have made."""
        self._turns: CapacityLimiter | None = None
        """Bounds how many items run side by side, if the job has ``items_at_once``."""
        self._calling = set[str]()
        """The runs whose listeners this process calls that are called once in the cluster."""
        self._cancelled = False
        """Whether no handler may begin any more."""

    @property
    def are_over(self) -> bool:
        """Whether no run goes on or is to be settled, and none was settled that nobody has taken yet."""
        return not (self._open or self.settled or self._ended_items)

    @property
    def items(self) -> list[int]:
        """The items whose handlers run now, or will as soon as it is their turn."""
        running = list[int]()
        for run in self._open:
            if run.execution is not None:
                running += [item for item in run.claim.items if not self._has_ended(run, item)]
        return sorted(running)

    def _has_ended(self, run: OpenRun, item: int) -> bool:
        ended = self._ended_items.get(item)
        return item in run.left or (ended is not None and ended.run is run)

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

    def take_unsettled(self, items: Iterable[int]) -> dict[int, EndedItem]:
        """Return those of some ended items that are not settled yet: the caller settles them."""
        taken = dict[int, EndedItem]()
        for item in sorted(items):
            ended = self._ended_items.pop(item, None)
            if ended is not None:
                ended.run.left.add(item)
                taken[item] = ended
        return taken

    def put_back(self, ended: Mapping[int, EndedItem]) -> None:
        """Note that items are still to be settled: the claim was refused that was to settle them."""
        self._ended_items |= ended
        self._settlements.still_locked(ended)

    def settling_with_claim(self, ended: Mapping[int, EndedItem]) -> list[Op]:
        """Return the operations that settle ended items, for a transaction that claims items as well."""
        operations = list[Op]()
        for run, records_of_run in _by_run(ended):
            operations += self._settlements.settling_with_claim(run.claim.fire, records_of_run)
        return operations

    def settled_with_claim(self, ended: Mapping[int, EndedItem], claim: Claim) -> dict[int, VersionedRecord]:
        """Note that ended items were settled together with a claim; return their records as they were written."""
        self._settlements.settled_with_claim(ended, claim.items)
        zxid = next(iter(claim.items.values())).zxid
        return {item: replace(_after(one.record), zxid=zxid) for item, one in ended.items()}

    async def settle_ended(self, items: Iterable[int]) -> dict[int, VersionedRecord]:
        """Settle items whose runs have ended while others of their claims go on; return what was written.

        Raises:
            SessionEnded: the session was lost before it was written.
        """
        written = dict[int, VersionedRecord]()
        removed = self._member.id not in self._views.value.instances
        for run, ended in _by_run(self.take_unsettled(items)):
            self._stopping.settling.update(ended)
            settlement = self._settlements.settle_ended(run.claim.fire, ended, removed=removed)
            written |= await self._finish_settlement(None, settlement)
        return written

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
            run = self._open.pop(0)
            ended = run.ended
            if ended is None:
                continue
            self._leave_out_settled(run, ended)
            if ended.claim.is_recorded:
                await self._finish_settlement(ended.trace, self._settle(ended))
            else:
                await self._finish_unmonitored(ended)
        await self.settle_ended(list(self._ended_items))

    async def _run(self, run: OpenRun, view: JobView, offsets: dict[int, str]) -> None:
        """Run the handlers of claimed items; then the run can be settled."""
        execution = self._execution_of(view, run.claim, offsets)
        if view.config.independent_items and len(run.claim.items) > 1:
            execution.items_ended = partial(self._items_ended, run)
        try:
            if self._driver.state.clock.now < run.claim.fire.start:
                await self._moment_has_come(run.claim.fire.start)
            await self._handle(view, run, execution)
        finally:  # if this was cancelled, no turn may follow, and the end of the job's life settles the items
            run.ended = EndedRun(
                execution.claim, execution.outcomes, execution.errors, execution.unfinished, execution.trace
            )
        self._can_go_on(run)  # the handlers of other jobs begin first

    def _items_ended(self, run: OpenRun, execution: Execution, items: Sequence[int]) -> None:
        """Note that items of a run have ended; if others go on, these do not wait for them."""
        claim = run.claim
        if not claim.is_recorded and claim.fire.requested is not None:
            return  # the end of such a run is noted as a whole
        self._note_ends(run, items, execution.outcomes, execution.errors)
        if len(execution.outcomes) < len(claim.items):
            self._passes.wake()

    def _note_ends(
        self, run: OpenRun, items: Iterable[int], outcomes: Mapping[int, Outcome], errors: Mapping[int, str]
    ) -> None:
        """Note with which records the runs of items have ended."""
        claim = run.claim
        now = self._driver.now()
        for item in items:
            ended = ended_record(claim.items[item], item, outcomes, errors, now)
            if claim.is_recorded:
                self._ended_items[item] = EndedItem(run, ended)
                self.ends.append((item, claim, _after(ended)))
            else:
                run.left.add(item)
                self.ends.append((item, claim, ended))

    def _is_claimed_again(self, ended: EndedRun) -> bool:
        """Whether items of a run that has ended are claimed again now or soon, and settled in the same transaction."""
        claim = ended.claim
        if not claim.is_recorded or self._stopping.leaves:
            return False
        if ended.unfinished or ended.outcomes.keys() != claim.items.keys():
            return False
        timeline = self._driver.state.timeline
        soon = timeline.has_come(self._driver.state.clock.now + self._lead)
        return any(timeline.has_moment(seen.record.accounted, soon) for seen in claim.items.values())

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
        if self._views.value.config.independent_items and self._is_claimed_again(ended):
            new = [item for item in run.claim.items if not self._has_ended(run, item)]
            self._note_ends(run, new, ended.outcomes, ended.errors)
            self._close(run, {})
            return
        if run.left or self._ended_items:
            self._leave_out_settled(run, ended)
        if not ended.claim.items:
            self._close(run, {})
            return
        if not ended.claim.is_recorded:
            if ended.claim.fire.requested is None:
                self._close(run, self._end_unmonitored(ended))
            else:
                self._tasks.start_soon(self._close_after, run, self._finish_unmonitored, ended)
            return
        run.settlement = settlement = self._settle(ended)
        run.trace = ended.trace
        if settlement.transaction is None:
            self._tasks.start_soon(self._close_after, run, self._finish_settlement, run.trace, settlement)
            return
        answered = partial(self._answered, run)
        settlement.transaction.answer.add_done_callback(answered, context=self._tasks.scheduler.context)

    def _leave_out_settled(self, run: OpenRun, ended: EndedRun) -> None:
        """Leave the items out of a run's settlement that were settled before, and take over the records of others."""
        if run.left:
            items = {item: seen for item, seen in ended.claim.items.items() if item not in run.left}
            ended.claim = replace(ended.claim, items=items)
        mine = [item for item, one in self._ended_items.items() if one.run is run]
        ended.known = {item: one.record for item, one in self.take_unsettled(mine).items()}

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
            known=ended.known,
        )

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


def _after(ended: VersionedRecord) -> VersionedRecord:
    """Return the record that there is once an ended item is settled."""
    assert ended.version is not None  # a claim has written it
    return replace(ended, version=ended.version + 1)


def _by_run(ended: Mapping[int, EndedItem]) -> list[tuple[OpenRun, dict[int, VersionedRecord]]]:
    """Return the records of ended items, those of one run together."""
    found = list[tuple[OpenRun, dict[int, VersionedRecord]]]()
    for item, one in ended.items():
        of_run = next((records_of_run for run, records_of_run in found if run is one.run), None)
        if of_run is None:
            of_run = dict[int, VersionedRecord]()
            found.append((one.run, of_run))
        of_run[item] = one.record
    return found
