"""The moments of a job over time, under the schedule in force and under those before it."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioelasticjob.core.schedules import FOREVER, InForce
from aioelasticjob.core.timeline import Passed, Timeline
from aioelasticjob.events import MOMENTS_COUNTED
from tests.schedules.made import schedule

SECOND = 1000
START = 1_767_225_600 * SECOND
"""The first millisecond of 2026."""


def periods(*schedules: tuple[str | None, int]) -> list[InForce]:
    """Return schedules, each with the time since when it was in force, until the next one replaced it."""
    ends = [*(since for _, since in schedules[1:]), FOREVER]
    crons = [None if text is None else schedule(text) for text, _ in schedules]
    found = zip(crons, schedules, ends, strict=True)
    return [InForce(cron, since, until, recorded=True) for cron, (_, since), until in found]


def timeline(cron: str | None, now: int, since: int = 0) -> Timeline:
    return Timeline(periods((cron, since)), now)


TENTH = "0/10 * * * * ?"
EVERY_SECOND = "* * * * * ?"


def test_it_starts_between_the_last_moment_and_the_next() -> None:
    table = timeline(TENTH, START + 12 * SECOND)
    assert (table.previous, table.newest, table.upcoming) == (START, START + 10 * SECOND, START + 20 * SECOND)


def test_a_moment_that_is_now_has_come() -> None:
    table = timeline(TENTH, START)
    assert (table.newest, table.upcoming) == (START, START + 10 * SECOND)


def test_without_a_cron_there_is_no_moment() -> None:
    table = timeline(None, START)
    table.advance(START + 10**9)
    assert (table.newest, table.upcoming, table.following(), table.newest_until(START + 10**9)) == (0, None, 0, 0)
    assert table.passed(0, START + 10**9) == []
    assert not table.has_moment(0, START + 10**9)


def test_a_schedule_that_ends_leaves_its_last_moment() -> None:
    table = timeline("0 0 0 1 1 ? 2026-2027", START, START - 1)
    table.advance(START + 3 * 365 * 86_400 * SECOND)
    assert (table.newest, table.upcoming) == (START + 365 * 86_400 * SECOND, None)
    assert table.following() == 0
    assert not table.has_moment(table.newest, START + 9 * 365 * 86_400 * SECOND)


@given(steps=st.lists(st.integers(-4 * 3600 * SECOND, 4 * 3600 * SECOND), max_size=8))
def test_however_the_time_moves_the_newest_moment_and_the_next_are_known(steps: list[int]) -> None:
    table, now = timeline("0/7 * * * * ?", START), START
    for step in steps:
        now += step
        table.advance(now)
        minute, rest = now // (60 * SECOND) * 60 * SECOND, now % (60 * SECOND)
        assert table.newest == minute + rest // (7 * SECOND) * 7 * SECOND
        assert table.upcoming is not None
        assert table.previous < table.newest <= now < table.upcoming
        assert not table.has_moment(table.previous, table.newest - 1)


def test_a_time_that_was_set_back_a_little_moves_back_to_the_moment_before() -> None:
    table = timeline(EVERY_SECOND, START + 6500)
    table.advance(START + 5100)
    assert (table.newest, table.upcoming) == (START + 5 * SECOND, START + 6 * SECOND)


def test_a_time_that_is_set_back_between_two_moments_changes_nothing() -> None:
    table = timeline(TENTH, START + 19_000)
    table.advance(START + 11_000)
    assert (table.newest, table.upcoming) == (START + 10 * SECOND, START + 20 * SECOND)


def test_the_moment_after_the_upcoming_one_is_known_without_moving_on() -> None:
    table = timeline(TENTH, 5_000)
    assert (table.newest, table.upcoming, table.following()) == (0, 10_000, 20_000)
    table.advance(10_000)
    assert (table.newest, table.upcoming, table.following()) == (10_000, 20_000, 30_000)


def test_moments_that_passed_are_named_exactly() -> None:
    table = timeline(TENTH, 65_000)
    assert table.passed(20_000, 60_000) == [Passed(30_000, 60_000, 4)]
    assert table.passed(19_999, 59_999) == [Passed(20_000, 50_000, 4)]
    assert table.passed(60_000, 60_000) == []
    assert table.passed(51_000, 59_000) == []
    assert table.passed(60_000, 20_000) == []


def test_the_count_of_many_stops_and_their_ends_are_known_all_the_same() -> None:
    table = timeline(EVERY_SECOND, START)
    last = START + MOMENTS_COUNTED * SECOND
    assert table.passed(START, last) == [Passed(START + SECOND, last, MOMENTS_COUNTED)]
    last = START + 86_400 * SECOND
    assert table.passed(START, last) == [Passed(START + SECOND, last, MOMENTS_COUNTED)]


def test_a_schedule_that_was_replaced_has_the_moments_up_to_that_time_and_the_next_one_those_after_it() -> None:
    table = Timeline(periods((EVERY_SECOND, 0), (TENTH, 14_000)), 35_000)
    assert table.passed(10_000, 35_000) == [Passed(11_000, 14_000, 4), Passed(20_000, 30_000, 2)]
    assert (table.newest, table.previous, table.upcoming) == (30_000, 20_000, 40_000)
    assert [one.until for one in table.replaced] == [14_000]


def test_a_schedule_that_was_in_force_between_two_moments_has_none() -> None:
    table = Timeline(periods((TENTH, 0), (EVERY_SECOND, 12_100), (TENTH, 12_900)), 25_000)
    assert table.passed(0, 25_000) == [Passed(10_000, 10_000), Passed(20_000, 20_000)]


def test_the_newest_moment_may_be_one_of_a_schedule_that_was_replaced() -> None:
    table = Timeline(periods((EVERY_SECOND, 0), (TENTH, 14_500)), 16_000)
    assert (table.newest, table.previous, table.upcoming) == (14_000, 13_000, 20_000)
    table = Timeline(periods((EVERY_SECOND, 0), (None, 14_500)), 16_000)
    assert (table.newest, table.upcoming) == (14_000, None)


def test_before_the_first_schedule_was_in_force_there_are_no_moments() -> None:
    table = timeline(EVERY_SECOND, 16_000, since=15_000)
    assert (table.begins, table.newest, table.previous) == (15_000, 16_000, 0)
    assert table.passed(0, 16_000) == [Passed(16_000, 16_000)]
    assert table.newest_until(15_000) == 0


def test_before_a_schedule_is_in_force_its_first_moment_is_known() -> None:
    table = timeline(EVERY_SECOND, 5_000, since=30_500)  # it was noted by a clock ahead
    assert (table.newest, table.upcoming, table.following()) == (0, 31_000, 32_000)


@pytest.mark.parametrize(("begins", "replaced"), [(30_000, 10_000), (30_000, 30_000)])
def test_a_schedule_that_ended_before_it_began_by_a_clock_that_was_ahead_has_no_moments(
    begins: int, replaced: int
) -> None:
    table = Timeline(periods((EVERY_SECOND, begins), (TENTH, replaced)), 60_000)
    assert all(moment % 10_000 == 0 for one in table.passed(0, 60_000) for moment in (one.first, one.last))
    assert table.newest == 60_000


CRONS = [None, EVERY_SECOND, "0/2 * * * * ?", "0/3 * * * * ?", "5,6,40 * * * * ?", "30 * * * * ?"]


@given(
    st.lists(st.tuples(st.sampled_from(CRONS), st.integers(0, 120_000)), min_size=1, max_size=4),
    st.lists(st.integers(0, 130_000), min_size=1, max_size=6),
    st.tuples(st.integers(0, 130_000), st.integers(0, 130_000)),
)
def test_a_timeline_says_the_same_as_a_plain_list_of_all_moments(
    schedules: list[tuple[str | None, int]], times: list[int], span: tuple[int, int]
) -> None:
    schedules.sort(key=lambda one: one[1])
    found = periods(*schedules)
    moments = [
        second * SECOND
        for one in found
        for second in range(400)
        if one.schedule is not None and one.since < second * SECOND <= one.until
        if one.schedule.after(second * SECOND - 1) == second * SECOND
    ]
    assert moments == sorted(set(moments))
    table = Timeline(found, times[0])
    for now in times:
        table.advance(now)
        come, to_come = [0, *(one for one in moments if one <= now)], [one for one in moments if one > now]
        assert table.newest == come[-1]
        assert table.upcoming == (to_come[0] if to_come else None)
        assert table.following() == (to_come[1] if len(to_come) > 1 else 0)
        assert not any(table.previous < one < table.newest for one in moments)
        after, until = span
        between = [one for one in moments if after < one <= until]
        assert table.has_moment(after, until) == bool(between)
        passed = table.passed(after, until)
        assert sum(one.count for one in passed if one.count < MOMENTS_COUNTED) <= len(between)
        assert {one.first for one in passed} | {one.last for one in passed} <= set(between)
        assert all(earlier.last < later.first for earlier, later in pairwise(passed))
        if between:
            assert (passed[0].first, passed[-1].last) == (between[0], between[-1])
        if all(one.count < MOMENTS_COUNTED for one in passed):
            assert sum(one.count for one in passed) == len(between)
        assert table.newest_until(until) == [0, *moments][bisect_right(moments, until)]


def delayed(now: int, *schedules: tuple[float, int]) -> Timeline:
    """Return a timeline of schedules of a moment every ten seconds, each with its jitter and the time of its note."""
    ends = [*(since for _, since in schedules[1:]), FOREVER]
    found = [
        InForce(schedule(every=10, jitter=jitter), since, until, recorded=True)
        for (jitter, since), until in zip(schedules, ends, strict=True)
    ]
    return Timeline(found, now)


@given(
    st.lists(st.tuples(st.sampled_from([0, 3, 60]), st.integers(0, 100_000)), min_size=1, max_size=3),
    st.lists(st.integers(0, 130_000), min_size=1, max_size=8),
)
def test_a_delayed_moment_comes_when_it_starts_and_moments_keep_their_order(
    schedules: list[tuple[float, int]], times: list[int]
) -> None:
    schedules.sort(key=lambda one: one[1])
    table = delayed(times[0], *schedules)
    moments = [one for one in range(0, 300 * SECOND, 10 * SECOND) if table.has_moment(one - 1, one)]
    starts = [table.start_of(one) for one in moments]
    assert starts == sorted(set(starts))
    assert all(one <= start for one, start in zip(moments, starts, strict=True))
    for now in times:
        table.advance(now)
        come = [one for one, start in zip(moments, starts, strict=True) if start <= now]
        to_come = [one for one in moments if one not in come]
        assert table.newest == (come[-1] if come else 0)
        assert (table.upcoming, table.starts_at) == (to_come[0], table.start_of(to_come[0]))
        assert [one for one in moments if one <= table.has_come(now)] == come
