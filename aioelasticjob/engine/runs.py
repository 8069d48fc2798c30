"""Runs the items of a claim: calls the handlers while the session is certain to live, and settles the items."""

from __future__ import annotations

from asyncio import get_running_loop
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from anyio import sleep

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
from aioelasticjob.engine.passes import Awaited, InTask
from aioelasticjob.engine.process_context import ProcessContext
from aioelasticjob.engine.settlements import Settlement, Settlements
from aioelasticjob.engine.stopping import Stopping
from aioelasticjob.engine.trace import Trace
from aioelasticjob.errors import SessionEnded
from aioelasticjob.ground.latest import Latest
from aioelasticjob.jobs.base import Job
from aioelasticjob.jobs.context import Context, run_lease, run_limited_log
from aioelasticjob.logging import logger
from aioelasticjob.model import CUT_OFF, LEFT_OPEN, Claim, FireSource, Outcome, VersionedRecord

log = logger(__name__)

DECLARED_VALUE_KEPT = {
    "per": "cannot take what the registry's per gives",
    "executor": "are async, or cannot be sent to the processes that the registry's executor wants",
}
"""Settings whose declared value is used if the handlers cannot have the registry's, and why they cannot."""


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
    """The runs of one job in one session, one after another."""

    def __init__(
        self,
        job: Job,
        views: Latest[JobView],
        shared: ProcessContext,
        driver: StateDriver,
        settlements: Settlements,
        stopping: Stopping,
    ) -> None:
        self._job = job
        self._views = views
        self._shared = shared
        self._driver = driver
        self._stopping = stopping
        self._member = driver.member
        self._stats = driver.stats
        self._settlements = settlements
        self._loop = get_running_loop()
        self._retry_waits = RetryWaits(views, stopping.ending)
        self._fitted = (job.config, job.config)
        """The newest configuration in force, and what the handlers make of it."""
        self.execution: Execution | None = None
        """The execution under way."""
        self._scope: Execution | HandlerScope | None = None
        """Cuts off the execution under way: it is the execution itself if that is one call of a handler."""
        self._cancelled = False
        """Whether no handler may begin any more."""
        self._unsettled: EndedRun | None = None
        """The run whose handlers have ended, until its settlement begins."""

    def leave(self) -> None:
        """Let no further attempt begin, and no function that waits for a thread or process, because the job leaves."""
        self._retry_waits.leave()
        if self.execution is not None:
            self.execution.leave()

    def stop_fetching(self) -> None:
        """Let a streaming run end once it has processed the records that it has fetched."""
        if self.execution is not None and self.execution.stream_control is not None:
            self.execution.stream_control.end.set()

    def stop_cancelled(self) -> None:
        """Stop the runs that somebody has cancelled, according to the newest view."""
        if self.execution is not None:
            self.execution.stop_cancelled(self._views.value)

    def cancel(self) -> None:
        """Cancel the execution, and each one whose claim is answered later; their items are settled as cancelled."""
        self._cancelled = True
        if self._scope is not None:
            self._scope.cancel(JOB_LEAVES)

    async def run(self, view: JobView, claim: Claim, offsets: dict[int, str]) -> Awaited:
        """Run the handlers of claimed items; return the step that begins their settlement."""
        if claim.is_recorded and claim.incarnation != self._member.session.incarnation:
            raise SessionEnded("the session was lost during a claim")
        execution = self._execution_of(view, claim, offsets)
        try:
            if self._driver.state.clock.now < claim.fire.start:
                await self._moment_has_come(claim.fire.start)
            await self._handle(view, execution)
        finally:  # if this was cancelled, no turn may follow, and the end of the job's life settles the items
            self._unsettled = EndedRun(
                execution.claim, execution.outcomes, execution.errors, execution.unfinished, execution.trace
            )
        return Awaited(self._begin_settlement, is_there=True)  # the handlers of other jobs begin first

    async def _moment_has_come(self, slot: int) -> None:
        """Wait until the clock shows the moment of a run, unless it was given by a clock that was wrong.

        The moment of a run that was asked for was given by the registry's clock, and that of a rescue by the clock of
        another host.  The clock of this one may be a little behind, or may have gone back a little.
        """
        clock = self._driver.state.clock
        while clock.is_soon(slot):
            await sleep((slot - clock.now) / 1000)
            self._driver.now()

    async def finish(self) -> None:
        """Settle the run whose handlers have ended, if its settlement has not begun.

        Raises:
            SessionEnded: the session was lost before the settlement was written.
        """
        ended = self._unsettled
        self._unsettled = None
        if ended is None:
            return
        if not ended.claim.is_recorded:
            await self._finish_unmonitored(ended)
            return
        await self._finish_settlement(ended.trace, self._settle(ended))

    def _begin_settlement(self) -> Awaited | InTask | Mapping[int, VersionedRecord]:
        """Begin to settle the run whose handlers have ended; return how that is to be awaited, or what was written."""
        ended = self._unsettled
        self._unsettled = None
        if ended is None:
            return {}
        if not ended.claim.is_recorded:
            if ended.claim.fire.requested is not None:
                return InTask(partial(self._finish_unmonitored, ended))
            return self._end_unmonitored(ended)
        settlement = self._settle(ended)
        if settlement.transaction is None:
            return InTask(partial(self._finish_settlement, ended.trace, settlement))
        return Awaited(self._settled, (ended.trace, settlement), settlement.transaction.answer)

    def _settled(self, trace: Trace | None, settlement: Settlement) -> InTask | Mapping[int, VersionedRecord]:
        """Return what a settlement has written, or what is left to do if it was not accepted whole."""
        if not self._settlements.settled(settlement):
            return InTask(partial(self._finish_settlement, trace, settlement))
        self._note_settled(trace, settlement)
        return settlement.written

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
        self._stopping.settling = None
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
        )

    async def _handle(self, view: JobView, execution: Execution) -> None:
        """Run the handlers while the session is certain to live."""
        session = self._member.session
        claim = execution.claim
        began = self._loop.time()
        run_lease.set(session.run_lease(claim.incarnation))
        run_limited_log.set(self._shared.limited_log)
        if execution.job.engine is not None:
            stream = StreamControl(view, self._views, self._stats.run_counts, self._shared.events)
            execution.stream_control = stream
            has_holder = claim.fire.source is FireSource.FAILOVER and view.assignment_stands
            if self._retry_waits.leaves or has_holder:  # the rescue of an item that has a holder ends after one batch
                stream.end.set()
        catch_up = claim.fire.source is FireSource.MISFIRE and self._driver.state.is_catch_up(claim.fire.slot)
        self.execution = execution
        self._stats.began(execution, catch_up=catch_up)
        execution.stop_cancelled(self._views.value)
        with execution.cancellable() as scope:
            self._scope = scope
            session.bind(scope, claim.incarnation)
            try:
                if not (scope.cancel_called or self._cancelled):  # the claim may be answered too late
                    if self._job.listeners:
                        await with_listeners(execution, self._member, self._views)
                    else:
                        await execute(execution)
            finally:
                self.execution = None
                self._scope = None
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
        self._stopping.settling = claim
        return self._settlements.settle(
            settled,
            outcomes,
            driver.now(),
            hand_over=hand_over,
            removed=removed,
            unfinished=unfinished,
            errors=ended.errors,
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
