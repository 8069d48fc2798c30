"""What one instance knows of an item, and what becomes of a moment by the state that its item was in."""

from __future__ import annotations

import pytest

from aioelasticjob.core.state import Came, Item, Items, Newest
from aioelasticjob.model import Record, VersionedRecord


@pytest.mark.parametrize("misfire", [True, False])
@pytest.mark.parametrize("came", Came)
def test_without_misfire_no_moment_is_run_late_and_nothing_else_changes(came: Came, misfire: bool) -> None:
    rule = came.value
    fate = rule.fate(misfire=misfire)
    assert misfire or fate not in (Newest.MISSED_AND_LATE, Newest.LATE)
    assert misfire or fate is rule.newest or fate is Newest.MISSED
    assert rule.why


def entry(record: Record, floor: int = 0) -> Item:
    return Item(seen=VersionedRecord(record, 0), floor=floor)


def test_an_item_owes_what_came_after_its_record_and_was_not_passed_over() -> None:
    item = entry(Record(slot=1_000), floor=3_000)
    assert [item.is_due(moment) for moment in (999, 1_000, 2_000, 3_000, 3_001)] == [False, False, False, False, True]
    assert item.accounted == 3_000
    assert entry(Record(slot=5_000), floor=3_000).accounted == 5_000


def test_a_moment_that_was_claimed_by_a_clock_ahead_is_not_owed_though_the_record_was_lowered() -> None:
    item = entry(Record(slot=9_000))
    item.lower(1_000)
    assert [item.is_due(moment) for moment in (1_000, 8_000, 9_000, 10_000)] == [False, True, False, True]


def test_a_run_that_was_begun_and_has_not_ended_was_cut_off() -> None:
    assert entry(Record(slot=1_000, begun=1_000, completed=False)).cut_off
    assert not entry(Record(slot=1_000, begun=1_000)).cut_off
    assert not entry(Record(completed=False)).cut_off  # which was never begun


def test_what_was_run_or_reported_here_is_known_with_all_that_came_before_it() -> None:
    items = Items()
    items.ran([0, 1], 2_000, {1})
    items.reported([1], 1_000)
    assert [items[1].knows(moment) for moment in (1, 2_000, 2_001)] == [True, True, False]
    assert not items[7].knows(0)
    assert (items[0].ran, items[1].ran) == (2_000, 0)  # a stream has left the moment of item 1 open
    assert items.keys() == {0, 1, 7}


def test_whoever_joins_again_keeps_of_its_items_what_was_run_or_reported_and_nothing_else() -> None:
    items = Items()
    items.ran([0], 2_000)
    items[0].floor, items[0].elsewhere, items[1].late = 3_000, True, 4_000
    items.join_again()
    assert items == {0: Item(reported=2_000, ran=2_000), 1: Item()}
