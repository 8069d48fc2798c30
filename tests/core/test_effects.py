"""What a leader writes is refused once there is another leader."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioelasticjob.config.job import JobConfig
from aioelasticjob.core import effects
from aioelasticjob.core.effects import (
    MAX_OPERATIONS,
    AcceptConfiguration,
    Assign,
    BecomeLeader,
    Effect,
    EndRun,
    MarkFollowed,
    MarkOrphan,
    NoteSchedule,
    NoteUnusable,
    RefreshServer,
    RemoveItems,
    RemoveNodes,
    RequireAssignment,
    RestoreNodes,
    SayStrategyFailed,
    StepDown,
    UpdateRequest,
    to_transactions,
)
from aioelasticjob.core.layout import SWITCHES, Layout, server_switch
from aioelasticjob.core.requests import Request
from aioelasticjob.core.view import JobView, read
from aioelasticjob.errors import Conflict
from aioelasticjob.model import GIVEN_UP, FireSource, Record, VersionedRecord
from aioelasticjob.registry.transaction import Check, Create, Delete, Op, Set
from tests.simulation.bare.registry import BareRegistry

LAYOUT, ME = Layout("job"), "10.0.0.1@-@1"
ANYBODYS = {BecomeLeader, RestoreNodes, RefreshServer, NoteUnusable, AcceptConfiguration}
"""Effects of which each instance has its own, whichever instance leads."""
SAID = {SayStrategyFailed}
"""Effects that write nothing."""

items = st.integers(0, 2 * MAX_OPERATIONS)
versions = st.integers(0, 9)
runs = st.builds(VersionedRecord, st.just(Record(slot=1, completed=False)), versions)
paths = st.one_of(
    items.map(lambda item: LAYOUT.item(item).orphan),
    st.sampled_from([LAYOUT.shutdown("gone"), LAYOUT.server("10.0.0.9"), LAYOUT.request("r")]),
)
of_leaders: dict[type, st.SearchStrategy[Effect]] = {
    StepDown: st.just(StepDown()),
    RequireAssignment: st.just(RequireAssignment()),
    Assign: st.dictionaries(items, st.sampled_from([ME, "other"])).map(Assign),
    RemoveItems: st.frozensets(items, min_size=1).map(RemoveItems),
    MarkOrphan: st.builds(MarkOrphan, items, runs),
    EndRun: st.builds(EndRun, items, runs, st.just(2), st.just(GIVEN_UP)),
    NoteSchedule: st.just(NoteSchedule((Create(LAYOUT.schedule),))),
    MarkFollowed: st.just(MarkFollowed((Create(LAYOUT.followers),))),
    RemoveNodes: st.lists(st.builds(Delete, paths, versions), min_size=1).map(tuple).map(RemoveNodes),
    UpdateRequest: st.builds(
        UpdateRequest,
        st.builds(Request, st.just("r"), st.just(FireSource.TRIGGER), st.just(1), st.just(1), version=versions),
        st.binary(max_size=9),
    ),
}


def led(extra: list[Op] | None = None) -> tuple[BareRegistry, JobView]:
    registry, config = BareRegistry(), JobConfig.build(job_name="job", sharding_total_count=3)
    registry.commit([Create(path) for path in LAYOUT.skeleton])
    registry.commit([Create(LAYOUT.config, config.to_json()), Create(LAYOUT.epoch), Set(LAYOUT.epoch, b"", 0)])
    registry.commit([Create(LAYOUT.instance(ME), ephemeral=True), Create(LAYOUT.host, ME.encode(), ephemeral=True)], 1)
    if extra:
        registry.commit(extra)
    return registry, read(registry.tree(), LAYOUT, config)


def test_every_effect_is_a_leaders_or_anybodys() -> None:
    assert {*get_args(Effect)} == ANYBODYS | SAID | of_leaders.keys()
    assert not ANYBODYS & of_leaders.keys()


@pytest.mark.parametrize("kind", of_leaders)
@given(st.data())
@settings(max_examples=50, deadline=None)
def test_every_transaction_of_a_leader_checks_the_epoch(kind: type, data: st.DataObject) -> None:
    flags = data.draw(st.sets(st.sampled_from([LAYOUT.necessary, LAYOUT.processing, LAYOUT.server("10.0.0.9")])))
    registry, view = led([Create(path) for path in sorted(flags)])
    effect = data.draw(of_leaders[kind])
    transactions = to_transactions(effect, view)
    assert transactions
    assert all(Check(LAYOUT.epoch, 1) in transaction for transaction in transactions)
    registry.commit([Set(LAYOUT.epoch, b"", -1)])  # somebody else leads
    for transaction in transactions:
        with pytest.raises(Conflict) as refused:
            registry.commit(transaction, 1)
        assert refused.value.path == LAYOUT.epoch


def test_a_deposed_leader_removes_no_mark_of_an_orphan() -> None:
    orphan = LAYOUT.item(7).orphan
    registry, view = led([Create(orphan)])
    registry.commit([Delete(LAYOUT.host), Set(LAYOUT.epoch, b"", 1)])
    (removal,) = to_transactions(RemoveNodes((Delete(orphan),)), view)
    with pytest.raises(Conflict):
        registry.commit(removal, 1)
    assert orphan in registry.nodes


@pytest.mark.parametrize("flag", [LAYOUT.paused, LAYOUT.server_paused("10.0.0.9"), server_switch("10.0.0.9", "paused")])
def test_moments_of_an_item_are_excused_only_if_its_former_holder_is_still_paused(flag: str) -> None:
    item, former = LAYOUT.item(0), "10.0.0.9@-@1"
    above = [Create(path) for path in (LAYOUT.server("10.0.0.9"), SWITCHES, server_switch("10.0.0.9"))]
    registry, view = led([*above, Create(item.sharding), Create(item.instance, former.encode()), Create(flag)])
    view = replace(view, common=registry.tree())
    (transaction,) = to_transactions(Assign({0: ME}), view)
    assert Set(item.sharding, b"", -1) in transaction
    registry.commit([Delete(flag)])
    with pytest.raises(Conflict) as refused:
        registry.commit(transaction, 1)
    assert refused.value.path == flag
    registry.commit([Create(flag)])
    registry.commit(transaction, 1)


def test_each_part_of_a_long_assignment_excuses_moments_only_if_the_former_holder_is_still_paused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(effects, "MAX_OPERATIONS", 4)
    taken = [LAYOUT.item(number) for number in range(5)]
    nodes = [op for one in taken for op in (Create(one.sharding), Create(one.instance, b"10.0.0.9@-@1"))]
    _, view = led([*nodes, Create(LAYOUT.paused)])
    parts = to_transactions(Assign(dict.fromkeys(range(5), ME)), view)
    excusing = [part for part in parts if any(Set(one.sharding, b"", -1) in part for one in taken)]
    assert len(excusing) > 1
    assert all(Check(LAYOUT.paused) in part for part in excusing)


def test_every_item_whose_record_is_removed_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """If an item stayed without its record, and the count rose again, it would run a moment a second time."""
    monkeypatch.setattr(effects, "MAX_OPERATIONS", 4)
    _, view = led([Create(LAYOUT.item(number).sharding) for number in range(5)])
    (transaction,) = to_transactions(RemoveItems(frozenset(range(5))), view)
    assert {op.path for op in transaction if isinstance(op, Delete)} == {LAYOUT.item(n).sharding for n in range(5)}
