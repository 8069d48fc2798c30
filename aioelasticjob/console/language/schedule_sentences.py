"""Schedules as sentences in the language of a page; in English the schedule describes itself."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Final, assert_never

from aioelasticjob.console.language.i18n import Language
from aioelasticjob.cron.description import MOST_TIMES, rows_of, span_of_hours, step_of
from aioelasticjob.cron.fields import (
    EVERY_YEAR,
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
from aioelasticjob.ground.times import time_text
from aioelasticjob.schedules import Schedule
from aioelasticjob.schedules.schedule import NAMED, interval_text

_WEEKDAYS: Final = ("", "周日", "周一", "周二", "周三", "周四", "周五", "周六")
_CLOSED: Final = {"skip": "休息日除外", "next": "休息日顺延至下一个非休息日", "previous": "休息日提前至上一个非休息日"}
_NUMBERS: Final = ("", "一", "二", "三", "四", "五")


def schedule_sentence(schedule: Schedule, translate: Language) -> str:
    """Return when a schedule fires."""
    if translate.code != "zh":
        return schedule.describe()
    settings = schedule.settings
    if settings.common_with:
        return f"以下计划共有的时刻：{'；'.join(schedule_sentence(one, translate) for one in schedule.parts)}"
    if schedule.crons:
        said = "；".join(_sentence(one.fields) for one in schedule.crons)
        text = f"{said}（{settings.time_zone}）"
    elif settings.every is not None:
        text = f"每隔 {interval_text(settings.every)}"
    else:
        text = "、".join(time_text(one) for one in schedule.dates[:NAMED])
        if len(schedule.dates) > NAMED:
            text += f" 等 {len(schedule.dates)} 个时刻"
    if settings.calendar:
        text += f"，{_CLOSED[settings.calendar_mode]}（日历：{'、'.join(settings.calendar)}）"
    if settings.start_at is not None:
        text += f"，从 {settings.start_at} 起"
    if settings.end_at is not None:
        text += f"，到 {settings.end_at} 为止"
    if settings.jitter:
        text += f"，各自推迟不超过 {interval_text(settings.jitter)}"
    return text


def _sentence(fields: Fields) -> str:
    parts = []
    if fields.years != EVERY_YEAR:
        parts.append(f"{_spans(fields.years)} 年")
    if len(fields.months) < 12:
        parts.append(f"{_spans(fields.months)} 月")
    if days := _days(fields.days):
        parts.append(days)
    clock = _clock(fields)
    if not parts and clock[0].isdecimal():
        return f"每天 {clock}"
    return "，".join([*parts, clock])


def _clock(fields: Fields) -> str:
    """Describe the time of day: as a list if it is short, as "每 …" if it is regular, otherwise field by field."""
    if len(fields.hours) * len(fields.minutes) * len(fields.seconds) <= MOST_TIMES:
        times = product(sorted(fields.hours), sorted(fields.minutes), sorted(fields.seconds))
        return "、".join(f"{hour:02}:{minute:02}:{second:02}" for hour, minute, second in times)
    hours = "" if len(fields.hours) == 24 else f"{_hours(fields.hours)}，"
    second = f"的第 {min(fields.seconds)} 秒" if fields.seconds != {0} else ""
    if len(fields.minutes) == 60 and (step := step_of(fields.seconds, 60)):
        return f"{hours}{_every(step, '秒')}"
    if len(fields.seconds) == 1:
        if step := step_of(fields.minutes, 60):
            return f"{hours}{_every(step, '分钟')}{second}"
        if len(fields.minutes) == 1 and (step := step_of(fields.hours, 24)):
            return f"{_every(step, '小时')}的第 {min(fields.minutes)} 分{second.removeprefix('的')}"
    if len(fields.minutes) == 60:
        return f"{hours}每分钟的第 {_spans(fields.seconds)} 秒"
    if fields.seconds == {0}:
        seconds = ""
    elif len(fields.seconds) == 60:
        seconds = "的每一秒"
    else:
        seconds = f"的第 {_spans(fields.seconds)} 秒"
    return f"{hours}每小时的第 {_spans(fields.minutes)} 分{seconds}"


def _every(step: int, unit: str) -> str:
    return f"每{unit}" if step == 1 else f"每 {step} {unit}"


def _hours(hours: frozenset[int]) -> str:
    """Describe some hours of the day: as a span if they are consecutive, also across midnight."""
    span = span_of_hours(hours)
    if span is None:
        return f"{_spans(hours)} 时"
    first, last = span
    return f"{first:02}:00 至 {last:02}:59"


def _days(days: Days) -> str:
    match days:
        case MonthDays(days=numbers):
            return "" if len(numbers) == 31 else f"每月 {_spans(numbers)} 日"
        case LastDay(before=before, working=working):
            if working and not before:
                return "每月最后一个工作日"
            day = f"每月最后一天之前 {before} 天" if before else "每月最后一天"
            return f"最接近{day}的工作日" if working else day
        case NearestWorkingDay(day=day):
            return f"最接近每月 {day} 日的工作日"
        case Weekdays(weekdays=weekdays):
            return "" if len(weekdays) == 7 else _week(weekdays)
        case LastWeekday(weekday=weekday):
            return f"每月最后一个{_WEEKDAYS[weekday]}"
        case NthWeekday(weekday=weekday, nth=nth):
            return f"每月第{_NUMBERS[nth]}个{_WEEKDAYS[weekday]}"
        case EitherDay(month_days=month_days, weekdays=weekdays):
            return f"{_days(month_days)}或{_week(weekdays.weekdays)}"
    assert_never(days)


def _week(weekdays: frozenset[int]) -> str:
    """Describe weekdays from Monday on, so that Saturday and Sunday are neighbours."""
    names = (*_WEEKDAYS[2:], _WEEKDAYS[1])
    said = []
    for row in rows_of((day - 2) % 7 for day in weekdays):
        if len(row) > 2:
            said.append(f"{names[row[0]]}至{names[row[-1]]}")
        else:
            said += [names[day] for day in row]
    return f"每{'、'.join(said)}"


def _spans(members: Iterable[int]) -> str:
    """Describe a set of numbers, three or more consecutive ones as a span: ``1、3、5 至 9``."""
    said = []
    for row in rows_of(members):
        if len(row) > 2:
            said.append(f"{row[0]} 至 {row[-1]}")
        else:
            said += [str(number) for number in row]
    return "、".join(said)
