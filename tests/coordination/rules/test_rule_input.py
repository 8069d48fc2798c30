"""What a rule may look at, and who leads by it."""

from __future__ import annotations

from tests.coordination.rules.world import knowing, requiring, world


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
