"""What an instance knows of its items' records and marks."""

from __future__ import annotations

import pytest

from aioelasticjob.core import records
from aioelasticjob.core.entries import MAX_FUTURE, MissedMark
from aioelasticjob.engine.missed_marks import mark_missed_moments
from aioelasticjob.model import Fire, FireSource, Outcome, Record
from aioelasticjob.registry.transaction import Create, Delete, Set
from tests.engine.test_claims import CRON, LAYOUT, NEXT, SLOT, ClaimedJob, done
from tests.engine.test_missed_marks import run_once


@pytest.mark.parametrize("data", [b"nonsense", records.encode(Record(SLOT + MAX_FUTURE + 1))])
def test_a_record_written_by_hand_counts_as_claimed_until_then_and_is_logged_once(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    job = ClaimedJob()
    job.write(Create(LAYOUT.item(0).execution, data))
    job.learn()
    job.learn()
    assert job.cache.items[0].record == Record(slot=SLOT)
    assert [entry.getMessage() for entry in caplog.records] == [
        "/job/execution/0: is not the record of a run, so the next run replaces it"
    ]
    assert job.taken(Fire(NEXT, FireSource.CRON), {0}).items[0].record.slot == NEXT


def test_a_run_cut_off_whose_moment_is_far_in_the_future_is_still_known_as_cut_off() -> None:
    job, far = ClaimedJob(), SLOT + 3_600_000
    job.write(Create(LAYOUT.item(0).execution, records.encode(Record(far, "CRON", "other", SLOT, 0, 0, False))))
    for _ in range(2):  # it is understood in the same way each time
        job.learn()
        entry = job.cache.items[0]
        assert records.is_cut_off(entry.record)
        assert (entry.record.slot, entry.record.instance, entry.moment) == (SLOT, "other", far)


@pytest.mark.parametrize("last", ["settled", "read", "marked"])
@pytest.mark.parametrize("times", [1, 2])
def test_nonsense_does_not_hide_a_record_that_this_instance_knows(last: str, times: int) -> None:
    job, known = ClaimedJob(), Record()
    if last == "settled":
        assert job.settle(job.taken(), *[Outcome.COMPLETED] * 3)
        known = job.record()
    elif last == "read":
        known = Record(SLOT, "CRON", "other", 1, 2, NEXT)
        job.elsewhere(0, known, running=False)
        job.learn()
    else:
        mark = {0: MissedMark(SLOT - 1000)}
        assert done(mark_missed_moments(job.member, job.cache, job.view(), mark)) == {0}
    job.registry.now = NEXT / 1000 + 0.1  # so the moment to be claimed is before the time of the nonsense
    for number in range(times):
        job.write(Set(LAYOUT.item(0).execution, b"nonsense %d" % number, -1))
        if number < times - 1:
            job.learn()
    assert job.taken(Fire(NEXT, FireSource.CRON)).before[0] == known


@pytest.mark.parametrize("made_again", [False, True])
def test_nonsense_hides_a_record_that_this_instance_does_not_know(made_again: bool) -> None:
    """Another instance may have claimed the next moment, so it is not claimed again."""
    job = ClaimedJob()
    assert job.settle(job.taken(), *[Outcome.COMPLETED] * 3)
    job.registry.now, path = NEXT / 1000 + 0.1, LAYOUT.item(0).execution
    theirs = records.encode(Record(NEXT, "CRON", "other", 1, 2, 0))
    job.write(*([Delete(path), Create(path)] if made_again else []), Set(path, theirs, -1), Set(path, b"nonsense", -1))
    claim = job.taken(Fire(NEXT, FireSource.CRON))
    assert claim.items.keys() == {1, 2}
    assert job.cache.items[0].record.slot == NEXT + 100


def test_a_lock_that_no_session_holds_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    job = ClaimedJob()
    job.registry.make(LAYOUT.item(0).running, b"by hand")
    assert job.learn() == {0}
    assert job.claim().elsewhere == {0}
    assert [entry.getMessage() for entry in caplog.records] == [
        "/job/execution/0/running: was made by hand, so the item does not run until this node is removed"
    ]


def test_without_monitoring_moments_are_remembered_and_nothing_is_written() -> None:
    job = ClaimedJob()
    before = dict(job.registry.nodes)
    for item in (0, 1):
        job.cache.items[item].assume(SLOT)
    claim = job.claims.unmonitored(CRON, [2])
    assert (claim.fences, set(claim.items), job.cache.items[0].record.slot) == ({}, {2}, SLOT)
    assert job.registry.nodes == before


@pytest.mark.parametrize("data", [b"", b"1 2 3", b"1 by hand", b"-1", b"1" * 16])
def test_a_mark_written_by_hand_says_nothing(data: bytes) -> None:
    job = run_once()
    job.write(Create(LAYOUT.item(0).misfire, data))
    job.learn()
    assert (job.cache.items[0].mark, job.cache.items[0].mark.version) == (MissedMark(), 0)


def claimed_elsewhere(*, goes_away: bool) -> ClaimedJob:
    """Return a job whose item 0 was claimed by another instance when it was read, and may have gone there since."""
    job = ClaimedJob()
    job.elsewhere(0, Record(NEXT, "CRON", "other", 1, 0, 0, False), running=True)
    job.learn()
    if goes_away:
        job.cache.items[0].forget()
    return job


@pytest.mark.parametrize(("now", "given_back"), [(SLOT, NEXT), (NEXT, 0), (NEXT + 1000, 0)])
@pytest.mark.parametrize("goes_away", [True, False])
def test_a_claim_that_was_given_back_is_known_also_if_the_item_was_elsewhere_meanwhile(
    goes_away: bool, now: int, given_back: int
) -> None:
    job = claimed_elsewhere(goes_away=goes_away)
    entry = job.cache.items[0]
    job.elsewhere(0, Record(now, "CRON", "other", 1, 2, NEXT), running=False)
    job.learn()
    assert (entry.given_back, entry.given_away) == (given_back, None)


@pytest.mark.parametrize("goes_away", [True, False])
def test_a_record_that_was_removed_and_made_anew_gives_no_claim_back(goes_away: bool) -> None:
    job = claimed_elsewhere(goes_away=goes_away)
    entry = job.cache.items[0]
    job.write(Delete(LAYOUT.item(0).running), Delete(LAYOUT.item(0).execution))
    job.write(Create(LAYOUT.item(0).execution))  # another instance marks what the item has missed
    job.learn()
    assert (entry.record, entry.given_back) == (Record(), 0)
