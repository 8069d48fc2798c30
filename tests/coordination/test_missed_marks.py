from __future__ import annotations

from dataclasses import replace

import pytest

from aioelasticjob.coordination.missed_marks import mark_missed_moments
from aioelasticjob.coordination.record_cache import MissedMark, RecordCache
from aioelasticjob.errors import SessionEnded, Suspended
from aioelasticjob.model import Fire, FireSource, Outcome, Record
from aioelasticjob.registry.transaction import Create, Set
from tests.coordination.test_claims import LAYOUT, SLOT, ClaimedJob, done

MISSED = {0: SLOT + 5000, 2: SLOT + 6000}
SAID = {item: MissedMark(until) for item, until in MISSED.items()}


def run_once() -> ClaimedJob:
    job = ClaimedJob()
    job.settle(job.taken(), *[Outcome.COMPLETED] * 3)
    job.learn()
    return job


def marked(job: ClaimedJob, cache: RecordCache | None = None) -> frozenset[int] | None:
    return done(mark_missed_moments(job.claims._member, cache or job.cache, job.view(), SAID))


def marks(job: ClaimedJob) -> dict[int, int]:
    nodes = {item: job.registry.nodes.get(LAYOUT.item(item).misfire) for item in job.items}
    return {item: int(node.data) for item, node in nodes.items() if node is not None}


@pytest.mark.parametrize("reply", ["well", "reply lost", "never arrived"])
def test_items_are_marked_whether_or_not_the_reply_comes_and_the_next_claim_removes_the_marks(reply: str) -> None:
    job = run_once()
    before = job.record()
    job.session.commits.append(reply)
    if reply == "reply lost":
        job.session.reads.append("suspended")
    assert marked(job) == {0, 2}
    assert marks(job) == MISSED
    assert job.record() == before  # which is its runner's alone
    assert job.taken(Fire(SLOT + 9000, FireSource.CRON)).items.keys() == {0, 1, 2}
    assert marks(job) == {}


def test_of_two_who_come_back_one_leaves_the_marks_and_the_other_knows_what_they_say() -> None:
    job = run_once()
    other = RecordCache(job.claims._member)
    done(other.learn(job.items))
    assert marked(job) == {0, 2}
    assert marked(job, other) == frozenset()
    assert [other.items[item].mark.until for item in job.items] == [SLOT + 5000, 0, SLOT + 6000]


def test_a_mark_that_is_there_is_moved_on() -> None:
    job = run_once()
    job.write(Create(LAYOUT.item(0).misfire, b"1000"), Create(LAYOUT.item(2).misfire, b"by hand"))
    job.learn()
    assert (job.cache.items[0].mark.until, job.cache.items[2].mark.until) == (1000, 0)
    assert marked(job) == {0, 2}
    assert marks(job) == MISSED


@pytest.mark.parametrize("reply", ["well", "reply lost"])
def test_a_mark_of_ones_own_is_moved_on_both_ways_and_the_next_holder_reads_the_whole_stretch(reply: str) -> None:
    job = run_once()
    job.session.commits.extend([reply, reply, reply])
    for mark_now in (
        MissedMark(SLOT + 9000, SLOT + 5000),
        MissedMark(SLOT + 5000, SLOT + 2000),
        MissedMark(SLOT + 12_000),
    ):
        assert done(mark_missed_moments(job.claims._member, job.cache, job.view(), {0: mark_now})) == {0}
    other = RecordCache(job.claims._member)
    done(other.learn(job.items))
    for entry in (other.items[0], job.cache.items[0]):
        assert (entry.mark, entry.mark_version) == (MissedMark(SLOT + 12_000, SLOT + 2000), 2)


def test_a_mark_that_a_claim_has_removed_is_made_again() -> None:
    job = run_once()
    assert marked(job) == {0, 2}
    job.settle(job.taken(Fire(SLOT + 9000, FireSource.CRON)), *[Outcome.COMPLETED] * 3)
    assert marked(job) == {0, 2}
    assert marks(job) == MISSED


@pytest.mark.parametrize("word", ["well", "never arrived"])
def test_what_somebody_else_has_claimed_is_left_to_him_and_the_rest_is_marked(word: str) -> None:
    job = run_once()
    job.elsewhere(0, Record(SLOT + 7000, "CRON", "other", 1, 0, 0, completed=False))
    job.session.commits.append(word)
    assert marked(job) == {2}
    assert marks(job).keys() == {2}


def test_an_item_that_is_rescued_meanwhile_is_marked_however_often_its_rescuer_writes() -> None:
    job = run_once()
    begun = Record(SLOT, "FAILOVER", "other", 2, 0, 0, completed=False)
    ended = replace(begun, completed=True)
    job.session.commits += [lambda: job.elsewhere(0, begun), lambda: job.elsewhere(0, ended, running=False)]
    assert marked(job) == {0, 2}
    assert marks(job) == MISSED


def test_under_another_assignment_nothing_is_marked() -> None:
    job = run_once()
    view = job.view()
    job.write(Set(LAYOUT.sharding, b"", -1))
    assert done(mark_missed_moments(job.claims._member, job.cache, view, SAID)) is None
    assert marks(job) == {}


@pytest.mark.parametrize("reply", ["well", "reply lost", "never arrived"])
def test_an_item_that_never_ran_gets_a_record_that_says_so_for_the_mark_to_stand_on(reply: str) -> None:
    job = ClaimedJob()
    job.learn()
    job.session.commits.append(reply)
    assert marked(job) == {0, 2}
    assert marks(job) == MISSED
    assert job.record(0) == Record()
    assert job.taken(Fire(SLOT + 9000, FireSource.CRON)).items.keys() == {0, 1, 2}
    assert marks(job) == {}


def test_of_two_who_mark_an_item_that_never_ran_one_leaves_the_mark() -> None:
    job = ClaimedJob()
    job.learn()
    other = RecordCache(job.claims._member)
    done(other.learn(job.items))
    assert marked(job) == {0, 2}
    assert marked(job, other) == frozenset()


@pytest.mark.parametrize(("word", "error"), [("suspended", Suspended), ("over", SessionEnded)])
def test_without_a_connection_nothing_is_marked(word: str, error: type[Exception]) -> None:
    job = run_once()
    job.session.commits.append(word)
    with pytest.raises(error):
        marked(job)
    assert marks(job) == {}
