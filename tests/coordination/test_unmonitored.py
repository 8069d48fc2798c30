"""Up to when somebody was there for a job without records: written on a tick, and once after an absence."""

from __future__ import annotations

import pytest

from aioelasticjob.config import JobConfig
from aioelasticjob.coordination.unmonitored import (
    NOBODY_YET,
    UNREAD,
    AccountedMoment,
    advance_accounted,
    note_accounted,
    read_accounted,
)
from aioelasticjob.errors import SessionEnded
from aioelasticjob.registry.transaction import Create, Delete, Set
from tests.coordination.test_claims import LAYOUT, ME, ClaimedJob, done

MINUTE = 60_000


def job(**settings: object) -> ClaimedJob:
    made = ClaimedJob()
    made.config = JobConfig.build(
        job_name="job", **{"cron": "0 * * * * ?", "monitor_execution": False, "sharding_total_count": 3, **settings}
    )
    made.write(Set(LAYOUT.config, made.config.to_json(), -1), Create(LAYOUT.epoch))
    return made


def written(here: ClaimedJob) -> bytes:
    return here.registry.nodes[LAYOUT.execution].data


def test_the_newest_moment_is_written_once() -> None:
    here = job()
    member, view = here.member, here.view()
    first = done(note_accounted(member, view, 119.9))
    assert first == (MINUTE, 1)
    assert written(here) == b"60000"
    assert done(note_accounted(member, view, 119.9, first)) == first
    assert here.registry.nodes[LAYOUT.execution].stat.version == 1
    assert done(note_accounted(member, view, 120.0, first)) == (2 * MINUTE, 2)


def test_a_leaver_whose_clock_is_slow_does_not_take_back_what_the_leader_wrote() -> None:
    here = job()
    here.write(Set(LAYOUT.execution, b"120000", -1))
    assert done(note_accounted(here.member, here.view(), 119.9)) == (2 * MINUTE, 1)
    assert written(here) == b"120000"


def test_what_was_written_while_a_clock_was_far_ahead_is_taken_back() -> None:
    here = job()
    here.write(Set(LAYOUT.execution, b"3600000", -1))
    assert done(note_accounted(here.member, here.view(), 119.9)) == (MINUTE, 2)
    assert written(here) == b"60000"


def test_who_was_overtaken_reads_anew_before_writing() -> None:
    here = job()
    view, old = here.view(), AccountedMoment(MINUTE, 0)
    here.write(Set(LAYOUT.execution, b"120000", -1))
    assert done(note_accounted(here.member, view, 180.0, old)) == (MINUTE, UNREAD)
    assert written(here) == b"120000"
    assert done(note_accounted(here.member, view, 180.0, AccountedMoment(MINUTE, UNREAD))) == (3 * MINUTE, 2)


@pytest.mark.parametrize("settings", [{"monitor_execution": True}, {"cron": None}])
def test_nothing_is_written_for_a_job_with_records_or_without_a_schedule(settings: dict[str, object]) -> None:
    here = job(**settings)
    assert done(note_accounted(here.member, here.view(), 119.9)) == NOBODY_YET
    assert written(here) == b""


def test_who_is_registered_no_more_writes_nothing() -> None:
    here = job()
    here.write(Delete(LAYOUT.instance(ME)))
    assert done(note_accounted(here.member, here.view(), 119.9)).moment == 0
    assert written(here) == b""


@pytest.mark.parametrize(("data", "moment"), [(b"", 0), (b"60000", 60_000), (b"by hand", 0), (b"9" * 30, 0)])
def test_what_somebody_else_wrote_there_is_no_moment(data: bytes, moment: int) -> None:
    here = job()
    here.write(Set(LAYOUT.execution, data, -1))
    assert done(read_accounted(here.member)) == (moment, 1)


def test_without_the_node_there_is_nothing_to_know() -> None:
    here = job()
    here.write(Delete(LAYOUT.execution))
    assert done(read_accounted(here.member)) is None


@pytest.mark.parametrize("reply", ["well", "reply lost", "never arrived"])
def test_one_leader_answers_for_an_absence_whether_or_not_the_reply_comes(reply: str) -> None:
    here = job()
    member, view = here.member, here.view()
    here.session.commits.append(reply)
    if reply == "reply lost":
        here.session.reads.append("suspended")
    assert done(advance_accounted(member, view, MINUTE, 0)) is True
    assert written(here) == b"60000"
    assert done(advance_accounted(member, view, 2 * MINUTE, 0)) is False  # decided on what was there before


def test_a_leader_that_was_deposed_answers_for_nothing() -> None:
    here = job()
    view = here.view()
    here.write(Set(LAYOUT.epoch, b"", -1))
    assert done(advance_accounted(here.member, view, MINUTE, 0)) is False


def test_a_session_that_ends_meanwhile_answers_for_nothing() -> None:
    here = job()
    here.session.commits.append("over")
    with pytest.raises(SessionEnded):
        done(advance_accounted(here.member, here.view(), MINUTE, 0))
