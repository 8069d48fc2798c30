"""Who leads."""

from __future__ import annotations

from collections.abc import Iterator

from aioelasticjob.coordination.effects import BecomeLeader, StepDown
from aioelasticjob.coordination.rules.rule_input import RuleInput


def elect(now: RuleInput) -> Iterator[BecomeLeader]:
    """Whoever stays takes a seat that is empty or whose holder has left; the transaction lets one through."""
    view = now.view
    vacant = view.leader not in view.instances or (view.epoch is None and now.leading)
    if vacant and now.me in view.staying and not view.obstructed(view.layout.host):
        yield BecomeLeader(now.me)


def step_down(now: RuleInput) -> Iterator[StepDown]:
    """A leader that may no longer hold items makes room, if anybody else could lead or it lacks what is required."""
    if now.holds_seat and now.me not in now.view.staying and (now.view.staying or not now.leading):
        yield StepDown(now.me)
