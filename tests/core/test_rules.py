"""What the rules come to together: whatever happens, all instances converge and then fall silent."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy

import pytest
from hypothesis import example, given, seed, settings
from hypothesis import strategies as st

from aioelasticjob.core.effects import (
    Assign,
    NoteSchedule,
    RemoveItems,
    RequireAssignment,
    StepDown,
    to_transactions,
)
from aioelasticjob.core.rules import LEADER_RULES, RULES, decide
from aioelasticjob.core.view import JobView
from aioelasticjob.errors import Conflict
from aioelasticjob.registry.transaction import Set
from tests.core.rules.world import LAYOUT, World, happen, is_right, operations, world

SERVERS_UNUSED = [("rest", 0), ("wait", 12), ("wait", 12), ("rest", 0), ("rest", 0)]
"""So much time that servers without instances are forgotten, which scripts made at random seldom reach."""
CALENDAR_EDITED = [*(("calendar", number) for number in (*range(1, 13), *range(1, 13), 0)), ("rest", 0)]
"""So many edits of a calendar that the first contents are forgotten."""


@given(script=operations, strategy=st.sampled_from(["average", "round-robin", "sticky", "odevity"]))
@example([("rest", 0), ("cut off", 1), ("rest", 0), ("failover", 0)], "average")
@example([("die", 0), ("rest", 0), ("disable", 1), ("count", 0)], "average")
@example([("die", 0), ("die", 1), *SERVERS_UNUSED], "average")
@example(CALENDAR_EDITED, "average")
@example([("die", 0), ("zone", 1), ("calendar", 1)], "average")
@settings(max_examples=300, deadline=None)
def test_whatever_happens_they_converge_and_then_fall_silent(script: list[tuple[str, int]], strategy: str) -> None:
    here = world(2, sharding_total_count=5, sharding_strategy=strategy, failover=True)
    old = here.view()
    for n, (what, number) in enumerate(script):
        happen(here, what, number, old)
        if n % 3 == 0:
            old = here.view()
    view = here.settle()
    assert is_right(view)
    for name in view.instances:
        assert decide(here.rule_input(name)) == []
    leftover = tidied(here, view)
    assert not leftover


def tidied(here: World, view: JobView) -> list[str]:
    """Return what a leader, if there is one, should have tidied up by now."""
    if view.leader not in view.instances:
        return []
    nodes, now, count = here.registry.nodes, here.rule_input(view.leader), view.config.sharding_total_count
    unwanted = [] if view.config.monitor_execution else list(now.unwanted)
    waiting = [f"orphan {item}" for item in view.orphans if item >= count or not view.config.failover]
    asked = view.tree.children(LAYOUT.shutdowns)
    requests = [f"request to {name}" for name in asked if name not in view.instances]
    missing = [path for path in LAYOUT.mirrored_parents if path not in nodes]
    assigns = view.assignment_stands and view.eligible  # what is too much goes with the next assignment
    surplus = [f"item {item}" for item in view.items if item >= count] if assigns else []
    used, retention = {one.ip: one for one in view.instances.values()}, view.config.server_retention
    for ip in view.tree.children(LAYOUT.servers):
        age, children = here.registry.now - nodes[LAYOUT.server(ip)].stat.mtime, view.tree.children(LAYOUT.server(ip))
        surplus += [f"server {ip}"] if age > (retention / 2 if ip in used else 2 * retention) and not children else []
    if view.config.failover:
        rescued = view.orphans | view.rescues.keys()
        missing += [f"orphan {item}" for item in now.cut_off if item < count and item in view.items - rescued]
    named = view.schedules.named_contents.union(view.config.contents)
    surplus += [hash for hash in view.tree.children(LAYOUT.schedule) if hash not in named]
    if now.view.unusable is None:  # otherwise the leader notes no schedule, and keeps nothing for it
        missing += [hash for hash in view.config.contents if hash not in view.contents]
    marks = [f"mark of {name}" for name in now.gone_followers]
    return [*unwanted, *waiting, *requests, *missing, *surplus, *marks]


@given(script=operations)
@settings(max_examples=100, deadline=None)
def test_deciding_is_pure_and_running_marks_are_never_touched(script: list[tuple[str, int]]) -> None:
    here = world(3, sharding_total_count=5)
    for item in range(5):
        here.registry.make(LAYOUT.item(item).running, b"somebody")
    marks = here.running()
    for what, number in script:
        view = here.view()
        for name in view.instances:
            for tick in (False, True):
                now = here.rule_input(name, view, tick=tick)
                assert decide(now) == decide(now)
            here.round(name)
        if what != "end":
            happen(here, what, number, view)
    assert marks.items() <= here.running().items()


@given(script=operations)
@settings(max_examples=100, deadline=None)
def test_the_order_in_which_they_act_does_not_matter(script: list[tuple[str, int]]) -> None:
    here = world(3, sharding_total_count=5, failover=True)
    for what, number in script:
        happen(here, what, number, here.view())
    there = deepcopy(here)
    view, other = here.settle(), there.settle(backwards=True)
    assert other.assignment == view.assignment
    seat = {LAYOUT.host, LAYOUT.epoch}  # who is first leads
    assert {path: node.data for path, node in here.registry.nodes.items() if path not in seat} == {
        path: node.data for path, node in there.registry.nodes.items() if path not in seat
    }


def test_each_rule_fires_in_the_scripts_above() -> None:
    fired = Counter[str]()

    @seed(1)
    @given(script=operations)
    @example([("die", 0), ("die", 1), *SERVERS_UNUSED])
    @example([("die", 1), ("die", 2), *SERVERS_UNUSED])
    @example(CALENDAR_EDITED)
    @settings(max_examples=300, deadline=None, database=None)
    def live(script: list[tuple[str, int]]) -> None:
        if not rare():
            return
        here = world(3, sharding_total_count=5, failover=True)
        for what, number in script:
            happen(here, what, number, here.view())
            for name in here.view().instances:
                now = here.rule_input(name)
                followed = (*RULES, *LEADER_RULES) if now.leading else RULES
                fired.update(rule.__name__ for rule in followed if list(rule(now)))
                here.round(name)

    def rare() -> list[str]:
        return [rule.__name__ for rule in (*RULES, *LEADER_RULES) if fired[rule.__name__] < 3]

    live()
    assert rare() == [], fired


def test_a_deposed_leader_writes_nothing() -> None:
    here = world(2, sharding_total_count=4)
    view = here.settle()
    here.registry.commit([Set(LAYOUT.config, view.config.changed(sharding_total_count=9).to_json(), -1)])
    deposed, old = view.leader, here.view()
    here.registry.expire(int(deposed.partition("@")[0].rpartition(".")[2]))  # type: ignore[union-attr]
    here.settle()
    before = dict(here.registry.nodes)
    late = (RequireAssignment(), Assign({0: str(deposed)}), StepDown(), RemoveItems(frozenset({0})))
    for effect in (*late, NoteSchedule((Set(LAYOUT.schedule, b"late", -1),))):
        with pytest.raises(Conflict):
            here.registry.commit(to_transactions(effect, old)[0], 1)
    assert here.registry.nodes == before
