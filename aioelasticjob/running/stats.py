"""What is noted of a job's flights: counts, what observers are told, and failures for the error handler."""

from __future__ import annotations

import logging

from aioelasticjob.clock import Clock, moment
from aioelasticjob.config import JobConfig
from aioelasticjob.coordination.member import Member
from aioelasticjob.coordination.progress import RunCounts
from aioelasticjob.error_handlers import ErrorDispatcher, Failure
from aioelasticjob.errors import GivenUp
from aioelasticjob.events import CaughtUp, Events, Refused
from aioelasticjob.jobs.context import Context, task_id
from aioelasticjob.model import Claim, Outcome, Record
from aioelasticjob.running.execution import Execution

log = logging.getLogger(__name__)


class ExecutionStats:
    """The books of one job's flights in one session."""

    def __init__(self, member: Member, clock: Clock, events: Events, dispatcher: ErrorDispatcher) -> None:
        self._job, self._me = member.layout.job, member.id
        self._clock, self._events, self._dispatcher = clock, events, dispatcher
        self._counts = events.counts[self._job]
        self.run_counts = RunCounts()
        """Runs that ended here; the coordinator publishes them."""
        self.under_way: Claim | None = None
        self._refused = False
        self._declined: frozenset[int] = frozenset()
        self._given_up: dict[int, int] = {}
        """When the run of each item began that was last reported as given up."""

    def began(self, execution: Execution, *, catch_up: bool) -> None:
        """Note that a flight's moment has come; ``catch_up``: that nobody was up when it did."""
        fire = execution.claim.fire
        self.under_way = execution.claim
        self._counts.fires[fire.source] += 1
        if catch_up:
            self._counts.caught_up += 1
            self._events.put(CaughtUp(self._job, self._me, fire.slot, tuple(execution.claim.items)))
        if execution.trace is not None:
            execution.trace.began()

    def ended(self, execution: Execution, seconds: float) -> None:
        """Note how a flight's items ended, ``seconds`` after it began."""
        self.under_way = None
        for item in execution.claim.items:
            outcome = execution.outcomes.get(item, Outcome.CANCELLED)
            if execution.job.engine is None:  # which counts for itself
                self.run_counts.count(outcome)
            self._counts.runs[outcome] += 1
        if execution.trace is not None:
            execution.trace.close(execution.outcomes, seconds)

    def failed(self, config: JobConfig, context: Context, error: Exception) -> None:
        """Pass a failure on to the error handler now configured."""
        fire_time = context.fire_time.isoformat()
        failure = Failure(context.job_name, context.instance, context.claimed, context.task_id, fire_time, error)
        self._dispatcher.put(config.error_handler, config.error_handler_options, failure)

    def given_up(self, config: JobConfig, item: int, run: Record) -> GivenUp | None:
        """Pass on to the error handler that a run was given up, and return the error; None if that was done before."""
        if self._given_up.get(item) == run.begun:
            return None
        self._given_up[item] = run.begun
        error = GivenUp(run.rescues, run.instance)
        task, fire_time = task_id(self._job, str(item), run.instance, run.moment), moment(run.moment / 1000).isoformat()
        failure = Failure(self._job, run.instance, (item,), task, fire_time, error)
        self._dispatcher.put(config.error_handler, config.error_handler_options, failure)
        return error

    def refused(self, why: str) -> None:
        """Tell that a fire is refused: each is an event, the log hears of the first."""
        self._events.put(Refused(self._job, self._me, why))
        if not self._refused:
            log.error("not run: %s", why, extra={"job": self._job})
        self._refused = True

    def declined(self, items: frozenset[int], why: str) -> None:
        """Tell that orphans are not rescued here, once for those that wait together."""
        if items - self._declined:
            self.refused(why)
        self._declined = items

    def accepted(self) -> None:
        """Note that nothing is refused any more."""
        self._refused = False
