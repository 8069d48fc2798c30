"""Jobs for which no instance is up are reported once each time, and only if runs are missed."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from aioelasticjob import JobConfig
from aioelasticjob.ground.times import moment
from aioelasticjob.operations import InstanceStatus, JobStatus
from aioelasticjob.operations.attendance import Attendance
from aioelasticjob.operations.status import ServerStatus

DAILY = JobConfig.build(job_name="report", cron="0 0 2 * * ?")
NOON = 1_767_268_800.0
"""2026-01-01 at noon."""
ABSENT = JobStatus(DAILY, None, None, False, None, (), (), ())
SOMEBODY = InstanceStatus("10.0.0.1@-@1", "10.0.0.1", "", 1, moment(NOON), True, (), ())
SERVER = ServerStatus("10.0.0.1", "", False, False, 1)
PRESENT = replace(ABSENT, instances=(SOMEBODY,), servers=(SERVER,))


def test_a_job_without_an_instance_is_reported_once_when_that_has_lasted() -> None:
    attendance = Attendance(60)
    assert attendance.look([ABSENT], NOON) == []
    assert attendance.next_due(NOON + 20) == 40
    assert attendance.look([ABSENT], NOON + 59) == []
    ((job, failure),) = attendance.look([ABSENT], NOON + 60)
    assert job is ABSENT
    assert failure.subject == (
        "report: no instance is up, at least since 2026-01-01T12:00:00+00:00: its runs are missed,"
        " the next one at 2026-01-02T02:00:00+00:00"
    )
    assert (failure.what, failure.items, failure.text) == ("nobody-there", (), failure.subject)
    assert attendance.look([ABSENT], NOON + 1000) == []
    assert attendance.next_due(NOON + 1000) == inf


def test_it_is_reported_again_after_an_instance_was_up() -> None:
    attendance = Attendance(1)
    reports = [attendance.look([job], NOON + at) for at, job in enumerate((ABSENT, ABSENT, PRESENT, ABSENT, ABSENT))]
    assert [len(found) for found in reports] == [0, 1, 0, 0, 1]


def test_a_restart_within_that_time_is_not_reported() -> None:
    attendance = Attendance(60)
    for at in range(0, 600, 30):
        assert attendance.look([ABSENT if at % 60 else PRESENT], NOON + at) == []


def test_an_instance_that_may_not_run_the_job_does_not_count() -> None:
    attendance = Attendance(0)
    unable = replace(ABSENT, instances=(replace(SOMEBODY, lacks=("requests",)),))
    ((_, failure),) = attendance.look([unable], NOON)
    assert failure.subject.startswith(
        "report: every instance lacks a feature that the job requires, or cannot use its configuration, at"
    )
    skewed = replace(SOMEBODY, clock_differs=0.0)
    for instances in ((skewed,), (skewed, *unable.instances)):
        ((_, failure),) = Attendance(0).look([replace(PRESENT, instances=instances)], NOON)
        says = "every instance that could run the job refuses to, because its host's clock differs"
        assert failure.subject.startswith(f"report: {says}, at least since ")
    assert Attendance(0).look([replace(PRESENT, instances=(skewed, SOMEBODY))], NOON) == []


def test_a_job_that_is_switched_off_misses_nothing_and_an_instance_on_a_disabled_server_runs_nothing() -> None:
    skewed, off = replace(SOMEBODY, clock_differs=7.2), replace(SERVER, paused=True)
    assert Attendance(0).look([replace(PRESENT, instances=(skewed,), servers=(off,))], NOON) == []
    other = replace(SOMEBODY, id="10.0.0.2@-@1", ip="10.0.0.2")
    disabled = replace(SERVER, ip="10.0.0.2", disabled=True)
    both = replace(PRESENT, instances=(skewed, other), servers=(SERVER, disabled))
    assert len(Attendance(0).look([both], NOON)) == 1


def test_jobs_that_miss_nothing_are_not_reported() -> None:
    attendance = Attendance(0)
    for config in (DAILY.changed(cron=None), DAILY.changed(cron="0 0 2 1 1 ? 2025")):
        assert attendance.look([replace(ABSENT, config=config)], NOON) == []
    assert attendance.look([replace(ABSENT, paused_since=moment(NOON)), PRESENT], NOON) == []
    assert attendance.look([replace(ABSENT, fault="no job configuration")], NOON) == []


def test_time_without_a_connection_does_not_count() -> None:
    attendance = Attendance(60)
    attendance.look([ABSENT], NOON)
    attendance.forget()
    assert attendance.look([ABSENT], NOON + 60) == []
    assert len(attendance.look([ABSENT], NOON + 120)) == 1
    attendance.forget()
    assert attendance.look([ABSENT], NOON + 300) == []  # it was reported before
