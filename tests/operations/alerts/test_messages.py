"""What people read about alerts."""

from __future__ import annotations

from dataclasses import replace

from aioelasticjob.operations.alerts.messages import failure_of
from aioelasticjob.operations.alerts.state import AlertState, Episode, Notification

NOON = 1_767_268_800.0
"""2026-01-01 at noon."""
LATE = AlertState("late", "report", NOON, "item 0 has not ended")


def test_a_fault_that_begins_is_told_with_its_reason_and_since_when() -> None:
    failure = failure_of([LATE], "billing", "https://jobs.example.org/r/billing", NOON + 60)
    assert failure.subject == "report: late began: item 0 has not ended; since 2026-01-01T12:00:00+00:00"
    assert failure.text == (
        f"{failure.subject}\n\nnamespace billing\nconsole https://jobs.example.org/r/billing/job/report"
    )
    assert (failure.what, failure.reported_at, failure.note) == ("late", NOON + 60, "")


def test_a_message_about_a_run_leads_to_the_run() -> None:
    failing = replace(LATE, kind="failing", run="20260101T120000Z")
    links = {"report": {"trace": "https://traces.example.org/{run_id}"}}
    failure = failure_of([failing], "billing", "https://jobs.example.org/r/billing", NOON, links)
    page = "https://jobs.example.org/r/billing/history?job=report&run=report%4020260101T120000Z"
    assert (failure.link, failure.alerts[0].link) == (page, page)
    assert f"console {page}" in failure.text
    assert failure.links == {"trace": "https://traces.example.org/report%4020260101T120000Z"}


def test_a_fault_that_lasts_or_is_over_is_told_as_that() -> None:
    told = replace(LATE, notified=Notification(NOON, False, NOON))
    over = replace(told, resolved=NOON + 3600)
    assert "late goes on: item 0 has not ended" in failure_of([told], "", "", NOON).subject
    assert failure_of([over], "", "", NOON).subject == (
        "report: late is over: a moment was late, from 2026-01-01T12:00:00+00:00 to 2026-01-01T13:00:00+00:00"
    )
    assert failure_of([over], "", "", NOON).note == ""


def test_what_was_not_delivered_is_said() -> None:
    over = replace(LATE, resolved=NOON + 60, tries=2, trouble="the line is dead")
    assert failure_of([over], "", "", NOON).note == (
        "2 attempts to deliver this failed, the last one because: the line is dead. Nobody was notified when it began."
    )
    again = replace(LATE, unreported=(Episode(NOON - 90, NOON - 30),), left_out=3)
    assert failure_of([again], "", "", NOON).note == (
        "It also fired at these times, which no message has reported yet: "
        "2026-01-01T11:58:30+00:00 to 2026-01-01T11:59:30+00:00,"
        " and 3 times before."
    )


def test_several_alerts_are_summed_up_in_the_subject_and_named_in_the_text() -> None:
    over = replace(LATE, job="other", resolved=NOON + 60)
    away = AlertState("registry-away", "", NOON, "no answer")
    failure = failure_of([LATE, over, away], "billing", "https://c/r/b", NOON)
    assert failure.subject == "3 alerts (2 firing, 1 resolved): late report, late other, registry-away"
    assert failure.job == ""
    assert "firing: report: late began: item 0 has not ended" in failure.text
    assert "https://c/r/b/job/report" in failure.text
    assert "https://c/r/b/alerts" in failure.text
    assert failure.note == "late:other: Nobody was notified when it began."


def test_of_very_many_alerts_the_text_names_the_first_ones() -> None:
    alerts = [replace(LATE, job=f"job-{number}") for number in range(1000)]
    text = failure_of(alerts, "", "", NOON).text
    assert "… and 950 more" in text
    assert len(text) < 10_000


def test_a_message_about_one_alert_has_the_links_of_its_job() -> None:
    links = {LATE.job: {"runbook": "https://wiki.example.org/{job}", "trace": "https://traces.example.org/{run_id}"}}
    one = failure_of([LATE], "", "", NOON, links)
    assert one.links == {"runbook": f"https://wiki.example.org/{LATE.job}"}
    assert failure_of([LATE, LATE], "", "", NOON, links).links == {}
