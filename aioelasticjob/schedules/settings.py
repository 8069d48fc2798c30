"""The settings of a job that decide at which moments it runs."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from typing import Self

from aioelasticjob.cron import DaylightSaving
from aioelasticjob.schedules.calendars import CalendarMode

KEYS: Mapping[str, str] = {
    "cron": "cron",
    "every": "every",
    "at": "at",
    "time_zone": "timeZone",
    "dst": "dst",
    "start_at": "startAt",
    "end_at": "endAt",
    "jitter": "jitter",
    "calendar": "calendar",
    "calendar_mode": "calendarMode",
}
"""The settings that decide the moments, each with its key in the registry."""
COMMON = "commonWith"
"""The key of the schedules whose common moments count; no setting of a job has it."""


@dataclass(frozen=True, slots=True)
class ScheduleSettings:
    """The settings that decide the moments of a job, as the registry holds them."""

    cron: str | None = None
    """One expression, or several with a semicolon between them."""
    every: float | None = None
    """Seconds between two moments."""
    at: tuple[str, ...] = ()
    """Moments as text."""
    time_zone: str = "UTC"
    dst: DaylightSaving = "cron"
    start_at: str | None = None
    end_at: str | None = None
    jitter: float = 0.0
    """By how many seconds the runs of a moment may be delayed."""
    calendar: tuple[str, ...] = ()
    """The names of calendars."""
    calendar_mode: CalendarMode = "skip"
    contents: tuple[str, ...] = ()
    """The hash of the contents of each calendar, in their order; empty for one that is missing."""
    common_with: tuple[ScheduleSettings, ...] = ()
    """Other schedules: only the moments that all of them have are moments of this one.

    A job that follows several others has such a schedule.
    """

    @classmethod
    def of_json(cls, found: Mapping[str, object]) -> Self:
        """Return the settings in an object of the registry; those that it does not have are the default ones.

        Raises:
            TypeError: a value has another type.
            ValueError: the rule for daylight saving is unknown.
        """
        every = found.get("every")
        calendar = _texts(found.get("calendar", []))
        contents = _texts(found.get("contents", []))
        if len(contents) != len(calendar):
            raise ValueError("each calendar has contents")
        return cls(
            cron=_text(found.get("cron")),
            every=None if every is None else _seconds(every),
            at=_texts(found.get("at", [])),
            time_zone=_required_text(found.get("timeZone", "UTC")),
            dst=_dst(found.get("dst", "cron")),
            start_at=_text(found.get("startAt")),
            end_at=_text(found.get("endAt")),
            jitter=_seconds(found.get("jitter", 0)),
            calendar=calendar,
            calendar_mode=_mode(found.get("calendarMode", "skip")),
            contents=contents,
            common_with=tuple(map(cls.of_json, _objects(found.get(COMMON, [])))),
        )

    @property
    def all_contents(self) -> tuple[str, ...]:
        """The hashes of the contents of calendars that these settings name, also those of other schedules."""
        found = [one for each in (self, *self.common_with) for one in each.contents]
        return tuple(dict.fromkeys(found))

    def knowing(self, contents: Container[str]) -> ScheduleSettings:
        """Return these settings, in which calendars are missing whose contents are not among these."""
        known = tuple(one if one in contents else "" for one in self.contents)
        others = tuple(one.knowing(contents) for one in self.common_with)
        return replace(self, contents=known, common_with=others)

    def as_json(self) -> dict[str, object]:
        """Return the settings as the registry holds them."""
        values = {key: getattr(self, name) for name, key in KEYS.items()}
        values |= {"at": list(self.at), "calendar": list(self.calendar), "contents": list(self.contents)}
        if self.common_with:
            values |= {COMMON: [one.as_json() for one in self.common_with]}
        return values


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is no number of seconds")
    return float(value)


def _objects(value: object) -> list[Mapping[str, object]]:
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise TypeError(f"{value!r} is no list of schedules")
    return value


def _dst(value: object) -> DaylightSaving:
    if value == "cron":
        return "cron"
    if value == "quartz":
        return "quartz"
    raise ValueError(f"{value!r} is no rule for daylight saving")


def _mode(value: object) -> CalendarMode:
    if value == "skip":
        return "skip"
    if value == "next":
        return "next"
    if value == "previous":
        return "previous"
    raise ValueError(f"{value!r} says nothing of moments on closed days")


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is no list")
    return tuple(map(_required_text, value))


def _text(value: object) -> str | None:
    return None if value is None else _required_text(value)


def _required_text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
