"""What happens on days the clock is changed: tables for people, and every second of such days against the oracle."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioelasticjob.cron import Cron, DaylightSaving, fire_times
from tests.cron.oracle import SECOND, TURNS, Fires, fixed_fires, quartz_fires, roving_fires, window


def fires_on(expression: str, zone: str, day: str, hours: float = 24, dst: DaylightSaving = "cron") -> list[str]:
    """Return what fires from midnight (or an hour on it) for some hours, as wall time and offset; back as forth."""
    start = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
    end = start + timedelta(hours=hours)
    cron = Cron.parse(expression, zone, dst)
    forth: list[str] = []
    at = cron.next_after(start - SECOND)
    while at is not None and at < end:
        forth.append(f"{at:%d %H:%M:%S%z}")
        at = cron.next_after(at)
    back: list[str] = []
    at = cron.previous_before(end)
    while at is not None and at >= start:
        back.append(f"{at:%d %H:%M:%S%z}")
        at = cron.previous_before(at)
    assert back[::-1] == forth
    return forth


NEW_YORK_GAP = [  # 2026-03-08: 01:59:59-05:00 is followed by 03:00:00-04:00
    ("0 30 2 * * ?", ["08 03:00:00-0400"]),
    ("30 2 * * *", ["08 03:00:00-0400"]),
    ("0 0 2 * * ?", ["08 03:00:00-0400"]),
    ("0 0 3 * * ?", ["08 03:00:00-0400"]),
    ("0 0 2,3 * * ?", ["08 03:00:00-0400"]),
    ("0 30 1-3 * * ?", ["08 01:30:00-0500", "08 03:00:00-0400", "08 03:30:00-0400"]),
    ("0 0/20 2 * * ?", ["08 03:00:00-0400"]),
    ("*/20 2 * * *", ["08 03:00:00-0400"]),
    ("* * 2 * * ?", ["08 03:00:00-0400"]),
    ("59 59 2 8 3 ? 2026", ["08 03:00:00-0400"]),
    ("0 30 2/23 * * ?", ["08 03:00:00-0400"]),  # a step that leaves one hour is a time of day
    ("0 0 0/2 * * ?", ["08 00:00:00-0500", "08 04:00:00-0400"]),
    ("0 */2 * * *", ["08 00:00:00-0500", "08 04:00:00-0400"]),
    ("0 0 1/2 * * ?", ["08 01:00:00-0500", "08 03:00:00-0400"]),
    ("0 30 * * * ?", ["08 00:30:00-0500", "08 01:30:00-0500", "08 03:30:00-0400", "08 04:30:00-0400"]),
    ("30 * * * *", ["08 00:30:00-0500", "08 01:30:00-0500", "08 03:30:00-0400", "08 04:30:00-0400"]),
    ("0 30 0-23 * * ?", ["08 00:30:00-0500", "08 01:30:00-0500", "08 03:30:00-0400", "08 04:30:00-0400"]),
]
NEW_YORK_REPEAT = [  # 2026-11-01: 01:59:59-04:00 is followed by 01:00:00-05:00
    ("0 30 1 * * ?", ["01 01:30:00-0400"]),
    ("30 1 * * *", ["01 01:30:00-0400"]),
    ("0 0 1,2 * * ?", ["01 01:00:00-0400", "01 02:00:00-0500"]),
    ("0 0/30 1 * * ?", ["01 01:00:00-0400", "01 01:30:00-0400"]),
    ("*/30 1 * * *", ["01 01:00:00-0400", "01 01:30:00-0400"]),
    ("0 0 * * * ?", ["01 00:00:00-0400", "01 01:00:00-0400", "01 01:00:00-0500", "01 02:00:00-0500"]),
    ("0 * * * *", ["01 00:00:00-0400", "01 01:00:00-0400", "01 01:00:00-0500", "01 02:00:00-0500"]),
    ("0 0 0/2 * * ?", ["01 00:00:00-0400", "01 02:00:00-0500"]),
    ("0 0 1/2 * * ?", ["01 01:00:00-0400", "01 01:00:00-0500"]),
    ("0 1-23/2 * * *", ["01 01:00:00-0400", "01 01:00:00-0500"]),
]


@pytest.mark.parametrize(("expression", "expected"), NEW_YORK_GAP)
def test_in_spring_new_york_skips_an_hour(expression: str, expected: list[str]) -> None:
    assert fires_on(expression, "America/New_York", "2026-03-08", hours=4) == expected


@pytest.mark.parametrize(
    ("expression", "after"),
    [
        ("0 30 2 * * ?", "06:59:59"),
        ("0 30 2 * * ?", "06:59:59.5"),
        ("47/1 55/2 1-2 * * ?", "06:59:59"),  # it has just fired at 01:59:59
    ],
)
def test_what_a_gap_skips_is_still_to_come_in_the_last_second_before_the_gap(expression: str, after: str) -> None:
    cron, ends = Cron.parse(expression, "America/New_York", "cron"), datetime(2026, 3, 8, 7, tzinfo=UTC)
    assert cron.next_after(datetime.fromisoformat(f"2026-03-08T{after}+00:00")) == ends
    following = cron.next_after(ends)
    assert following is not None
    assert following - ends > timedelta(hours=12)


@pytest.mark.parametrize(("expression", "expected"), NEW_YORK_REPEAT)
def test_in_autumn_new_york_repeats_an_hour(expression: str, expected: list[str]) -> None:
    assert fires_on(expression, "America/New_York", "2026-11-01", hours=4) == expected


@pytest.mark.parametrize(
    ("expression", "zone", "day", "expected"),
    [
        # Lord Howe's clock changes by half an hour at two.
        ("0 15 2 * * ?", "Australia/Lord_Howe", "2026-10-04", ["04 02:30:00+1100"]),
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-04", ["04 02:30:00+1100"]),
        ("0 45 1 * * ?", "Australia/Lord_Howe", "2026-04-05", ["05 01:45:00+1100"]),
        ("0 45 2 * * ?", "Australia/Lord_Howe", "2026-04-05", ["05 02:45:00+1030"]),
        # Midnight is skipped: a fire of midnight is one of the same day, an hour later.
        ("0 0 0 * * ?", "America/Sao_Paulo", "2018-11-03T12", ["04 01:00:00-0200"]),
        ("@daily", "America/Sao_Paulo", "2018-11-03T12", ["04 01:00:00-0200"]),
        ("0 30 0 4 11 ?", "America/Sao_Paulo", "2018-11-03T12", ["04 01:00:00-0200"]),
        ("0 30 0 * * ?", "Asia/Beirut", "2026-03-28T12", ["29 01:00:00+0300"]),
        ("@midnight", "Asia/Beirut", "2026-03-28T12", ["29 01:00:00+0300"]),
        # The clock goes back across midnight: the day before ends twice, the fires of its last hour come once.
        ("0 30 23 * * ?", "America/Sao_Paulo", "2018-02-17T12", ["17 23:30:00-0200"]),
        ("0 0 0 * * ?", "Asia/Beirut", "2026-10-24T12", ["25 00:00:00+0200"]),
        # Samoa had no 30 December 2011: what was due on it happens as soon as it is over.
        ("0 0 12 * * ?", "Pacific/Apia", "2011-12-29T13", ["31 00:00:00+1400", "31 12:00:00+1400"]),
        ("0 12 * * *", "Pacific/Apia", "2011-12-29T13", ["31 00:00:00+1400", "31 12:00:00+1400"]),
        ("0 0 12 30 12 ?", "Pacific/Apia", "2011-12-29T01", ["31 00:00:00+1400"]),
        ("0 0 0/12 * * ?", "Pacific/Apia", "2011-12-29T01", ["29 12:00:00-1000", "31 00:00:00+1400"]),
    ],
)
def test_other_clocks_change_otherwise(expression: str, zone: str, day: str, expected: list[str]) -> None:
    assert fires_on(expression, zone, day) == expected


@pytest.mark.parametrize("day", [datetime(2026, 3, 8, 5, tzinfo=UTC), datetime(2026, 11, 1, 4, tzinfo=UTC)])
@pytest.mark.parametrize(
    ("expression", "seconds"),
    [("* * * * * ?", 1), ("0/10 * * * * ?", 10), ("0 0/15 * * * ?", 900), ("*/15 * * * *", 900)],
)
def test_a_rhythm_below_the_hour_goes_on_by_elapsed_time(expression: str, seconds: int, day: datetime) -> None:
    fires = fire_times(expression, "America/New_York", day - SECOND, 5 * 3600 // seconds)
    assert [fire.astimezone(UTC) for fire in fires] == [day + at * seconds * SECOND for at in range(len(fires))]


def test_quartz_is_silent_in_the_first_pass_and_drops_what_the_gap_swallows() -> None:
    repeat = fires_on("0 0/30 * * * ?", "America/New_York", "2026-11-01", 4, "quartz")
    assert [fire[3:] for fire in repeat[:4]] == ["00:00:00-0400", "00:30:00-0400", "01:00:00-0500", "01:30:00-0500"]
    assert fires_on("0 30 2 * * ?", "America/New_York", "2026-03-08", 24, "quartz") == []


numbers = st.integers(0, 59).map(str)
clock_fields = st.one_of(
    st.just("*"),
    numbers,
    st.tuples(numbers, st.integers(1, 59)).map(lambda pair: f"{pair[0]}/{pair[1]}"),
    st.tuples(numbers, numbers).map("-".join),
    st.lists(numbers, min_size=1, max_size=4).map(",".join),
)
hour_fields = st.one_of(
    st.just("*"),
    st.integers(0, 4).map(str),
    st.tuples(st.integers(0, 3), st.integers(1, 23)).map(lambda pair: f"{pair[0]}/{pair[1]}"),
    st.tuples(st.integers(0, 23), st.integers(0, 23)).map(lambda pair: f"{pair[0]}-{pair[1]}"),
    st.lists(st.integers(0, 4).map(str), min_size=1, max_size=3).map(",".join),
)
expressions = st.tuples(
    clock_fields, clock_fields, hour_fields, st.sampled_from(["* * ?", "? * SUN", "? * SAT,MON", "? * *"])
)


@settings(deadline=None, max_examples=100)
@given(
    turn=st.sampled_from(TURNS),
    parts=expressions,
    at=st.one_of(st.integers(0, 21_598), st.integers(-3_800, 3_800).map(lambda seconds: 10_800 + seconds)),
    dst=st.sampled_from(["cron", "quartz"]),
)
def test_every_second_around_a_turn_agrees_with_the_oracle(
    turn: tuple[str, datetime], parts: tuple[str, ...], at: int, dst: DaylightSaving
) -> None:
    seen = window(*turn)
    cron = Cron.parse(" ".join(parts), turn[0], dst)
    if dst == "cron":
        oracle: Fires = roving_fires if cron.fields.roving else fixed_fires
        fires = oracle(cron.fields, seen)
        later = [fire for fire in fires if fire > at]
    else:
        fires = quartz_fires(cron.fields, seen)
        later = [fire for fire in fires if fire > at and seen.walls[fire] >= seen.walls[at + 1]]
    start = seen.instant(at)
    end = seen.instant(len(seen.walls))

    expected = [seen.instant(fire) for fire in later][:40]
    found = [fire.astimezone(UTC) for fire in cron.times_after(start, 40)]
    assert [fire for fire in found if fire < end] == expected

    earlier = [fire for fire in fires if fire < at]
    before = cron.previous_before(start)
    if earlier:
        assert before is not None
        assert before.astimezone(UTC) == seen.instant(earlier[-1])
    elif before is not None:
        assert before < seen.instant(0)
