"""The value: zones, edges of time, sentences, and that no input makes it work long."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioelasticjob.cron import Cron, DaylightSaving, fire_times
from aioelasticjob.cron.fields import Days
from aioelasticjob.cron.search import Search
from aioelasticjob.cron.zone import zone_named
from aioelasticjob.errors import InvalidSetting

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
DST: list[DaylightSaving] = ["cron", "quartz"]


@pytest.mark.parametrize(
    ("name", "offset"),
    [
        ("GMT+8", 480),
        ("GMT+8:00", 480),
        ("GMT+08:00", 480),
        ("GMT+0530", 330),
        ("GMT-09:30", -570),
        ("GMT-12", -720),
        ("GMT", 0),
        ("GMT+14:00", 840),
        ("GMT-3", -180),
        ("Etc/GMT+8", -480),
        ("Asia/Kathmandu", 345),
        ("UTC", 0),
        ("EST5EDT", -300),
    ],
)
def test_zones_are_named_as_iana_and_java_do(name: str, offset: int) -> None:
    (fire,) = fire_times("0 0 6 * * ?", name, NOON, 1)
    assert fire.utcoffset() == timedelta(minutes=offset)
    assert (fire.hour, fire.minute) == (6, 0)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Europe/Berln", "did you mean 'Europe/Berlin'"),
        ("UTC+8", r"did you mean 'GMT\+8'"),
        ("GMT+24", "an offset has at most 23 hours"),
        ("GMT+24:99", "an offset has at most 23 hours"),
        ("GMT+8:60", "the minutes of an offset are 00 to 59"),
        ("GMT+5:99", "the minutes of an offset are 00 to 59"),
        ("GMT+8:0", "no such time zone"),
        ("GMT+٨", "no such time zone"),
        ("", "no such time zone: expected a name such as 'Europe/Berlin'"),
        ("America", "no such time zone"),
        ("Europe/", "no such time zone"),
        ("../UTC", "no such time zone"),
        ("/etc/localtime", "no such time zone"),
        ("right/UTC", "no such time zone"),
        ("localtime", "no such time zone"),
        ("tzdata.zi", "no such time zone"),
        ("leapseconds", "no such time zone"),
        ("UTC\0", "no such time zone"),
        ("A" * 10_000_000, "no such time zone"),
    ],
    ids=lambda text: ascii(text[:20]),
)
def test_an_unknown_zone_is_refused(name: str, said: str) -> None:
    with pytest.raises(InvalidSetting, match=said) as refusal:
        Cron.parse("0 0 6 * * ?", name)
    assert refusal.value.setting == "time_zone"
    assert len(str(refusal.value)) < 400


@pytest.mark.parametrize(
    ("arguments", "setting"),
    [
        ((None, "UTC", NOON, 1), "cron"),
        ((b"* * * * *", "UTC", NOON, 1), "cron"),
        (("* * * * *", None, NOON, 1), "time_zone"),
        (("* * * * *", "UTC", None, 1), "start"),
        (("* * * * *", "UTC", NOON.timestamp(), 1), "start"),
        (("* * * * *", "UTC", NOON, None), "n"),
        (("* * * * *", "UTC", NOON, 1.0), "n"),
    ],
)
def test_what_is_of_another_type_is_refused_by_name(arguments: tuple[Any, ...], setting: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        fire_times(*arguments)
    assert refused.value.setting == setting


def test_the_start_may_be_in_any_zone_but_must_have_one() -> None:
    cron = Cron.parse("0 0 6 * * ?", "Asia/Tokyo")
    for zone in (UTC, timezone(timedelta(hours=-12)), ZoneInfo("America/New_York")):
        assert cron.next_after(NOON.astimezone(zone)) == datetime(2026, 11, 20, 21, tzinfo=UTC)
    with pytest.raises(InvalidSetting, match="aware datetime"):
        cron.next_after(datetime(2026, 1, 1))
    with pytest.raises(InvalidSetting, match="aware datetime"):
        cron.previous_before(datetime(2026, 1, 1))


def test_after_is_strictly_after_and_before_strictly_before() -> None:
    cron, fire, blink = Cron.parse("0 0 12 * * ?"), NOON, timedelta(microseconds=1)
    assert cron.next_after(fire - blink) == fire
    assert cron.next_after(fire) == cron.next_after(fire + blink) == fire + timedelta(days=1)
    assert cron.previous_before(fire + blink) == fire
    assert cron.previous_before(fire) == cron.previous_before(fire - blink) == fire - timedelta(days=1)
    assert cron.times_after(fire, 0) == cron.times_after(fire, -1) == []


@pytest.mark.parametrize("dst", DST)
@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Pacific/Kiritimati", "GMT-12", "Africa/Casablanca"])
def test_the_ends_of_time_are_answered(zone: str, dst: DaylightSaving) -> None:
    cron = Cron.parse("* * * * * ?", zone, dst)
    first = datetime(1970, 1, 1, tzinfo=zone_named(zone))
    last = datetime(2199, 12, 31, 23, 59, 59, tzinfo=zone_named(zone))
    for hours in (-23, -12, 0, 14, 23):
        edge = timezone(timedelta(hours=hours))
        beginning, end = datetime.min.replace(tzinfo=edge), datetime.max.replace(tzinfo=edge)
        assert (cron.next_after(beginning), cron.next_after(end)) == (first, None)
        assert (cron.previous_before(beginning), cron.previous_before(end)) == (None, last)


def test_equal_settings_are_equal_values_and_travel_between_processes() -> None:
    cron = Cron.parse("0 0 2 ? * MON-FRI", "Europe/Berlin")
    assert cron == Cron.parse("0 0 2 ? * MON-FRI", "Europe/Berlin")
    assert cron != Cron.parse("0 0 2 ? * MON-FRI", "Europe/Berlin", "quartz")
    assert hash(cron) == hash(Cron.parse("0 0 2 ? * MON-FRI", "Europe/Berlin"))
    assert repr(cron) == "Cron(expression='0 0 2 ? * MON-FRI', time_zone='Europe/Berlin', dst='cron')"
    thawed = pickle.loads(pickle.dumps(cron))
    assert thawed == cron
    assert thawed.next_after(NOON) == cron.next_after(NOON) == datetime(2026, 11, 23, 1, tzinfo=UTC)


def test_a_third_rule_for_daylight_saving_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="dst = 'java': expected 'cron' or 'quartz'"):
        Cron.parse("* * * * * ?", dst="java")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("expression", "sentence"),
    [
        ("0 0 2 ? * MON-FRI", "At 02:00:00, Monday to Friday"),
        ("* * * * * ?", "Every second"),
        ("0/10 * * * * ?", "Every 10 seconds"),
        ("0 * 8 * * ?", "Every minute from 08:00 to 08:59"),
        ("15 * * * * ?", "Every minute at second 15"),
        ("0 0/15 8-17 ? * MON-FRI", "Every 15 minutes from 08:00 to 17:59, Monday to Friday"),
        ("0 0/15 22-2 * * ?", "Every 15 minutes from 22:00 to 02:59"),
        ("0 0/15 1,5,6 * * ?", "Every 15 minutes in the hours 1, 5 and 6"),
        ("0 0 0/2 * * ?", "Every 2 hours at minute 0"),
        ("20 30 * * * ?", "Every hour at minute 30 at second 20"),
        ("*/7 * * * * ?", "At second 0, 7, 14, 21, 28, 35, 42, 49 and 56 of every minute"),
        ("0 10-20 * * * ?", "At minute 10 to 20 of every hour"),
        ("* 0-4 9 * * ?", "At every second of minute 0 to 4 from 09:00 to 09:59"),
        ("0 0 2,14 * * ?", "At 02:00:00 and 14:00:00"),
        ("0 0 12 L * ?", "At 12:00:00, on the last day of the month"),
        ("0 0 12 L-1 * ?", "At 12:00:00, 1 day before the last day of the month"),
        ("0 0 12 LW * ?", "At 12:00:00, on the last working day of the month"),
        ("0 0 12 L-3W * ?", "At 12:00:00, on the working day nearest to 3 days before the last day of the month"),
        (
            "0 0 12 15W 1,3 ? 2026-2030",
            "At 12:00:00, on the working day nearest to day 15 of the month, in January and March",
        ),
        (
            "0 0 12 ? 11-2 FRIL 2027",
            "At 12:00:00, on the last Friday of the month, in January, February, November and December",
        ),
        ("0 0 12 ? 6-8 6#3", "At 12:00:00, on the third Friday of the month, in June to August"),
        ("0 0 12 1,15 * ?", "At 12:00:00, on days 1 and 15 of the month"),
        ("0 9 1 * MON", "At 09:00:00, on day 1 of the month or on Monday"),
        ("0 0 * * 6,0", "At 00:00:00, Saturday and Sunday"),
        ("@hourly", "Every hour at minute 0"),
    ],
)
def test_a_schedule_is_said_in_plain_words(expression: str, sentence: str) -> None:
    said = Cron.parse(expression, "Europe/Berlin").describe()
    assert said.startswith(sentence)
    assert said.removeprefix(sentence) in {
        ", Europe/Berlin",
        ", in 2026 to 2030, Europe/Berlin",
        ", in 2027, Europe/Berlin",
    }


@dataclass(slots=True)
class Work:
    months: int = 0
    conversions: int = 0


@dataclass(frozen=True, slots=True)
class CountedDays:
    days: Days
    work: Work

    def mask(self, year: int, month: int) -> int:
        self.work.months += 1
        return self.days.mask(year, month)


@dataclass
class CountedZone(tzinfo):
    zone: tzinfo
    work: Work = field(compare=False)

    __hash__ = tzinfo.__hash__

    def utcoffset(self, when: datetime | None) -> timedelta | None:
        self.work.conversions += 1
        return None if when is None else self.zone.utcoffset(when.replace(tzinfo=self.zone))

    def dst(self, when: datetime | None) -> timedelta | None:
        return None if when is None else self.zone.dst(when.replace(tzinfo=self.zone))

    def fromutc(self, when: datetime) -> datetime:
        self.work.conversions += 1
        return self.zone.fromutc(when.replace(tzinfo=self.zone)).replace(tzinfo=self)


def counted(cron: Cron) -> tuple[Cron, Work]:
    work = Work()
    search = Search(replace(cron.fields, days=CountedDays(cron.fields.days, work)))  # type: ignore[arg-type]
    return replace(cron, _search=search, _zone=CountedZone(cron._zone, work)), work


HARD = [
    "0 0 0 30 2 ?",
    "0 0 0 31 2,4,6,9,11 ?",
    "0 0 0 L-30 2,4 ?",
    "0 0 0 31W 2 ?",
    "0 0 0 ? 2 MON#5",
    "0 0 0 29 2 ? 2100",
    "0 0 0 29 2 ? */100",
    "59 59 23 31 12 ? 2199",
    "0 30 2 ? 3 1#2",  # New York's gap, every year
    "* 0/1 2 ? 3,10,11 1#2",
    "0 30 2 ? 3,4,10 1L",
    "* * 2 * * ?",
    "0 30 0/23 * * ?",
    "* * * * * ?",
    "* * * 30 12 ? 2011",
]
ZONES = [
    "UTC",
    "America/New_York",
    "Europe/Berlin",
    "Pacific/Apia",
    "Africa/Casablanca",
    "Australia/Lord_Howe",
    "GMT+8",
]


@settings(deadline=None, max_examples=200)
@given(
    expression=st.sampled_from(HARD),
    zone=st.sampled_from(ZONES),
    dst=st.sampled_from(DST),
    start=st.one_of(
        st.datetimes(datetime.min + timedelta(days=1), datetime.max - timedelta(days=1)),
        st.datetimes(datetime(2011, 12, 28), datetime(2012, 1, 2)),
        st.datetimes(datetime(2026, 3, 6), datetime(2026, 3, 10)),
        st.datetimes(datetime(2026, 10, 31), datetime(2026, 11, 2)),
    ),
)
def test_no_search_works_long(expression: str, zone: str, dst: DaylightSaving, start: datetime) -> None:
    """A look at a month or a conversion takes about a microsecond: these bounds stay below 20 ms."""
    cron, work = counted(Cron.parse(expression, zone, dst))
    plain = Cron.parse(expression, zone, dst)
    for found, expected in (
        (cron.next_after(start.replace(tzinfo=UTC)), plain.next_after(start.replace(tzinfo=UTC))),
        (cron.previous_before(start.replace(tzinfo=UTC)), plain.previous_before(start.replace(tzinfo=UTC))),
    ):
        assert (found and found.astimezone(UTC)) == (expected and expected.astimezone(UTC))
    assert work.months <= 2 * 230 * 14
    assert work.conversions <= 2 * 230 * 2 * 20


@pytest.mark.parametrize(
    "hostile",
    [
        "x" * 10_000_000,
        "é" * 10_000_000,
        "*/1," * 100_000,
        " " * 10_000_000,
        "0 " * 5_000_000,
        "9" * 1_900 + " * * * * ?",
        "0 0 0 1 " + "J" * 1_900 + " ?",
        "0 0 0 " + "L-" * 900 + " * ?",
        "1-" * 900 + "1 * * * *",
        "mon-fri," * 240 + "1 * * * *",
    ],
    ids=lambda text: f"{text[:6]}… of {len(text)}",
)
def test_hostile_text_is_refused_in_a_short_message(hostile: str) -> None:
    with pytest.raises(InvalidSetting) as refusal:
        Cron.parse(hostile)
    assert len(str(refusal.value)) < 1_000
    assert len(str(refusal.value.value)) < 200
