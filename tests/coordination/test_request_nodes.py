"""What the nodes of requests hold is read as far as they have changed: kept requests cost nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioelasticjob.coordination import request_nodes as module
from aioelasticjob.coordination.diagnostics import diagnose
from aioelasticjob.coordination.operator_log import operator_actions
from aioelasticjob.coordination.request_nodes import NO_REQUESTS, request_nodes
from aioelasticjob.coordination.request_runs import next_due, next_run
from aioelasticjob.coordination.requests import Request, changed, encode, encode_cancellation, encode_progress
from aioelasticjob.coordination.rules import RuleInput, decide
from aioelasticjob.coordination.view import JobView, follow
from aioelasticjob.model import FireSource, Outcome, Progress
from aioelasticjob.registry.tree import MAX_CHANGES, Node, Tree
from tests.coordination.test_claims import LAYOUT, ME, NOW, ClaimedJob
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
