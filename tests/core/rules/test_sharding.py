"""Which instance is given which items, and when."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioelasticjob.core import strategies
from aioelasticjob.core.effects import Assign, SayStrategyFailed, to_transactions
from aioelasticjob.core.rules import RuleInput, decide, wanted_assignment
from aioelasticjob.errors import Conflict
from aioelasticjob.registry.transaction import Create, Set
from tests.core.rules.world import LAYOUT, happen, is_right, world


def test_from_nothing_to_the_strategys_assignment() -> None:
    view = world(3, sharding_total_count=8).settle()
    assert view.leader in view.eligible
    assert view.assignment == wanted_assignment(view)
    assert view.assignment_stands


def test_an_assignment_decided_before_somebody_joined_is_refused() -> None:
    here = world(1, sharding_total_count=4)
    here.round("10.0.0.1@-@1")
    view = here.view()
    (assign,) = [effect for effect in decide(RuleInput(view, "10.0.0.1@-@1")) if isinstance(effect, Assign)]
    here.registry.commit([Set(LAYOUT.necessary, b"", -1)])  # by hand
    with pytest.raises(Conflict):
        here.registry.commit(to_transactions(assign, view)[0], 1)


def test_why_a_strategy_failed_is_said_whether_or_not_another_assignment_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = world(2, sharding_total_count=4)
    view, me = here.settle(), "10.0.0.1@-@1"
    monkeypatch.setattr(strategies, "find", lambda _: lambda _: {})
    failed = SayStrategyFailed("it must give every item to one of the instances")
    assert view.leader == me
    assert decide(here.rule_input(me, view, tick=False)) == [failed]
    assert to_transactions(failed, view) == []
    here.registry.commit([Create(LAYOUT.necessary)])
    assert decide(here.rule_input(me, tick=False)) == [failed, Assign(view.assignment)]
    assert not [effect for effect in decide(RuleInput(here.view(), "10.0.0.2@-@2")) if effect == failed]


def test_until_membership_is_quiet_nothing_is_assigned() -> None:
    here = world(2, sharding_total_count=4)
    here.round("10.0.0.1@-@1")
    hasty = decide(RuleInput(here.view(), "10.0.0.1@-@1", quiet=False))
    assert not [effect for effect in hasty if isinstance(effect, Assign)]


@given(count=st.integers(600, 2600))
@settings(max_examples=5, deadline=None)
def test_an_assignment_beyond_one_transaction_is_fenced_chunk_by_chunk(count: int) -> None:
    here = world(3, sharding_total_count=count)
    here.round("10.0.0.1@-@1")
    view = here.view()
    (assign,) = [effect for effect in decide(RuleInput(view, "10.0.0.1@-@1")) if isinstance(effect, Assign)]
    transactions = to_transactions(assign, view)
    assert len(transactions) > 2
    for transaction in transactions[:-1]:
        here.registry.commit(transaction, 1)
        assert not here.view().assignment_stands
    here.registry.commit(transactions[-1], 1)
    assert is_right(here.view())


def test_an_assignment_that_was_cut_short_is_written_again_from_the_start() -> None:
    here = world(2, sharding_total_count=2000)
    here.round("10.0.0.1@-@1")
    view = here.view()
    (assign,) = [effect for effect in decide(RuleInput(view, "10.0.0.1@-@1")) if isinstance(effect, Assign)]
    for transaction in to_transactions(assign, view)[:2]:
        here.registry.commit(transaction, 1)
    assert is_right(here.settle())


def test_who_leaves_gives_its_items_to_those_who_stay_and_the_last_keeps_its_own() -> None:
    here = world(2, sharding_total_count=4)
    assert set(here.settle().assignment.values()) == {"10.0.0.1@-@1", "10.0.0.2@-@1"}
    happen(here, "drain", 0, here.view())  # the first
    view = here.settle()
    assert (view.leader, set(view.assignment.values())) == ("10.0.0.2@-@1", {"10.0.0.2@-@1"})
    happen(here, "drain", 1, view)  # the second
    view = here.settle()
    assert (view.leader, set(view.assignment.values())) == (None, {"10.0.0.2@-@1"})
    here.join(3)
    assert here.settle().leader == "10.0.0.3@-@1"
    assert set(here.view().assignment.values()) == {"10.0.0.3@-@1"}
