"""What an instance reads of its items' records and locks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aioelasticjob.core import records
from aioelasticjob.core.items import Lock
from aioelasticjob.engine.item_reader import cut_off_runs
from aioelasticjob.model import Outcome, Owing, Record
from aioelasticjob.registry.transaction import Create, Set
from tests.engine.test_claims import LAYOUT, NEXT, SLOT, ClaimedJob, done


def test_a_record_is_read_as_it_was_written() -> None:
    job = ClaimedJob()
    assert (job.seen[0].record, job.seen[0].version) == (Record(), None)
    promised = Owing("other", SLOT - 500, SLOT - 2000, SLOT - 1000, 2, "the last run was still going on")
    record = Record(SLOT, "SCHEDULE", "other", 1, 2, NEXT, accounted=SLOT + 500, owing=(promised,))
    job.elsewhere(0, record, running=False)
    job.learn()
    assert (job.seen[0].record, job.seen[0].version, job.seen[0].zxid) == (record, 0, job.registry.zxid)


def test_a_record_that_says_nothing_else_is_accounted_for_up_to_its_moment() -> None:
    job = ClaimedJob()
    job.write(Create(LAYOUT.item(0).execution, b'{"slot": 1000000}'))
    job.learn()
    assert job.seen[0].record.accounted == SLOT


def test_text_that_is_no_record_accounts_for_what_came_before_it_was_written_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    job = ClaimedJob()
    job.registry.now = SLOT / 1000 + 0.25
    job.write(Create(LAYOUT.item(0).execution, b"nonsense"))
    job.learn()
    job.learn()
    assert job.seen[0].record == Record(accounted=SLOT + 250)
    assert [entry.getMessage() for entry in caplog.records] == [
        "/job/execution/0: is not the record of a run, so the next run replaces it"
    ]
    assert job.taken(items=[0]).items[0].record.slot == SLOT


def test_text_that_is_no_record_does_not_hide_what_a_claim_has_written_from_its_settlement() -> None:
    job = ClaimedJob()
    claim = job.taken(items=[0])
    job.write(Set(LAYOUT.item(0).execution, b"nonsense", -1))
    assert job.settle(claim, Outcome.COMPLETED)
    assert (job.record().slot, job.record().completed, job.running()) == (SLOT, True, [])


def test_a_lock_is_free_ours_or_that_of_another_instance() -> None:
    job = ClaimedJob()
    job.taken(items=[0])
    job.elsewhere(1)
    assert job.learn() == {0: Lock.OURS, 1: Lock.OTHERS, 2: Lock.FREE}


def test_a_lock_that_no_session_holds_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    job = ClaimedJob()
    job.registry.make(LAYOUT.item(0).running, b"by hand")
    for _ in range(2):
        assert job.learn()[0] is Lock.BY_HAND
    assert job.claim().renewed == {0, 1, 2}
    assert [entry.getMessage() for entry in caplog.records] == [
        "/job/execution/0/running: was made by hand, so the item does not run until this node is removed"
    ]


def test_a_run_is_cut_off_if_it_was_begun_and_nobody_holds_its_lock() -> None:
    job = ClaimedJob()
    cut_off = Record(SLOT, "SCHEDULE", "other", 1, 0, 0, completed=False)
    job.elsewhere(0, cut_off, running=False)
    job.elsewhere(1, cut_off)
    job.elsewhere(2, replace(cut_off, completed=True), running=False)
    found, runners = done(cut_off_runs(job.member, job.items))
    assert {item: one.record for item, one in found.items()} == {0: replace(cut_off, accounted=0)}
    assert runners == {"other@-@2"}
    assert records.is_cut_off(found[0].record)
