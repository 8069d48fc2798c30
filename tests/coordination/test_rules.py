from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, seed, settings
from hypothesis import strategies as st

from aioelasticjob.config import JobConfig
from aioelasticjob.coordination import records
from aioelasticjob.coordination.effects import (
    Assign,
    BecomeLeader,
    NoteSchedule,
    RemoveItems,
    RemoveMarks,
    RequireAssignment,
    StepDown,
    to_transactions,
)
from aioelasticjob.coordination.rules import RULES, RuleInput, decide
from aioelasticjob.coordination.rules.failover import give_up_runs
from aioelasticjob.coordination.rules.schedule import MAX_FORMER_SCHEDULES
from aioelasticjob.coordination.rules.sharding import wanted_assignment
from aioelasticjob.coordination.view import JobView, read
from aioelasticjob.errors import Conflict
from aioelasticjob.layout import Layout
from aioelasticjob.model import Record
from aioelasticjob.registry.transaction import Create, Delete, Set
from tests.simulation.bare.registry import BareRegistry

LAYOUT = Layout("job")
WEEK = 7 * 24 * 3600.0


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

    def rule_input(self, name: str, view: JobView | None = None, *, tick: bool = True) -> RuleInput:
        """Return what an instance would decide on: the busy nodes are looked up as the coordinator does."""
        nodes, cut_off, unwanted = self.registry.nodes, dict[int, int](), dict[str, int]()
        runs = dict[int, Record]()
        for item in range(13):
            record, running = nodes.get(LAYOUT.item(item).execution), LAYOUT.item(item).running in nodes
            if record is not None and not running:
                unwanted[LAYOUT.item(item).execution] = record.stat.version
                told = records.decode(record.data)
                if told is not None and not told.completed:
                    cut_off[item], runs[item] = record.stat.version, told
        idle = {} if self.running() else unwanted
        found = view or self.view()
        return RuleInput(found, name, tick=tick, time=self.registry.now, records=idle, cut_off=cut_off, runs=runs)

    def running(self) -> dict[str, object]:
        """Return the marks of runs."""
        return {path: node for path, node in self.registry.nodes.items() if path.endswith("/running")}

    def round(self, name: str, view: JobView | None = None, *, backwards: bool = False) -> int:
        """Let one instance write what it wants; return how many transactions took."""
        view = view or self.view()
        number, written, running = int(name.partition("@")[0].rpartition(".")[2]), 0, self.running()
        effects = decide(self.rule_input(name, view))
        for effect in reversed(effects) if backwards else effects:
            try:
                for transaction in to_transactions(effect, view):
                    self.registry.commit(transaction, number)
                    written += 1
            except Conflict:
                pass
        assert self.running() == running
        return written

    def settle(self, rounds: int = 50, *, backwards: bool = False) -> JobView:
        for _ in range(rounds):
            names = sorted(self.view().instances, reverse=backwards)
            if not sum([self.round(name, backwards=backwards) for name in names]):
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
    return view.assignment == wanted_assignment(view) and view.settled and view.leader in view.staying


def test_from_nothing_to_the_strategys_assignment() -> None:
    view = world(3, sharding_total_count=8).settle()
    assert view.leader in view.eligible
    assert view.assignment == wanted_assignment(view)
    assert view.settled


WHATS = (
    *(
        "join",
        "die",
        "drain",
        "disable",
        "enable",
        "pause",
        "count",
        "act",
        "act on an old view",
        "hands on",
        "tear",
        "begin",
    ),
    *("end", "cut off", "rescue", "failover", "monitor", "ask", "depose", "wait", "rest", "rest"),
)
happenings = st.tuples(st.sampled_from(WHATS), st.integers(0, 12))
operations = st.lists(happenings, max_size=8) | st.lists(happenings, min_size=12, max_size=40)
PARENTS = (*LAYOUT.mirrored_parents, *(LAYOUT.server(f"10.0.0.{number}") for number in range(1, 8)))


def happen(here: World, what: str, number: int, old: JobView) -> None:
    nodes = here.registry.nodes
    host = number % 7 + 1
    name, ip = f"10.0.0.{host}@-@1", f"10.0.0.{host}"
    flags = {"disable": LAYOUT.server_disabled(ip), "pause": LAYOUT.server_paused(ip)}
    match what:
        case "join" if LAYOUT.instance(name) not in nodes:
            here.join(host)
        case "die":
            here.registry.expire(host)
        case "drain" if LAYOUT.instance(name) in nodes:
            seat = nodes.get(LAYOUT.host)
            given_up = [Delete(LAYOUT.host)] if seat and seat.stat.ephemeral_owner == host else []
            here.registry.commit([Set(LAYOUT.instance(name), b'{"leaving": true}', -1), *given_up], host)
        case "disable" | "pause" if LAYOUT.server(ip) in nodes and flags[what] not in nodes:
            here.registry.commit([Create(flags[what])])
        case "enable":
            here.registry.commit([Delete(flag) for flag in flags.values() if flag in nodes])
        case "act":
            here.round(name)
        case "rest":
            here.settle()
        case "act on an old view":
            here.round(name, old)
        case "hands on" if LAYOUT.item(number).instance in nodes:
            here.registry.commit([Set(LAYOUT.item(number).instance, b"nobody", -1)])
        case "wait":
            here.registry.now += number * WEEK / 6
        case _:
            by_hand(here, what, number, name)


def by_hand(here: World, what: str, number: int, name: str) -> None:
    """Do what an operator does, or a run; what the tree refuses does not happen."""
    registry, paths, host = here.registry, LAYOUT.item(number), number % 7 + 1
    config = here.view().config
    begun = records.encode(Record(slot=1, instance=name, begun=1, completed=False, rescues=number % 5))
    done = records.encode(Record(slot=1, instance=name, begun=1))
    changes = {
        "count": {"sharding_total_count": number or 1},
        "failover": {"failover": number % 3 > 0, "monitor_execution": True},
        "monitor": {"failover": False, "monitor_execution": number % 3 == 0},
    }
    record = Set(paths.execution, begun, -1) if paths.execution in registry.nodes else Create(paths.execution, begun)
    transactions = {
        "tear": [Delete(PARENTS[number % len(PARENTS)])],
        "begin": [record, Create(paths.running, name.encode(), ephemeral=True)],
        "cut off": [record],
        "end": [Set(paths.execution, done, -1), Delete(paths.running)],
        "rescue": [Delete(paths.orphan), Create(paths.failover, name.encode(), ephemeral=True)],
        "ask": [Create(LAYOUT.trigger(name) if number % 2 else LAYOUT.shutdown(name))],
        "depose": [Delete(LAYOUT.host)],
    }
    if what in changes:
        transactions[what] = [Set(LAYOUT.config, config.changed(**changes[what]).to_json(), -1)]
    if what not in ("begin", "rescue") or LAYOUT.instance(name) in registry.nodes:
        with suppress(Conflict):
            registry.commit(transactions.get(what, []), host)


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


def leads(here: World) -> str:
    leader = here.view().leader
    assert leader is not None
    return leader


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


def test_a_run_that_was_handed_over_is_given_up_with_its_mark() -> None:
    here = cut_off(3)
    here.registry.commit([Create(LAYOUT.item(1).orphan)])
    assert here.settle().orphans == frozenset()
    assert record_of(here).outcome == "given up"


def test_while_a_rescue_is_under_way_nothing_is_given_up() -> None:
    here = cut_off(3)
    here.registry.commit([Create(LAYOUT.item(1).failover, b"10.0.0.2@-@1", ephemeral=True)], incarnation=2)
    assert list(give_up_runs(here.rule_input(leads(here)))) == []


@pytest.mark.parametrize("settings", [{"failover": False}, {"leader": False}])
def test_only_a_leader_gives_up_and_only_with_failover(settings: dict[str, bool]) -> None:
    here = cut_off(3)
    (other,) = here.view().instances.keys() - {leads(here)}
    if "failover" in settings:
        here.registry.commit([Set(LAYOUT.config, here.config.changed(failover=False).to_json(), -1)])
    assert list(give_up_runs(here.rule_input(other if "leader" in settings else leads(here)))) == []


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
    (effect,) = give_up_runs(here.rule_input(leads(here)))
    (transaction,) = to_transactions(effect, here.view())
    here.registry.commit([disturbance], incarnation=2)
    with pytest.raises(Conflict):
        here.registry.commit(transaction, incarnation=1)


@given(script=operations, strategy=st.sampled_from(["average", "round-robin", "sticky", "odevity"]))
@example([("rest", 0), ("cut off", 1), ("rest", 0), ("failover", 0)], "average")
@example([("die", 0), ("rest", 0), ("disable", 1), ("count", 0)], "average")
@settings(max_examples=300, deadline=None)
def test_whatever_happens_they_converge_and_then_fall_silent(script: list[tuple[str, int]], strategy: str) -> None:
    here = world(2, sharding_total_count=5, sharding_strategy=strategy, failover=True)
    old = here.view()
    for n, (what, number) in enumerate(script):
        happen(here, what, number, old)
        if n % 3 == 0:
            old = here.view()
    view = here.settle()
    assert is_right(view)
    for name in view.instances:
        assert decide(here.rule_input(name)) == []
    leftover = tidied(here, view)
    assert not leftover


def tidied(here: World, view: JobView) -> list[str]:
    """Return what a leader, if there is one, should have tidied up by now."""
    if view.leader not in view.instances:
        return []
    nodes, now, count = here.registry.nodes, here.rule_input(view.leader), view.config.sharding_total_count
    unwanted = [] if view.config.monitor_execution else list(now.records)
    waiting = [f"orphan {item}" for item in view.orphans if item >= count or not view.config.failover]
    asked = [*view.tree.children(LAYOUT.triggers), *view.tree.children(LAYOUT.shutdowns)]
    requests = [f"request to {name}" for name in asked if name not in view.instances]
    missing = [path for path in LAYOUT.mirrored_parents if path not in nodes]
    assigns = view.settled and view.eligible  # what is too much goes with the next assignment
    surplus = [f"item {item}" for item in view.items if item >= count] if assigns else []
    used, retention = {one.ip: one for one in view.instances.values()}, view.config.server_retention
    for ip in view.tree.children(LAYOUT.servers):
        age, children = here.registry.now - nodes[LAYOUT.server(ip)].stat.mtime, view.tree.children(LAYOUT.server(ip))
        surplus += [f"server {ip}"] if age > (retention / 2 if ip in used else 2 * retention) and not children else []
    if view.config.failover:
        rescued = view.orphans | view.rescues.keys()
        missing += [f"orphan {item}" for item in now.cut_off if item < count and item in view.items - rescued]
    return [*unwanted, *waiting, *requests, *missing, *surplus]


@given(script=operations)
@settings(max_examples=100, deadline=None)
def test_deciding_is_pure_and_running_marks_are_never_touched(script: list[tuple[str, int]]) -> None:
    here = world(3, sharding_total_count=5)
    for item in range(5):
        here.registry.make(LAYOUT.item(item).running, b"somebody")
    marks = here.running()
    for what, number in script:
        view = here.view()
        for name in view.instances:
            for tick in (False, True):
                now = here.rule_input(name, view, tick=tick)
                assert decide(now) == decide(now)
            here.round(name)
        if what != "end":
            happen(here, what, number, view)
    assert marks.items() <= here.running().items()


@given(script=operations)
@settings(max_examples=100, deadline=None)
def test_the_order_in_which_they_act_does_not_matter(script: list[tuple[str, int]]) -> None:
    here = world(3, sharding_total_count=5, failover=True)
    for what, number in script:
        happen(here, what, number, here.view())
    there = deepcopy(here)
    view, other = here.settle(), there.settle(backwards=True)
    assert other.assignment == view.assignment
    seat = {LAYOUT.host, LAYOUT.epoch}  # who is first leads
    assert {path: node.data for path, node in here.registry.nodes.items() if path not in seat} == {
        path: node.data for path, node in there.registry.nodes.items() if path not in seat
    }


def test_each_rule_fires_in_the_scripts_above() -> None:
    fired = Counter[str]()

    @seed(1)
    @given(script=operations)
    @settings(max_examples=400, deadline=None, database=None)
    def live(script: list[tuple[str, int]]) -> None:
        here = world(3, sharding_total_count=5, failover=True)
        for what, number in script:
            happen(here, what, number, here.view())
            for name in here.view().instances:
                now = here.rule_input(name)
                fired.update(rule.__name__ for rule in RULES if list(rule(now)))
                here.round(name)

    live()
    assert {rule.__name__: fired[rule.__name__] for rule in RULES if fired[rule.__name__] < 3} == {}, fired


def test_a_deposed_leader_writes_nothing() -> None:
    here = world(2, sharding_total_count=4)
    view = here.settle()
    here.registry.commit([Set(LAYOUT.config, view.config.changed(sharding_total_count=9).to_json(), -1)])
    deposed, old = view.leader, here.view()
    here.registry.expire(int(deposed.partition("@")[0].rpartition(".")[2]))  # type: ignore[union-attr]
    here.settle()
    before = dict(here.registry.nodes)
    late = (RequireAssignment("late"), Assign({0: str(deposed)}), StepDown(str(deposed)), RemoveItems(frozenset({0})))
    for effect in (*late, NoteSchedule(b"late", 1)):
        with pytest.raises(Conflict):
            here.registry.commit(to_transactions(effect, old)[0], 1)
    assert here.registry.nodes == before


def test_an_assignment_decided_before_somebody_joined_is_refused() -> None:
    here = world(1, sharding_total_count=4)
    here.round("10.0.0.1@-@1")
    view = here.view()
    (assign,) = [effect for effect in decide(RuleInput(view, "10.0.0.1@-@1")) if isinstance(effect, Assign)]
    here.registry.commit([Set(LAYOUT.necessary, b"", -1)])  # as a joining instance does
    with pytest.raises(Conflict):
        here.registry.commit(to_transactions(assign, view)[0], 1)


def test_until_membership_is_quiet_nothing_is_assigned() -> None:
    here = world(2, sharding_total_count=4)
    here.round("10.0.0.1@-@1")
    hasty = decide(RuleInput(here.view(), "10.0.0.1@-@1", quiet=False))
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
        assert not here.view().settled
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


def test_a_leader_that_is_said_to_leave_by_hand_makes_room() -> None:
    here = world(2, sharding_total_count=4)
    leaving = here.settle().leader
    assert leaving is not None
    here.registry.commit([Set(LAYOUT.instance(leaving), b'{"ip": "10.0.0.1", "leaving": true}', -1)])
    assert is_right(here.settle())
    assert leaving not in (here.view().leader, *here.view().assignment.values())


def _knowing(number: int, *features: str) -> Create:
    data = json.dumps({"features": features}).encode()
    return Create(LAYOUT.instance(f"10.0.0.{number}@-@1"), data, ephemeral=True)


def _requiring(there: World, data: bytes) -> JobView:
    there.registry.commit([Set(LAYOUT.config, data, -1)])
    return there.settle()


def test_an_instance_that_lacks_what_is_required_neither_holds_nor_leads_until_it_is_required_no_more() -> None:
    there = world(1, sharding_total_count=4)
    there.registry.commit([_knowing(2, "x")], incarnation=2)
    before = there.settle()
    old, new = "10.0.0.1@-@1", "10.0.0.2@-@1"
    assert (before.leader, set(before.assignment.values()), before.lacking) == (old, {old, new}, {})
    view = _requiring(there, there.config.changed(requires=["x"]).to_json())
    assert (view.eligible, view.leader, set(view.assignment.values())) == ((new,), new, {new})
    assert view.lacking == {old: ("x",)}
    assert set(_requiring(there, there.config.to_json()).assignment.values()) == {old, new}


def test_a_leader_that_lacks_what_is_required_leaves_its_seat_though_nobody_else_could_lead() -> None:
    there = world(2, sharding_total_count=2)
    before = there.settle()
    view = _requiring(there, there.config.changed(requires=["x"], sharding_total_count=1).to_json())
    assert (view.eligible, view.leader) == ((), None)
    assert view.assignment == before.assignment  # and nothing is pruned by somebody who does not know what is wanted
    there.registry.commit([_knowing(3, "x", "y")], incarnation=3)
    assert set(there.settle().assignment.items()) == {(0, "10.0.0.3@-@1")}


def test_what_is_required_counts_though_the_rest_makes_no_sense_here() -> None:
    there = world(1, sharding_total_count=2)
    there.registry.commit([_knowing(2, "x")], incarnation=2)
    there.settle()
    view = _requiring(there, b'{"jobName": "job", "requires": ["x"], "dst": "new"}')
    assert view.fault is not None
    assert (view.eligible, view.config.sharding_total_count) == (("10.0.0.2@-@1",), 2)
    view = _requiring(there, b'{"jobName": "job", "requires": [7], "dst": "new"}')
    assert len(view.eligible) == 2  # which says nothing, so the last word holds: it was nothing


@pytest.mark.parametrize("data", [b'{"features": "x"}', b'{"features": {"x": 1}}', b'{"features": [["x"]]}', b"x"])
def test_an_instance_that_does_not_say_what_it_knows_knows_nothing(data: bytes) -> None:
    there = world(0, requires=["x"])
    there.registry.commit([Create(LAYOUT.instance("10.0.0.1@-@1"), data, ephemeral=True)], incarnation=1)
    assert there.settle().eligible == ()


def test_the_leader_notes_since_when_the_schedule_is_in_force_whoever_writes_another_setting() -> None:
    here = world(2, cron="0 * * * * ?")
    assert here.settle().scheduled_since == 1_000
    changes: tuple[tuple[float, dict[str, object], float], ...] = (
        (2_000.0, {"description": "hello"}, 1_000),
        (3_000.0, {"cron": "0 0 * * * ?"}, 3_000),
        (4_000.0, {"description": "again"}, 3_000),
        (5_000.0, {"monitor_execution": False}, 5_000),
        (6_000.0, {"time_zone": "Europe/Berlin"}, 6_000),
    )
    for now, changed, since in changes:
        here.registry.now = now
        here.registry.commit([Set(LAYOUT.config, here.view().config.changed(**changed).to_json(), -1)])
        assert here.view().scheduled_since == since  # known at once, before it is noted
        assert here.settle().scheduled_since == since


def _change(here: World, now: int, **changed: object) -> JobView:
    here.registry.now = float(now)
    here.registry.commit([Set(LAYOUT.config, here.view().config.changed(**changed).to_json(), -1)])
    return here.view()


def _former(view: JobView) -> list[tuple[str, int, int]]:
    return [(one.cron.expression, one.since, one.until) for one in view.recorded_schedules if one.cron]


def test_the_leader_remembers_the_schedules_before_the_one_in_force() -> None:
    here = world(2, cron="0 * * * * ?")
    assert _former(here.settle()) == []
    first, second = ("0 * * * * ?", 1_000_000, 2_000_000), ("30 * * * * ?", 2_000_000, 3_000_000)
    assert _former(_change(here, 2_000, cron="30 * * * * ?")) == [first]  # known at once, before it is noted
    assert _former(here.settle()) == [first]
    here.settle()
    assert _former(_change(here, 2_500, description="hello")) == [first]
    assert _former(_change(here, 3_000, cron="0 * * * * ?")) == [first, second]
    assert _former(here.settle()) == [first, second]
    for now in range(4_000, 24_000, 1_000):
        _change(here, now, cron=f"{now // 1000} * * * * ?")
        here.settle()
    assert len(_former(here.view())) == MAX_FORMER_SCHEDULES
    assert _former(_change(here, 30_000, monitor_execution=False)) == []
    here.settle()
    assert _former(_change(here, 31_000, monitor_execution=True)) == []  # the records before that have been removed
    assert _former(here.settle()) == []


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b'{"since": true}', b'{"former": 7}', b'{"former": [7]}', b'{"cron": null, "since": "then"}', b"\xff"],
)
def test_a_note_of_the_schedule_that_makes_no_sense_is_replaced(data: bytes) -> None:
    here = world(1)
    here.settle()
    here.registry.commit([Set(LAYOUT.schedule, data, -1)])
    assert here.view().scheduled_since == 1_000
    assert here.settle().schedule_is_noted


def test_a_configuration_that_makes_no_sense_is_not_noted() -> None:
    here = world(1)
    here.settle()
    here.registry.commit([Set(LAYOUT.config, b"nonsense", -1), Delete(LAYOUT.schedule)])
    assert LAYOUT.schedule not in here.settle().tree
