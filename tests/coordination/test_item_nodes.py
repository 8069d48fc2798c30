"""What the nodes of items hold is read as far as they have changed: a job may have ten thousand items."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioelasticjob.coordination.diagnostics import diagnose
from aioelasticjob.coordination.effects import RemoveItems
from aioelasticjob.coordination.item_nodes import NO_ITEMS, item_nodes
from aioelasticjob.coordination.operator_log import operator_actions
from aioelasticjob.coordination.pacing import Pacing
from aioelasticjob.coordination.request_runs import begun_items, following, next_run, waiting_items
from aioelasticjob.coordination.requests import Request, Span, changed, encode, encode_progress
from aioelasticjob.coordination.rules import RuleInput, decide
from aioelasticjob.coordination.view import JobView, follow
from aioelasticjob.layout import child
from aioelasticjob.model import FireSource, Outcome, Progress
from aioelasticjob.registry.tree import Node
from aioelasticjob.running.unattended import given_to
from tests.coordination.test_claims import LAYOUT, ME, NOW, ClaimedJob
from tests.coordination.test_request_nodes import is_derived_as_anew, work
from tests.support.stats import stat

NAMES = ("0", "0/instance", "0/instance/x", "1", "1/instance", "1/disabled", "1/failover", "2", "2/note", "007", "x")
PATHS = [LAYOUT.sharding, LAYOUT.config, *(child(LAYOUT.sharding, name) for name in NAMES)]
NODES = st.builds(lambda data, zxid: Node.of(data, stat(mzxid=zxid)), st.sampled_from([b"a", b"b"]), st.integers(1, 3))
CHANGES = st.dictionaries(st.sampled_from(PATHS), st.none() | NODES)

SPAN = Span(NOW, NOW + 3000, "* * * * * ?", "UTC", "quartz")
EMPTY = Span(NOW, NOW, "* * * * * ?", "UTC", "quartz")
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


@given(CHANGES, st.lists(st.tuples(CHANGES, st.booleans()), max_size=5))
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
        view = follow(view, view.tree.replace(changes, 1), view.switches)
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
        after = follow(view, view.tree.replace(changes, 1), view.switches)
        Pacing(ME, since=0).see(view, after)
        diagnose(after, ME)
        list(operator_actions(view, after, job.member))
        decide(RuleInput(after, ME, time=NOW / 1000))
        given_to(ME, after)
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
    view = follow(view, view.tree.replace({**leads, **unheld, LAYOUT.config: few}, 1), view.switches)
    assert view.items == set(range(items))

    def look() -> None:
        after = follow(view, view.tree.replace({LAYOUT.item(items - 1).sharding: None}, 1), view.switches)
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
    after = follow(view, view.tree.replace({path: Node.of(b"", stat())}, 1), view.switches)
    assert after.item_nodes.special == {1}
    assert after.assignment == view.assignment
