"""The rules of leader election."""

from __future__ import annotations

from collections.abc import Iterator

from aioelasticjob.coordination.effects import BecomeLeader, StepDown
from aioelasticjob.coordination.rules.rule_input import RuleInput


def elect(now: RuleInput) -> Iterator[BecomeLeader]:
    """An instance that stays becomes the leader if there is none.  The transaction lets only one of several succeed."""
    view = now.view
    vacant = view.leader not in view.instances or (view.epoch is None and now.leading)
    if vacant and now.me in view.staying and not view.obstructed(view.layout.host):
        yield BecomeLeader(now.me)


def step_down(now: RuleInput) -> Iterator[StepDown]:
    """A leader that may not lead any more steps down, if another instance can lead or it lacks a required feature."""
    if now.is_named_leader and now.me not in now.view.staying and (now.view.staying or not now.leading):
        yield StepDown()
