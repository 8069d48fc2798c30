"""The rule that notes since when the schedule has been in force."""

from __future__ import annotations

import json
from collections.abc import Iterator

from aioelasticjob.coordination.effects import NoteSchedule
from aioelasticjob.coordination.rules.rule_input import RuleInput
from aioelasticjob.coordination.view import scheduling

MAX_FORMER_SCHEDULES = 8
"""How many former schedules are kept: their last moments may still have to be reported as missed."""


def note_schedule(now: RuleInput) -> Iterator[NoteSchedule]:
    """The leader notes a new schedule, with the time at which the configuration was written.

    The note contains the schedule itself, so it does not matter who has written the configuration, or with which tool.
    The note also contains the former schedules, oldest first.
    """
    view = now.view
    config = view.tree.get(view.layout.config)
    if now.leading and config is not None and view.fault is None and not view.schedule_is_noted:
        former = view.noted_schedules[-MAX_FORMER_SCHEDULES:]
        noted = {**scheduling(view.config), "since": round(config.stat.mtime * 1000), "former": former}
        yield NoteSchedule(json.dumps(noted).encode(), config.stat.version)
