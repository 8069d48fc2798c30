from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioelasticjob.config import JobConfig
from aioelasticjob.coordination.effects import (
    Assign,
    Forget,
    LeaveSeat,
    MarkNecessary,
    Prune,
    TakeSeat,
    to_transactions,
)
from aioelasticjob.coordination.rules import Situation, decide
from aioelasticjob.coordination.rules.sharding import wanted
from aioelasticjob.coordination.view import JobView, read
from aioelasticjob.errors import Conflict
from aioelasticjob.layout import Layout
from aioelasticjob.registry.txn import Create, Delete, Set
from aioelasticjob.testing.bare import BareRegistry

LAYOUT = Layout("job")


@dataclass
class World:
    """A job on the bare tree, and instances that do what the rules say."""

    config: JobConfig
    registry: BareRegistry = field(default_factory=BareRegistry)
    joined: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.registry.commit([Create(path) for path in LAYOUT.skeleton])
        self.registry.commit([Create(LAYOUT.config, self.config.to_json())])

    def join(self, number: int) -> str:
        name = f"10.0.0.{number}@-@1"
        self.joined.append(name)
        if LAYOUT.server(f"10.0.0.{number}") not in self.registry.nodes:
            self.registry.commit([Create(LAYOUT.server(f"10.0.0.{number}"))])
        self.registry.commit([Create(LAYOUT.instance(name), b"", ephemeral=True)], incarnation=number)
        return name

    def view(self) -> JobView:
        return read(self.registry.tree(), LAYOUT, self.config)

    def round(self, name: str, view: JobView | None = None) -> int:
        """Let one instance write what it wants; return how many transactions took."""
        view = view or self.view()
        number, written = int(name.partition("@")[0].rpartition(".")[2]), 0
        for effect in decide(Situation(view, name)):
            try:
                for transaction in to_transactions(effect, view):
                    self.registry.commit(transaction, number)
                    written += 1
            except Conflict:
                pass
        return written

    def settle(self, rounds: int = 50) -> JobView:
        for _ in range(rounds):
            if not sum([self.round(name) for name in list(self.view().instances)]):
                return self.view()
        raise AssertionError("the rules never come to rest")


def world(instances: int = 3, **settings: object) -> World:
    made = World(JobConfig.build(job_name="job", **settings))
    for number in range(1, instances + 1):
        made.join(number)
    return made


def is_right(view: JobView) -> bool:
    if not view.staying:  # nobody may lead, so all waits for somebody who may
        return True
    return view.assignment == wanted(view) and view.settled and view.leader in view.staying


def test_from_nothing_to_the_strategys_assignment() -> None:
    view = world(3, sharding_total_count=8).settle()
    assert view.leader in view.eligible
    assert view.assignment == wanted(view)
    assert view.settled


operations = st.lists(
    st.one_of(
        st.tuples(st.just("join"), st.integers(1, 7)),
        st.tuples(st.just("die"), st.integers(1, 7)),
        st.tuples(st.just("drain"), st.integers(1, 7)),
        st.tuples(st.just("disable"), st.integers(1, 7)),
        st.tuples(st.just("enable"), st.integers(1, 7)),
        st.tuples(st.just("pause"), st.integers(1, 7)),
        st.tuples(st.just("count"), st.integers(1, 12)),
        st.tuples(st.just("act"), st.integers(1, 7)),
        st.tuples(st.just("act on an old view"), st.integers(1, 7)),
        st.tuples(st.just("hands on"), st.integers(0, 12)),
    ),
    max_size=25,
)


def happen(here: World, what: str, number: int, old: JobView) -> None:
    name, registry = f"10.0.0.{number}@-@1", here.registry
    flags = {"disable": LAYOUT.server_disabled, "pause": LAYOUT.server_paused}
    match what:
        case "join" if LAYOUT.instance(name) not in registry.nodes:
            here.join(number)
        case "die":
            registry.expire(number)
        case "drain" if LAYOUT.instance(name) in registry.nodes:
            seat = registry.nodes.get(LAYOUT.host)
            given_up = [Delete(LAYOUT.host)] if seat and seat.stat.ephemeral_owner == number else []
            leaving = b'{"ip": "10.0.0.%d", "leaving": true}' % number
            registry.commit([Set(LAYOUT.instance(name), leaving, -1), *given_up], number)
        case "disable" | "pause" if LAYOUT.server(f"10.0.0.{number}") in registry.nodes:
            flag = flags[what](f"10.0.0.{number}")
            if flag not in registry.nodes:
                registry.commit([Create(flag)])
        case "enable":
            for flag in (LAYOUT.server_disabled(f"10.0.0.{number}"), LAYOUT.server_paused(f"10.0.0.{number}")):
                if flag in registry.nodes:
                    registry.commit([Delete(flag)])
        case "count":
            config = here.view().config.changed(sharding_total_count=number)
            registry.commit([Set(LAYOUT.config, config.to_json(), -1)])
        case "act":
            here.round(name)
        case "act on an old view":
            here.round(name, old)
        case "hands on" if LAYOUT.item(number).instance in registry.nodes:
            registry.commit([Set(LAYOUT.item(number).instance, b"nobody", -1)])
        case _:
            pass


@given(script=operations, strategy=st.sampled_from(["average", "round-robin", "sticky", "odevity"]))
@settings(max_examples=300, deadline=None)
def test_whatever_happens_they_converge_and_then_fall_silent(script: list[tuple[str, int]], strategy: str) -> None:
    here = world(2, sharding_total_count=5, sharding_strategy=strategy)
    old = here.view()
    for n, (what, number) in enumerate(script):
        happen(here, what, number, old)
        if n % 3 == 0:
            old = here.view()
    view = here.settle()
    assert is_right(view)
    for name in view.instances:
        assert decide(Situation(view, name)) == []


@given(script=operations)
@settings(max_examples=100, deadline=None)
def test_deciding_is_pure_and_running_marks_are_never_touched(script: list[tuple[str, int]]) -> None:
    here = world(3, sharding_total_count=5)
    for item in range(5):
        here.registry.make(LAYOUT.item(item).running, b"somebody")
    for what, number in script:
        view = here.view()
        for name in view.instances:
            effects = decide(Situation(view, name))
            assert effects == decide(Situation(view, name))
            written = [op.path for effect in effects for txn in to_transactions(effect, view) for op in txn]
            assert not [path for path in written if path.startswith(LAYOUT.execution)]
        happen(here, what, number, view)


def test_a_deposed_leader_writes_nothing() -> None:
    here = world(2, sharding_total_count=4)
    view = here.settle()
    here.registry.commit([Set(LAYOUT.config, view.config.changed(sharding_total_count=9).to_json(), -1)])
    deposed, old = view.leader, here.view()
    here.registry.expire(int(deposed.partition("@")[0].rpartition(".")[2]))  # type: ignore[union-attr]
    here.settle()
    before = dict(here.registry.nodes)
    for effect in (MarkNecessary("late"), Assign({0: str(deposed)}), LeaveSeat(str(deposed)), Prune(frozenset({0}))):
        with pytest.raises(Conflict):
            here.registry.commit(to_transactions(effect, old)[0], 1)
    assert here.registry.nodes == before


def test_an_assignment_decided_before_somebody_joined_is_refused() -> None:
    here = world(1, sharding_total_count=4)
    here.round("10.0.0.1@-@1")
    view = here.view()
    (assign,) = [effect for effect in decide(Situation(view, "10.0.0.1@-@1")) if isinstance(effect, Assign)]
    here.registry.commit([Set(LAYOUT.necessary, b"", -1)])  # as a joining instance does
    with pytest.raises(Conflict):
        here.registry.commit(to_transactions(assign, view)[0], 1)


def test_until_membership_is_quiet_nothing_is_assigned() -> None:
    here = world(2, sharding_total_count=4)
    here.round("10.0.0.1@-@1")
    hasty = decide(Situation(here.view(), "10.0.0.1@-@1", quiet=False))
    assert not [effect for effect in hasty if isinstance(effect, Assign)]


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


def test_items_beyond_the_count_are_pruned_but_not_their_offsets() -> None:
    here = world(1, sharding_total_count=3)
    here.settle()
    here.registry.make(LAYOUT.item(2).offset, b"42")
    here.registry.commit([Set(LAYOUT.config, here.config.changed(sharding_total_count=1).to_json(), -1)])
    view = here.settle()
    assert view.items == {0}
    assert LAYOUT.item(2).offset in here.registry.nodes


def test_on_a_tick_requests_to_the_departed_are_removed() -> None:
    here = world(1)
    here.settle()
    here.registry.commit([Create(LAYOUT.shutdown("gone")), Create(LAYOUT.trigger("gone"))])
    assert decide(Situation(here.view(), "10.0.0.1@-@1")) == []
    (effect,) = decide(Situation(here.view(), "10.0.0.1@-@1", tick=True))
    assert effect == Forget((LAYOUT.shutdown("gone"), LAYOUT.trigger("gone")))


@given(count=st.integers(600, 2600))
@settings(max_examples=5, deadline=None)
def test_an_assignment_beyond_one_transaction_is_fenced_chunk_by_chunk(count: int) -> None:
    here = world(3, sharding_total_count=count)
    here.round("10.0.0.1@-@1")
    view = here.view()
    (assign,) = [effect for effect in decide(Situation(view, "10.0.0.1@-@1")) if isinstance(effect, Assign)]
    transactions = to_transactions(assign, view)
    assert len(transactions) > 2
    for transaction in transactions[:-1]:
        here.registry.commit(transaction, 1)
        assert not here.view().settled
    here.registry.commit(transactions[-1], 1)
    assert is_right(here.view())


def test_an_assignment_that_was_cut_short_is_written_again_from_the_start() -> None:
    here = world(2, sharding_total_count=2000)
    here.round("10.0.0.1@-@1")
    view = here.view()
    (assign,) = [effect for effect in decide(Situation(view, "10.0.0.1@-@1")) if isinstance(effect, Assign)]
    for transaction in to_transactions(assign, view)[:2]:
        here.registry.commit(transaction, 1)
    assert is_right(here.settle())


def test_taking_the_seat_is_one_transaction_that_raises_the_epoch() -> None:
    here = world(2)
    view = here.view()
    (mine,) = to_transactions(TakeSeat("10.0.0.1@-@1"), view)
    (theirs,) = to_transactions(TakeSeat("10.0.0.2@-@1"), view)
    here.registry.commit(mine, 1)
    with pytest.raises(Conflict):
        here.registry.commit(theirs, 2)
    assert here.view().epoch == 0
    here.registry.expire(1)
    here.round("10.0.0.2@-@1")
    assert here.view().epoch == 1


def test_who_leaves_gives_its_items_to_those_who_stay_and_the_last_keeps_its_own() -> None:
    here = world(2, sharding_total_count=4)
    assert set(here.settle().assignment.values()) == {"10.0.0.1@-@1", "10.0.0.2@-@1"}
    happen(here, "drain", 1, here.view())
    view = here.settle()
    assert (view.leader, set(view.assignment.values())) == ("10.0.0.2@-@1", {"10.0.0.2@-@1"})
    happen(here, "drain", 2, view)
    view = here.settle()
    assert (view.leader, set(view.assignment.values())) == (None, {"10.0.0.2@-@1"})
    here.join(3)
    assert here.settle().leader == "10.0.0.3@-@1"
    assert set(here.view().assignment.values()) == {"10.0.0.3@-@1"}


def test_a_leader_that_is_said_to_leave_by_hand_makes_room() -> None:
    here = world(2, sharding_total_count=4)
    leaving = here.settle().leader
    assert leaving is not None
    here.registry.commit([Set(LAYOUT.instance(leaving), b'{"ip": "10.0.0.1", "leaving": true}', -1)])
    assert is_right(here.settle())
    assert leaving not in (here.view().leader, *here.view().assignment.values())
