"""What is left lying about is removed, and what is missing is made again."""

from __future__ import annotations

from aioelasticjob.coordination.effects import RemoveMarks
from aioelasticjob.coordination.rules import RuleInput, decide
from aioelasticjob.registry.transaction import Create, Delete, Set
from tests.coordination.rules.world import LAYOUT, is_right, world


def test_items_beyond_the_count_are_pruned_but_not_their_offsets() -> None:
    here = world(1, sharding_total_count=3)
    here.settle()
    here.registry.make(LAYOUT.item(2).offset, b"42")
    here.registry.commit([Set(LAYOUT.config, here.config.changed(sharding_total_count=1).to_json(), -1)])
    view = here.settle()
    assert view.items == {0}
    assert LAYOUT.item(2).offset in here.registry.nodes


def test_an_item_that_was_disabled_stays_so_though_the_count_falls_and_rises() -> None:
    here = world(1, sharding_total_count=3)
    here.settle()
    here.registry.commit([Create(LAYOUT.item(2).disabled)])
    for count, items, held in ((1, {0, 2}, {0}), (3, {0, 1, 2}, {0, 1, 2})):
        here.registry.commit([Set(LAYOUT.config, here.config.changed(sharding_total_count=count).to_json(), -1)])
        view = here.settle()
        assert (view.items, set(view.assignment), view.disabled_items) == (items, held, {2})
        assert is_right(view)
    here.registry.commit([Set(LAYOUT.config, here.config.changed(sharding_total_count=1).to_json(), -1)])
    here.settle()
    here.registry.commit([Delete(LAYOUT.item(2).disabled)])
    assert here.settle().items == {0}


def test_on_a_tick_requests_to_the_departed_are_removed() -> None:
    here = world(1)
    here.settle()
    here.registry.commit([Create(LAYOUT.shutdown("gone")), Create(LAYOUT.trigger("gone"))])
    assert decide(RuleInput(here.view(), "10.0.0.1@-@1")) == []
    (effect,) = decide(RuleInput(here.view(), "10.0.0.1@-@1", tick=True))
    assert effect == RemoveMarks((LAYOUT.shutdown("gone"), LAYOUT.trigger("gone")))
