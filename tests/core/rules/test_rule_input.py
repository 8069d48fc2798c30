"""What a rule may look at, and who leads by it."""

from __future__ import annotations

from dataclasses import replace

from aioelasticjob.core.effects import NoteSchedule, StepDown
from aioelasticjob.core.rules import MAX_AHEAD, RuleInput, decide
from aioelasticjob.registry.transaction import Set
from tests.core.rules.world import LAYOUT, knowing, requiring, world


def test_an_instance_that_lacks_what_is_required_neither_holds_nor_leads_until_it_is_required_no_more() -> None:
    there = world(1, sharding_total_count=4)
    there.registry.commit([knowing(2, "x")], incarnation=2)
    before = there.settle()
    old, new = "10.0.0.1@-@1", "10.0.0.2@-@1"
    assert (before.leader, set(before.assignment.values()), before.lacking) == (old, {old, new}, {})
    view = requiring(there, there.config.changed(requires=["x"]).to_json())
    assert (view.eligible, view.leader, set(view.assignment.values())) == ((new,), new, {new})
    assert view.lacking == {old: ("x",)}
    assert set(requiring(there, there.config.to_json()).assignment.values()) == {old, new}


def test_who_has_gone_holds_no_seat_though_its_name_is_still_on_it() -> None:
    here = world(2)
    leader = here.settle().leader
    assert leader is not None
    view = here.view()
    assert RuleInput(view, leader).leading
    gone = replace(view, tree=view.tree.replace({LAYOUT.instance(leader): None}, view.tree.zxid + 1))
    now = RuleInput(gone, leader)
    assert (gone.leader, now.is_named_leader, now.leading) == (leader, False, False)


def test_who_lacks_what_is_required_holds_its_seat_and_does_not_lead() -> None:
    here = world(1)
    leader = here.settle().leader
    assert leader is not None
    changed = here.config.changed(requires=["x"], cron="0 0 3 * * ?")
    here.registry.commit([Set(LAYOUT.config, changed.to_json(), -1)])
    now = RuleInput(here.view(), leader)
    assert (now.is_named_leader, now.leading) == (True, False)
    assert decide(now) == [StepDown()]  # a leader would note the schedule, too


def test_the_date_of_a_schedule_that_is_far_in_the_future_is_lowered_only_once_the_clock_is_steady() -> None:
    here = world(1)
    view = here.settle()
    leader = str(view.leader)
    long_before = view.schedules.since / 1000 - 2 * MAX_AHEAD
    unsteady = RuleInput(view, leader, time=long_before, is_steady=False)
    assert not [one for one in decide(unsteady) if isinstance(one, NoteSchedule)]
    steady = RuleInput(view, leader, time=long_before)
    assert [one for one in decide(steady) if isinstance(one, NoteSchedule)]
