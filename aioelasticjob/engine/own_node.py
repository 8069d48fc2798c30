"""What an instance notes in its own node for people, anew at each tick.

That is what the registry refuses to it, which settings its process declares otherwise than the registry, by how much
its host's clock differs while its job refuses all runs because of that, and which rules it has for the time zone.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from aioelasticjob.config.job import JobConfig, tolerates
from aioelasticjob.core import zone_rules
from aioelasticjob.core.declaration import declared_otherwise
from aioelasticjob.core.view import JobView
from aioelasticjob.engine import refusals
from aioelasticjob.engine.member import Member
from aioelasticjob.errors import ClockSkew
from aioelasticjob.ground.encoding import json_object, number
from aioelasticjob.registry.transaction import Set

CLOCK = "clockDiffers"
"""The key of the clock's difference, in seconds; positive if this host's clock is ahead of the registry's."""
CHANGE = 1.0
"""Seconds by which the difference has to change before it is noted anew: clocks drift all the time."""


def renewed(member: Member, view: JobView, year: int) -> Set | None:
    """Return the write that brings the notes in this instance's node up to date; None if they are.

    Its features are written, too, if required ones were overwritten.  ``year`` is the present one.
    """
    path = member.layout.instance(member.id)
    node = view.tree.get(path)
    if not member.owns(node):  # somebody has removed it
        return None
    said = json_object(node.data)
    config = view.config
    differing = [one.setting for one in declared_otherwise(member.declared or config, config)]
    ahead = intolerable_difference(member.session.clock_skew, config)
    notes: dict[str, object] = {
        refusals.KEY: member.refusals.note(said),
        "differs": differing or None,
        CLOCK: _clock_note(noted_clock_difference(said), ahead),
    }
    rules = zone_rules.present(config, year)
    if view.instances[member.id].zone_rules != rules:
        notes[zone_rules.KEY] = zone_rules.note(rules)
    lost_features = member.id in view.lacking and not member.lacks(view.tree)
    if not lost_features and all(said.get(key) == note for key, note in notes.items()):
        return None
    return Set(path, member.describe(inf, before=node.data, notes=notes), node.stat.version)


def intolerable_difference(skew: float | None, config: JobConfig) -> float | None:
    """Return by how many seconds this host's clock is ahead of the registry's; None if the job tolerates that."""
    if skew is None or tolerates(config, skew):
        return None
    return ClockSkew.of(skew, config.max_time_diff_seconds).seconds


def noted_clock_difference(data: Mapping[str, object]) -> float | None:
    """Return the intolerable difference of the clocks that an instance's node tells of, in seconds."""
    return number(data.get(CLOCK))


def _clock_note(said: float | None, now: float | None) -> float | None:
    """Return what the node has to say of the clock: what it says already, if that has not changed much."""
    is_close = said is not None and now is not None and abs(now - said) <= CHANGE
    return said if is_close else now
