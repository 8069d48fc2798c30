"""The leader notes the end of requests, and forgets them when nobody needs them."""

from __future__ import annotations

import json

import pytest

from aioelasticjob.core.effects import RemoveNodes, UpdateRequest
from aioelasticjob.core.requests import Request, Span, encode, encode_progress
from aioelasticjob.core.rules import LOST_AFTER, NAMED_FOR, UNNAMED_FOR, RuleInput, decide
from aioelasticjob.model import FireSource, Progress
from aioelasticjob.registry.transaction import Create, Delete, Set
from tests.core.rules.world import LAYOUT, World, world
from tests.schedules.made import schedule

PATH = LAYOUT.request("r")
COMPLETED = Progress(1_000_000, outcome="completed")


def asked(
    *progress: Progress | None,
    named: bool = False,
    expires: int = 0,
    stopped: str = "",
    items: tuple[int, ...] | None = None,
    span: Span | None = None,
) -> World:
    """Return a job of two items that has come to rest, and then was asked to run."""
    made = world(2, sharding_total_count=2)
    made.settle()
    source = FireSource.BACKFILL if span else FireSource.TRIGGER
    request = Request("r", source, 2, 1_000_000, items, expires=expires, named=named, span=span)
    data = {**json.loads(encode(request)), **({"stopped": stopped} if stopped else {})}
    made.registry.commit([Create(PATH, json.dumps(data).encode())])
    for item, one in enumerate(progress):
        if one is not None:
            made.registry.commit([Create(LAYOUT.request_item("r", item), encode_progress(one))])
    return made


def stored(made: World) -> dict[str, object]:
    return json.loads(made.registry.nodes[PATH].data)  # type: ignore[no-any-return]


def effects(made: World) -> list[UpdateRequest]:
    view = made.view()
    found = decide(RuleInput(view, str(view.leader), tick=True, time=made.registry.now))
    return [one for one in found if isinstance(one, UpdateRequest)]


@pytest.mark.parametrize("progress", [(), (COMPLETED,), (COMPLETED, Progress(1_000_000))])
def test_a_request_stays_open_while_items_have_to_run_or_run(progress: tuple[Progress, ...]) -> None:
    made = asked(*progress)
    made.settle()
    assert "closed" not in stored(made)


def test_a_request_is_closed_with_the_outcomes_of_its_runs() -> None:
    made = asked(COMPLETED, Progress(1_000_000, 3, 1, "failed"))
    made.settle()
    assert (stored(made)["closed"], stored(made)["outcomes"]) == (1_000_000, {"completed": 2, "failed": 2})
    assert not [path for path in made.registry.nodes if path.startswith(f"{PATH}/")]


def test_a_run_cut_off_of_an_item_that_was_removed_since_is_not_waited_for() -> None:
    made = asked(COMPLETED, Progress(1_000_000))
    one = made.view().config.changed(sharding_total_count=1)
    made.registry.commit([Set(LAYOUT.config, one.to_json(), -1)])
    made.settle()
    assert stored(made)["outcomes"] == {"completed": 1, "unknown": 1}


def test_items_beyond_the_count_are_not_waited_for() -> None:
    made = asked(COMPLETED)
    assert effects(made) == []
    made.registry.commit([Set(LAYOUT.config, made.config.changed(sharding_total_count=1).to_json(), -1)])
    made.settle()
    assert stored(made)["outcomes"] == {"completed": 1}


def lowered(made: World) -> UpdateRequest:
    """Lower the item count to 1, and return the end of the request."""
    made.registry.commit([Set(LAYOUT.config, made.config.changed(sharding_total_count=1).to_json(), -1)])
    (close,) = effects(made)
    assert json.loads(close.data)["closed"]
    return close


def test_items_that_a_request_names_and_that_were_removed_before_they_ran_are_reported() -> None:
    assert lowered(asked(items=(1,))).unrun == {1: 1_000_000}
    assert lowered(asked(COMPLETED, items=(0, 1))).unrun == {1: 1_000_000}
    expired = asked(items=(0, 1), expires=999_999, stopped="expired")
    assert lowered(expired).unrun == {0: 1_000_000, 1: 1_000_000}


def test_nothing_is_reported_of_items_that_ran_or_were_not_named_or_of_a_request_that_was_cancelled() -> None:
    assert lowered(asked(None, COMPLETED, items=(1,))).unrun == {}
    assert lowered(asked(COMPLETED)).unrun == {}
    assert lowered(asked(items=(1,), stopped="cancelled")).unrun == {}


def test_of_a_backfill_the_first_moment_is_reported_that_a_removed_item_did_not_run() -> None:
    span = Span(0, 3_000, schedule("* * * * * ?"))
    begun = Progress(1_000, outcome="completed")
    assert lowered(asked(None, begun, items=(1,), span=span)).unrun == {1: 2_000}


def test_an_expired_request_is_stopped_first_so_that_no_claim_slips_through_and_then_closed() -> None:
    made = asked(COMPLETED, expires=1_005_000)
    made.settle()
    assert "stopped" not in stored(made)
    made.registry.now += 5
    (stop,) = effects(made)
    assert (json.loads(stop.data)["stopped"], stop.unrun) == ("expired", {})
    made.round(str(made.view().leader))
    (close,) = effects(made)
    assert close.unrun == {1: 1_000_000}
    made.settle()
    assert stored(made)["outcomes"] == {"completed": 1}


def test_an_expired_request_of_which_all_items_have_begun_just_ends() -> None:
    made = asked(COMPLETED, COMPLETED, expires=1_005_000)
    made.registry.now += 9
    made.settle()
    assert "stopped" not in stored(made)


def test_a_cancelled_request_is_closed_when_what_runs_has_ended() -> None:
    made = asked(Progress(1_000_000), stopped="cancelled")
    made.settle()
    assert "closed" not in stored(made)
    made = asked(COMPLETED, stopped="cancelled")
    (close,) = effects(made)
    assert close.unrun == {}
    made.settle()
    assert stored(made)["closed"]


def test_a_run_that_nobody_settles_does_not_keep_a_request_open_for_ever() -> None:
    made = asked(COMPLETED, Progress(1_000_000))
    made.registry.now += LOST_AFTER - 1
    made.settle()
    assert "closed" not in stored(made)
    made.registry.now += 2
    made.settle()
    assert stored(made)["outcomes"] == {"completed": 1, "unknown": 1}


def test_a_run_that_began_late_is_waited_for_as_long_as_one_that_began_at_once() -> None:
    made = asked(COMPLETED)
    made.registry.now += LOST_AFTER - 1
    made.registry.commit([Create(LAYOUT.request_item("r", 1), encode_progress(Progress(1_000_000)))])
    made.registry.now += 2
    made.settle()
    assert "closed" not in stored(made)


@pytest.mark.parametrize(("named", "kept"), [(True, NAMED_FOR), (False, UNNAMED_FOR)])
def test_an_ended_request_is_forgotten_later(named: bool, kept: int) -> None:
    made = asked(COMPLETED, COMPLETED, named=named)
    made.settle()
    made.registry.now += kept - 1
    made.settle()
    assert PATH in made.registry.nodes
    made.registry.now += 2
    view = made.view()
    assert RemoveNodes((Delete(PATH, 1),)) in decide(
        RuleInput(view, str(view.leader), tick=True, time=made.registry.now)
    )
    made.settle()
    assert PATH not in made.registry.nodes


def test_only_the_leader_ends_requests() -> None:
    made = asked(COMPLETED, COMPLETED)
    view = made.view()
    (other,) = view.instances.keys() - {view.leader}
    assert not [one for one in decide(RuleInput(view, other, tick=True)) if isinstance(one, UpdateRequest)]
