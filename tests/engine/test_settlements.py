"""Settlements: what is claimed is settled, given back or handed over, whatever goes wrong."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from aioelasticjob.core import records
from aioelasticjob.engine.claims import ITEMS_AT_ONCE
from aioelasticjob.model import Fire, FireSource, Outcome, Record
from aioelasticjob.registry.transaction import Create, Delete, Set
from tests.engine.test_claims import LAYOUT, MINE, NEXT, NOW, RESCUE, SLOT, ClaimedJob, Word, done


def test_a_settlement_that_is_accepted_whole_needs_no_task() -> None:
    job = ClaimedJob()
    claim = job.taken()

    async def settle() -> bool:
        given = job.settlements.settle(claim, dict.fromkeys(claim.items, Outcome.COMPLETED), NOW, hand_over=False)
        assert given.transaction is not None
        assert not job.settlements.settled(given)  # it is not answered yet
        await given.transaction.answer
        return job.settlements.settled(given)

    assert done(settle())
    assert job.running() == []
    assert not job.locks.executing
    job.learn()
    assert job.taken(Fire(NEXT, FireSource.SCHEDULE)).items[0].version == 2


def test_a_settlement_in_parts_is_not_over_with_its_first_part() -> None:
    job = ClaimedJob(ITEMS_AT_ONCE + 1)
    claim = job.taken()

    async def settle() -> bool:
        given = job.settlements.settle(claim, dict.fromkeys(claim.items, Outcome.COMPLETED), NOW, hand_over=False)
        assert given.transaction is not None
        await given.transaction.answer
        assert not job.settlements.settled(given)
        return await job.settlements.finish(given)

    assert done(settle())
    assert job.running() == []


@pytest.mark.parametrize("hand_over", [True, False])
def test_items_cut_off_are_handed_over_and_finished_ones_are_not(hand_over: bool) -> None:
    job = ClaimedJob()
    claim = job.taken()
    handed_over = job.hand_over(claim, Outcome.COMPLETED, Outcome.FAILED, hand_over=hand_over)
    assert handed_over == job.waiting() == ({2} if hand_over else set())
    assert (job.record(2).completed, job.record(2).outcome) == (False, "cancelled")


@pytest.mark.parametrize(
    ("commits", "reads"),
    [
        (["suspended"], []),
        (["never arrived"], []),
        (["reply lost"], []),
        (["reply lost"], ["suspended"]),
        (["never arrived", "suspended", "reply lost"], ["suspended"]),
        ([lambda: Set(LAYOUT.item(1).execution, b"by hand", -1)], []),
        ([lambda: Set(LAYOUT.item(1).execution, b"by hand", -1), "suspended", "reply lost"], []),
    ],
)
def test_what_is_cut_off_is_handed_over_however_settling_went_wrong_and_is_reported(
    commits: list[Any], reads: list[Word]
) -> None:
    job = ClaimedJob()
    claim = job.taken()
    job.session.commits.extend(word if isinstance(word, str) else partial(job.write, word()) for word in commits)
    job.session.reads.extend(reads)
    assert job.hand_over(claim, Outcome.COMPLETED) == job.waiting() == {1, 2}
    assert job.running() == []


def test_what_waits_already_is_not_handed_over_once_more_and_holds_up_nothing() -> None:
    job = ClaimedJob()
    claim = job.taken()
    job.write(Create(LAYOUT.item(1).orphan))
    assert job.hand_over(claim) == {0, 2}
    assert job.waiting() == {0, 1, 2}
    assert job.running() == []


def test_where_nothing_can_wait_nothing_is_handed_over() -> None:
    job = ClaimedJob()
    claim = job.taken()
    job.write(Delete(LAYOUT.orphans))
    assert job.hand_over(claim, Outcome.COMPLETED) == frozenset()
    assert (job.record(2).outcome, job.running()) == ("cancelled", [])


def test_what_has_lost_its_lock_is_not_handed_over() -> None:
    job = ClaimedJob()
    claim = job.taken()
    job.write(Delete(LAYOUT.item(1).running))
    assert job.hand_over(claim) == job.waiting() == {0, 2}


def test_of_many_items_all_that_are_cut_off_are_handed_over() -> None:
    job = ClaimedJob(ITEMS_AT_ONCE + 10)
    claim = job.taken()
    job.session.commits.extend(["suspended", "well", "reply lost"])
    assert job.hand_over(claim) == job.waiting() == set(job.items)


@pytest.mark.parametrize(
    ("commits", "reads"),
    [
        (["reply lost"], []),
        (["never arrived"], []),
        (["suspended"], []),
        (["reply lost"], ["suspended"]),
        (["never arrived"], ["suspended"]),
        (["suspended", "never arrived", "reply lost"], []),
    ],
)
def test_settling_goes_on_until_it_is_done(commits: list[Word], reads: list[Word]) -> None:
    job = ClaimedJob()
    job.orphaned(1)
    claim = job.taken(RESCUE, {1})
    job.session.commits.extend(commits)
    job.session.reads.extend(reads)
    assert job.settle(claim, Outcome.COMPLETED)
    assert job.running() == []
    assert job.record(1).outcome == "completed"
    assert LAYOUT.item(1).failover not in job.registry.nodes


@pytest.mark.parametrize("word", ["over", "never arrived"])
def test_nothing_is_handed_over_under_a_session_that_is_over(word: str) -> None:
    job = ClaimedJob()
    claim = job.taken()
    job.session.commits.append(word)
    job.session.renew(MINE + 5)
    assert job.hand_over(claim) is None
    assert job.waiting() == set()


@pytest.mark.parametrize("word", ["over", "never arrived"])
def test_a_run_whose_session_is_over_cannot_be_settled(word: str) -> None:
    job = ClaimedJob()
    claim = job.taken()
    job.session.commits.append(word)
    job.session.renew(MINE + 5)
    assert not job.settle(claim, Outcome.COMPLETED)
    assert not job.record().completed


def test_a_record_touched_by_hand_during_the_run_is_settled_all_the_same() -> None:
    job = ClaimedJob()
    claim = job.taken()
    job.write(Set(LAYOUT.item(0).execution, b"nonsense", -1))
    assert job.settle(claim, *[Outcome.COMPLETED] * 3)
    assert (job.record().slot, job.running()) == (SLOT, [])


def test_a_lock_removed_by_hand_ends_what_can_be_settled() -> None:
    job = ClaimedJob()
    claim = job.taken()
    job.write(Delete(LAYOUT.item(0).running))
    job.write(Delete(LAYOUT.item(1).running), Create(LAYOUT.item(1).running, b"by hand"))
    assert job.settle(claim, *[Outcome.COMPLETED] * 3)
    assert [job.record(item).completed for item in job.items] == [False, False, True]
    assert job.running() == [1]


@pytest.mark.parametrize("items", [3, ITEMS_AT_ONCE + 1], ids=["in one part", "in two parts"])
@pytest.mark.parametrize("refused", [0, 1, 3], ids=["read at once", "read later", "read after pauses"])
def test_a_job_removed_and_made_anew_is_not_settled_by_who_ran_it_before(items: int, refused: int) -> None:
    job = ClaimedJob(items)
    claim = job.taken()
    for item in job.items:
        paths, data = LAYOUT.item(item), records.encode(Record(SLOT, "SCHEDULE", "other", 1, 0, 0, False))
        job.write(Delete(paths.running), Delete(paths.execution))
        job.write(Create(paths.execution, data), Create(paths.running, b"other"))
    ended = dict.fromkeys(claim.items, Outcome.COMPLETED)
    job.session.reads.extend(["suspended"] * refused)
    assert job.settled(claim, ended, hand_over=False, removed=True) is not None
    assert job.running() == list(job.items)


@pytest.mark.parametrize("again", [True, False])
def test_a_rescue_mark_removed_by_hand_keeps_nobody_from_settling(again: bool) -> None:
    job, paths = ClaimedJob(), LAYOUT.item(1)
    job.orphaned(1)
    claim = job.taken(RESCUE, {1})
    job.write(Delete(paths.failover), *([Create(paths.failover, b"by hand")] if again else []))
    job.session.commits.append("never arrived")
    assert job.settle(claim, Outcome.COMPLETED)
    assert paths.failover not in job.registry.nodes
    assert job.running() == []


def test_a_rescue_whose_mark_is_removed_by_hand_before_a_lost_reply_is_looked_into_is_ours() -> None:
    job, mark = ClaimedJob(), LAYOUT.item(1).failover
    job.orphaned(1)

    def remove(_session: int, _before: object) -> None:
        if mark in job.registry.nodes:
            job.write(Delete(mark))

    job.registry.observers.append(remove)
    job.session.commits.append("reply lost")
    claim = job.taken(RESCUE, {1})
    assert claim.fences == {1: job.registry.nodes[LAYOUT.item(1).running].stat.czxid}
    assert job.settle(claim, Outcome.COMPLETED)
    assert (job.running(), job.record(1).completed) == ([], True)
