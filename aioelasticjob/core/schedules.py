"""The schedule of a job and the former ones, as the leader notes them in a node when the configuration has changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from aioelasticjob.config.job import JobConfig, parsed_cron
from aioelasticjob.core import records
from aioelasticjob.cron import Cron, DaylightSaving
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.encoding import json_object
from aioelasticjob.registry.tree import Node

MAX_FORMER_SCHEDULES = 8
"""How many former schedules are kept: their last moments may still have to be reported as missed."""


CONFIG = "config"
"""The key of the transaction that wrote the configuration whose schedule is noted."""


@dataclass(frozen=True, slots=True)
class FormerSchedule:
    """A schedule that is not in force any more.  Times are in milliseconds since the epoch."""

    cron: Cron | None
    since: int
    until: int
    recorded: bool
    """Whether runs were recorded while it was in force."""


@dataclass(frozen=True, slots=True)
class Schedules:
    """What is known of a job's schedules.  Times are in seconds since the epoch, by the registry's clock."""

    config: JobConfig
    noted: tuple[Mapping[str, Any], ...]
    """The schedules that the leader has noted, the newest last, each with the time (ms) at which it was written."""
    is_noted: bool
    """Whether the leader has noted the schedule in force."""
    dated: float
    """When the schedule was written; if that is in the future, the clock was ahead."""
    since: float
    """Since when the schedule and ``monitor_execution`` have their present values.

    The leader notes it, so it stays known when another setting is changed later.  Before that it is the time at which
    the configuration was last written.
    """
    dated_by: int
    """The transaction that dated the schedule, or a later one."""

    @classmethod
    def of(cls, config: JobConfig, written: Node | None, note: Node | None) -> Schedules:
        """Return what two nodes say: that of the configuration, ``written``, and that of the leader's note."""
        noted = () if note is None else _noted(note.data, round(note.stat.ctime * 1000))
        is_noted = bool(noted) and scheduling(config).items() <= noted[-1].items()
        configured_at = 0.0 if written is None else written.stat.mtime
        dated = float(noted[-1]["since"] / 1000) if is_noted else configured_at
        node = note if is_noted else written
        return cls(config, noted, is_noted, dated, min(dated, configured_at), 0 if node is None else node.stat.mzxid)

    @property
    def former(self) -> tuple[FormerSchedule, ...]:
        """The noted schedules that were in force before the present one, oldest first."""
        ends = [*(one["since"] for one in self.noted[1:]), int(self.since * 1000)]
        former = zip(self.noted[:-1] if self.is_noted else self.noted, ends, strict=False)
        return tuple(
            FormerSchedule(
                _cron(one["cron"], one["timeZone"], one["dst"]), one["since"], until, one["monitorExecution"] is True
            )
            for one, until in former
        )

    @property
    def since_switch(self) -> tuple[FormerSchedule, ...]:
        """The former schedules since records were last switched on or off, oldest first; older records are removed."""
        former, recorded = self.former, self.config.monitor_execution
        switched = max((one.until for one in former if one.recorded is not recorded), default=0)
        return tuple(one for one in former if one.until > switched)

    @property
    def accepted(self) -> int:
        """The newest transaction that wrote a configuration which an instance has noted as usable; 0 if unknown."""
        written = self.noted[-1].get(CONFIG) if self.noted else 0
        return written if type(written) is int else 0

    def note(self, since: float, written: int) -> bytes:
        """Return the data of the note: the schedule, since when it is in force, and the former ones.

        ``since`` counts if the schedule has not been noted yet; ``written`` is the transaction that wrote the
        configuration.
        """
        noted = {**scheduling(self.config), "since": round(since * 1000)}
        former = self.noted
        if self.is_noted:
            noted, former = {**self.noted[-1]}, self.noted[:-1]
        return json.dumps({**noted, CONFIG: written, "former": former[-MAX_FORMER_SCHEDULES:]}).encode()


def scheduling(config: JobConfig) -> Mapping[str, object]:
    """Return the settings that decide which moments there are, and whether their runs are recorded."""
    return {
        "cron": config.cron,
        "timeZone": config.time_zone,
        "dst": config.dst,
        "monitorExecution": config.monitor_execution,
    }


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
    since, cron = noted["since"], noted["cron"]
    texts = ("" if cron is None else cron, noted["timeZone"], noted["dst"])
    is_date = type(since) is int and 0 <= since <= records.MAX_MILLISECONDS
    return is_date and all(isinstance(text, str) for text in texts)


def _cron(expression: str | None, time_zone: str, dst: DaylightSaving) -> Cron | None:
    """Return a schedule; None if there is none, or if it is invalid because somebody has edited it."""
    with suppress(InvalidSetting):
        return None if expression is None else parsed_cron(expression, time_zone, dst)
    return None
