"""Which items run next for which request, and what their claims and settlements note: each runs once."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from aioelasticjob.core.items import Lock
from aioelasticjob.core.request_runs import next_due, next_run, request_of_run
from aioelasticjob.core.requests import Request, Span, changed, decode_progress, encode, encode_progress
from aioelasticjob.core.view import JobView
from aioelasticjob.engine.accounts import write_accounts
from aioelasticjob.model import Claim, Fire, FireSource, Outcome, Progress, Record, VersionedRecord
from aioelasticjob.registry.transaction import Create, Delete, Set
from tests.engine.test_claims import LAYOUT, ME, NOW, ClaimedJob, done
from tests.schedules.made import schedule

ITEMS = frozenset({0, 1, 2})
PATH = LAYOUT.request("r")
ONCE = Request("r", FireSource.TRIGGER, 3, NOW, parameter="P")
SECOND = 1000
START = 1_000_000
SPAN = Span(START, START + 3 * SECOND, schedule("* * * * * ?"))
BACKFILL = Request("b", FireSource.BACKFILL, 3, NOW, span=SPAN)


def asked(*requests: Request) -> ClaimedJob:
    job = ClaimedJob()
    job.write(*(Create(LAYOUT.request(one.id), encode(one)) for one in requests))
    return job


def fire_of(
    job: ClaimedJob, free: frozenset[int] = ITEMS, source: FireSource = FireSource.TRIGGER, now: int = NOW
) -> Fire:
    found = next_run(job.view(), source, free, now)
    assert found is not None
    return found.fire


def run_all(job: ClaimedJob, *outcomes: Outcome, source: FireSource = FireSource.TRIGGER) -> Claim:
    """Claim and settle what is next."""
    found = next_run(job.view(), source, ITEMS, NOW)
    assert found is not None
    claim = job.taken(found.fire, found.items)
    assert job.settle(claim, *(outcomes or [Outcome.COMPLETED] * len(found.items)))
    return claim


def progress(job: ClaimedJob, item: int, name: str = "r") -> dict[str, object]:
    return json.loads(job.registry.nodes[LAYOUT.request_item(name, item)].data)  # type: ignore[no-any-return]


@pytest.mark.parametrize("reply", ["well", "reply lost", "never arrived"])
def test_a_claim_notes_its_items_and_the_settlement_how_they_ended(reply: str) -> None:
    job = asked(ONCE)
    job.session.commits.append(reply)
    claim = run_all(job, Outcome.COMPLETED, Outcome.FAILED, Outcome.TIMED_OUT)
    assert {(seen.record.asked, seen.record.parameter, seen.record.request) for seen in claim.items.values()} == {
        (NOW, "P", "r")
    }
    assert job.record().slot == 0  # no scheduled moment was claimed
    assert [progress(job, item)["outcome"] for item in range(3)] == ["completed", "failed", "timed out"]
    assert next_run(job.view(), FireSource.TRIGGER, ITEMS, NOW) is None


def test_a_second_claim_that_was_decided_on_the_same_view_is_refused() -> None:
    job = asked(ONCE)
    fire = fire_of(job)
    run_all(job)
    taken = job.claim(fire)
    assert (taken.claim, taken.stale) == (None, True)
    assert job.running() == []


@pytest.mark.parametrize("edit", [Set(PATH, changed(encode(ONCE), stopped="cancelled"), 0), Delete(PATH)])
def test_a_request_that_was_cancelled_or_removed_meanwhile_refuses_the_claim(edit: Set | Delete) -> None:
    job = asked(ONCE)
    fire = fire_of(job)
    job.write(edit)
    assert job.claim(fire).stale
    assert job.running() == []
    assert next_run(job.view(), FireSource.TRIGGER, ITEMS, NOW) is None


def test_items_that_run_elsewhere_stay_asked_for() -> None:
    job = asked(ONCE)
    job.elsewhere(1)
    assert job.claim(fire_of(job)).renewed == ITEMS
    free = [item for item, lock in job.learn().items() if lock is Lock.FREE]
    job.taken(fire_of(job, frozenset(free)), free)
    found = next_run(job.view(), FireSource.TRIGGER, ITEMS, NOW)
    assert found is not None
    assert found.items == {1}


@pytest.mark.parametrize("when", ["before the settlement", "its item only"])
def test_a_request_that_is_removed_while_its_items_run_keeps_no_item_locked(when: str) -> None:
    job = asked(ONCE)
    claim = job.taken(fire_of(job))
    items = range(3) if when == "before the settlement" else [1]
    job.write(*(Delete(LAYOUT.request_item("r", item)) for item in items), *([Delete(PATH)] if len(items) == 3 else []))
    assert job.settle(claim, *[Outcome.COMPLETED] * 3)
    assert job.running() == []
    assert job.record().completed


def test_a_run_that_was_cut_off_is_rescued_for_the_same_request() -> None:
    job = asked(ONCE)
    claim = job.taken(fire_of(job), [0])
    assert job.hand_over(claim) == {0}
    assert "outcome" not in progress(job, 0)
    job.learn()
    record = job.record()
    requested = request_of_run(job.view(), 0, record)
    rescue = job.taken(Fire(record.moment, FireSource.FAILOVER, record.parameter, requested=requested), [0])
    assert rescue.items[0].record.request == "r"
    assert progress(job, 0) == {"moment": NOW, "runs": 1}
    assert job.settle(rescue, Outcome.COMPLETED)
    assert progress(job, 0) == {"moment": NOW, "runs": 1, "outcome": "completed"}


def cut_off(job: ClaimedJob, *items: int) -> None:
    """Let the runs of items for a request be cut off."""
    job.taken(fire_of(job), items)
    job.write(*(Delete(LAYOUT.item(item).running) for item in items))
    job.learn()


def end(job: ClaimedJob, view: JobView, *items: int) -> dict[int, VersionedRecord] | None:
    """Let the holder end runs that were cut off and that nobody rescues."""
    seen = {item: job.seen[item] for item in items}
    ended = {item: (one, replace(one.record, completed=True, outcome="cancelled")) for item, one in seen.items()}
    written = done(write_accounts(job.member, view, ended))
    job.learn()
    return written


def test_a_run_that_was_cut_off_and_is_not_rescued_is_noted_so_by_the_holder_that_ends_it() -> None:
    job = asked(ONCE)
    cut_off(job, 0, 1)
    assert end(job, job.view(), 0) is not None
    noted = {"moment": NOW, "runs": 1, "outcome": "cut off", "instance": job.member.id}
    assert progress(job, 0) == noted
    assert progress(job, 1) == {"moment": NOW, "runs": 1}


def test_a_loss_is_noted_once_whatever_is_written_of_its_item_afterwards() -> None:
    job = asked(ONCE)
    cut_off(job, 0)
    end(job, job.view(), 0)
    version = job.registry.nodes[LAYOUT.request_item("r", 0)].stat.version
    end(job, job.view(), 0)
    assert done(job.settlements.give_back(job.taken(Fire(2 * NOW, FireSource.SCHEDULE), [0])))
    assert job.registry.nodes[LAYOUT.request_item("r", 0)].stat.version == version


def test_a_loss_that_was_decided_on_an_older_view_of_the_request_is_not_written() -> None:
    job = asked(ONCE)
    cut_off(job, 0)
    view, node = job.view(), LAYOUT.request_item("r", 0)
    job.write(Set(node, job.registry.nodes[node].data, 0))
    assert end(job, view, 0) == {}
    assert not job.record().completed
    assert end(job, job.view(), 0) is not None
    assert job.record().completed


@pytest.mark.parametrize(
    "record", [Record(), Record(asked=NOW), Record(asked=NOW, request="x"), Record(asked=1, request="r")]
)
def test_a_rescue_of_another_run_notes_nothing(record: Record) -> None:
    job = asked(ONCE)
    run_all(job)
    assert request_of_run(job.view(), 0, record) is None


def test_a_backfill_runs_the_moments_of_an_item_one_after_another() -> None:
    job = asked(BACKFILL)
    fires = [run_all(job, source=FireSource.BACKFILL).fire for _ in range(3)]
    assert [fire.slot for fire in fires] == [START, START + SECOND, START + 2 * SECOND]
    assert next_run(job.view(), FireSource.BACKFILL, ITEMS, NOW) is None
    assert progress(job, 1, "b") == {"moment": START + 2 * SECOND, "runs": 3, "outcome": "completed"}


def test_a_backfill_goes_on_with_the_moment_whose_stream_gave_way_and_counts_its_run_once() -> None:
    job = asked(BACKFILL)
    run_all(job, Outcome.FAILED, Outcome.COMPLETED, Outcome.COMPLETED, source=FireSource.BACKFILL)
    items = ITEMS
    for _ in range(2):
        found = next_run(job.view(), FireSource.BACKFILL, ITEMS, NOW)
        assert found is not None
        assert (found.items, found.fire.slot) == (items, START + SECOND)
        claim, items = job.taken(found.fire, items), frozenset({0, 1})
        job.settled(claim, dict.fromkeys(claim.items, Outcome.COMPLETED), hand_over=False, unfinished=items)
        left_open = {"moment": START + SECOND, "runs": 2, "outcome": "left open"}
        assert [progress(job, item, "b") for item in (0, 1)] == [{**left_open, "failed": 1}, left_open]
    assert job.settle(job.taken(fire_of(job, source=FireSource.BACKFILL), items), *[Outcome.COMPLETED] * 2)
    outcomes = decode_progress(json.dumps(progress(job, 0, "b")).encode()).outcomes()
    assert outcomes == {"failed": 1, "completed": 1}


def test_a_rescue_that_gives_way_leaves_the_request_open() -> None:
    job = asked(ONCE)
    claim = job.taken(fire_of(job), [0])
    assert job.hand_over(claim) == {0}
    job.learn()
    record = job.record()
    requested = request_of_run(job.view(), 0, record)
    rescue = job.taken(Fire(record.moment, FireSource.FAILOVER, record.parameter, requested=requested), [0])
    job.settled(rescue, {0: Outcome.COMPLETED}, hand_over=False, unfinished=frozenset({0}))
    assert progress(job, 0) == {"moment": NOW, "runs": 1, "outcome": "left open"}
    assert fire_of(job, frozenset({0})).slot == NOW


def test_a_stream_that_gave_way_goes_on_after_requests_that_have_not_begun() -> None:
    job = asked(ONCE, replace(ONCE, id="s", at=NOW + 1))
    first = job.taken(fire_of(job), ITEMS)
    job.settled(first, dict.fromkeys(ITEMS, Outcome.COMPLETED), hand_over=False, unfinished=ITEMS)
    assert [run_all_later(job).slot, run_all_later(job).slot] == [NOW + 1, NOW]
    assert next_run(job.view(), FireSource.TRIGGER, ITEMS, NOW + 1) is None


def test_a_backfill_counts_what_failed() -> None:
    job = asked(BACKFILL)
    for outcome in (Outcome.FAILED, Outcome.COMPLETED, Outcome.TIMED_OUT):
        run_all(job, *[outcome] * 3, source=FireSource.BACKFILL)
    assert progress(job, 0, "b") == {"moment": START + 2000, "runs": 3, "failed": 1, "outcome": "timed out"}


def test_a_backfill_counts_what_was_stopped_and_what_was_cut_off_apart() -> None:
    job = asked(BACKFILL)
    run_all(job, *[Outcome.STOPPED] * 3, source=FireSource.BACKFILL)
    job.write(Set(LAYOUT.request_item("b", 1), encode_progress(Progress(START)), -1))  # as if it had been cut off
    for outcome in (Outcome.FAILED, Outcome.COMPLETED):
        run_all(job, *[outcome] * 3, source=FireSource.BACKFILL)
    counted = [decode_progress(json.dumps(progress(job, item, "b")).encode()).outcomes() for item in range(2)]
    assert counted == [
        {"stopped": 1, "failed": 1, "completed": 1},
        {"cut off": 1, "failed": 1, "completed": 1},
    ]


def test_items_of_a_backfill_that_are_behind_go_first() -> None:
    job = asked(BACKFILL)
    job.settle(job.taken(fire_of(job, frozenset({0}), FireSource.BACKFILL), [0]), Outcome.COMPLETED)
    found = next_run(job.view(), FireSource.BACKFILL, ITEMS, NOW)
    assert found is not None
    assert (found.items, found.fire.slot) == ({1, 2}, START)


def test_a_backfill_of_few_items_at_a_time_goes_on_with_the_next_item_when_one_has_ended() -> None:
    job = asked(replace(BACKFILL, span=replace(SPAN, items_at_once=1)))
    job.config = job.config.changed(failover=True)
    job.write(Set(LAYOUT.config, job.config.to_json(), -1))
    order = list[int]()
    while (found := next_run(job.view(), FireSource.BACKFILL, ITEMS, NOW)) is not None:
        claim = job.taken(found.fire, found.items)
        order += claim.items
        assert next_run(job.view(), FireSource.BACKFILL, ITEMS - claim.items.keys(), NOW) is None
        job.settle(claim, Outcome.COMPLETED)
    assert order == [0, 0, 0, 1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("failover", [True, False])
def test_only_a_run_that_will_be_rescued_keeps_others_from_a_backfill_of_few_items_at_a_time(failover: bool) -> None:
    job = asked(replace(BACKFILL, span=replace(SPAN, end=START + SECOND, items_at_once=1)))
    job.config = job.config.changed(failover=failover)
    job.write(Set(LAYOUT.config, job.config.to_json(), -1))
    assert job.taken(fire_of(job, source=FireSource.BACKFILL), {0}).items.keys() == {0}
    found = next_run(job.view(), FireSource.BACKFILL, ITEMS - {0}, NOW)
    assert (None if found is None else found.items) == (None if failover else {1})


def test_a_disabled_item_does_not_keep_others_from_a_backfill_of_few_items_at_a_time() -> None:
    job = asked(replace(BACKFILL, span=replace(SPAN, items_at_once=1)))
    job.write(Create(LAYOUT.item(0).disabled))
    found = next_run(job.view(), FireSource.BACKFILL, ITEMS - {0}, NOW)
    assert found is not None
    assert found.items == {1}


def test_a_disabled_item_whose_run_was_cut_off_does_not_keep_others_from_a_backfill_of_few_items_at_a_time() -> None:
    job = asked(replace(BACKFILL, span=replace(SPAN, items_at_once=1)))
    job.config = job.config.changed(failover=True)
    job.write(Set(LAYOUT.config, job.config.to_json(), -1))
    found = next_run(job.view(), FireSource.BACKFILL, ITEMS, NOW)
    assert found is not None
    claim = job.taken(found.fire, found.items)
    job.write(Create(LAYOUT.item(0).disabled))
    assert next_run(job.view(), FireSource.BACKFILL, ITEMS - {0}, NOW) is None  # it runs until it has ended
    assert job.hand_over(claim) == {0}
    found = next_run(job.view(), FireSource.BACKFILL, ITEMS - {0}, NOW)
    assert found is not None
    assert found.items == {1}


def test_an_item_of_a_paused_server_does_not_keep_others_from_a_backfill_of_few_items_at_a_time() -> None:
    job = asked(replace(BACKFILL, span=replace(SPAN, items_at_once=1)))
    holder = job.registry.nodes[LAYOUT.item(0).instance]
    job.write(Set(LAYOUT.item(0).instance, b"10.0.0.9@-@9", holder.stat.version))
    job.write(Create(LAYOUT.server("10.0.0.9")), Create(LAYOUT.server_paused("10.0.0.9")))
    found = next_run(job.view(), FireSource.BACKFILL, ITEMS - {0}, NOW)
    assert found is not None
    assert found.items == {1}


def test_requests_are_answered_in_the_order_of_their_moments() -> None:
    later = replace(ONCE, id="a", at=NOW + 1)
    job = asked(later, ONCE)
    assert [run_all_later(job).slot, run_all_later(job).slot] == [NOW, NOW + 1]


def run_all_later(job: ClaimedJob) -> Fire:
    found = next_run(job.view(), FireSource.TRIGGER, ITEMS, NOW + 1)
    assert found is not None
    job.settle(job.taken(found.fire, found.items), *[Outcome.COMPLETED] * 3)
    return found.fire


def test_a_planned_request_waits_for_its_moment_and_an_expired_one_is_not_begun() -> None:
    planned = replace(ONCE, at=NOW + 5, expires=NOW + 9)
    view = asked(planned).view()
    ready = [next_run(view, FireSource.TRIGGER, ITEMS, NOW + n) is not None for n in (0, 4, 5, 8, 9, 10)]
    assert ready == [False, False, True, True, False, False]
    assert (next_due(view, {0}, NOW), next_due(view, {0}, NOW + 5), next_due(view, {7}, NOW)) == (NOW + 5, None, None)


@pytest.mark.parametrize(
    ("keys", "runs"),
    [
        ({}, True),
        ({"items": [1]}, True),
        ({"items": [9]}, False),
        ({"paused": True}, False),
        ({"stopped": "expired"}, False),
        ({"closed": 7}, False),
        ({"kind": "nonsense"}, False),
    ],
)
def test_only_open_requests_for_free_items_are_run(keys: dict[str, object], runs: bool) -> None:
    job = asked(ONCE)
    job.write(Set(PATH, changed(encode(ONCE), **keys), -1))
    assert (next_run(job.view(), FireSource.TRIGGER, ITEMS, NOW) is not None) is runs
    assert next_run(job.view(), FireSource.TRIGGER, frozenset(), NOW) is None


@pytest.mark.parametrize(("request_", "is_answered"), [(ONCE, True), (BACKFILL, False)])
def test_a_job_whose_execution_is_not_monitored_answers_triggers_and_no_backfills(
    request_: Request, is_answered: bool
) -> None:
    job = asked(request_)
    config = job.config.changed(monitor_execution=False)
    job.write(Set(LAYOUT.config, config.to_json(), -1))
    assert (next_run(job.view(), request_.source, ITEMS, NOW) is not None) is is_answered


def test_nonsense_below_a_request_ends_its_item_and_no_other() -> None:
    job = asked(ONCE)
    job.write(
        Create(LAYOUT.request_item("r", 1), b"nonsense"), Create(f"{PATH}/x"), Create(LAYOUT.request("a b"), b"{")
    )
    found = next_run(job.view(), FireSource.TRIGGER, ITEMS, NOW)
    assert found is not None
    assert found.items == {0, 2}
    assert ME.encode() in job.registry.nodes[LAYOUT.item(0).instance].data
