"""What one instance would write, given a view: pure functions, in the order in which their effects are tried."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from aioelasticjob.coordination.effects import Effect
from aioelasticjob.coordination.rules.election import abdicate, elect
from aioelasticjob.coordination.rules.failover import forget, give_up, mourn
from aioelasticjob.coordination.rules.housekeeping import (
    clear_records,
    forget_requests,
    forget_servers,
    prune,
    refresh,
    restore,
)
from aioelasticjob.coordination.rules.schedule import note_schedule
from aioelasticjob.coordination.rules.sharding import assign, require
from aioelasticjob.coordination.rules.situation import Situation

Rule = Callable[[Situation], Iterable[Effect]]

RULES: tuple[Rule, ...] = (
    restore,
    elect,
    abdicate,
    note_schedule,
    mourn,
    give_up,
    forget,
    require,
    assign,
    prune,
    forget_requests,
    clear_records,
    refresh,
    forget_servers,
)


def decide(situation: Situation) -> list[Effect]:
    """Return every effect wanted; nothing when all is well."""
    return [effect for rule in RULES for effect in rule(situation)]


__all__ = ["RULES", "Rule", "Situation", "decide"]
