"""Which faults there are, from the status of jobs and their newest runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from aioelasticjob import InvalidSetting, JobConfig
from aioelasticjob.config.types import Alert
from aioelasticjob.core import reasons as core_reasons
from aioelasticjob.core.pauses import Pause
from aioelasticjob.core.processes import ProcessProblems, ProcessStatus, RefusedToProcess, UnwrittenEvents
from aioelasticjob.ground.times import moment
from aioelasticjob.model import GIVEN_UP, HANDED_OVER, Outcome, Owing, Record, is_failure
from aioelasticjob.operations import InstanceStatus, ItemStatus, JobStatus
from aioelasticjob.operations.alerts.conditions import Facts, conditions, next_change
from aioelasticjob.operations.alerts.kinds import (
    FAILED_IN_A_ROW,
    FAILED_PART,
    KINDS,
    MISFIRE_SECONDS,
    MISFIRES,
    OF_JOBS,
    RATED_RUNS,
)
from aioelasticjob.operations.alerts.observed import ObservedRuns
from aioelasticjob.operations.alerts.plan import Condition
from aioelasticjob.operations.alerts.state import AlertKey
from aioelasticjob.operations.attention import Seen, reasons
from aioelasticjob.operations.observed_runs import ObservedRun, new_runs
from aioelasticjob.operations.status import ServerStatus

NOON = 1_767_268_800.0
"""2026-01-01 at noon."""
SOMEBODY = InstanceStatus("10.0.0.1@-@1", "10.0.0.1", "", 1, moment(NOON), True, (), ())
SERVER = ServerStatus("10.0.0.1", "", False, False, 1)
HOUR = 3600


def item(number: int = 0, **fields: Any) -> ItemStatus:
    record = Record(**fields)
    return ItemStatus(number, None, SOMEBODY.id, None, None, False, False, False, record)


def job(alert_on: Alert, *items: ItemStatus, **settings: Any) -> JobStatus:
    settings = {"cron": "0 0 * * * ?", "sharding_total_count": max(1, len(items)), **settings}
    config = JobConfig.build(job_name="report", alert_on=alert_on, **settings)
    return JobStatus(config, None, SOMEBODY.id, True, None, (SOMEBODY,), (SERVER,), items)


def found(
    status: JobStatus, now: float = NOON, runs: ObservedRuns | None = None, processes: Sequence[ProcessStatus] = ()
) -> list[Condition]:
    observed = runs or ObservedRuns(now - 2 * MISFIRE_SECONDS)
    observed.see([status], now)
    return list(conditions(Facts([status], observed, now, processes)))


def texts(status: JobStatus, now: float = NOON, runs: ObservedRuns | None = None) -> list[str]:
    return [one.text for one in found(status, now, runs) if one.begins]


@pytest.mark.parametrize("kind", OF_JOBS)
def test_a_job_that_is_well_has_no_fault_of_any_kind(kind: Alert) -> None:
    assert found(job(kind)) == []


def test_a_job_that_names_no_kind_has_no_fault() -> None:
    status = job("failed")
    assert found(replace(status, instances=(), servers=())) == []


def test_nobody_is_there_only_if_a_moment_is_to_come_and_nobody_has_paused_the_job() -> None:
    alone = replace(job("nobody-there"), instances=(), servers=())
    assert texts(alone) == ["no instance is up: its runs are missed, the next one at 2026-01-01T13:00:00+00:00"]
    assert texts(replace(alone, pause=Pause(NOON))) == []
    without = job("nobody-there", cron=None)
    assert texts(replace(without, instances=(), servers=())) == []
    over = job("nobody-there", cron="0 0 12 1 1 ? 2025")
    assert texts(replace(over, instances=(), servers=())) == []


def test_instances_that_may_not_run_the_job_are_nobody() -> None:
    status = job("nobody-there")
    unable = replace(SOMEBODY, lacks=("requests",))
    skewed = replace(SOMEBODY, clock_differs=7.0)
    assert texts(replace(status, instances=(unable,)))[0].startswith("every instance lacks a feature")
    assert texts(replace(status, instances=(skewed,)))[0].startswith("every instance that could run the job refuses")
    assert texts(replace(status, instances=(skewed, SOMEBODY))) == []


def test_nobody_leads_a_job_with_instances() -> None:
    status = replace(job("nobody-leads"), leader=None)
    assert texts(status) == ["none of 1 instance leads the job, so its items are not assigned anew"]
    assert texts(replace(status, pause=Pause(NOON))) == []
    assert texts(replace(status, instances=(), servers=())) == []


def test_a_run_that_was_given_up_is_a_fault_that_a_worker_has_told_of() -> None:
    (fault,) = found(job("given-up", item(0), item(1, outcome=GIVEN_UP, begun=1, slot=1)))
    assert (fault.text, fault.is_notified) == ("given up after repeated rescues: item 1", True)
    assert fault.run == "19700101T000000.001Z"


def failed(number: int, at: float, error: str = "ValueError: no") -> ItemStatus:
    return item(number, slot=int(at * 1000), begun=1, completed_at=int(at * 1000), outcome="failed", error=error)


def succeeded(number: int, at: float) -> ItemStatus:
    return item(number, slot=int(at * 1000), begun=1, completed_at=int(at * 1000), outcome="completed")


def test_three_failed_runs_of_an_item_in_a_row_are_a_fault_until_a_run_of_it_succeeds() -> None:
    runs = ObservedRuns(NOON)
    said = []
    for at, ends in enumerate([failed, failed, failed, failed, succeeded]):
        said.append(found(job("failing", ends(0, NOON + at)), NOON + at, runs))
    assert [[one.begins for one in faults] for faults in said] == [[False], [False], [True], [True], []]
    assert said[2][0].text == "the last 3 runs of item 0 failed: ValueError: no"
    assert [one.run for one in said[3]] == ["20260101T120003Z"]


@pytest.mark.parametrize("outcome", [*(one.value for one in Outcome), HANDED_OVER])
def test_the_console_and_the_alerts_call_the_same_runs_failed(outcome: str) -> None:
    """A run that was cancelled has not done its work: it has failed for both, though its record is not completed."""
    observed = ObservedRuns(NOON)
    seen = list[ObservedRun]()
    before: dict[int, ItemStatus] = {}
    for number in range(3):
        at = int((NOON + number) * 1000)
        ended = item(0, slot=at, begun=at, completed_at=at + 1, completed=outcome != Outcome.CANCELLED, outcome=outcome)
        seen += new_runs(before, [ended])
        before = {0: ended}
        faults = found(job("failing", ended), NOON + number, observed)
    assert [run.outcome for run in seen] == [outcome] * 3
    known = reasons(job("failing", ended), NOON + 3, Seen(runs=seen))
    streaks = [reason.values["streak"] for reason in known if reason.kind == "failing"]
    assert streaks == [3] * is_failure(outcome)
    assert [one.begins for one in faults] == [True] * is_failure(outcome)


def test_half_of_many_runs_that_fail_are_a_fault_although_none_fail_in_a_row() -> None:
    runs = ObservedRuns(NOON)
    begins = []
    for at in range(10):
        ends = failed if at % 2 else succeeded
        begins.append(bool(texts(job("failing", ends(0, NOON + at)), NOON + at, runs)))
    assert begins == [False] * 9 + [True]


def test_a_run_that_failed_is_counted_also_if_the_next_one_has_begun_before_anybody_looked() -> None:
    runs = ObservedRuns(NOON)
    for at in range(3):
        stamp = int((NOON + at) * 1000)
        running = item(0, slot=stamp + 1, begun=stamp + 1, completed_at=stamp, outcome="", error="ValueError: no")
        said = texts(job("failing", running), NOON + at, runs)
    assert said == ["the last 3 runs of item 0 failed: ValueError: no"]
    (fault,) = found(job("failing", running), NOON + 4, runs)
    assert fault.run == ""  # the newest run is not the one that failed


def test_a_job_without_records_fails_by_the_counts_of_its_servers() -> None:
    status = job("failing", monitor_execution=False)
    bad = replace(status, servers=(replace(SERVER, succeeded=10, failed=10),))
    some = replace(status, servers=(replace(SERVER, succeeded=99, failed=1),))
    assert texts(bad) == ["10 of 20 failed in the last 60 s"]
    assert [one.begins for one in found(some)] == [False]


def owing(at: int) -> Owing:
    return Owing("me", at, at, at, 1, "why")


def test_three_moments_that_were_missed_in_a_quarter_of_an_hour_are_a_fault() -> None:
    runs = ObservedRuns(NOON - 2 * MISFIRE_SECONDS)
    assert texts(job("misfiring", item(0)), NOON, runs) == []
    begins = []
    for at in range(1, 4):
        status = job("misfiring", item(0, slot=at, owing=(owing(at),)))
        begins.append([one.begins for one in found(status, NOON + at, runs)])
    assert begins == [[False], [False], [True]]
    quiet = job("misfiring", item(0, slot=9))
    assert texts(quiet, NOON + MISFIRE_SECONDS - 10, runs) != []
    assert found(quiet, NOON + MISFIRE_SECONDS + 10, runs) == []


def test_misfires_from_before_the_command_was_started_neither_begin_nor_end_an_alert() -> None:
    runs = ObservedRuns(NOON)
    status = job("misfiring", item(0, slot=1, owing=(owing(1), owing(2), owing(3))))
    assert [one.begins for one in found(status, NOON, runs)] == [False]


END = {"must_end_within": "30m"}
START = {"must_start_within": 60}
ON_TIME: dict[str, Any] = {"slot": int(NOON * 1000), "accounted": int(NOON * 1000), "begun": int(NOON * 1000)}
BEFORE: dict[str, Any] = {
    "slot": int((NOON - HOUR) * 1000),
    "accounted": int((NOON - HOUR) * 1000),
    "begun": int((NOON - HOUR) * 1000),
    "completed_at": int((NOON - HOUR + 1) * 1000),
    "outcome": "completed",
}


def late(now: float, *items: ItemStatus, **settings: Any) -> list[str]:
    return texts(job("late", *items, **settings), now)


def test_a_moment_that_has_not_begun_in_time_is_late() -> None:
    assert late(NOON + 59, item(0, **BEFORE), **START) == []
    assert late(NOON + 60, item(0, **BEFORE), **START) == [
        "the moment 2026-01-01T12:00:00+00:00 has not begun within 60 s: item 0"
    ]
    assert late(NOON + 60, item(0, **ON_TIME, completed=False), **START) == []


def test_a_moment_that_has_not_ended_on_all_items_in_time_is_late() -> None:
    running = item(0, **ON_TIME, completed=False)
    done = item(1, **ON_TIME, completed_at=1, outcome="completed")
    waiting = item(2, **BEFORE)
    assert late(NOON + 1799, running, done, waiting, **END) == []
    assert late(NOON + 1800, running, done, waiting, **END) == [
        "the moment 2026-01-01T12:00:00+00:00 has not ended within 1800 s: items 0, 2"
    ]
    assert late(NOON + 1800, item(0, **ON_TIME, outcome="failed", completed_at=1), **END) == []


def test_a_run_that_goes_on_is_late_also_when_later_moments_have_come() -> None:
    running = item(0, **ON_TIME, completed=False)
    assert late(NOON + 5 * HOUR, running, **END) != []


def test_a_moment_that_is_late_names_the_run_that_goes_on_and_none_if_none_has_begun() -> None:
    status = job("late", item(0, **ON_TIME, completed=False), **END)
    assert [one.run for one in found(status, NOON + 1800)] == ["20260101T120000Z"]
    earlier = item(0, **BEFORE)
    assert [one.run for one in found(job("late", earlier, **END), NOON + 1800)] == [""]


def test_a_moment_that_was_excused_is_not_late() -> None:
    excused = item(0, **{**BEFORE, "accounted": int(NOON * 1000)})
    assert late(NOON + 1800, excused, **END) == []
    off = replace(item(0, **BEFORE), disabled=True)
    assert late(NOON + 1800, off, item(1, **ON_TIME, outcome="completed"), **END) == []
    status = replace(job("late", item(0, **BEFORE), **END), pause=Pause(NOON))
    assert texts(status, NOON + 1800) == []


def test_a_moment_from_before_the_schedule_was_in_force_is_not_late() -> None:
    status = replace(job("late", item(0, **BEFORE), **END), scheduled_since=NOON + 1)
    assert texts(status, NOON + 1800) == []
    new = replace(job("late", item(0), **END), configured_at=NOON + 1)
    assert texts(new, NOON + 1800) == []
    assert texts(replace(new, configured_at=NOON - 1), NOON + 1800) != []


def test_a_run_that_somebody_asked_for_is_not_late() -> None:
    asked = item(0, **{**ON_TIME, "asked": int((NOON + 5) * 1000)}, completed=False)
    assert late(NOON + 1800, asked, **END) == []


def test_it_is_known_when_a_moment_may_become_late() -> None:
    assert next_change([job("late", **END), job("late", **START)], NOON) == NOON + 60
    assert next_change([job("failed", **END)], NOON) == float("inf")


@pytest.mark.parametrize("name", ["must_end_within", "must_start_within"])
def test_jobs_whose_moments_cannot_be_judged_refuse_the_limit(name: str) -> None:
    with pytest.raises(InvalidSetting, match="a streaming job ends when"):
        JobConfig.build(job_name="x", job_type="DATAFLOW", streaming=True, **{name: 60})
    with pytest.raises(InvalidSetting, match="needs monitor_execution"):
        JobConfig.build(job_name="x", monitor_execution=False, **{name: 60})


def test_what_instances_say_of_themselves_is_a_fault() -> None:
    refused = replace(SOMEBODY, refused=(("to settle items", "NoAuth", NOON - 5),))
    (fault,) = found(replace(job("writes-refused"), instances=(refused,)))
    assert (fault.text, fault.since) == ("the registry refuses to settle items: NoAuth", NOON - 5)
    unusable = replace(SOMEBODY, unusable="no strategy x", host="alpha")
    assert texts(replace(job("config-unusable"), instances=(unusable, SOMEBODY))) == [
        "1 instance cannot use the configuration; that on alpha: no strategy x"
    ]
    skewed = replace(SOMEBODY, clock_differs=-7.5)
    assert texts(replace(job("clock-differs"), instances=(skewed, SOMEBODY))) == [
        "the clock of 10.0.0.1 differs from the registry's by 7.5 s, so it runs nothing"
    ]


def process(incarnation: int = 0, **problems: Any) -> ProcessStatus:
    return ProcessStatus(f"{incarnation}", "10.0.0.1", "alpha", 7, incarnation, ProcessProblems(**problems))


def test_what_processes_say_of_themselves_is_a_fault_of_no_job_or_of_the_jobs_that_it_concerns() -> None:
    store = process(1, event_store=UnwrittenEvents(NOON - 90, "disk full", 400))
    clock = process(2, clock_differs=-300.0)
    drift = process(3, clock_differs=0.9)
    refused = process(4, refused=(RefusedToProcess("to settle items", "NoAuth", NOON - 5, "other", 2),))
    alone = process(5, refused=(RefusedToProcess("to claim items", "NoAuth", NOON - 5, "other", 1),))
    there = tuple(replace(SOMEBODY, incarnation=number) for number in (4, 5))
    status = replace(job("writes-refused"), instances=there)
    faults = found(status, NOON, None, (store, clock, drift, refused, alone))
    assert [(one.key, one.text, one.since) for one in faults] == [
        (AlertKey("writes-refused", "report"), "the registry refuses to settle items: NoAuth", NOON - 5),
        (
            AlertKey("store-not-written"),
            "process 7 on alpha cannot write to the event store, so the history lacks runs: disk full",
            NOON - 90,
        ),
        (AlertKey("clock-differs"), "the clock of process 7 on alpha is 300 s behind the registry's", None),
    ]


def test_moments_that_an_announced_restart_has_missed_are_no_fault() -> None:
    runs = ObservedRuns(NOON - 2 * MISFIRE_SECONDS)
    left = replace(job("misfiring", item(0)), left_at=moment(NOON))
    assert found(left, NOON, runs) == []
    stamps = [int((NOON + second) * 1000) for second in (1, 2, 3)]
    for why, begins in ((core_reasons.NO_INSTANCE_UP, False), (core_reasons.BUSY, True)):
        missed = tuple(Owing("me", at, at, at, 1, why) for at in stamps)
        status = replace(job("misfiring", item(0, slot=stamps[-1], owing=missed)), left_at=moment(NOON))
        assert bool(found(status, NOON + 5, runs)) is begins
        stamps = [at + 10_000 for at in stamps]


def test_a_configuration_that_nobody_can_read_is_a_fault_whatever_it_says() -> None:
    faulty = replace(job("failed"), fault="cron = 'x': no schedule")
    assert texts(faulty) == ["its configuration is refused: cron = 'x': no schedule"]


def test_the_rules_in_words_have_the_numbers_of_the_rules() -> None:
    failing = f"The newest {FAILED_IN_A_ROW} runs of an item failed, or half of the newest {RATED_RUNS} runs"
    misfiring = f"At least {MISFIRES} scheduled moments passed without a run on time in the last"
    assert KINDS["failing"].rule == f"{failing} of the job."
    assert KINDS["misfiring"].rule == f"{misfiring} {MISFIRE_SECONDS / 60:g} minutes."
    assert FAILED_PART == 0.5


def test_a_job_of_another_program_has_no_faults() -> None:
    assert found(replace(job("nobody-there"), instances=(), fault="Java's", foreign=True)) == []
