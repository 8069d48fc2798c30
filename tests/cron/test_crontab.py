"""Reading crontab lines: croniter's reading, less its misreadings, and its own search as a second opinion."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from croniter import CroniterError, croniter
from hypothesis import given, settings
from hypothesis import strategies as st

from aioelasticjob.cron import Cron
from aioelasticjob.cron.crontab import ALIASES, COLUMNS, HOUR, MINUTE, MONTH, MONTH_DAY, WEEKDAY, Column
from aioelasticjob.cron.fields import EVERY_DAY, EitherDay, MonthDays, Weekdays
from aioelasticjob.errors import InvalidSetting


def read(column: Column, text: str) -> set[int]:
    """Return the set a field is read into, weekdays as crontab counts them."""
    line = ["*"] * 5
    line[COLUMNS.index(column)] = text
    fields = Cron.parse(" ".join(line)).fields
    if isinstance(fields.days, Weekdays):
        return {day - 1 for day in fields.days.weekdays}
    days = set(fields.days.days) if isinstance(fields.days, MonthDays) else set()
    sets = [fields.minutes, fields.hours, days, fields.months, range(7)]
    return set(sets[COLUMNS.index(column)])


@pytest.mark.parametrize(
    ("column", "text", "expected"),
    [
        (MINUTE, "7-7", {7}),  # croniter alone: every minute
        (MINUTE, "05-5", {5}),
        (MINUTE, "5/20", {5, 25, 45}),
        (MINUTE, "59/5", {59}),
        (HOUR, "22-2", {22, 23, 0, 1, 2}),
        (HOUR, "8-18/5", {8, 13, 18}),
        (MONTH_DAY, "28-3", {28, 29, 30, 31, 1, 2, 3}),
        (MONTH, "nov-FEB", {11, 12, 1, 2}),
        (MONTH, "jan-1", {1}),
        (MONTH, "jan/4", {1, 5, 9}),
        (WEEKDAY, "7", {0}),
        (WEEKDAY, "7-0", {0}),
        (WEEKDAY, "5-7", {5, 6, 0}),
        (WEEKDAY, "0-7", set(range(7))),
        (WEEKDAY, "mon-fri", {1, 2, 3, 4, 5}),
        (WEEKDAY, "FRI-MON", {5, 6, 0, 1}),
        (WEEKDAY, "mon/2", {1, 3, 5}),
        (WEEKDAY, "*/2", {0, 2, 4, 6}),
    ],
)
def test_a_field_is_read_as_crontab_means_it(column: Column, text: str, expected: set[int]) -> None:
    assert read(column, text) == expected


@settings(deadline=None, max_examples=120)
@given(st.data())
def test_plain_ranges_and_steps_are_what_they_say(data: st.DataObject) -> None:
    column = data.draw(st.sampled_from(COLUMNS))
    high = 6 if column is WEEKDAY else column.high
    first, last = data.draw(st.integers(column.low, high)), data.draw(st.integers(column.low, high))
    step = data.draw(st.none() | st.integers(1, column.largest_step))
    if first <= last:
        expected = set(range(first, last + 1, step or 1))
    else:
        expected = {*range(first, high + 1), *range(column.low, last + 1)}
        step = None
    assert read(column, f"{first}-{last}" + (f"/{step}" if step else "")) == expected


@pytest.mark.parametrize("alias", ALIASES)
def test_abbreviations_are_the_lines_they_stand_for(alias: str) -> None:
    assert Cron.parse(alias.upper()).fields == Cron.parse(ALIASES[alias]).fields


def test_two_restricted_day_fields_are_an_or() -> None:
    fields = Cron.parse("30 4 1,15 * 5").fields
    assert fields.days == EitherDay(MonthDays(frozenset({1, 15})), Weekdays(frozenset({6})))
    assert Cron.parse("30 4 * * 5").fields.days == Weekdays(frozenset({6}))
    assert Cron.parse("30 4 1,15 * *").fields.days == MonthDays(frozenset({1, 15}))
    assert Cron.parse("30 4 1,15 * 0-6").fields.days == EVERY_DAY


def numbers(low: int, high: int) -> st.SearchStrategy[str]:
    values = st.integers(low, high)
    return st.one_of(
        st.just("*"),
        values.map(str),
        st.lists(values, min_size=2, max_size=3).map(lambda some: ",".join(map(str, some))),
        st.tuples(values, values).filter(lambda pair: pair[0] < pair[1]).map(lambda pair: f"{pair[0]}-{pair[1]}"),
        st.integers(2, high).map("*/{}".format),
    )


@settings(deadline=None, max_examples=50)
@given(
    line=st.tuples(numbers(0, 59), numbers(0, 23), numbers(1, 28), numbers(1, 12), numbers(0, 6)).map(" ".join),
    start=st.datetimes(datetime(2000, 1, 1), datetime(2060, 1, 1)),
)
def test_the_search_agrees_with_croniters_own(line: str, start: datetime) -> None:
    opinion = croniter(line, start)
    expected = [opinion.get_next(datetime).replace(tzinfo=UTC) for _ in range(2)]
    assert Cron.parse(line).times_after(start.replace(tzinfo=UTC), 2) == expected
    back = croniter(line, start).get_prev(datetime).replace(tzinfo=UTC)
    assert Cron.parse(line).previous_before(start.replace(tzinfo=UTC)) == back


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("61 * * * *", r"minute '61': 61 is out of range, 0 to 59"),
        ("* 24 * * *", r"hour '24': 24 is out of range, 0 to 23"),
        ("* * * foo *", r"month 'FOO': 'FOO' is unknown: expected numbers 1 to 12 or JAN"),
        ("* * * * 1-8", r"day-of-week '1-8': 8 is out of range, 0 to 7"),
        ("*/0 * * * *", r"the step 0 is out of range, 1 to 59"),
        ("*/90 * * * *", r"the step 90 is out of range, 1 to 59"),
        ("* 22-2/3 * * *", r"a range that wraps takes no step"),
        ("*-5 * * * *", r"is no range"),
        ("5,,6 * * * *", r"a value is missing"),
        ("R * * * *", r"minute 'R': 'R' is not one of"),
        ("R(0-9) * * * *", r"is not one of"),
        ("H * * * *", r"is not one of"),
        ("* * L * *", r"Quartz's \?, L, W and # need its 6 or 7 fields"),
        ("* * * * 5#2", r"Quartz's \?, L, W and # need its 6 or 7 fields"),
        ("0 12 * * ?", r"for Quartz add the seconds: write '0 0 12 \* \* \?'"),
        ("٣ * * * *", r"is not ASCII"),
        ("x", r"expected 6 or 7 fields .*, not 1$"),
        ("CRON_TZ=Asia/Tokyo 0 2 * * *", "leave out CRON_TZ=Asia/Tokyo, and set time_zone to 'Asia/Tokyo'$"),
        ("TZ=Asia/Tokyo 0 0 2 * * ?", "leave out TZ=Asia/Tokyo, and set time_zone to 'Asia/Tokyo'$"),
        ("CRON_TZ=UTC @daily", "set time_zone to 'UTC'$"),
        ("0 0 *", r"expected 6 or 7 fields \(Quartz, seconds first\) or 5 \(crontab, minutes first\), not 3"),
        ("@reboot", r"no such abbreviation: expected one of @yearly"),
        ("@daily 5", r"no such abbreviation"),
    ],
)
def test_what_is_wrong_is_said(line: str, said: str) -> None:
    with pytest.raises(InvalidSetting, match=said) as refusal:
        Cron.parse(line)
    assert refusal.value.setting == "cron"


@pytest.mark.parametrize(
    "line", ["0 0 31 2 ?", "0 25 * * ?", "0 12 ? * ?", "0 0 0 31 2 *", "0 0 25 ? * ?", "0 0 0 * * 1 1969"]
)
def test_nothing_is_suggested_that_is_wrong_as_well_or_never_fires(line: str) -> None:
    with pytest.raises(InvalidSetting) as refusal:
        Cron.parse(line)
    assert "write '" not in str(refusal.value)


@pytest.mark.parametrize("line", ["0 12 * * *", "@daily", "@reboot"])
def test_quartzs_rule_takes_quartzs_dialect_only(line: str) -> None:
    with pytest.raises(InvalidSetting, match=r"dst='quartz' reads Quartz's 6 or 7 fields only|no such abbreviation"):
        Cron.parse(line, dst="quartz")


def test_should_croniter_refuse_more_one_day_it_is_still_our_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(line: str) -> None:
        raise CroniterError(f"no {line}")

    monkeypatch.setattr(croniter, "expand", refuse)
    with pytest.raises(InvalidSetting, match=r"cannot be read: no 0 0 \* \* \*"):
        Cron.parse("@daily")
