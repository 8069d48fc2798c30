"""What is left lying about is removed, and what is missing is made again."""

from __future__ import annotations

from aioelasticjob.core.effects import RemoveNodes, RestoreNodes
from aioelasticjob.core.layout import child
from aioelasticjob.core.rules import RuleInput, decide, remove_servers, restore_nodes
from aioelasticjob.registry.transaction import Check, Create, Delete, Set
from tests.core.rules.world import LAYOUT, is_right, leads, world

FIRST, SECOND = "10.0.0.1@-@1", "10.0.0.2@-@1"


def test_items_beyond_the_count_are_pruned_but_not_their_offsets() -> None:
    here = world(1, sharding_total_count=3)
    here.settle()
    here.registry.make(LAYOUT.item(2).offset, b"42")
    here.registry.commit([Set(LAYOUT.config, here.config.changed(sharding_total_count=1).to_json(), -1)])
    view = here.settle()
    assert view.items == {0}
    assert LAYOUT.item(2).offset in here.registry.nodes


def test_an_item_beyond_the_count_is_pruned_with_the_mark_of_its_rescuer_but_not_with_what_people_have_made() -> None:
    here = world(1, sharding_total_count=4)
    here.settle()
    left = child(LAYOUT.item(3).failover, "note")
    here.registry.commit([Create(LAYOUT.item(2).failover), Create(LAYOUT.item(3).failover), Create(left)])
    here.registry.commit([Set(LAYOUT.config, here.config.changed(sharding_total_count=1).to_json(), -1)])
    assert here.settle().items == {0, 3}
    here.registry.commit([Delete(left)])
    assert here.settle().items == {0}


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
    here.registry.commit([Create(LAYOUT.shutdown("gone"))])
    assert decide(here.rule_input("10.0.0.1@-@1", tick=False)) == []
    removed = [RemoveNodes((Delete(LAYOUT.shutdown("gone")),))]
    assert decide(here.rule_input("10.0.0.1@-@1")) == removed


def test_what_is_missing_is_made_again_by_everybody_who_is_there() -> None:
    here = world(2)
    here.settle()
    here.registry.commit([Delete(LAYOUT.shutdowns), Delete(LAYOUT.server("10.0.0.2"))])
    (first,) = restore_nodes(here.rule_input(FIRST))
    shutdowns = Create(LAYOUT.shutdowns)
    assert first == RestoreNodes((Check(LAYOUT.instance(FIRST)), shutdowns))
    (second,) = restore_nodes(RuleInput(here.view(), SECOND, host="web"))
    server = Create(LAYOUT.server("10.0.0.2"), b"web")
    assert second == RestoreNodes((Check(LAYOUT.instance(SECOND)), shutdowns, server))
    assert list(restore_nodes(here.rule_input("10.0.0.9@-@1"))) == []


def test_a_server_in_use_is_kept_young_and_one_that_nobody_uses_goes_after_its_retention() -> None:
    here = world(2, server_retention=8 * 3600)
    here.settle()
    here.registry.commit([Create(LAYOUT.server("10.0.0.8")), Create(LAYOUT.server("10.0.0.9"))])
    here.registry.commit([Create(LAYOUT.server_paused("10.0.0.9"))])  # about which somebody has said something
    here.registry.now += 9 * 3600
    assert here.settle().tree.children(LAYOUT.servers) == tuple(f"10.0.0.{n}" for n in (1, 2, 8, 9))
    assert here.registry.nodes[LAYOUT.server("10.0.0.1")].stat.mtime == here.registry.now
    here.registry.now += 2 * 3600
    view = here.settle()
    assert view.tree.children(LAYOUT.servers) == tuple(f"10.0.0.{n}" for n in (1, 2, 9))
    assert list(remove_servers(here.rule_input(leads(here)))) == []


def test_records_are_removed_by_the_leader_once_nobody_wants_them_and_nothing_runs() -> None:
    here = world(2, sharding_total_count=2)
    here.settle()
    records = [LAYOUT.item(item).execution for item in (0, 1)]
    here.registry.commit([Create(path) for path in records])
    here.settle()
    assert set(records) <= here.registry.nodes.keys()
    here.registry.commit([Create(LAYOUT.item(1).running, ephemeral=True)], 1)
    here.registry.commit([Set(LAYOUT.config, here.config.changed(monitor_execution=False).to_json(), -1)])
    here.settle()
    assert set(records) <= here.registry.nodes.keys()
    here.registry.commit([Delete(LAYOUT.item(1).running)])
    here.settle()
    assert not set(records) & here.registry.nodes.keys()
