"""The slow truth: cron rules spelled out a second time, by definition and second by second, to hold the search to."""

from __future__ import annotations

import calendar
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import assert_never
from zoneinfo import ZoneInfo

from aioelasticjob.cron.fields import (
    Days,
    EitherDay,
    Fields,
    LastDay,
    LastWeekday,
    MonthDays,
    NearestWorkingDay,
    NthWeekday,
    Weekdays,
)

SECOND = timedelta(seconds=1)


@cache
def names_day(days: Days, day: date) -> bool:
    """Tell by looking at the calendar's page whether a rule for days means this one."""
    month = [entry for entry in calendar.Calendar().itermonthdates(day.year, day.month) if entry.month == day.month]
    same_weekday = [entry for entry in month if entry.weekday() == day.weekday()]
    match days:
        case MonthDays(days=numbers):
            return day.day in numbers
        case LastDay(before=before, working=working):
            if before >= len(month):
                return False
            return day == (_working(month, month[-1 - before]) if working else month[-1 - before])
        case NearestWorkingDay(day=number):
            if number <= len(month):
                return day == _working(month, month[number - 1])
            return number == len(month) + 1 and day == month[-1] and day.weekday() == calendar.FRIDAY
        case Weekdays(weekdays=weekdays):
            return _quartz_weekday(day) in weekdays
        case LastWeekday(weekday=weekday):
            return _quartz_weekday(day) == weekday and day == same_weekday[-1]
        case NthWeekday(weekday=weekday, nth=nth):
            return _quartz_weekday(day) == weekday and day in same_weekday[nth - 1 : nth]
        case EitherDay(month_days=month_days, weekdays=weekdays):
            return names_day(month_days, day) or names_day(weekdays, day)
    assert_never(days)


def names_date(fields: Fields, day: date) -> bool:
    return day.year in fields.years and day.month in fields.months and names_day(fields.days, day)


def names_second(fields: Fields, wall: datetime) -> bool:
    clock = wall.second in fields.seconds and wall.minute in fields.minutes and wall.hour in fields.hours
    return clock and names_date(fields, wall.date())


@dataclass(frozen=True, slots=True)
class Window:
    """Every second around a turn of a zone's clock, as the naive wall times that clock shows."""

    zone: str
    begins: datetime
    walls: tuple[datetime, ...]

    def instant(self, at: int) -> datetime:
        return self.begins + at * SECOND


@cache
def window(zone: str, turn: datetime, around: timedelta = timedelta(hours=3)) -> Window:
    """Watch a zone's clock from some hours before to some hours after an instant given in UTC."""
    info, begins = ZoneInfo(zone), turn - around
    seconds = int(2 * around.total_seconds())
    shown = ((begins + at * SECOND).astimezone(info).replace(tzinfo=None, fold=0) for at in range(seconds))
    return Window(zone, begins, tuple(shown))


def roving_fires(fields: Fields, seen: Window) -> list[int]:
    """Whenever the clock shows a named time."""
    return [at for at, wall in enumerate(seen.walls) if names_second(fields, wall)]


def fixed_fires(fields: Fields, seen: Window) -> list[int]:
    """When the clock first shows, or has jumped past, a named time."""
    fires: list[int] = []
    furthest = seen.walls[0] - SECOND
    for at, wall in enumerate(seen.walls):
        new = range(int((wall - furthest).total_seconds()))  # empty while a repeat lasts
        if any(names_second(fields, wall - back * SECOND) for back in new):
            fires.append(at)
        furthest = max(furthest, wall)
    return fires


def quartz_fires(fields: Fields, seen: Window) -> list[int]:
    """When the clock shows a named time for the last time."""
    last = {wall: at for at, wall in enumerate(seen.walls)}
    return sorted(at for wall, at in last.items() if names_second(fields, wall))


Fires = Callable[[Fields, Window], list[int]]


def _working(month: list[date], wanted: date) -> date:
    """Of the month's Mondays to Fridays, the nearest; Friday for a Saturday, Monday for a Sunday."""
    working = [day for day in month if day.weekday() < calendar.SATURDAY]
    return min(working, key=lambda day: abs(day - wanted))


def _quartz_weekday(day: date) -> int:
    return (day.weekday() + 1) % 7 + 1


TURNS: tuple[tuple[str, datetime], ...] = (
    ("America/New_York", datetime(2026, 3, 8, 7, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 11, 1, 6, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2026, 10, 25, 1, tzinfo=UTC)),
    ("Europe/Dublin", datetime(2026, 3, 29, 1, tzinfo=UTC)),  # summer time is standard there, winter time negative
    ("Australia/Lord_Howe", datetime(2026, 4, 4, 15, tzinfo=UTC)),  # half an hour
    ("Australia/Lord_Howe", datetime(2026, 10, 3, 15, 30, tzinfo=UTC)),
    ("Antarctica/Troll", datetime(2025, 3, 30, 1, tzinfo=UTC)),  # two hours
    ("America/Sao_Paulo", datetime(2018, 11, 4, 3, tzinfo=UTC)),  # midnight is skipped
    ("America/Sao_Paulo", datetime(2018, 2, 18, 2, tzinfo=UTC)),  # back to the day before
    ("Asia/Beirut", datetime(2026, 3, 28, 22, tzinfo=UTC)),
    ("America/St_Johns", datetime(2008, 11, 2, 2, 31, tzinfo=UTC)),  # at one minute past midnight
    ("Asia/Kathmandu", datetime(1985, 12, 31, 18, 30, tzinfo=UTC)),  # a quarter of an hour, over New Year
    ("America/Caracas", datetime(2007, 12, 9, 7, tzinfo=UTC)),
)
