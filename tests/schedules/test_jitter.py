"""Jitter delays the runs of each moment by a time of its own, which follows from the job and the moment."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioelasticjob.config.job import JobConfig
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.schedules import Schedule

NOON = datetime(2026, 3, 28, 12, tzinfo=UTC)
TIME = round(NOON.timestamp() * 1000)


def schedule(job: str = "job", **settings: object) -> Schedule:
    found = JobConfig.build(job_name=job, **settings).schedule
    assert found is not None
    return found


def test_a_delay_is_the_sha256_of_job_and_moment_below_the_jitter() -> None:
    delayed = schedule("report", cron="@hourly", jitter="30s")
    digest = hashlib.sha256(f"report {TIME}".encode()).digest()
    assert delayed.starts(TIME) == TIME + int.from_bytes(digest[:8], "big") % 30_000


def test_two_jobs_and_two_moments_have_delays_of_their_own_and_a_job_always_the_same() -> None:
    one = schedule("one", cron="@hourly", jitter="30s")
    other = schedule("other", cron="@hourly", jitter="30s")
    moments = [TIME + hour * 3_600_000 for hour in range(24)]
    delays = {schedule.starts(moment) - moment for schedule in (one, other) for moment in moments}
    assert len(delays) > 40
    assert [one.starts(moment) for moment in moments] == [
        schedule("one", cron="@hourly", jitter=30).starts(moment) for moment in moments
    ]


def test_without_jitter_a_moment_comes_when_it_is_and_jobs_share_one_schedule() -> None:
    assert schedule("one", cron="@hourly").starts(TIME) == TIME
    assert schedule("one", cron="@hourly") is schedule("other", cron="@hourly")


@given(st.sampled_from([{"every": 1}, {"cron": "0,1,30 * * * * ?"}, {"every": "1h"}]), st.floats(0.001, 3_600))
def test_moments_begin_in_their_order_and_before_the_jitter_is_over(settings: dict[str, object], jitter: float) -> None:
    delayed = schedule(jitter=jitter, **settings)
    moments = [round(one.timestamp() * 1000) for one in delayed.times_after(NOON, 20)]
    for moment, following in pairwise(moments):
        assert moment <= delayed.starts(moment) < moment + max(1, round(jitter * 1000))
        assert delayed.starts(moment) < following <= delayed.starts(following)


def test_the_last_moment_is_delayed_as_well() -> None:
    last = schedule(at=NOON, jitter="1h")
    assert TIME < last.starts(TIME) < TIME + 3_600_000


def test_a_moment_has_come_when_its_runs_begin() -> None:
    delayed = schedule(cron="@hourly", jitter="30m")
    starts = delayed.starts(TIME)
    before, then = (datetime.fromtimestamp(one / 1000, UTC) for one in (starts - 1, starts))
    assert (delayed.has_come(starts - 1), delayed.has_come(starts)) == (TIME - 1, starts)
    assert (delayed.next_to_come(before), delayed.next_to_come(then)) == (NOON, NOON + timedelta(hours=1))
    assert (delayed.newest_come(before), delayed.newest_come(then)) == (NOON - timedelta(hours=1), NOON)


def test_it_is_said_in_words() -> None:
    assert schedule(every="10m", jitter="90s").describe() == "Every 10m, each up to 1m 30s later"


def test_jitter_is_a_duration() -> None:
    for wrong in (-1, "soon", float("nan")):
        with pytest.raises(InvalidSetting) as caught:
            schedule(every=60, jitter=wrong)
        assert caught.value.setting == "jitter"
