"""The moments of a schedule with calendars, and calendars as text."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioelasticjob.config.job import JobConfig
from aioelasticjob.cron.zone import turn_at
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.schedules import Schedule, ScheduleSettings, schedule_of
from aioelasticjob.schedules.calendars import FARTHEST, MAX_DATES, Calendar, calendar_in
from aioelasticjob.schedules.moments import LATEST

CHRISTMAS = Calendar.of({"2026-12-25": "Christmas Day", "2026-12-26": "Boxing Day"}, "sat, sun")
START = datetime(2026, 12, 23, 12, tzinfo=UTC)
ZONES = ("Europe/Berlin", "America/New_York", "America/Nuuk", "Africa/Cairo", "Asia/Beirut", "Australia/Lord_Howe")


def schedule(calendar: Calendar | None = CHRISTMAS, **given: Any) -> Schedule:
    """Return the schedule of a job that names one calendar, which is missing if it is None."""
    settings = {"cron": "0 9 * * *", "calendar": "closed", **given}
    known = {} if calendar is None else {"closed": calendar}
    found = JobConfig.build(job_name="job", **settings).with_calendars(known).schedule
    assert found is not None
    return found


def texts(count: int, found: Schedule, start: datetime = START) -> list[str]:
    """Return the next moments of a schedule, in its zone."""
    return [f"{one:%a %Y-%m-%d %H:%M%z}" for one in found.times_after(start, count)]


def dates(first: date, count: int) -> list[date | str]:
    """Return consecutive dates."""
    return [first + timedelta(days=n) for n in range(count)]


def test_moments_on_days_of_a_calendar_are_left_out() -> None:
    assert texts(3, schedule(time_zone="Europe/Berlin")) == [
        "Thu 2026-12-24 09:00+0100",
        "Mon 2026-12-28 09:00+0100",
        "Tue 2026-12-29 09:00+0100",
    ]


def test_moments_move_to_the_next_open_day_at_the_same_local_time() -> None:
    found = schedule(cron="0 9 25 * *", calendar_mode="next")
    assert texts(2, found) == ["Mon 2026-12-28 09:00+0000", "Mon 2027-01-25 09:00+0000"]


def test_moments_move_to_the_previous_open_day_at_the_same_local_time() -> None:
    found = schedule(cron="0 9 25 * *", calendar_mode="previous")
    assert texts(2, found) == ["Thu 2026-12-24 09:00+0000", "Mon 2027-01-25 09:00+0000"]


def test_moments_that_fall_together_are_one() -> None:
    found = schedule(cron="0 9 * * *", calendar_mode="next")
    assert texts(3, found, START + timedelta(days=1)) == [
        "Mon 2026-12-28 09:00+0000",
        "Tue 2026-12-29 09:00+0000",
        "Wed 2026-12-30 09:00+0000",
    ]


def test_moments_that_move_stand_in_the_order_of_their_times_on_the_open_day() -> None:
    found = schedule(at=["2026-12-25T17:00", "2026-12-26T08:00", "2026-12-28T09:00"], cron=None, calendar_mode="next")
    assert texts(9, found) == [
        "Mon 2026-12-28 08:00+0000",
        "Mon 2026-12-28 09:00+0000",
        "Mon 2026-12-28 17:00+0000",
    ]


@pytest.mark.parametrize(("mode", "step"), [("next", 1), ("previous", -1)])
def test_moments_move_at_most_31_days(mode: str, step: int) -> None:
    moment = date(2026, 7, 15)

    def moved(days: int) -> list[str]:
        first = moment if step > 0 else moment - timedelta(days=days - 1)
        closed = Calendar.of(dates(first, days))
        return texts(
            1, schedule(closed, cron=None, at="2026-07-15T09:00", calendar_mode=mode), datetime(2026, 1, 1, tzinfo=UTC)
        )

    there = moment + step * timedelta(days=FARTHEST)
    assert moved(FARTHEST) == [f"{there:%a %Y-%m-%d} 09:00+0000"]
    assert moved(FARTHEST + 1) == []


def test_a_moment_that_moves_into_the_gap_of_a_forward_change_comes_at_its_end() -> None:
    closed = Calendar.of(["2026-03-28"])
    found = schedule(closed, cron=None, at="2026-03-28T02:30", calendar_mode="next", time_zone="Europe/Berlin")
    assert texts(2, found, datetime(2026, 1, 1, tzinfo=UTC)) == ["Sun 2026-03-29 03:00+0200"]


def test_a_moment_that_moves_to_a_time_that_comes_twice_comes_at_the_first() -> None:
    closed = Calendar.of(["2026-10-24"])
    found = schedule(closed, cron=None, at="2026-10-24T02:30", calendar_mode="next", time_zone="Europe/Berlin")
    assert texts(2, found, datetime(2026, 1, 1, tzinfo=UTC)) == ["Sun 2026-10-25 02:30+0200"]


def test_the_two_moments_of_a_repeated_hour_fall_together_on_another_day() -> None:
    closed = Calendar.of(["2026-10-25"])
    found = schedule(closed, cron=None, every="1h", calendar_mode="next", time_zone="Europe/Berlin")
    after = texts(4, found, datetime(2026, 10, 25, 23, 30, tzinfo=UTC))
    assert after == [f"Mon 2026-10-26 0{hour}:00+0100" for hour in (1, 2, 3, 4)]


def test_a_schedule_whose_days_are_all_closed_never_fires() -> None:
    found = schedule(cron="0 9 * * SAT")
    assert found.never_fires
    assert found.next_after(START) is None
    both = JobConfig.build(job_name="job", cron="0 9 * * *", calendar=["week", "weekend"], calendar_mode="next")
    known = {"week": Calendar.of((), "mon tue wed thu fri"), "weekend": Calendar.of((), "sat sun")}
    never = both.with_calendars(known).schedule
    assert never is not None
    assert never.never_fires
    assert never.next_after(START) is None


def test_days_that_any_calendar_of_a_list_closes_are_closed() -> None:
    config = JobConfig.build(job_name="job", cron="0 9 * * *", calendar="weekend, holidays")
    known = {"weekend": Calendar.of((), "sat sun"), "holidays": Calendar.of(["2026-12-25"])}
    found = config.with_calendars(known).schedule
    assert found is not None
    assert texts(2, found) == ["Thu 2026-12-24 09:00+0000", "Mon 2026-12-28 09:00+0000"]


def test_start_and_end_bound_the_moments_where_they_have_moved_to() -> None:
    found = schedule(calendar_mode="next", start_at="2026-12-25T00:00", end_at="2026-12-28T08:00")
    assert texts(9, found) == []


def test_a_missing_calendar_leaves_nothing_out_and_is_named() -> None:
    found = schedule(None)
    assert texts(2, found) == ["Thu 2026-12-24 09:00+0000", "Fri 2026-12-25 09:00+0000"]
    assert found.missing_calendars == ("closed",)
    assert schedule().missing_calendars == ()


def test_schedules_are_equal_only_if_the_contents_are() -> None:
    assert schedule() == schedule()
    assert schedule() != schedule(Calendar.of(["2026-12-25"]))
    assert schedule() != schedule(None)


def test_the_settings_of_a_schedule_name_the_contents_and_are_read_again() -> None:
    found = schedule(calendar_mode="previous")
    stored = found.settings.as_json()
    assert stored["contents"] == [CHRISTMAS.hash]
    again = schedule_of(ScheduleSettings.of_json(stored), "", {CHRISTMAS.hash: CHRISTMAS})
    assert again == found
    assert again is not None
    assert texts(3, again) == texts(3, found)


def test_contents_that_nobody_has_count_as_missing() -> None:
    again = schedule_of(ScheduleSettings.of_json(schedule().settings.as_json()))
    assert again is not None
    assert again.missing_calendars == ("closed",)
    assert again != schedule()


def test_it_is_said_which_days_are_closed_by_whom_and_where_their_moments_move() -> None:
    found = schedule(cron="0 9 * * *", calendar_mode="next")
    closed = found.closed_between(START, START + timedelta(days=9), 2)
    assert [(f"{one.first:%m-%d %H:%M}", one.closed_by, one.moved) for one in closed] == [
        ("12-25 09:00", ("closed (Christmas Day)",), datetime(2026, 12, 28, 9, tzinfo=UTC)),
        ("12-26 09:00", ("closed (Boxing Day)",), datetime(2026, 12, 28, 9, tzinfo=UTC)),
    ]
    (left_out,) = schedule(cron="0 9 27 * *").closed_between(START, START + timedelta(days=9), 9)
    assert (left_out.closed_by, left_out.moved) == (("closed (Sunday)",), None)


def test_a_schedule_with_a_calendar_says_so() -> None:
    assert schedule().describe() == "At 09:00:00, UTC, not on days of closed"
    assert (
        schedule(calendar_mode="next").describe() == "At 09:00:00, UTC, on the next open day instead of days of closed"
    )


@st.composite
def calendars(draw: st.DrawFn) -> Calendar:
    """Calendars with dates near the days on which clocks change."""
    first = date(2026, draw(st.sampled_from([3, 4, 10, 11])), 1)
    days = draw(st.sets(st.integers(0, 60), max_size=25))
    weekdays = draw(st.sets(st.sampled_from(["mon", "thu", "fri", "sat", "sun"]), max_size=4))
    return Calendar.of([first + timedelta(days=n) for n in sorted(days)], sorted(weekdays))


@settings(max_examples=60, deadline=None)
@given(
    calendar=calendars(),
    mode=st.sampled_from(["skip", "next", "previous"]),
    zone=st.sampled_from(ZONES),
    every=st.sampled_from(["20m", "95m", "7h", "50h"]),
    start=st.datetimes(datetime(2026, 3, 1), datetime(2026, 11, 20), timezones=st.just(UTC)),
)
def test_the_moments_are_those_that_one_finds_by_moving_each(
    calendar: Calendar, mode: str, zone: str, every: str, start: datetime
) -> None:
    """The reference moves each moment of two months by itself, with the wall times of ``datetime``."""
    plain = JobConfig.build(job_name="job", every=every, time_zone=zone).schedule
    assert plain is not None
    found = schedule(calendar, cron=None, every=every, calendar_mode=mode, time_zone=zone)
    margin = timedelta(days=FARTHEST + 2)
    end = start + timedelta(days=5)
    expected = set[datetime]()
    one = plain.next_after(start - margin)
    while one is not None and one < end + margin:
        if (moved := _moved(one, calendar, mode, ZoneInfo(zone))) is not None:
            expected.add(moved)
        one = plain.next_after(one)
    inside = sorted(one for one in expected if start < one <= end)
    forward = list[datetime]()
    while (following := found.next_after(forward[-1] if forward else start)) is not None and following <= end:
        forward.append(following)
    assert [one.astimezone(UTC) for one in forward] == inside
    backward = list[datetime]()
    before = end + timedelta(milliseconds=1)
    while (newest := found.previous_before(before)) is not None and newest > start:
        backward.append(newest.astimezone(UTC))
        before = newest
    assert backward == inside[::-1]


def _moved(one: datetime, calendar: Calendar, mode: str, zone: ZoneInfo) -> datetime | None:
    local = one.astimezone(zone)
    closed = {day for day, _ in calendar.dates}

    def is_closed(day: date) -> bool:
        return day in closed or day.weekday() in calendar.weekdays

    day = local.date()
    if not is_closed(day):
        return one.astimezone(UTC)
    if mode == "skip":
        return None
    step = timedelta(days=1 if mode == "next" else -1)
    for n in range(1, FARTHEST + 1):
        target = day + n * step
        if not is_closed(target):
            wall = datetime.combine(target, local.time())
            turn = turn_at(wall, zone)
            if turn is not None and not turn.repeats:
                wall = turn.ends
            return wall.replace(tzinfo=zone).astimezone(UTC)
    return None


def test_a_calendar_is_text_and_read_again_from_it() -> None:
    text = "# bank holidays\nweekdays: sat, Sunday\n\n2026-12-26 Boxing Day\n2026-12-25\n"
    found = Calendar.of_text(text)
    assert found.text == "weekdays sat, sun\n2026-12-25\n2026-12-26 Boxing Day\n"
    assert Calendar.of_text(found.text) == found
    assert found.hash == Calendar.of({date(2026, 12, 26): "Boxing Day", "2026-12-25": ""}, ["sun", "sat"]).hash
    assert found.last == date(2026, 12, 26)
    assert Calendar.of((), "mon").last is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("holidays", "must be a date such as 2026-12-25"),
        ("2026-02-30", "must be a date such as 2026-12-25"),
        ("weekdays caturday", "must be one of mon, tue"),
        ("weekdays mon tue wed thu fri sat sun", "must leave a day of the week open"),
        ("2026-12-25\n2026-12-25 Christmas", "is there twice"),
        ("2026-12-25 " + "x" * 101, "must be a name of at most 100"),
        ("1969-12-25", "must be a year from"),
        ("\n".join(str(date(2026, 1, 1) + timedelta(days=n)) for n in range(MAX_DATES + 1)), "must have at most 2,000"),
    ],
)
def test_a_line_that_says_no_day_is_refused_with_what_would_be_right(text: str, said: str) -> None:
    with pytest.raises(InvalidSetting, match=said):
        Calendar.of_text(text)
    assert calendar_in(text.encode()) is None
    assert calendar_in(b"\xff") is None


@pytest.mark.parametrize("name", ["", "de holidays", ".", "-", "a/b", "x" * 101, 7])
def test_a_name_that_no_calendar_can_have_is_refused(name: object) -> None:
    with pytest.raises(InvalidSetting, match="calendar"):
        JobConfig.build(job_name="job", cron="0 9 * * *", calendar=[name])


def test_the_last_moment_of_all_is_found_from_the_end_of_time() -> None:
    found = schedule(cron="0 9 * * *", calendar_mode="next")
    newest = found.until(LATEST + 10**12)
    assert newest is not None
    assert found.after(newest) is None
