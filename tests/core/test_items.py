"""What a process knows of an item is replaced as a whole, by what it reads and by what it writes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aioelasticjob.core.items import (
    MADE_WITHIN,
    Found,
    Item,
    Lock,
    assumed,
    claimed,
    learned,
    left_by_the_gone,
    promised_by_others,
    reported,
    settled,
)
from aioelasticjob.core.records import ended, given_back, left_open
from aioelasticjob.model import Outcome, Owing, Record, VersionedRecord

ME, OTHER, GONE = "10.0.0.1@-@1", "10.0.0.2@-@1", "10.0.0.3@-@1"
RAN = Record(slot=5_000, source="SCHEDULE", instance=OTHER, begun=5_000, completed_at=5_100, accounted=7_000)
MINE, THEIRS, LOST = (Owing(one, 9_000, 1_000, 2_000, 2, "why") for one in (ME, OTHER, GONE))


def seen(record: Record, zxid: int = 50) -> VersionedRecord:
    return VersionedRecord(record, 3, zxid)


def item(record: Record = RAN, lock: Lock = Lock.FREE) -> Item:
    return learned(Found(seen(record), lock), given=40, made=1_000, made_by=30)


def test_an_item_is_accounted_for_up_to_what_its_record_says() -> None:
    assert item().accounted == 7_000
    assert item(replace(RAN, accounted=4_999)).accounted == 4_999  # the moment of its stream was left open


@pytest.mark.parametrize(("made", "accounted"), [(9_000, 9_000), (6_000, 7_000)])
def test_an_item_that_was_made_after_its_record_was_written_owes_nothing_from_before(made: int, accounted: int) -> None:
    found = Found(seen(RAN, zxid=50), Lock.FREE)
    assert learned(found, given=60, made=made, made_by=60).accounted == accounted
    assert learned(found, given=60, made=made, made_by=50).accounted == 7_000  # it was written afterwards


def test_an_item_without_a_record_is_accounted_for_up_to_the_time_at_which_it_was_made() -> None:
    found = Found(VersionedRecord(Record(), None), Lock.FREE)
    assert learned(found, given=60, made=9_000, made_by=60).accounted == 9_000


def test_a_claim_accounts_for_its_moment_and_locks_the_item() -> None:
    record = replace(RAN, slot=8_000, accounted=8_000, completed=False)
    one = claimed(item(), seen(record, 70))
    assert (one.accounted, one.lock, one.record, one.given) == (8_000, Lock.OURS, record, 40)
    assert not one.is_free
    assert not one.is_cut_off  # it is running


def test_the_claim_of_a_run_that_was_asked_for_accounts_for_no_moment() -> None:
    record = replace(RAN, asked=8_000, accounted=7_000, completed=False)
    assert claimed(item(), seen(record, 70)).accounted == 7_000


def test_a_settlement_accounts_for_nothing_and_unlocks_the_item() -> None:
    running = claimed(item(), seen(replace(RAN, slot=8_000, accounted=8_000, completed=False), 70))
    done = settled(running, ended(running.seen, Outcome.COMPLETED, 9_900))
    assert (done.accounted, done.lock, done.is_free) == (8_000, Lock.FREE, True)
    assert done.open_moment == 0


def test_a_stream_that_gives_way_leaves_its_moment_open() -> None:
    running = claimed(item(), seen(replace(RAN, slot=8_000, accounted=8_000, completed=False), 70))
    record = left_open(ended(running.seen, Outcome.COMPLETED, 9_900).record)
    done = settled(running, seen(record, 80))
    assert (done.accounted, done.open_moment) == (7_999, 8_000)
    assert item(record).open_moment == 8_000  # for the next holder as well


def test_no_other_item_has_an_open_moment() -> None:
    assert item().open_moment == 0
    assert item(replace(RAN, accounted=4_999, completed=False)).open_moment == 0  # it was cut off
    assert item(given_back(RAN, replace(RAN, slot=8_000))).open_moment == 0  # that moment was not run


def test_a_claim_that_is_given_back_owes_its_moment_again() -> None:
    back = given_back(RAN, replace(RAN, slot=8_000, accounted=8_000, owing=(MINE, THEIRS), instance=ME))
    assert (back.slot, back.accounted, back.owing) == (5_000, 7_999, (THEIRS,))


def test_what_was_written_without_a_run_changes_what_is_accounted_for_and_no_lock() -> None:
    record = replace(RAN, accounted=9_000, owing=(MINE,))
    one = reported(item(lock=Lock.BY_HAND), seen(record, 70))
    assert (one.accounted, one.lock, one.record.owing) == (9_000, Lock.BY_HAND, (MINE,))
    assert one.record.slot == 5_000
    lowered = reported(one, seen(replace(RAN, accounted=2_000), 71))
    assert (lowered.accounted, lowered.record.owing) == (2_000, ())


def test_an_item_of_a_job_without_records_is_free_and_accounted_for_as_far_as_the_process_knows() -> None:
    one = assumed(given=40, accounted=6_000)
    assert (one.accounted, one.seen.version, one.is_free) == (6_000, None, True)


@pytest.mark.parametrize("lock", Lock)
def test_a_run_that_was_begun_and_has_not_ended_was_cut_off_unless_it_goes_on(lock: Lock) -> None:
    one = item(replace(RAN, completed=False), lock)
    assert one.is_cut_off is (lock is Lock.FREE)
    assert not one.is_free
    assert item(lock=lock).is_free is (lock is Lock.FREE)
    assert not item(Record(completed=False), lock).is_cut_off  # it was never begun


def test_a_report_is_taken_over_from_an_instance_that_is_gone_and_from_no_other() -> None:
    record = replace(RAN, owing=(MINE, THEIRS, LOST))
    assert left_by_the_gone(record, ME, {ME, OTHER}, {}) == (LOST,)
    assert left_by_the_gone(record, ME, {ME}, {}) == (THEIRS, LOST)
    assert left_by_the_gone(record, ME, (), {}) == (THEIRS, LOST)  # it has made its own itself
    assert left_by_the_gone(RAN, ME, (), {}) == ()


@pytest.mark.parametrize(
    ("lived", "is_taken_over"), [(-5, True), (0, True), (MADE_WITHIN, True), (MADE_WITHIN + 1, False)]
)
def test_an_instance_that_lived_long_after_its_promise_has_made_the_report(lived: int, is_taken_over: bool) -> None:
    record = replace(RAN, owing=(LOST,))
    assert left_by_the_gone(record, ME, {ME}, {GONE: LOST.at + lived}) == ((LOST,) if is_taken_over else ())


def test_a_report_that_a_living_instance_has_just_promised_is_kept_and_an_old_one_is_not() -> None:
    record = replace(RAN, owing=(MINE, THEIRS, LOST))
    assert promised_by_others(record, ME, {ME, OTHER}, THEIRS.at) == [THEIRS]
    assert promised_by_others(record, ME, {ME, OTHER}, THEIRS.at + MADE_WITHIN) == [THEIRS]
    assert promised_by_others(record, ME, {ME, OTHER}, THEIRS.at + MADE_WITHIN + 1) == []
    assert promised_by_others(RAN, ME, {ME, OTHER}, 0) == []


def test_the_end_of_a_run_keeps_what_others_still_have_to_report() -> None:
    run = replace(RAN, instance=ME, completed=False, owing=(MINE, THEIRS))
    assert ended(seen(run), Outcome.COMPLETED, 9_000).record.owing == (THEIRS,)
