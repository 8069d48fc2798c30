"""What is noted of a job's executions: counts, events, and failures for its error handler."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import anyio
import pytest

from aioelasticjob import Retry
from aioelasticjob.config.job import JobConfig
from aioelasticjob.core.effects import EndRun
from aioelasticjob.cron.zone import local_text
from aioelasticjob.engine.cancellation import HandlerScope
from aioelasticjob.engine.early_end import FailedAttempt
from aioelasticjob.engine.execution import Execution
from aioelasticjob.engine.executors import NEVER_BEGAN, Executors
from aioelasticjob.engine.run_counts import RunCounts
from aioelasticjob.engine.stats import ExecutionStats
from aioelasticjob.error_handlers import Failure
from aioelasticjob.errors import ClockSkew, GivenUp
from aioelasticjob.events import CaughtUp, Events, JobEvent, Refused
from aioelasticjob.ground.limited_log import INTERVAL, MOST
from aioelasticjob.jobs.base import Job, item_context
from aioelasticjob.model import GIVEN_UP, Claim, Fire, FireSource, Outcome, Record, VersionedRecord
from aioelasticjob.testing import VirtualClock, run
from tests.engine.dataflow_runs import DataflowRun, SavedOffsets, dataflow, ignore, three
from tests.engine.test_claims import ME, ClaimedJob
from tests.support.retry_waits import PlainWaits

CONFIG = JobConfig.build(job_name="job", sharding_total_count=3)
TOO_FAR_OFF = ClockSkew.of(7, 5)
EVERY = (Outcome.COMPLETED, Outcome.FAILED, Outcome.TIMED_OUT)


@dataclass
class Inbox:
    """Takes failures in place of those who deliver them."""

    taken: list[tuple[str, Failure]] = field(default_factory=list)

    def report(self, config: JobConfig, failure: Failure) -> None:
        self.taken.append((config.error_handler, failure))


class RecordedStats:
    """The books of one job, and all events that observers got."""

    def __init__(self) -> None:
        self.events, self.failures, self.published = Events(), Inbox(), list[JobEvent]()
        self.events.attach(self)
        given = ClaimedJob().member, VirtualClock(), self.events, self.failures
        self.stats = ExecutionStats(*given)  # type: ignore[arg-type]

    def put(self, event: JobEvent) -> None:
        self.published.append(event)


def claim(*items: int, source: FireSource = FireSource.SCHEDULE) -> Claim:
    seen = {item: VersionedRecord(Record(), 0, 1) for item in items}
    return Claim(Fire(60_000, source), ME, 1, seen, {})


def execution_of(*outcomes: Outcome, job: Job | None = None, source: FireSource = FireSource.SCHEDULE) -> Execution:
    """Return a execution_of of three items, of which the first have ended so."""
    execution = claim(0, 1, 2, source=source)
    job, ended = job or Job.declare(CONFIG, lambda context: None), dict(enumerate(outcomes))
    return Execution(job, CONFIG, execution, SavedOffsets(), Executors(), lambda *_: None, PlainWaits(), outcomes=ended)


async def in_loop(note: Callable[..., None], *args: Any, **named: Any) -> None:
    """Call a function in an event loop, which limited lines of the log need."""
    note(*args, **named)


def test_each_item_of_an_execution_counts_by_its_outcome() -> None:
    recorded, execution = RecordedStats(), execution_of(Outcome.COMPLETED, Outcome.TIMED_OUT)  # the third was cut off
    recorded.stats.began(execution, catch_up=False)
    run(partial(in_loop, recorded.stats.ended, execution, 3.0))
    counts = recorded.events.counts["job"]
    assert counts.fires == {FireSource.SCHEDULE: 1}
    assert counts.runs == {Outcome.COMPLETED: 1, Outcome.TIMED_OUT: 1, Outcome.CANCELLED: 1}
    assert recorded.stats.run_counts == RunCounts(succeeded=1, failed=1)
    assert recorded.published == []


def test_a_dataflow_counts_its_records_itself() -> None:
    recorded = RecordedStats()
    recorded.stats.ended(execution_of(*EVERY, job=DataflowRun(dataflow(), three, ignore)._job), 3.0)
    assert recorded.stats.run_counts == RunCounts()
    assert recorded.events.counts["job"].runs == dict.fromkeys(EVERY, 1)


def test_a_moment_that_nobody_was_up_for_is_reported_as_caught_up() -> None:
    recorded = RecordedStats()
    recorded.stats.began(execution_of(source=FireSource.MISFIRE), catch_up=True)
    assert recorded.published == [CaughtUp("job", ME, 60_000, (0, 1, 2))]
    assert recorded.events.counts["job"].caught_up == 1


def test_a_failure_goes_to_the_error_handler_now_configured() -> None:
    recorded, context = RecordedStats(), item_context(CONFIG, claim(1), 1, SavedOffsets())
    error = ValueError("no luck")
    recorded.stats.failed(CONFIG.changed(error_handler="ignore"), context, error)
    (taken,) = recorded.failures.taken
    assert taken[0] == "ignore"
    assert (taken[1].items, taken[1].error, taken[1].task_id) == ((1,), error, context.task_id)
    assert taken[1].fire_time == "1970-01-01T00:01:00+00:00"


def test_a_run_that_was_given_up_is_passed_on_to_the_error_handler() -> None:
    recorded, lost = RecordedStats(), Record(60_000, "FAILOVER", "other", begun=60_500, completed=False, rescues=3)
    error = recorded.stats.ended_by_leader(CONFIG, EndRun(1, VersionedRecord(lost, 0), 60_900, GIVEN_UP))
    assert isinstance(error, GivenUp)
    assert (error.rescues, error.instance) == (3, "other")
    ((_, failure),) = recorded.failures.taken
    assert (failure.items, failure.instance, failure.error) == ((1,), "other", error)


def test_runs_of_many_items_that_were_cut_off_and_cancelled_fill_no_log(caplog: pytest.LogCaptureFixture) -> None:
    recorded, lost = RecordedStats(), Record(60_000, "FAILOVER", "other", begun=60_500, completed=False, rescues=3)

    async def main() -> None:
        for item in range(MOST + 30):
            ended = EndRun(item, VersionedRecord(lost, 0), 60_900, Outcome.STOPPED)
            assert recorded.stats.ended_by_leader(CONFIG, ended) is None
        await anyio.sleep(INTERVAL)

    with caplog.at_level(logging.INFO):
        run(main)
    *lines, count = caplog.messages
    assert len(lines) == MOST
    kind = "runs that were cut off were cancelled, and end as stopped"
    assert count == f"30 more lines were left out, about 1 job: {kind}"
    assert recorded.failures.taken == []


def test_each_refused_fire_is_an_event_and_the_first_of_a_series_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    recorded = RecordedStats()

    async def refuse() -> None:
        for again in (False, True, False):
            recorded.stats.refused(TOO_FAR_OFF, again=again)
            await anyio.sleep(INTERVAL)

    run(refuse)
    assert recorded.published == [Refused("job", ME, str(TOO_FAR_OFF))] * 3
    assert caplog.messages == [f"job: this instance refuses to run items: {TOO_FAR_OFF} (docs: errors/ClockSkew)"] * 2


def test_lines_about_runs_name_the_moment_in_the_zone_of_the_job_and_the_run(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "aioelasticjob.engine.stats")
    config = CONFIG.changed(time_zone="Asia/Shanghai", cron="0 * * * * ?", log_runs="all", retry=Retry(attempts=2))
    recorded, execution = RecordedStats(), replace(execution_of(*EVERY), config=config)
    context = item_context(config, execution.claim, 1, SavedOffsets())

    async def note() -> None:
        recorded.stats.began(execution, catch_up=False)
        recorded.stats.attempt_failed(execution, FailedAttempt(context, ValueError("no luck"), 0.1, 0.25))
        recorded.stats.ended(execution, 3.00049)

    run(note)
    when = "1970-01-01T08:01:00+08:00"
    assert caplog.messages == [
        f"job: items 0, 1, 2 begin (SCHEDULE for {when})",
        f"job: item 1: attempt 1 of 2 failed on 10.0.0.1@-@1 in the run of {when}: ValueError: no luck;"
        " the next one begins in 0.25 s",
        f"job: item 0 completed after 3.000 s (SCHEDULE for {when})",
        f"job: item 1 failed after 3.000 s (SCHEDULE for {when})",
        f"job: item 2 timed out after 3.000 s (SCHEDULE for {when})",
    ]
    assert {vars(line)["run_id"] for line in caplog.records} == {context.run_id}
    assert {vars(line)["seconds"] for line in caplog.records[2:]} == {3.0}
    recorded.stats.failed(config, context, ValueError("no luck"))
    assert recorded.failures.taken[0][1].fire_time == when


def test_the_line_about_the_begin_of_one_item_is_in_the_singular(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "aioelasticjob.engine.stats")
    recorded, config = RecordedStats(), CONFIG.changed(log_runs="all")
    execution = replace(execution_of(), config=config, claim=claim(0))
    run(partial(in_loop, recorded.stats.began, execution, catch_up=False))
    assert caplog.messages == ["job: item 0 begins (SCHEDULE for 1970-01-01T00:01:00+00:00)"]


@pytest.mark.parametrize(("milliseconds", "text"), [(60_000, "08:01:00"), (60_250, "08:01:00.250")])
def test_a_moment_has_milliseconds_if_it_needs_them(milliseconds: int, text: str) -> None:
    assert local_text(milliseconds, "Asia/Shanghai") == f"1970-01-01T{text}+08:00"
    assert local_text(milliseconds, "Nowhere/City") == f"1970-01-01T{text}+00:00".replace("T08", "T00")


@pytest.mark.parametrize(
    ("log_runs", "why"),
    [("none", None), ("failures", None), ("failures", "the job leaves"), ("ends", "the job leaves")],
)
def test_the_log_has_a_run_that_was_cancelled_before_its_end(
    log_runs: str, why: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    config = CONFIG.changed(time_zone="Asia/Shanghai", log_runs=log_runs)
    recorded, execution = RecordedStats(), replace(execution_of(Outcome.COMPLETED), config=config)

    async def note() -> None:
        task = asyncio.current_task()
        assert task is not None
        execution.under_way[task] = item_context(config, execution.claim, 1, SavedOffsets())
        recorded.stats.ended(execution, 6.0049, why)

    run(note)
    when, cause = "1970-01-01T08:01:00+08:00", f": {why}" if why else ""
    assert [line.getMessage() for line in caplog.records if line.levelno == logging.WARNING] == {
        "none": [],
        "failures": [
            f"job: item 1: the run of {when} was cancelled after 6.005 s{cause}",
            f"job: item 2: the run of {when} was cancelled before the handler began{cause}",
        ],
        "ends": [
            f"job: item 1 cancelled after 6.005 s (SCHEDULE for {when})",
            f"job: item 2 cancelled before the handler began (SCHEDULE for {when})",
        ],
    }[log_runs]


@pytest.mark.parametrize("log_runs", ["none", "failures"])
def test_the_log_has_a_run_that_somebody_has_cancelled(log_runs: str, caplog: pytest.LogCaptureFixture) -> None:
    config = CONFIG.changed(log_runs=log_runs)
    execution = replace(execution_of(Outcome.STOPPED, Outcome.COMPLETED, Outcome.FAILED), config=config)
    run(partial(in_loop, RecordedStats().stats.ended, execution, 0.0))
    text = "job: item 0: the run of 1970-01-01T00:01:00+00:00 was cancelled before the handler began"
    assert caplog.messages == ([] if log_runs == "none" else [f"{text}: somebody has cancelled the run"])


def test_the_log_says_that_somebody_stopped_a_run_before_its_handler_began(caplog: pytest.LogCaptureFixture) -> None:
    recorded = RecordedStats()
    execution = replace(execution_of(*[Outcome.STOPPED] * 3), config=CONFIG.changed(log_runs="ends"))
    run(partial(in_loop, recorded.stats.ended, execution, 0.0))
    when = "1970-01-01T00:01:00+00:00"
    assert caplog.messages == [f"job: items 0, 1, 2 stopped before the handler began (SCHEDULE for {when})"]


@pytest.mark.parametrize(("attempt", "begun"), [(1, set()), (2, {1})])
def test_a_run_whose_later_attempt_got_no_thread_has_begun(attempt: int, begun: set[int]) -> None:
    async def note() -> None:
        task, execution, limit = asyncio.current_task(), execution_of(), HandlerScope(None)
        assert task is not None
        limit.notes = [NEVER_BEGAN]
        execution.limits[1] = limit
        context = item_context(CONFIG, execution.claim, 1, SavedOffsets())
        execution.under_way[task] = replace(context, attempt=attempt)
        assert execution.begun == begun

    run(note)


@pytest.mark.parametrize("log_runs", ["none", "failures"])
def test_the_log_says_that_a_run_is_rescued_and_where_it_was_cut_off(
    log_runs: str, caplog: pytest.LogCaptureFixture
) -> None:
    lost = dict.fromkeys((1, 2), Record(60_000, "SCHEDULE", "other", begun=60_500, completed=False))
    config = CONFIG.changed(log_runs=log_runs)
    rescue = replace(claim(1, 2, source=FireSource.FAILOVER), before=lost)
    recorded, execution = RecordedStats(), replace(execution_of(), config=config, claim=rescue)
    run(partial(in_loop, recorded.stats.began, execution, catch_up=False))
    when = "1970-01-01T00:01:00+00:00"
    text = f"job: items 1, 2: the run of {when} was cut off on other, and begins again on {ME}"
    assert caplog.messages == ([] if log_runs == "none" else [text])
