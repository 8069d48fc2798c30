"""The schedule of a job and the former ones, as the leader notes them in a node when the configuration has changed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from typing import Any

from aioelasticjob.config.job import JobConfig
from aioelasticjob.core import records
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.encoding import json_object
from aioelasticjob.registry.tree import Node
from aioelasticjob.schedules import Schedule, ScheduleSettings, schedule_of
from aioelasticjob.schedules.calendars import Calendar
from aioelasticjob.schedules.schedule import NO_CALENDARS

MAX_FORMER_SCHEDULES = 8
"""How many former schedules are kept: their last moments may still have to be reported as missed."""


CONFIG = "config"
"""The key of the transaction that wrote the configuration whose schedule is noted."""


AFTER = "after"
"""The key of the jobs that a job follows, beside the schedule that it has from them."""
MARKS = "marks"
"""The key of the transactions that made the marks of these jobs."""
FOREVER = records.MAX_MILLISECONDS
"""The end of the time in which the newest schedule is in force."""


@dataclass(frozen=True, slots=True)
class InForce:
    """A schedule, and the time in which it is, or was, in force: moments after ``since`` and up to ``until``.

    Times are in milliseconds since the epoch.
    """

    schedule: Schedule | None
    since: int
    until: int
    recorded: bool
    """Whether runs were recorded while it was in force."""
    follows: tuple[str, ...] = ()
    """The jobs whose moments these are; none if they are the job's own."""


@dataclass(frozen=True, slots=True)
class Schedules:
    """What is known of a job's schedules.  Times are in seconds since the epoch, by the registry's clock."""

    config: JobConfig
    noted: tuple[Mapping[str, Any], ...]
    """The schedules that the leader has noted, the newest last, each with the time (ms) at which it was written."""
    is_noted: bool
    """Whether the leader has noted the schedule of the configuration."""
    made_at: float
    """When the job was made: if nothing is noted, its schedule may have been in force since then."""
    contents: Mapping[str, Calendar]
    """The contents of the calendars that these schedules name, by their hashes."""

    @classmethod
    def of(
        cls, config: JobConfig, written: Node | None, note: Node | None, kept: Mapping[str, Calendar] = NO_CALENDARS
    ) -> Schedules:
        """Return what two nodes say: that of the configuration, ``written``, and that of the leader's note.

        ``kept`` has the contents of calendars beside the note.
        """
        noted = () if note is None else _noted(note.data, round(note.stat.ctime * 1000))
        is_noted = bool(noted) and _is_same(noted[-1], config)
        made_at = 0.0 if written is None else written.stat.ctime
        return cls(config, noted, is_noted, made_at, {**config.contents, **kept})

    @property
    def since(self) -> int:
        """Since when the newest schedule that is noted is in force, in milliseconds; 0 if none is noted."""
        return int(self.noted[-1]["since"]) if self.noted else 0

    @property
    def follows(self) -> tuple[str, ...]:
        """The jobs that are followed by the newest schedule that is noted."""
        return tuple(self.noted[-1].get(AFTER, ())) if self.noted else ()

    @property
    def periods(self) -> tuple[InForce, ...]:
        """The schedules since records were last switched on or off, oldest first, and last the one that is followed.

        That is the newest one that the leader has noted.  A schedule is followed only when it is noted: then all
        instances agree since when it is in force.
        """
        if not self.noted:
            since = int(self.made_at * 1000)
            return (InForce(self.config.schedule, since, FOREVER, self.config.monitor_execution),)
        # one that was noted while the clock was ahead may begin later than its successors: they replace it all the same
        ends = [FOREVER]
        for one in self.noted[:0:-1]:
            ends.append(min(one["since"], ends[-1]))
        ends.reverse()
        found = list[InForce]()
        for one, until in zip(self.noted, ends, strict=True):
            recorded = one["monitorExecution"] is True
            if found and found[-1].recorded is not recorded:
                found.clear()
            schedule = _schedule(one, self.config.job_name, self.contents)
            found.append(InForce(schedule, one["since"], until, recorded, tuple(one.get(AFTER, ()))))
        return tuple(found)

    def replaced_at(self, since: int, recorded: bool) -> int | None:
        """Return when a schedule ended that was in force after ``since``, if records were switched on or off since.

        ``recorded`` says whether runs were recorded while it was in force.  None if they were not switched.
        """
        # one that was noted while the clock was ahead may begin later than its successors: only the newest ones count
        later = list(takewhile(lambda one: one["since"] > since, reversed(self.noted)))
        if all((one["monitorExecution"] is True) is recorded for one in later):
            return None
        return min(int(one["since"]) for one in later)

    @property
    def named_contents(self) -> frozenset[str]:
        """The hashes of all contents of calendars that the schedules name which the leader has noted."""
        return frozenset(hash for one in self.noted for hash in ScheduleSettings.of_json(one).all_contents)

    @property
    def accepted(self) -> int:
        """The newest transaction that wrote a configuration which an instance has noted as usable; 0 if unknown."""
        written = self.noted[-1].get(CONFIG) if self.noted else 0
        return written if type(written) is int else 0

    def note(self, since: float, written: int) -> bytes:
        """Return the data of the note: the schedule, since when it is in force, and the former ones.

        ``since`` counts if the schedule has not been noted yet, or is noted with a later time; ``written`` is the
        transaction that wrote the configuration.
        """
        at = round((since if self.noted else min(since, self.made_at)) * 1000)
        noted: dict[str, object] = {**scheduling(self.config), "since": at}
        former = self.noted
        if self.is_noted:
            noted = {**self.noted[-1], "since": min(at, self.since)}
            former = self.noted[:-1]
        return _note([*former, noted], written)

    def followed_by(self, newer: Sequence[Mapping[str, object]], written: int) -> bytes:
        """Return the data of the note once newer schedules are noted, which have their times."""
        return _note([*self.noted, *newer], written)


def _note(noted: Sequence[Mapping[str, object]], written: int) -> bytes:
    """Return the data of a note of these schedules, the newest last."""
    *former, newest = noted
    return json.dumps({**newest, CONFIG: written, "former": former[-MAX_FORMER_SCHEDULES:]}).encode()


def scheduling(config: JobConfig) -> Mapping[str, object]:
    """Return the settings that decide which moments there are, and whether their runs are recorded.

    The moments of a job that follows others are not in its settings: its leader notes them once the others answer.
    """
    found = {**config.schedule_settings.as_json(), "monitorExecution": config.monitor_execution}
    return {**found, AFTER: list(config.after)} if config.after else found


@lru_cache(maxsize=4096)
def _noted(data: bytes, made: int) -> tuple[Mapping[str, Any], ...]:
    """Return the schedules in a note, the newest last; none if the note is invalid.

    The first note does not say since when its schedule is in force, because it is made with the configuration.
    """
    noted = {"since": made, **json_object(data)}
    former = noted.pop("former", [])
    schedules = (*former, noted) if isinstance(former, list) else ()
    return schedules if all(map(_is_schedule, schedules)) else ()


def _is_schedule(noted: object) -> bool:
    if not isinstance(noted, dict) or not {"cron", "timeZone", "dst", "monitorExecution", "since"} <= noted.keys():
        return False
    since = noted["since"]
    try:
        ScheduleSettings.of_json(noted)
    except (TypeError, ValueError):
        return False
    after = noted.get(AFTER, [])
    if not isinstance(after, list) or not all(isinstance(one, str) for one in after):
        return False
    return type(since) is int and 0 <= since <= records.MAX_MILLISECONDS


def _is_same(noted: Mapping[str, Any], config: JobConfig) -> bool:
    """Whether a schedule that was noted is the one of a configuration, with records switched on or off likewise."""
    if noted["monitorExecution"] != config.monitor_execution or noted.get(AFTER, []) != list(config.after):
        return False
    return bool(config.after) or ScheduleSettings.of_json(noted) == config.schedule_settings


def _schedule(noted: Mapping[str, Any], job: str, contents: Mapping[str, Calendar]) -> Schedule | None:
    """Return a schedule; None if there is none, or if it is invalid because somebody has edited it."""
    with suppress(InvalidSetting):
        return schedule_of(ScheduleSettings.of_json(noted), job, contents)
    return None
