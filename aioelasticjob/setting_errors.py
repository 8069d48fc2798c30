"""Errors about settings: names that do not exist, and the mistakes that pydantic has found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches

from pydantic import ValidationError

from aioelasticjob.errors import InvalidSetting

OTHER_NAMES: Mapping[str, str] = {
    **dict.fromkeys(("interval", "every", "seconds"), "for every 5 seconds write cron='0/5 * * * * ?'"),
    **dict.fromkeys(("minutes", "hours"), "for every 5 minutes write cron='*/5 * * * *'"),
    **dict.fromkeys(("schedule", "trigger", "crontab"), "write cron='0 0 2 * * ?', or '0 2 * * *'"),
    **dict.fromkeys(("misfire_grace_time", "coalesce"), "see misfire and catch_up"),
    **dict.fromkeys(("timezone", "tz"), "write time_zone='Europe/Berlin'"),
    **dict.fromkeys(
        ("max_instances", "max_active_runs", "overlap", "allow_overlap"),
        "no two runs of an item overlap; see misfire for moments that come meanwhile, and items_at_once",
    ),
    **dict.fromkeys(("max_runtime", "time_limit", "soft_time_limit", "execution_timeout"), "write timeout='5m'"),
    **dict.fromkeys(("args", "kwargs", "params"), "see job_parameter"),
    "tags": "see labels",
    **dict.fromkeys(
        ("max_retries", "max_tries", "retries", "attempts"),
        'write retry=Retry(attempts=3), and outside of code retry={"attempts": 3}',
    ),
}
"""What to write in place of settings that other schedulers have."""


def unknown_setting(name: str, value: object, known: Iterable[str]) -> InvalidSetting:
    """Return the error for a setting that does not exist, which names the nearest that does."""
    near = get_close_matches(name, known := sorted(known), n=1)
    if name in OTHER_NAMES and "cron" in known:
        return InvalidSetting(name, value, f"there is no such setting; {OTHER_NAMES[name]}")
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
    return InvalidSetting(name, value, f"there is no such setting; {hint}")


def mistakes(error: ValidationError) -> Iterator[InvalidSetting]:
    """Return the errors that pydantic found, each as an ``InvalidSetting``."""
    for one in error.errors(include_url=False):
        cause = one.get("ctx", {}).get("error")
        if isinstance(cause, InvalidSetting):
            yield cause
        else:
            location = ".".join(str(part) for part in one["loc"]) or "settings"
            message = one["msg"].removeprefix("Value error, ")
            yield InvalidSetting(location, one.get("input"), message[:1].lower() + message[1:])


def never_fires(cron: str | None) -> InvalidSetting:
    """Return the error for a schedule that names no moment of any year."""
    return InvalidSetting("cron", cron, "names no moment of any year, so the job would never run: correct the day")
