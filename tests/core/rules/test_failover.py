"""Runs that were cut off: they wait for a rescuer, or are given up."""

from __future__ import annotations

import pytest

from aioelasticjob.core import records
from aioelasticjob.core.effects import EndRun, to_transactions
from aioelasticjob.core.requests import encode_cancellation
from aioelasticjob.core.rules import answer_cut_off_runs, decide
from aioelasticjob.errors import Conflict
from aioelasticjob.model import Record
from aioelasticjob.registry.transaction import Create, Set
from tests.core.rules.world import LAYOUT, World, leads, world


def cut_off(rescues: int, *, item: int = 1, **settings: object) -> World:
    """Return a world that has settled, one item of which was cut off after so many rescues."""
    here = world(2, sharding_total_count=2, failover=True, **settings)
    here.settle()
    record = Record(slot=1_000, instance="10.0.0.9@-@1", begun=1_000, completed=False, rescues=rescues)
    here.registry.commit([Create(LAYOUT.item(item).execution, records.encode(record))])
    return here


def record_of(here: World, item: int = 1) -> Record:
    found = records.decode(here.registry.nodes[LAYOUT.item(item).execution].data)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("rescues", "most", "outcome"), [(2, 3, ""), (3, 3, "given up"), (4, 3, "given up"), (1, 1, "given up")]
)
def test_a_run_is_given_up_after_so_many_rescues_in_a_row(rescues: int, most: int, outcome: str) -> None:
    here = cut_off(rescues, max_rescues=most)
    here.registry.now = 5.0
    view = here.settle()
    assert (record_of(here).outcome, record_of(here).completed) == (outcome, bool(outcome))
    assert view.orphans == (frozenset() if outcome else {1})
    if outcome:
        assert (record_of(here).completed_at, record_of(here).slot, record_of(here).rescues) == (5_000, 1_000, rescues)


@pytest.mark.parametrize("obstructed", [False, True])
def test_a_run_that_was_handed_over_is_given_up_with_its_mark_unless_something_is_below_that(obstructed: bool) -> None:
    here, mark = cut_off(3), LAYOUT.item(1).orphan
    here.registry.commit([Create(mark), *([Create(f"{mark}/by-hand")] if obstructed else [])])
    assert here.settle().orphans == ({1} if obstructed else frozenset())
    assert record_of(here).outcome == "given up"


def test_a_wish_that_names_no_claim_stops_no_run() -> None:
    here = cut_off(0)
    wish = encode_cancellation({1: 0}, 1, "anna")
    here.registry.commit([Create(LAYOUT.request("cancel-1"), wish)])
    assert (here.settle().orphans, record_of(here).outcome) == ({1}, "")


@pytest.mark.parametrize(("handed_over", "later"), [(False, 0), (True, 0), (False, 1)])
def test_a_run_that_was_cancelled_and_cut_off_ends_as_stopped_and_a_later_one_is_rescued(
    handed_over: bool, later: int
) -> None:
    here = cut_off(0)
    fence = here.registry.nodes[LAYOUT.item(1).execution].stat.mzxid
    wish = encode_cancellation({0: fence, 1: fence - later}, 1, "anna")
    marks = [Create(LAYOUT.item(1).orphan)] if handed_over else []
    here.registry.commit([Create(LAYOUT.request("cancel-1"), wish), *marks])
    view = here.settle()
    assert (record_of(here).outcome, view.orphans) == (("", {1}) if later else ("stopped", frozenset()))
    assert record_of(here).completed is not bool(later)


def test_a_run_that_was_handed_over_by_who_had_not_heard_that_it_was_cancelled_ends_as_stopped() -> None:
    here = cut_off(0)
    before = here.registry.nodes[LAYOUT.item(1).execution]
    run, fence = record_of(here), before.stat.mzxid
    here.registry.commit(  # the record is written anew, so its transaction is the fence no more
        [Set(LAYOUT.item(1).execution, before.data, -1), Create(LAYOUT.item(1).orphan, records.encode_mark(run, fence))]
    )
    wish = encode_cancellation({1: fence}, 1, "anna")
    here.registry.commit([Create(LAYOUT.request("cancel-1"), wish)])
    assert (here.settle().orphans, record_of(here).outcome) == (frozenset(), "stopped")


def test_while_a_rescue_is_under_way_nothing_is_given_up() -> None:
    here = cut_off(3)
    here.registry.commit([Create(LAYOUT.item(1).failover, b"10.0.0.2@-@1", ephemeral=True)], incarnation=2)
    assert list(answer_cut_off_runs(here.rule_input(leads(here)))) == []


@pytest.mark.parametrize("settings", [{"failover": False}, {"leader": False}])
def test_only_a_leader_gives_up_and_only_with_failover(settings: dict[str, bool]) -> None:
    here = cut_off(3)
    (other,) = here.view().instances.keys() - {leads(here)}
    if "failover" in settings:
        here.registry.commit([Set(LAYOUT.config, here.config.changed(failover=False).to_json(), -1)])
    wanted = decide(here.rule_input(other if "leader" in settings else leads(here)))
    assert not [effect for effect in wanted if isinstance(effect, EndRun)]


@pytest.mark.parametrize(
    "disturbance",
    [
        Create(LAYOUT.item(1).running, b"10.0.0.2@-@1", ephemeral=True),
        Set(LAYOUT.item(1).execution, b"{}", -1),
        Set(LAYOUT.epoch, b"", -1),
    ],
)
def test_giving_up_is_refused_if_the_run_goes_on_or_was_claimed_or_another_leads(disturbance: Create | Set) -> None:
    here = cut_off(3)
    (effect,) = answer_cut_off_runs(here.rule_input(leads(here)))
    (transaction,) = to_transactions(effect, here.view())
    here.registry.commit([disturbance], incarnation=2)
    with pytest.raises(Conflict):
        here.registry.commit(transaction, incarnation=1)
