"""Since when the schedule has been in force."""

from __future__ import annotations

import json
from collections.abc import Iterator

from aioelasticjob.coordination.effects import NoteSchedule
from aioelasticjob.coordination.rules.rule_input import RuleInput
from aioelasticjob.coordination.view import scheduling

MAX_FORMER_SCHEDULES = 8
"""Schedules that are remembered once they are in force no longer: their last moments may yet have to be reported."""


def note_schedule(now: RuleInput) -> Iterator[NoteSchedule]:
    """The leader notes a schedule that is new, with the time at which the configuration was written.

    It does not matter who wrote the configuration, or with which tool: the note says which schedule it is about.  Those
    that were noted before it are kept with it, oldest first.
    """
    view = now.view
    config = view.tree.get(view.layout.config)
    if now.leading and config is not None and view.fault is None and not view.schedule_is_noted:
        former = view.noted_schedules[-MAX_FORMER_SCHEDULES:]
        noted = {**scheduling(view.config), "since": round(config.stat.mtime * 1000), "former": former}
        yield NoteSchedule(json.dumps(noted).encode(), config.stat.version)
