"""The rules: pure functions that compute, from a view, the effects that one instance writes.

The effects of earlier rules in ``RULES`` are written first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from aioelasticjob.coordination.effects import Effect
from aioelasticjob.coordination.rules.election import elect, step_down
from aioelasticjob.coordination.rules.failover import end_runs, mark_orphans, unmark_orphans
from aioelasticjob.coordination.rules.housekeeping import (
    clear_records,
    refresh_server,
    remove_items,
    remove_requests,
    remove_servers,
    restore_nodes,
)
from aioelasticjob.coordination.rules.requests import end_requests, forget_requests
from aioelasticjob.coordination.rules.rule_input import InterruptedRun, RuleInput
from aioelasticjob.coordination.rules.schedule import note_schedule
from aioelasticjob.coordination.rules.sharding import assign_items, require_assignment

Rule = Callable[[RuleInput], Iterable[Effect]]

RULES: tuple[Rule, ...] = (
    restore_nodes,
    elect,
    step_down,
    note_schedule,
    mark_orphans,
    end_runs,
    unmark_orphans,
    require_assignment,
    assign_items,
    remove_items,
    remove_requests,
    end_requests,
    forget_requests,
    clear_records,
    refresh_server,
    remove_servers,
)


def decide(rule_input: RuleInput) -> list[Effect]:
    """Return the effects that the rules want; none if nothing has to change."""
    return [effect for rule in RULES for effect in rule(rule_input)]


__all__ = ["RULES", "InterruptedRun", "Rule", "RuleInput", "decide"]
