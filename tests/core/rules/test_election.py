"""Who takes the leader's seat, and who gives it up."""

from __future__ import annotations

import pytest

from aioelasticjob.core.effects import BecomeLeader, to_transactions
from aioelasticjob.errors import Conflict
from aioelasticjob.registry.transaction import Create, Set
from tests.core.rules.world import LAYOUT, is_right, knowing, requiring, world


def test_a_seat_left_behind_is_taken() -> None:
    here = world(2)
    here.registry.commit([Create(LAYOUT.host, b"10.0.0.9@-@1", ephemeral=True)], incarnation=9)
    here.settle()
    assert here.view().leader in here.view().eligible


def test_nobody_is_elected_and_nothing_assigned_while_all_are_disabled() -> None:
    here = world(1)
    here.registry.commit([Create(LAYOUT.server_disabled("10.0.0.1"))])
    view = here.settle()
    assert (view.leader, view.assignment) == (None, {})


def test_a_disabled_leader_makes_room_for_another() -> None:
    here = world(2)
    first = here.settle().leader
    here.registry.commit([Create(LAYOUT.server_disabled(str(first).partition("@")[0]))])
    view = here.settle()
    assert view.leader not in (None, first)
    assert first not in view.assignment.values()


def test_taking_the_seat_is_one_transaction_that_raises_the_epoch() -> None:
    here = world(2)
    view = here.view()
    (mine,) = to_transactions(BecomeLeader("10.0.0.1@-@1"), view)
    (theirs,) = to_transactions(BecomeLeader("10.0.0.2@-@1"), view)
    here.registry.commit(mine, 1)
    with pytest.raises(Conflict):
        here.registry.commit(theirs, 2)
    assert here.view().epoch == 0
    here.registry.expire(1)
    here.round("10.0.0.2@-@1")
    assert here.view().epoch == 1


def test_a_leader_that_is_said_to_leave_by_hand_makes_room() -> None:
    here = world(2, sharding_total_count=4)
    leaving = here.settle().leader
    assert leaving is not None
    here.registry.commit([Set(LAYOUT.instance(leaving), b'{"ip": "10.0.0.1", "leaving": true}', -1)])
    assert is_right(here.settle())
    assert leaving not in (here.view().leader, *here.view().assignment.values())


def test_a_leader_that_lacks_what_is_required_leaves_its_seat_though_nobody_else_could_lead() -> None:
    there = world(2, sharding_total_count=2)
    before = there.settle()
    view = requiring(there, there.config.changed(requires=["x"], sharding_total_count=1).to_json())
    assert (view.eligible, view.leader) == ((), None)
    assert view.assignment == before.assignment  # and nothing is pruned by somebody who does not know what is wanted
    there.registry.commit([knowing(3, "x", "y")], incarnation=3)
    assert set(there.settle().assignment.items()) == {(0, "10.0.0.3@-@1")}
