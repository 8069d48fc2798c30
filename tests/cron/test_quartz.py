"""Reading Quartz expressions, and finding their days: each rule against its definition."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioelasticjob.cron import Cron, fire_times
from aioelasticjob.cron.fields import EVERY_YEAR, LastDay, MonthDays, Weekdays
from aioelasticjob.cron.quartz import HOUR, MINUTE, MONTH, MONTH_DAY, SECOND, WEEKDAY, YEAR, Unit
from aioelasticjob.errors import InvalidSetting
from tests.cron.oracle import names_date

START = datetime(2025, 3, 14, 15, 9, 26, tzinfo=UTC)
PLACES = {SECOND: 0, MINUTE: 1, HOUR: 2, MONTH_DAY: 3, MONTH: 4, WEEKDAY: 5, YEAR: 6}


def read(unit: Unit, text: str) -> frozenset[int]:
    """Return the set a field is read into, the other fields being anything."""
    tokens = ["0", "0", "0", "?", "*", "*", "*"] if unit is WEEKDAY else ["0", "0", "0", "*", "*", "?", "*"]
    tokens[PLACES[unit]] = text
    fields = Cron.parse(" ".join(tokens)).fields
    sets = [
        fields.seconds,
        fields.minutes,
        fields.hours,
        frozenset[int](),
        fields.months,
        frozenset[int](),
        fields.years,
    ]
    if unit is MONTH_DAY:
        assert isinstance(fields.days, MonthDays)
        return fields.days.days
    if unit is WEEKDAY:
        assert isinstance(fields.days, Weekdays)
        return fields.days.weekdays
    return sets[PLACES[unit]]


@pytest.mark.parametrize(
    ("unit", "text", "expected"),
    [
        (SECOND, "55-5/3", {55, 58, 1, 4}),
        (SECOND, "7-7", {7}),
        (SECOND, "5/0", {5}),
        (SECOND, "5-50/0", {5}),
        (SECOND, "*/0", set(range(60))),
        (SECOND, "/0", set(range(60))),
        (SECOND, "/20", {0, 20, 40}),
        (SECOND, "10-20/99", {10}),
        (SECOND, "00/030", {0, 30}),
        (SECOND, "*,5", set(range(60))),
        (HOUR, "22-2", {22, 23, 0, 1, 2}),
        (HOUR, "*/3,*/4", {0, 3, 4, 6, 8, 9, 12, 15, 16, 18, 20, 21}),
        (MONTH_DAY, "28-3", {28, 29, 30, 31, 1, 2, 3}),
        (MONTH_DAY, "30-2/2", {30, 1}),
        (MONTH_DAY, "1/31", {1}),
        (MONTH, "NOV-FEB,6", {11, 12, 1, 2, 6}),
        (MONTH, "11-2/2", {11, 1}),
        (MONTH, "dec", {12}),
        (WEEKDAY, "FRI-MON", {6, 7, 1, 2}),
        (WEEKDAY, "7-2/2", {7, 2}),
        (WEEKDAY, "L", {7}),
        (WEEKDAY, "1-7/10", {1}),
        (WEEKDAY, "mOn,wEd", {2, 4}),
        (YEAR, "2026-2032/3", {2026, 2029, 2032}),
        (YEAR, "2190/5", {2190, 2195}),
        (YEAR, "*/1000", {1970}),
        (YEAR, "2026/0", {2026}),
    ],
)
def test_a_field_is_read_as_quartz_reads_it(unit: Unit, text: str, expected: set[int]) -> None:
    assert read(unit, text) == expected


@st.composite
def items(draw: st.DrawFn, unit: Unit) -> tuple[str, set[int]]:
    """Draw an item and, walking around the clock step by step, what it means."""
    values = st.integers(unit.low, unit.high)
    first, last = draw(values), draw(values)
    step = draw(st.integers(0, unit.largest_step))
    match draw(st.sampled_from(["value", "every", "from", "range", "stepped range", "names"])):
        case "value":
            return f"{first:0{draw(st.integers(1, 3))}}", {first}
        case "every":
            star = draw(st.sampled_from(["*", ""]))
            return f"{star}/{step}", {
                value for value in range(unit.low, unit.high + 1) if (value - unit.low) % (step or 1) == 0
            }
        case "from":
            beyond = {value for value in range(first, unit.high + 1) if step and (value - first) % step == 0}
            return f"{first}/{step}", beyond or {first}
        case "names" if unit.names:
            return f"{unit.names[first - 1]}-{unit.names[last - 1].lower()}", around(unit, first, last, 1)
        case kind:
            if unit is YEAR:
                first, last = min(first, last), max(first, last)
            stride = step if kind == "stepped range" else 1
            text = f"{first}-{last}" + (f"/{step}" if kind == "stepped range" else "")
            return text, around(unit, first, last, stride) if stride else {first}


def around(unit: Unit, first: int, last: int, step: int) -> set[int]:
    members, at, walked = set(), first, 0
    while True:
        if walked % step == 0:
            members.add(at)
        if at == last:
            return members
        at, walked = (unit.low if at == unit.high else at + 1), walked + 1


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_a_list_is_the_union_of_its_items(data: st.DataObject) -> None:
    unit = data.draw(st.sampled_from(list(PLACES)))
    drawn = data.draw(st.lists(items(unit), min_size=1, max_size=4))
    assert read(unit, ",".join(text for text, _ in drawn)) == set().union(*(members for _, members in drawn))


month_days = st.one_of(
    st.sampled_from(["*", "L", "LW", "1,15,31", "29", "30-2", "31"]),
    st.integers(1, 31).map("{}W".format),
    st.integers(0, 30).map("L-{}".format),
    st.integers(0, 30).map("L-{}W".format),
)
weekdays = st.one_of(
    st.sampled_from(["*", "L", "MON-FRI", "6-2", "SUN"]),
    st.integers(1, 7).map("{}L".format),
    st.tuples(st.integers(1, 7), st.integers(1, 5)).map(lambda pair: f"{pair[0]}#{pair[1]}"),
)
day_fields = st.one_of(month_days.map(lambda day: (day, "?")), weekdays.map(lambda day: ("?", day)))
months = st.sampled_from(["*", "*", "2", "2,4", "NOV-FEB", "*/5"])


@settings(deadline=None, max_examples=120)
@given(days=day_fields, month=months, start=st.dates(date(2019, 1, 1), date(2033, 1, 1)))
def test_day_by_day_the_calendar_agrees(days: tuple[str, str], month: str, start: date) -> None:
    """Every day of 900 is looked at, so a fire missed or invented shows."""
    cron = Cron.parse(f"0 0 0 {days[0]} {month} {days[1]}")
    begin = datetime.combine(start, datetime.min.time(), UTC)
    expected = [at for n in range(900) if names_date(cron.fields, (at := begin + timedelta(days=n)).date())]
    end, found = begin + timedelta(days=900), []
    at = cron.next_after(begin - timedelta(seconds=1))
    while at is not None and at < end:
        found.append(at)
        at = cron.next_after(at)
    assert found == expected

    back: list[datetime] = []
    at = cron.previous_before(end)
    while at is not None and at >= begin:
        back.append(at)
        at = cron.previous_before(at)
    assert back[::-1] == expected


def test_the_31st_of_a_month_of_30_days_is_near_a_saturday_the_1st() -> None:
    fires = fire_times("0 0 12 31W 4 ?", "UTC", datetime(2020, 1, 1, tzinfo=UTC), 3)
    assert [fire.date() for fire in fires] == [date(2021, 4, 30), date(2027, 4, 30), date(2032, 4, 30)]


def test_a_schedule_may_end() -> None:
    assert fire_times("0 0 0 1 1 ? 2026,2027", "UTC", datetime(2026, 6, 1, tzinfo=UTC), 5) == [
        datetime(2027, 1, 1, tzinfo=UTC)
    ]
    assert fire_times("0 0 0 30 2 ?", "UTC", START, 5) == []
    last = Cron.parse("59 59 23 31 12 ?").next_after(datetime(2199, 12, 31, tzinfo=UTC))
    assert last == datetime(2199, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert Cron.parse("* * * * * ?").next_after(last) is None


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("0 0 12 * * *", r"exactly one of day-of-month and day-of-week must be '\?': write '0 0 12 \* \* \?'"),
        ("0 0 12 * * MON 2026", r"write '0 0 12 \? \* MON 2026'"),
        ("0 0 12 ? * ?", r"both '\?': write '0 0 12 \* \* \?'"),
        ("0 0 12 1 * MON", r"day-of-month '1' and day-of-week 'MON' cannot be combined"),
        ("0 0 12 ?X * MON", r"day-of-month '\?X': '\?' stands alone"),
        ("0 0 25 * * ?", r"hour '25': 25 is out of range, 0 to 23"),
        ("0 61 * * * ?", r"minute '61': 61 is out of range, 0 to 59"),
        ("0 0 0 ? * 0", r"day-of-week '0': 0 is out of range, 1 to 7, where 1 is Sunday"),
        ("0 0 0 ? * MONDAY", r"did you mean MON\?"),
        ("0 0 0 ? * FR", r"did you mean FRI\?"),
        ("0 0 0 1 JANUR ?", r"month 'JANUR': 'JANUR' is no name: did you mean JAN\?"),
        ("0 0 0 1 X ?", r"expected numbers 1 to 12 or JAN, FEB"),
        ("0 0 0 ? * MON-5", r"mixes a name and a number: write 2-5"),
        ("0 0 0 ? * MON-FRI/2", r"a name takes no step: write 2-6/2"),
        ("0 0 0 ? * MON/2", r"a name takes no step: write 2/2"),
        ("*/60 * * * * ?", r"second '\*/60': the step 60 is too large: at most 59"),
        ("0 0 */24 * * ?", r"hour '\*/24': the step 24 is too large: at most 23"),
        ("0-9/99999999999 * * * * ?", r"the step 99999999999 is too large"),
        ("5/ * * * * ?", r"'/' must be followed by a number"),
        ("5- * * * * ?", r"second '5-': '5-' cannot be read"),
        ("*-5 * * * * ?", r"is no range: write both ends, as in 0-59"),
        ("-5 * * * * ?", r"is no range"),
        ("1,,2 * * * * ?", r"a value is missing before or after a comma"),
        ("? * * * * ?", r"only day-of-month and day-of-week can be '\?'"),
        ("L * * * * ?", r"L, W and # belong to the day fields"),
        ("0 0 0 15,L * ?", r"L, W and # stand alone"),
        ("0 0 0 ? * 6#1,6#3", r"L, W and # stand alone"),
        ("0 0 0 ? * 6#6", r"a number from 1 to 5 follows '#'"),
        ("0 0 0 L-31 * ?", r"at most 30 days before the last one"),
        ("0 0 0 32W * ?", r"W follows a day from 1 to 31"),
        ("0 0 0 0W * ?", r"W follows a day from 1 to 31"),
        ("0 0 0 R * ?", r"day-of-month 'R': 'R' cannot be read"),
        ("0 0 0 1 1 ? 2200", r"year '2200': 2200 is out of range, 1970 to 2199"),
        ("0 0 0 1 1 ? 2030-2026", r"runs backwards: write 2026-2030"),
        ("0 0 0 1 1 ? 2026 *", r"expected 6 or 7 fields .*, not 8"),
        ("٣ * * * * ?", r"the character '٣' is not ASCII"),
        ("", r"expected 6 or 7 fields .*, not 0"),
    ],
)
def test_what_is_wrong_is_said_with_the_field_and_the_cure(expression: str, said: str) -> None:
    with pytest.raises(InvalidSetting, match=said) as refusal:
        Cron.parse(expression)
    assert (refusal.value.setting, refusal.value.value) == ("cron", expression)


def test_blanks_tabs_and_a_final_newline_do_not_matter() -> None:
    assert Cron.parse("\n  0  0\t12 * \n* ?\r\n").fields == Cron.parse("0 0 12 * * ?").fields
    for torn in ("0\n0 12 * * ?", "0 0 12 * *\n?", "0\xa00 12 * * ?", "0\v0 12 * * ?", "\0 0 12 * * ?"):
        with pytest.raises(InvalidSetting):
            Cron.parse(torn)


def test_the_parsed_sets_are_open() -> None:
    fields = Cron.parse("0 0/30 8-9 L-3W * ? 2026").fields
    assert (fields.seconds, fields.minutes, fields.hours) == ({0}, {0, 30}, {8, 9})
    assert (fields.days, fields.years, fields.roving) == (LastDay(3, working=True), {2026}, False)
    assert Cron.parse("0 0 12 * * ?").fields.years == EVERY_YEAR
