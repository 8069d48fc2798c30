"""What nodes hold is read as far as they have changed: kept requests cost nothing, nor do ten thousand items."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioelasticjob.core import nodes as module
from aioelasticjob.core.diagnostics import diagnose
from aioelasticjob.core.effects import RemoveItems
from aioelasticjob.core.layout import child
from aioelasticjob.core.nodes import NO_ITEMS, NO_REQUESTS, item_nodes, request_nodes
from aioelasticjob.core.request_runs import begun_items, following, next_due, next_run, waiting_items
from aioelasticjob.core.requests import Request, Span, changed, encode, encode_cancellation, encode_progress
from aioelasticjob.core.rules import RuleInput, decide
from aioelasticjob.core.view import JobView, follow
from aioelasticjob.engine.operator_log import operator_actions
from aioelasticjob.engine.pacing import Pacing
from aioelasticjob.model import FireSource, Outcome, Progress
from aioelasticjob.registry.tree import MAX_CHANGES, Node, Tree
from tests.engine.test_claims import LAYOUT, ME, NOW, ClaimedJob
from tests.schedules.made import schedule
from tests.support.stats import stat

ITEMS = frozenset({0, 1, 2})
ONCE = encode(Request("", FireSource.TRIGGER, 3, NOW))
CLOSED = changed(ONCE, closed=NOW, outcomes={"completed": 3})
PLANNED = encode(Request("", FireSource.TRIGGER, 3, NOW, at=NOW + 1000))
STOPPED = changed(ONCE, stopped="cancelled")
DATA = [ONCE, CLOSED, PLANNED, STOPPED, encode_cancellation({0: 7}, NOW, "anna"), b"nonsense"]
NAMES = ("a", "b", "c", "a/0", "b/1", "b/x")
PATHS = [LAYOUT.requests, LAYOUT.config, *(f"{LAYOUT.requests}/{name}" for name in NAMES)]
NODES = st.integers(0, len(DATA) - 1).map(lambda number: Node.of(DATA[number], stat(version=number)))
"""Nodes that hold other data only in another version, as in the registry."""
CHANGES = st.dictionaries(st.sampled_from(PATHS), st.none() | NODES)


def is_derived_as_anew(
    made: Callable[..., object],
    nothing: object,
    first: dict[str, Node | None],
    rounds: list[tuple[dict[str, Node | None], bool]],
) -> None:
    """Check that what is made of a tree after some changes, not all of which were seen, is what is made of it anew."""
    tree = Tree().replace(first, 1)
    tree.derive(made, nothing)
    for changes, is_seen in rounds:
        tree = tree.replace(changes, 1)
        if is_seen:
            tree.derive(made, nothing)
    anew = Tree({path: node for path in tree if (node := tree.get(path))})
    assert tree.derive(made, nothing) == anew.derive(made, nothing)


@given(CHANGES, st.lists(st.tuples(CHANGES, st.booleans()), max_size=5))
def test_what_is_read_of_changed_nodes_is_what_all_nodes_hold(
    first: dict[str, Node | None], rounds: list[tuple[dict[str, Node | None], bool]]
) -> None:
    is_derived_as_anew(partial(request_nodes, LAYOUT.requests), NO_REQUESTS, first, rounds)


def test_after_very_many_changes_that_nobody_saw_all_nodes_are_read() -> None:
    made, calls = partial(request_nodes, LAYOUT.requests), list[bool]()

    def noted(tree: Tree, before: Any, paths: Any) -> Any:
        calls.append(before is NO_REQUESTS)
        return made(tree, before, paths)

    tree = Tree({LAYOUT.request("q"): Node.of(ONCE, stat())})
    tree.derive(noted, NO_REQUESTS)
    nodes = [Node.of(ONCE, stat(version=number)) for number in range(MAX_CHANGES + 3)]
    for node in nodes:  # one more than the tree has nodes and the limit together
        tree = tree.replace({LAYOUT.request("r"): node}, 1)
    assert [one.version for one in tree.derive(noted, NO_REQUESTS).open] == [0, MAX_CHANGES + 2]
    assert calls == [True, True]


def test_not_all_nodes_are_read_again_when_most_of_those_of_a_large_job_have_changed_at_once() -> None:
    made, calls = partial(request_nodes, LAYOUT.requests), list[bool]()

    def noted(tree: Tree, before: Any, paths: Any) -> Any:
        calls.append(before is NO_REQUESTS)
        return made(tree, before, paths)

    items = {LAYOUT.request_item("r", item): Node.of(b"", stat()) for item in range(2 * MAX_CHANGES)}
    tree = Tree().replace(items, 1)
    assert tree.derive(noted, NO_REQUESTS) is tree.derive(noted, NO_REQUESTS)  # nothing has changed in between
    tree.replace(items, 1).derive(noted, NO_REQUESTS)  # as when all items of a job change at once
    assert calls == [True, False]


def test_a_request_is_read_once_while_nodes_below_it_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[str]()
    decoded = module.decode
    monkeypatch.setattr(module, "decode", lambda name, node: (read.append(name), decoded(name, node))[1])
    made, request = partial(request_nodes, LAYOUT.requests), Node.of(ONCE, stat(version=7))
    tree = Tree().replace({LAYOUT.request("r"): request}, 1)
    (first,) = tree.derive(made, NO_REQUESTS).open
    for item in range(5):  # its parent is read again for each node that is made
        begun = Node.of(encode_progress(Progress(NOW)), stat())
        tree = tree.replace({LAYOUT.request_item("r", item): begun, LAYOUT.request("r"): request}, 1)
        assert tree.derive(made, NO_REQUESTS).open[0] is first
    assert read == ["r"]
    tree = tree.replace({LAYOUT.request("r"): Node.of(STOPPED, stat(version=8))}, 1)
    assert tree.derive(made, NO_REQUESTS).open == ()


def work(done: Callable[[], object]) -> int:
    """Return how many functions that are written in Python a piece of work calls."""
    calls = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        done()
    finally:
        sys.setprofile(before)
    return calls


def answered(kept: int, data: bytes) -> int:
    """Return how many functions are called while one request is answered and others are kept."""
    job, before = ClaimedJob(), {LAYOUT.requests: Node.of(b"", stat())}
    before |= {LAYOUT.request(f"kept-{number}"): Node.of(data, stat()) for number in range(kept)}
    now = NOW + 500

    def see(view: JobView, tree: Tree) -> JobView:
        after = follow(view, tree, tree)
        diagnose(after, ME)
        list(operator_actions(view, after, job.member))
        decide(RuleInput(after, ME, time=now / 1000))
        next_run(after, FireSource.TRIGGER, ITEMS, now)
        next_run(after, FireSource.BACKFILL, ITEMS, now)
        next_due(after, ITEMS, now)
        return after

    view = job.view()
    view = see(view, view.tree.replace({LAYOUT.host: Node.of(ME.encode(), stat()), **before}, 1))
    progress = LAYOUT.request_item("r", 0)
    ended = encode_progress(Progress(NOW, outcome=Outcome.COMPLETED.value))
    rounds: list[dict[str, Node | None]] = [
        {LAYOUT.request("r"): Node.of(ONCE, stat())},
        {progress: Node.of(encode_progress(Progress(NOW)), stat())},
        {progress: Node.of(ended, stat(version=1))},
        {progress: None, LAYOUT.request("r"): Node.of(CLOSED, stat(version=1))},
    ]

    def all_rounds() -> None:
        seen = view
        for changes in rounds:
            seen = see(seen, seen.tree.replace(changes, 1))

    all_rounds()  # so that what is parsed once has been parsed
    return work(all_rounds)


@pytest.mark.parametrize("data", [CLOSED, ONCE, PLANNED], ids=["ended", "waiting", "planned"])
def test_the_work_for_one_request_does_not_grow_with_those_that_are_kept(data: bytes) -> None:
    assert answered(2000, data) < answered(50, data) + 250


ITEM_NAMES = (
    "0",
    "0/instance",
    "0/instance/x",
    "1",
    "1/instance",
    "1/disabled",
    "1/failover",
    "2",
    "2/note",
    "007",
    "x",
)
ITEM_PATHS = [LAYOUT.sharding, LAYOUT.config, *(child(LAYOUT.sharding, name) for name in ITEM_NAMES)]
ITEM_NODES = st.builds(
    lambda data, zxid: Node.of(data, stat(mzxid=zxid)), st.sampled_from([b"a", b"b"]), st.integers(1, 3)
)
ITEM_CHANGES = st.dictionaries(st.sampled_from(ITEM_PATHS), st.none() | ITEM_NODES)

SPAN = Span(NOW, NOW + 3000, schedule("* * * * * ?", dst="quartz"))
EMPTY = Span(NOW, NOW, schedule("* * * * * ?", dst="quartz"))
REQUESTS = [
    *(encode(Request("", FireSource.BACKFILL, 3, NOW, span=span)) for span in (SPAN, EMPTY)),
    encode(Request("", FireSource.TRIGGER, 3, NOW)),
    encode(Request("", FireSource.TRIGGER, 3, NOW, (0, 2, 9))),
    b"nonsense",
]
MOMENTS = [Progress(NOW), Progress(NOW, outcome=Outcome.COMPLETED.value), Progress(NOW + 2000), Progress(NOW + 9000)]
ASKED = st.builds(lambda data, made: Node.of(data, stat(czxid=made)), st.sampled_from(REQUESTS), st.integers(1, 2))
BEGUN = st.builds(lambda data: Node.of(data, stat()), st.sampled_from([*map(encode_progress, MOMENTS), b"nonsense"]))
WITH_ITEMS = st.fixed_dictionaries(
    {},
    optional={
        **{LAYOUT.request(name): st.none() | ASKED for name in "ab"},
        **{child(LAYOUT.request(name), item): st.none() | BEGUN for name in "ab" for item in ("0", "1", "2", "x")},
    },
)


@given(ITEM_CHANGES, st.lists(st.tuples(ITEM_CHANGES, st.booleans()), max_size=5))
def test_what_is_read_of_changed_items_is_what_all_items_hold(
    first: dict[str, Node | None], rounds: list[tuple[dict[str, Node | None], bool]]
) -> None:
    is_derived_as_anew(partial(item_nodes, LAYOUT), NO_ITEMS, first, rounds)


@given(st.lists(WITH_ITEMS, max_size=5))
def test_the_items_of_requests_that_wait_and_run_are_those_that_their_nodes_name(
    rounds: list[dict[str, Node | None]],
) -> None:
    view = ClaimedJob().view()
    for changes in rounds:
        view = follow(view, view.tree.replace(changes, 1), view.common)
        for request in view.requests:
            waiting = [item for item in request.within(3) if following(view, request, item) is not None]
            assert list(waiting_items(view, request)) == waiting
            begun = view.request_nodes.begun.get(request.id)
            running = {item for item, (progress, _) in begun_items(view, request).items() if not progress.outcome}
            assert running == (set() if begun is None else begun.under_way)


def claimed(items: int) -> int:
    """Return how many functions are called while an item begins and ends its run, and others have ended theirs."""
    job = ClaimedJob(items)

    def see(view: JobView, changes: dict[str, Node | None]) -> JobView:
        after = follow(view, view.tree.replace(changes, 1), view.common)
        Pacing(ME, since=0).see(view, after)
        diagnose(after, ME)
        list(operator_actions(view, after, job.member))
        decide(RuleInput(after, ME, time=NOW / 1000))
        after.given_to(ME)
        next_run(after, FireSource.TRIGGER, frozenset(range(items)), NOW)
        return after

    asked = Node.of(encode(Request("", FireSource.TRIGGER, items, NOW)), stat(mtime=NOW / 1000))
    ended = Node.of(encode_progress(Progress(NOW, outcome=Outcome.COMPLETED.value)), stat())
    begun = Node.of(encode_progress(Progress(NOW)), stat(mtime=NOW / 1000))
    others = {LAYOUT.request_item("r", item): begun if item == 1 else ended for item in range(1, items)}
    leads = {LAYOUT.host: Node.of(ME.encode(), stat()), LAYOUT.requests: Node.of(b"", stat())}
    view = see(job.view(), {**leads, LAYOUT.request("r"): asked, **others})
    begun = Node.of(encode_progress(Progress(NOW)), stat())
    stopped = Node.of(changed(asked.data, stopped="cancelled"), stat(version=1))

    def all_rounds() -> None:
        seen = view
        for node in (begun, ended):
            seen = see(seen, {LAYOUT.request_item("r", 0): node})

    all_rounds()
    assert see(view, {LAYOUT.request("r"): stopped}).request_nodes.begun["r"].done == frozenset(range(1, items))
    return work(all_rounds)


def test_the_work_for_one_claim_does_not_grow_with_the_items_of_its_request() -> None:
    assert claimed(2000) < claimed(50) + 250


def removed(items: int) -> int:
    """Return how many functions are called while the leader looks at surplus items of which it has removed one."""
    job = ClaimedJob(items)
    view = job.view()
    leads = {LAYOUT.host: Node.of(ME.encode(), stat())}
    unheld = {LAYOUT.item(item).instance: None for item in range(1, items)}
    few = Node.of(job.config.changed(sharding_total_count=1).to_json(), stat(version=1))
    view = follow(view, view.tree.replace({**leads, **unheld, LAYOUT.config: few}, 1), view.common)
    assert view.items == set(range(items))

    def look() -> None:
        after = follow(view, view.tree.replace({LAYOUT.item(items - 1).sharding: None}, 1), view.common)
        diagnose(after, ME)
        (effect,) = decide(RuleInput(after, ME, time=NOW / 1000))[-1:]
        assert effect == RemoveItems(frozenset(range(1, items - 1)))

    look()
    return work(look)


def test_the_work_to_remove_surplus_items_does_not_grow_with_how_many_are_left() -> None:
    assert removed(2000) < removed(50) + 250


@pytest.mark.parametrize("name", ["disabled", "failover", "note"])
def test_few_items_are_searched_for_more_than_their_holder(name: str) -> None:
    view = ClaimedJob().view()
    assert view.item_nodes.special == set()
    path = child(LAYOUT.item(1).sharding, name)
    after = follow(view, view.tree.replace({path: Node.of(b"", stat())}, 1), view.common)
    assert after.item_nodes.special == {1}
    assert after.assignment == view.assignment
