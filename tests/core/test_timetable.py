from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aioelasticjob.core.state import Passed, Timetable
from aioelasticjob.cron import Cron
from aioelasticjob.events import MOMENTS_COUNTED

SECOND = 1000
START = 1_767_225_600 * SECOND


def test_it_starts_between_the_last_moment_and_the_next() -> None:
    table = Timetable(Cron.parse("0/10 * * * * ?"), START + 12 * SECOND)
    assert (table.newest, table.upcoming) == (START + 10 * SECOND, START + 20 * SECOND)


def test_a_moment_that_is_now_is_due() -> None:
    table = Timetable(Cron.parse("0/10 * * * * ?"), START)
    assert (table.newest, table.upcoming) == (START, START + 10 * SECOND)


def test_without_a_cron_nothing_is_ever_due() -> None:
    table = Timetable(None, START)
    assert (table.advance(START + 10**9), table.newest, table.upcoming) == (0, 0, None)


def test_a_schedule_that_ends_leaves_its_last_moment() -> None:
    table = Timetable(Cron.parse("0 0 0 1 1 ? 2026-2027"), START)
    assert table.advance(START + 3 * 365 * 86_400 * SECOND) == 1
    assert table.upcoming is None


@given(steps=st.lists(st.integers(0, 4 * 3600 * SECOND), max_size=8))
def test_however_it_is_looked_at_the_newest_due_moment_is_known(steps: list[int]) -> None:
    table, now = Timetable(Cron.parse("0/7 * * * * ?"), START), START
    for step in steps:
        before, now = table.newest, now + step
        due = table.advance(now)
        expected = now // (60 * SECOND) * 60 * SECOND + now % (60 * SECOND) // (7 * SECOND) * 7 * SECOND
        assert table.newest == expected
        assert table.upcoming is not None
        assert table.upcoming > now
        assert (due > 0) == (table.newest > before)
        assert due <= MOMENTS_COUNTED


def test_the_moment_after_the_upcoming_one_is_known_without_moving_on() -> None:
    timetable = Timetable(Cron.parse("0/10 * * * * ?"), 5_000)
    assert (timetable.newest, timetable.upcoming, timetable.following()) == (0, 10_000, 20_000)
    assert timetable.advance(10_000) == 1
    assert (timetable.newest, timetable.upcoming, timetable.following()) == (10_000, 20_000, 30_000)
    assert Timetable(None, 0).following() == 0


def test_moments_that_passed_are_named_exactly() -> None:
    table = Timetable(Cron.parse("0/10 * * * * ?"), 65_000)
    assert table.passed(20_000, 60_000) == Passed(30_000, 60_000, 4)
    assert table.passed(19_999, 59_999) == Passed(20_000, 50_000, 4)
    assert table.passed(60_000, 60_000) is None
    assert table.passed(51_000, 59_000) is None
    assert Timetable(None, 0).passed(0, 0) is None


def test_the_count_of_many_stops_and_their_ends_are_known_all_the_same() -> None:
    table = Timetable(Cron.parse("* * * * * ?"), START)
    assert table.passed(START, START + MOMENTS_COUNTED * SECOND) == Passed(
        START + SECOND, START + MOMENTS_COUNTED * SECOND, MOMENTS_COUNTED
    )
    assert table.passed(START, START + 86_400 * SECOND) == Passed(
        START + SECOND, START + 86_400 * SECOND, MOMENTS_COUNTED
    )
