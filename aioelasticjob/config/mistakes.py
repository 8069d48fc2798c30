"""Errors about settings: names that do not exist, and the mistakes that pydantic has found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches

from pydantic import ValidationError

from aioelasticjob.config.durations import as_seconds
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.schedules import Schedule
from aioelasticjob.schedules.schedule import SHORTEST, interval_text

SECONDS_IN = {"interval": 1, "seconds": 1, "minutes": 60, "hours": 3_600, "days": 86_400, "weeks": 604_800}
"""The names of intervals in other schedulers, with the seconds of one unit."""
TIME_LIMITS = ("max_runtime", "time_limit", "soft_time_limit", "execution_timeout")
OTHER_NAMES: Mapping[str, str] = {
    **dict.fromkeys(SECONDS_IN, "for every 5 minutes write every='5m'"),
    **dict.fromkeys(("schedule", "trigger", "crontab"), "write cron='0 0 2 * * ?', or '0 2 * * *'"),
    "start_date": "write start_at='2026-12-01T08:00'",
    "end_date": "write end_at='2026-12-31T20:00'",
    **dict.fromkeys(("run_date", "eta"), "write at='2026-12-24T18:00'"),
    **dict.fromkeys(("misfire_grace_time", "coalesce"), "see misfire and catch_up"),
    **dict.fromkeys(("timezone", "tz"), "write time_zone='Europe/Berlin'"),
    **dict.fromkeys(
        ("max_instances", "max_active_runs", "overlap", "allow_overlap"),
        "no two runs of an item overlap; see misfire for moments that come meanwhile, and items_at_once",
    ),
    **dict.fromkeys(TIME_LIMITS, "write timeout='5m'"),
    **dict.fromkeys(("args", "kwargs", "params"), "see job_parameter"),
    **dict.fromkeys(("shards", "shard_count", "items", "item_count", "partitions"), "write sharding_total_count=3"),
    "tags": "see labels",
    **dict.fromkeys(
        ("max_retries", "max_tries", "retries", "attempts"),
        'write retry=Retry(attempts=3), and outside of code retry={"attempts": 3}',
    ),
}
"""What to write in place of settings that other schedulers have."""
_WHAT_TO_WRITE: Mapping[str, str] = {
    "int_parsing": "must be a whole number, such as 3",
    "float_parsing": "must be a number, such as 0.5",
    "bool_parsing": "must be true or false",
}
"""By pydantic's names of mistakes, what is said in place of its text, which does not say what to write."""


def unknown_setting(name: str, value: object, known: Iterable[str]) -> InvalidSetting:
    """Return the error for a setting that does not exist, which names the nearest that does."""
    known = sorted(known)
    near = get_close_matches(name, known, n=1)
    if name in OTHER_NAMES and "cron" in known:
        hint = _advice(name, value)
    elif near:
        hint = f"did you mean {near[0]}?"
    else:
        hint = f"known are {', '.join(known)}"
    return InvalidSetting(name, value, f"there is no such setting; {hint}")


def _advice(name: str, value: object) -> str:
    """Return what to write in place of a setting of another scheduler: for exactly this value, if it can be read."""
    seconds = _seconds(value)
    if seconds is None:
        return OTHER_NAMES[name]
    if name in TIME_LIMITS:
        return f"write timeout={value!r}"
    if name not in SECONDS_IN:
        return OTHER_NAMES[name]
    wanted = seconds * SECONDS_IN[name]
    if wanted < SHORTEST:
        return f"the shortest interval is {SHORTEST:g} second: write every={SHORTEST:g}"
    return f"write every='{interval_text(wanted)}'"


def _seconds(value: object) -> float | None:
    """Return a duration in seconds; None if it is none, or none of which a setting could be made."""
    try:
        seconds = as_seconds(value)
    except ValueError:
        return None
    if not isinstance(seconds, int | float) or not 0.001 <= seconds <= 10**9:
        return None
    return seconds


def mistakes(error: ValidationError) -> Iterator[InvalidSetting]:
    """Return the errors that pydantic found, each as an ``InvalidSetting``."""
    for one in error.errors(include_url=False):
        cause = one.get("ctx", {}).get("error")
        if isinstance(cause, InvalidSetting):
            yield cause
        else:
            location = ".".join(str(part) for part in one["loc"]) or "settings"
            message = _WHAT_TO_WRITE.get(one["type"], one["msg"].removeprefix("Value error, "))
            yield InvalidSetting(location, one.get("input"), message[:1].lower() + message[1:])


def never_fires(schedule: Schedule) -> InvalidSetting:
    """Return the error for a schedule that has no moment."""
    for one in schedule.crons:
        if one.never_fires:
            expected = "names no moment of any year, so the job would never run: correct the day"
            return InvalidSetting("cron", one.expression, expected)
    settings = schedule.settings
    setting = "start_at" if settings.end_at is None else "end_at"
    between = f"no moment is left from start_at = {settings.start_at} until end_at = {settings.end_at}"
    return InvalidSetting(setting, getattr(settings, setting), between)


def sifted(build: Callable[..., object], given: Mapping[str, object]) -> tuple[list[InvalidSetting], dict[str, object]]:
    """Return the errors in settings, and the settings that are right.

    Settings with an error are removed and the rest is checked again, until there is no further error.
    """
    wrong = list[InvalidSetting]()
    rest = dict(given)
    while True:
        try:
            build(**rest)
            return wrong, rest
        except ValidationError as error:
            found = list(mistakes(error))
        except InvalidSetting as error:
            found = [error]
        wrong += found
        culprits = {one.setting.partition(".")[0] for one in found} & rest.keys()
        if not culprits:
            return wrong, rest
        rest = {name: value for name, value in rest.items() if name not in culprits}
