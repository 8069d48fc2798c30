"""The moments of a schedule, whatever its settings are, and what is said of it."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioelasticjob.config.job import JobConfig
from aioelasticjob.cron import Cron
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.schedules import ScheduleSettings
from tests.schedules.made import schedule

START = datetime(2026, 3, 28, 12, tzinfo=UTC)


def texts(count: int, *cron: str, start: datetime = START, **settings: Any) -> list[str]:
    """Return the next moments of a schedule, in its zone."""
    found = schedule(cron[0] if len(cron) == 1 else cron or None, **settings)
    return [one.isoformat() for one in found.times_after(start, count)]


def test_several_expressions_have_the_moments_of_each_and_one_that_two_have_is_one() -> None:
    assert texts(5, "0 6 * * *", "0 6,18 * * *") == [
        "2026-03-28T18:00:00+00:00",
        "2026-03-29T06:00:00+00:00",
        "2026-03-29T18:00:00+00:00",
        "2026-03-30T06:00:00+00:00",
        "2026-03-30T18:00:00+00:00",
    ]
    assert texts(2, "0 6 * * *; 0 18 * * *") == texts(2, "0 6 * * *", "0 18 * * *")


def test_an_interval_counts_from_the_beginning_of_1970_or_from_its_start() -> None:
    assert texts(2, every="45s") == ["2026-03-28T12:00:45+00:00", "2026-03-28T12:01:30+00:00"]
    assert texts(3, every="45s", start_at="2026-03-28T12:00:10Z") == [
        "2026-03-28T12:00:10+00:00",
        "2026-03-28T12:00:55+00:00",
        "2026-03-28T12:01:40+00:00",
    ]
    assert texts(2, every=1.5) == ["2026-03-28T12:00:01.500000+00:00", "2026-03-28T12:00:03+00:00"]


def test_an_interval_is_elapsed_time_also_when_the_clocks_change() -> None:
    assert texts(3, every="12h", time_zone="Europe/Berlin") == [
        "2026-03-29T01:00:00+01:00",
        "2026-03-29T14:00:00+02:00",
        "2026-03-30T02:00:00+02:00",
    ]


def test_single_moments_are_meant_in_the_time_zone_unless_they_have_an_offset() -> None:
    moments = ["2026-12-24T18:00", "2026-12-24T18:00:00+09:00", datetime(2026, 4, 1, tzinfo=UTC), date(2026, 5, 1)]
    assert texts(9, at=moments, time_zone="Europe/Berlin") == [
        "2026-04-01T02:00:00+02:00",
        "2026-05-01T00:00:00+02:00",
        "2026-12-24T10:00:00+01:00",
        "2026-12-24T18:00:00+01:00",
    ]
    assert texts(2, at="2026-12-24T18:00, 2026-12-24T18:00:00+00:00") == ["2026-12-24T18:00:00+00:00"]


def test_no_moment_is_before_the_start_or_after_the_end_and_both_are_included() -> None:
    assert texts(9, "0 * * * *", start_at="2026-03-28T15:00", end_at="2026-03-28T17:00") == [
        "2026-03-28T15:00:00+00:00",
        "2026-03-28T16:00:00+00:00",
        "2026-03-28T17:00:00+00:00",
    ]
    bounded = schedule("0 * * * *", start_at="2026-03-28T15:00")
    assert bounded.previous_before(START) is None
    assert texts(9, every="1h", end_at="2026-03-28T13:30") == ["2026-03-28T13:00:00+00:00"]


def test_a_moment_is_looked_for_strictly_after_and_strictly_before_a_time_to_the_microsecond() -> None:
    minutes = schedule(every=60)
    a_little = timedelta(microseconds=1)
    assert minutes.next_after(START) == START + timedelta(seconds=60)
    assert minutes.next_after(START - a_little) == START
    assert minutes.previous_before(START) == START - timedelta(seconds=60)
    assert minutes.previous_before(START + a_little) == START


MINUTE = round(START.timestamp() * 1000)
SETTINGS: list[tuple[dict[str, Any], list[int]]] = [
    ({"cron": "*/7 * * * * ?"}, [0, 7, 14, 21, 28, 35, 42, 49, 56]),
    ({"cron": ["*/7 * * * * ?", "0/20 * * * * ?"]}, [0, 7, 14, 20, 21, 28, 35, 40, 42, 49, 56]),
    ({"every": 20}, [0, 20, 40]),
    ({"every": 20, "start_at": START + timedelta(seconds=5)}, [5, 25, 45]),
    ({"at": [START + timedelta(seconds=9), START]}, [0, 9]),
    ({"cron": "0/10 * * * * ?", "start_at": START, "end_at": START + timedelta(seconds=30)}, [0, 10, 20, 30]),
]


@given(st.sampled_from(SETTINGS), st.integers(0, 59_999))
def test_a_schedule_finds_the_neighbours_of_each_time(case: tuple[dict[str, Any], list[int]], time: int) -> None:
    settings, seconds = case
    found = schedule(**settings)
    moments = [MINUTE + second * 1000 for second in seconds]
    earlier = [one for one in moments if one <= MINUTE + time]
    later = [one for one in moments if one > MINUTE + time]
    if earlier:
        assert found.until(MINUTE + time) == earlier[-1]
    if later:
        assert found.after(MINUTE + time) == later[0]


@pytest.mark.parametrize(
    ("settings", "setting", "says"),
    [
        ({"cron": "@daily", "every": 60}, "every", "a job has one of cron, every and at"),
        ({"cron": "@daily", "at": "2027-01-01"}, "at", "a job has one of cron, every and at"),
        ({"every": 60, "at": "2027-01-01"}, "at", "set every or at to none"),
        ({"every": 0.5}, "every", "greater than or equal to 1"),
        ({"every": "half an hour"}, "every", 'text such as "90s"'),
        ({"every": 0}, "every", "greater than or equal to 1"),
        ({"at": "tomorrow"}, "at", "must be a time such as 2026-12-24T18:00"),
        ({"at": ["2027-01-01", "soon"]}, "at", "must be a time such as"),
        ({"at": "1910-01-01"}, "at", "must be a year from 1971"),
        ({"at": "2026-03-29T02:30", "time_zone": "Europe/Berlin"}, "at", "the clock is put forward"),
        ({"every": 60, "start_at": "noon"}, "start_at", "must be a time such as"),
        (
            {"every": 60, "start_at": "2027-01-02", "end_at": "2027-01-01"},
            "end_at",
            "must not be earlier than start_at",
        ),
        (
            {"cron": "0 0 1 1 *", "start_at": "2027-02-01", "end_at": "2027-03-01"},
            "end_at",
            "no moment is left from start_at = 2027-02-01 until end_at = 2027-03-01",
        ),
        ({"cron": ["@daily", "0 0 25 * * ?"]}, "cron", "hour"),
        ({"cron": []}, "cron", "or a list of some"),
        ({"cron": ["@daily", 5]}, "cron", "or a list of some"),
        ({"cron": "@daily;"}, "cron", "expected 6 or 7 fields"),
    ],
)
def test_a_wrong_schedule_is_refused_and_the_setting_is_named(
    settings: dict[str, Any], setting: str, says: str
) -> None:
    with pytest.raises(InvalidSetting, match=says) as caught:
        JobConfig.build(job_name="job", **settings)
    assert caught.value.setting == setting


def test_the_settings_are_the_same_after_they_were_in_the_registry() -> None:
    for settings in (
        {"cron": ["@daily", "0 6 * * *"], "time_zone": "Europe/Berlin", "dst": "cron"},
        {"every": "45s", "start_at": datetime(2027, 1, 1, tzinfo=UTC)},
        {"at": ["2027-01-01T10:00", "2027-01-02"], "end_at": "2028-01-01"},
        {},
    ):
        config = JobConfig.build(job_name="job", **settings)
        read = JobConfig.from_json(config.to_json(), "/job/config")
        assert read == config
        assert ScheduleSettings.of_json(read.as_json()) == config.schedule_settings
        assert ScheduleSettings.of_json(config.schedule_settings.as_json()) == config.schedule_settings


def test_a_schedule_says_in_words_when_it_has_moments() -> None:
    twice = schedule(["0 6 * * *", "0 18 * * SAT"], time_zone="Europe/Berlin")
    assert twice.describe() == "At 06:00:00; At 18:00:00, Saturday, Europe/Berlin"
    assert schedule(every=5400, start_at="2027-01-01").describe() == "Every 1h 30m, from 2027-01-01"
    some = schedule(at=[f"2027-01-0{day}" for day in range(1, 6)], end_at="2028-01-01")
    assert some.describe() == (
        "At 2027-01-01T00:00:00+00:00, 2027-01-02T00:00:00+00:00, 2027-01-03T00:00:00+00:00 and 2 more,"
        " until 2028-01-01"
    )
    assert some.expression == "at 2027-01-01, 2027-01-02, 2027-01-03 and 2 more"


def test_only_a_schedule_whose_moments_a_zone_decides_depends_on_its_rules() -> None:
    assert schedule("@daily").uses_zone
    assert not schedule(every=60).uses_zone
    assert schedule(every=60, start_at="2027-01-01").uses_zone
    assert not schedule(at="2027-01-01T00:00+01:00").uses_zone


def test_a_schedule_whose_moments_are_over_may_be_declared() -> None:
    assert schedule(at="2020-01-01").next_after(START) is None
    assert schedule("@daily", end_at="2020-01-01").next_after(START) is None


@pytest.mark.parametrize("dst", ["cron", "quartz"])
@pytest.mark.parametrize("expression", ["0 30 1 * * ?", "0 */7 * * * ?", "0 0 0 * * ?"])
@pytest.mark.parametrize(
    ("zone", "repeated"), [("America/New_York", "2026-11-01T04:30"), ("Europe/Dublin", "2026-10-25T00:00")]
)
def test_what_was_asked_before_does_not_change_an_answer(zone: str, repeated: str, expression: str, dst: Any) -> None:
    begins = round(datetime.fromisoformat(repeated).replace(tzinfo=UTC).timestamp() * 1000)
    asked = [begins + minutes * 60_000 + late for minutes in range(0, 240, 5) for late in (-1, 0, 1)]
    kept = schedule(expression, time_zone=zone, dst=dst)
    for order in (asked, asked[::-1], [-1, 0, *asked[::7], *asked[::-11]]):
        for after in order:
            fresh = Cron.parse(expression, zone, dst).next_after(datetime.fromtimestamp(after / 1000, UTC))
            assert fresh is not None
            assert kept.after(after) == kept.after(after) == round(fresh.timestamp() * 1000)


def test_a_schedule_that_has_ended_has_no_further_moment() -> None:
    ended = schedule("0 0 0 1 1 ? 2020")
    assert ended.after(-1) is not None
    assert ended.after(1_764_000_000_000) is None
    assert ended.after(1_764_000_000_000) is None
