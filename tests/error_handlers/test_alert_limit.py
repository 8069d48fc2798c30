"""One outage does not send thousands of alerts, and what is left out is counted."""

from __future__ import annotations

from dataclasses import replace

from aioelasticjob.error_handlers import Failure
from aioelasticjob.error_handlers.alert_limit import INTERVAL, MOST, AlertLimit
from aioelasticjob.errors import MissedRuns
from tests.error_handlers.failures import failure

MAIL, PAGER = ("email", ()), ("pager", ())


def missed(job: str = "billing", reason: str = "no instance was up", item: int = 0) -> Failure:
    error = MissedRuns(f"item {item} missed a run: {reason}", reason)
    return Failure(job, "me", (item,), "", "2026-01-01T00:00:00+00:00", error, what="missed")


def test_each_job_and_reason_has_an_alert_of_its_own() -> None:
    limit = AlertLimit()
    first = missed()
    assert limit.admitted(MAIL, first, 0.0) == first
    assert limit.admitted(MAIL, missed(item=1), 1.0) is None
    assert limit.admitted(MAIL, missed(reason="the last run was still going on"), 2.0) is not None
    assert limit.admitted(MAIL, missed("shipping"), 3.0) is not None
    assert limit.admitted(PAGER, missed(), 4.0) is not None


def test_the_next_alert_says_how_many_were_left_out() -> None:
    limit = AlertLimit()
    for second in range(5):
        limit.admitted(MAIL, missed(), float(second))
    again = limit.admitted(MAIL, missed(), INTERVAL)
    assert again is not None
    assert again.note == "4 such alerts left out before this one."
    later = limit.admitted(MAIL, missed(), 2 * INTERVAL)
    assert later is not None
    assert later.note == ""


def test_of_thousands_of_jobs_a_few_are_sent_and_the_last_one_says_so() -> None:
    limit = AlertLimit()
    sent = [limit.admitted(MAIL, missed(f"job-{number}"), 0.0) for number in range(5000)]
    notes = [one.note for one in sent if one is not None]
    assert len(notes) == MOST
    assert notes[:-1] == [""] * (MOST - 1)
    assert notes[-1] == "Further such alerts wait for up to 10 minutes."
    assert limit.admitted(MAIL, failure(), 0.0) is not None  # failed runs are another kind


def test_failed_runs_are_not_limited_and_runs_given_up_by_item() -> None:
    limit = AlertLimit()
    failed = failure()
    assert all(limit.admitted(MAIL, failed, 0.0) is failed for _ in range(100))
    given_up = replace(failed, what="given-up")
    assert limit.admitted(MAIL, given_up, 0.0) is not None
    assert limit.admitted(MAIL, replace(given_up, items=(4,)), 0.0) is not None
    assert limit.admitted(MAIL, given_up, 0.0) is None
