"""Dates that a registry's clock gave while it was ahead: later signs correct them, so no moment is lost for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf

import pytest

from aioelasticjob.core.entries import Entry
from aioelasticjob.core.state import ENDED, SET_BACK
from aioelasticjob.core.step import JobState
from aioelasticjob.model import FireSource, Record, VersionedRecord
from tests.core.cases import BEGIN, LAYOUT, ME, OTHER, Case
from tests.support.stats import stat


def slot(second: int) -> int:
    return (BEGIN + second) * 1000


def known(case: Case, item: int = 0) -> set[int]:
    """Return the seconds of the moments that were reported of an item."""
    found = [one.passed for one in case.reports if item in one.items]
    steps = [(one.last - one.first) // max(1, one.count - 1) or 1 for one in found]
    moments = zip(found, steps, strict=True)
    return {moment // 1000 - BEGIN for one, step in moments for moment in range(one.first, one.last + 1, step)}


def run_on_time(case: Case, state: JobState, end: float) -> set[int]:
    """Run what is due until a time, none of it late; return the moments that were run."""
    ran = set[int]()
    while case.now < end:
        case.see(state)
        if owed := state.claimable():
            assert state.source(owed) is FireSource.CRON
            ran.add(state.timetable.newest // 1000 - BEGIN)
            case.claim(state, owed, state.timetable.newest)
            case.settle(state, owed)
        case.now += 0.5
    return ran


def reported_by_a_clock_ahead() -> tuple[Case, JobState]:
    """Return a job at 2.5 s, of which moments up to 32 were reported by a clock that is half a minute ahead."""
    case = Case.of(cron="0/2 * * * * ?", misfire=False)
    state = case.state()
    case.see(state)
    case.claim(state, frozenset({0}), slot(0))
    case.now, case.ahead = 2.5, 30.0
    case.settle(state, frozenset({0}))
    case.tell(state, lambda: state.run_ended(state.view))
    assert max(known(case)) == 32
    return case, state


def test_a_schedule_dated_by_a_clock_ahead_was_in_force_when_an_item_was_made_after_it() -> None:
    case = Case.of(ahead=40)
    case.now, case.ahead = 2.5, 0.0
    case.drop(LAYOUT.item(0).sharding)
    case.put(LAYOUT.item(0).sharding)
    case.give(0, OTHER)  # who dies without a run
    case.now = 18.5
    case.give(0, ME)
    state = case.state()
    case.see(state)
    assert state.claimable() == {0}
    assert known(case) == set(range(3, 18))


def test_a_schedule_with_a_right_date_is_not_in_force_before_it_though_a_clock_behind_dated_an_item() -> None:
    case = Case.of()
    case.now, case.ahead = 4.5, -3600.0
    case.drop(LAYOUT.item(0).sharding)
    case.put(LAYOUT.item(0).sharding)
    case.ahead = 0.0
    case.give(0, OTHER)
    case.now = 6.5
    case.give(0, ME)
    state = case.state()
    case.see(state)
    assert known(case) <= set(range(1, 7))


def test_an_item_dated_by_a_clock_ahead_was_made_before_the_claim_in_its_record() -> None:
    case = Case.of()
    case.now, case.ahead = 5.5, 26.0
    case.drop(LAYOUT.item(0).sharding)
    case.put(LAYOUT.item(0).sharding)
    case.give(0, OTHER)
    case.zxid += 1
    case.records[0] = Record(slot(6), "CRON", OTHER, begun=slot(6), completed=True)  # by a host whose clock is right
    case.stats[0] = stat(czxid=case.zxid, mzxid=case.zxid, mtime=BEGIN + 32)
    case.now, case.ahead = 20.5, 0.0
    case.give(0, ME)
    state = case.state()
    case.see(state)
    assert state.claimable() == {0}
    assert known(case) == set(range(7, 20))


def test_a_claim_that_may_be_older_than_a_transaction_does_not_date_it() -> None:
    entry = Entry(seen=VersionedRecord(Record(slot(6), "CRON", OTHER, begun=slot(6)), 3))
    assert entry.written_after(5) == inf
    for made, written in [(4, slot(32)), (6, slot(6))]:  # a claim that was given back leaves an older one
        entry.stat = stat(czxid=made, mzxid=8, mtime=BEGIN + 32)
        assert entry.written_after(5) == written
        assert entry.written_after(8) == inf


def test_a_schedule_written_by_a_clock_ahead_and_seen_shortly_before_its_date_owes_what_has_come_since() -> None:
    case = Case.of(cron="0/3 * * * * ?")
    state = case.state()
    case.see(state)
    case.now, case.ahead = 5.5, 16.0
    case.see(state)
    case.claim(state, frozenset({0}), slot(21))
    case.now = 8.0
    case.configure(cron="0/2 * * * * ?")  # dated 24
    case.now, case.ahead = 13.0, 0.0
    case.tell(state, lambda: None)
    case.now = 21.5
    case.settle(state, frozenset({0}))
    state.items.ran([0], slot(21))
    case.tell(state, lambda: state.run_ended(case.view()))
    case.see(state)
    case.now = 23.5  # so it is certain that the clock is right
    case.see(state)
    assert (14, 20, SET_BACK) in case.reported()
    assert state.claimable() == {0}


def test_an_item_made_by_a_clock_ahead_that_comes_back_before_that_is_certain_owes_what_has_come_since() -> None:
    case = Case.of(ahead=30, misfire=False)
    state = case.state()
    case.see(state)
    case.now = 23.2
    case.see(state)
    case.claim(state, frozenset({0}), slot(53))
    case.settle(state, frozenset({0}))
    state.items.ran([0], slot(53))
    case.now, case.ahead = 23.4, 0.0
    case.see(state)
    for case.now, holder in [(30.7, OTHER), (31.7, ME)]:
        case.give(0, holder)
        case.see(state)
    case.now = 33.7
    case.see(state)
    assert (24, 30, SET_BACK) in case.reported()


def test_what_came_during_a_run_while_the_clock_was_a_little_ahead_is_due_for_an_item_gained_afterwards() -> None:
    case = Case.of(items=2, misfire=False)
    case.give(1, OTHER)
    state = case.state()
    case.now = 5.0
    case.see(state)
    case.claim(state, frozenset({0}), slot(5))
    case.records[1] = Record(slot(5), "CRON", OTHER)
    case.now, case.ahead = 5.6, 2.5
    case.settle(state, frozenset({0}))
    state.items.ran([0], slot(5))
    case.tell(state, lambda: state.run_ended(case.view()))
    case.now, case.ahead = 5.7, 0.0
    case.give(1, ME)
    case.see(state)
    for second in (6, 7, 8):
        case.now = second + 0.2
        case.see(state)
        assert (state.claimable(), state.timetable.newest) == ({1}, slot(second))
        case.claim(state, frozenset({1}), slot(second))
        case.settle(state, frozenset({1}))
    assert {6, 7, 8} <= known(case)


def test_an_item_taken_from_a_paused_instance_by_a_clock_ahead_owes_what_comes_shortly_before_that_date() -> None:
    case = Case.of()
    case.give(0, OTHER)
    state = case.state()
    case.see(state)
    case.now, case.ahead = 3.5, 27.0
    case.put(LAYOUT.item(0).sharding)  # dated 30.5
    case.see(state)
    for case.now in (4.5, 15.5):
        case.ahead = 0.0
        case.see(state)
    case.records[0] = Record(slot(27), "CRON", OTHER, completed=True)
    case.now = 28.2
    case.give(0, ME)
    case.see(state)
    assert (state.claimable(), state.timetable.newest) == ({0}, slot(28))


def put_right_in_a_run(case: Case, state: JobState, item: int, moment: int, act: Callable[[], None]) -> None:
    """Let an item run from 3.5 to 15.5; meanwhile the clock is 8 s ahead when somebody acts, and is then put right."""
    case.now = 3.5
    case.see(state)
    case.claim(state, frozenset({item}), slot(moment))
    case.ahead = 8.0
    case.tell(state, lambda: state.note_change(case.view()))
    act()  # dated 11.5
    case.now, case.ahead = 4.5, 0.0
    case.tell(state, lambda: state.note_change(case.view()))
    case.now = 15.5
    case.settle(state, frozenset({item}))
    case.tell(state, lambda: state.run_ended(case.view()))
    case.see(state)


def test_an_item_given_during_a_run_by_a_clock_ahead_that_is_put_right_in_that_run_owes_what_has_come_since() -> None:
    case = Case.of(2)
    case.give(0, OTHER)
    state = case.state()
    case.see(state)

    def take_from_a_paused_instance() -> None:
        case.put(LAYOUT.item(0).sharding)
        case.give(0, ME)

    put_right_in_a_run(case, state, 1, 3, take_from_a_paused_instance)
    assert (state.claimable(), state.timetable.newest) == ({0, 1}, slot(15))
    assert known(case) == set(range(5, 15))


def test_a_schedule_written_during_a_run_by_a_clock_ahead_that_is_put_right_in_that_run_loses_no_moment() -> None:
    case = Case.of(cron="0/2 * * * * ?")
    state = case.state()
    case.see(state)
    put_right_in_a_run(case, state, 0, 2, lambda: case.configure(cron="1/2 * * * * ?"))
    assert (state.claimable(), state.timetable.newest) == ({0}, slot(15))
    assert {5, 7, 9, 11, 13} <= known(case)


def test_a_date_given_after_the_clock_was_set_back_is_believed_though_that_was_noticed_late() -> None:
    case = Case.of(ahead=60)
    case.give(0, OTHER)
    state = case.state()
    case.see(state)
    case.now, case.ahead = 20.5, 0.0
    case.put(LAYOUT.item(0).sharding)
    case.ahead = 60.0
    case.see(state)
    case.now, case.ahead = 20.6, 0.0
    state.clock.take(replace(case.reading(), gap=9.0))
    case.see(state)
    case.now = 31.5
    case.see(state)
    case.give(0, ME)
    case.see(state)
    assert min(known(case)) > 20


def test_an_item_taken_from_a_paused_instance_by_a_clock_ahead_has_missed_what_came_before_that_date() -> None:
    case = Case.of()
    case.give(0, OTHER)
    state = case.state()
    case.see(state)
    case.now, case.ahead = 5.5, 20.0
    case.give(0, ME)
    case.put(LAYOUT.item(0).sharding)  # as the leader does
    case.see(state)
    case.now = 6.0
    case.see(state)
    case.claim(state, state.claimable(), slot(26))
    case.settle(state, frozenset({0}))
    case.now, case.ahead = 6.5, 0.0
    case.see(state)
    case.now = 17.5  # so it is certain that the clock is right
    case.see(state)
    assert case.reported() == [(7, 25, SET_BACK)]


@pytest.mark.parametrize("seen_by", [-3600.0, 0.0], ids=["while it was behind", "when it was right again"])
def test_a_schedule_that_a_clock_behind_dated_does_not_hide_what_its_predecessor_had_missed(seen_by: float) -> None:
    case = Case.of(cron="0/3 * * * * ?")
    state = case.state()
    case.now = 3.0
    case.see(state)
    case.claim(state, state.claimable(), slot(2))  # a multiple of 3 in its minute, as 5 and 8 are
    case.now, case.ahead = 10.5, -3600.0
    case.configure(cron="0/5 * * * * ?")
    case.ahead = seen_by
    case.settle(state, frozenset({0}))
    case.see(state)
    assert {5, 8} <= known(case) <= set(range(3, 11))


@pytest.mark.parametrize("misfire", [True, False])
def test_moments_that_a_clock_ahead_has_reported_are_run_by_no_later_schedule_and_all_of_its_moments_are_known(
    misfire: bool,
) -> None:
    case = Case.of(cron="1/10 * * * * ?", misfire=misfire)
    case.give(0, OTHER)
    case.ahead = 20.0
    state = case.state()
    case.see(state)
    case.now = 11.5
    case.give(0, ME)
    case.see(state)
    assert max(known(case)) == 21
    case.now, case.ahead = 12.5, 0.0
    for cron in ("0/3 * * * * ?", "0/2 * * * * ?", "* * * * * ?"):
        case.configure(cron=cron)
        case.see(state)
        case.now += 0.5
    ran = run_on_time(case, state, 25)
    assert not ran & known(case)
    assert ran | known(case) >= set(range(14, 25))


@pytest.mark.parametrize(("recorded", "holder"), [(True, ME), (False, OTHER)])
def test_a_schedule_that_ended_by_a_clock_an_hour_ahead_has_missed_nothing_that_has_yet_to_come(
    recorded: bool, holder: str
) -> None:
    case = Case.of()
    case.give(0, holder)
    state = case.state()
    case.see(state)
    case.now = 2.5
    case.configure(cron="0/2 * * * * ?", monitor_execution=recorded)
    if holder != ME:
        case.give(0, ME)
    case.now, case.ahead = 3.5, 3600.0
    case.configure(cron="* * * * * ?", monitor_execution=True)
    case.now, case.ahead = 4.5, 0.0
    case.see(state)
    assert max(known(case), default=0) < 5


def test_a_schedule_dated_by_a_clock_ahead_loses_no_moment_shortly_before_that_date() -> None:
    case = Case.of(cron="1/10 * * * * ?")
    state = case.state()
    case.see(state)
    case.now, case.ahead = 3.5, 7.0
    case.configure(cron="* * * * * ?")  # dated 10.5
    case.now, case.ahead = 8.5, 0.0
    case.see(state)
    case.now = 10.2
    case.see(state)
    assert (state.claimable(), state.timetable.newest) == ({0}, slot(10))


def test_a_schedule_that_comes_before_a_clock_far_ahead_counts_as_right_loses_no_moment_without_misfire() -> None:
    case = Case.of(cron="1/10 * * * * ?", misfire=False)
    case.give(0, OTHER)
    case.ahead = 80.0
    state = case.state()
    case.see(state)
    case.now = 3.5
    case.give(0, ME)
    case.see(state)
    assert max(known(case)) == 71
    case.now, case.ahead = 4.5, 0.0
    case.see(state)
    case.now = 5.0
    case.configure(cron="0/2 * * * * ?")
    ran = run_on_time(case, state, 80)
    assert ran | known(case) >= set(range(6, 79, 2))
    assert not ran & known(case)


def test_a_moment_of_the_former_schedule_is_reported_though_the_next_has_come_by_the_registry_s_clock_alone() -> None:
    case = Case.of(cron="0/2 * * * * ?", ahead=0.9)  # so this host's clock is behind, and right enough to be used
    state = case.state()
    case.see(state)
    case.now = 3.4
    case.configure(cron="1/3 * * * * ?")
    case.see(state)
    assert case.reported() == [(2, 2, ENDED)]


@pytest.mark.parametrize("how", ["switched off", "given away"])
def test_what_a_clock_ahead_has_reported_hides_no_moment_of_a_schedule_that_began_while_the_item_was_not_run_here(
    how: str,
) -> None:
    case, state = reported_by_a_clock_ahead()
    for case.now, case.ahead in [(3.5, 0.0), (14.0, 0.0)]:  # so it is certain that the clock is right
        case.see(state)
    if how == "switched off":
        case.put(LAYOUT.item(0).disabled)
    else:
        case.give(0, OTHER)
    case.see(state)
    case.configure(cron="1/2 * * * * ?")
    case.see(state)
    case.now = 14.5
    if how == "switched off":
        case.drop(LAYOUT.item(0).disabled)
    else:
        case.give(0, ME)
    case.reports.clear()
    ran = run_on_time(case, state, 36)
    assert ran | known(case) == set(range(15, 36, 2))


def test_a_clock_that_is_not_known_yet_to_be_right_again_hides_no_moment_of_the_schedule_that_it_has_dated() -> None:
    case, state = reported_by_a_clock_ahead()
    case.give(0, OTHER)
    case.see(state)
    case.now, case.ahead = 4.2, 0.0
    case.configure(cron="1/2 * * * * ?")
    case.ahead = 30.0  # as far as this instance knows
    case.see(state)
    for case.now, case.ahead in [(4.4, 0.0), (15.0, 0.0)]:
        case.see(state)
    case.give(0, ME)
    case.reports.clear()
    ran = run_on_time(case, state, 36)
    assert ran | known(case) == set(range(5, 36, 2))


def test_what_was_reported_is_not_reported_again_because_a_clock_far_behind_has_dated_the_next_schedule() -> None:
    case = Case.of()
    state = case.state()
    case.see(state)
    case.claim(state, frozenset({0}), slot(0))
    case.now = 5.5
    case.settle(state, frozenset({0}))
    case.tell(state, lambda: state.run_ended(state.view))
    assert known(case) == {1, 2, 3, 4, 5}
    case.give(0, OTHER)
    case.see(state)
    case.ahead = -3600.0
    case.configure(cron="0/2 * * * * ?")
    case.ahead = 0.0
    case.see(state)
    case.reports.clear()
    case.now = 7.5
    case.give(0, ME)
    case.see(state)
    assert known(case) <= {6}


def test_what_was_run_here_is_not_run_again_because_a_clock_ahead_dates_an_item_that_is_made_anew() -> None:
    case = Case.of(cron="0/10 * * * * ?")
    state = case.state()
    case.see(state)
    case.now = 10.1
    case.see(state)
    case.claim(state, state.claimable(), slot(10))
    case.settle(state, frozenset({0}))
    state.items.ran([0], slot(10))
    paths = LAYOUT.item(0)
    for path in paths.sharding, paths.instance:
        case.drop(path)
    case.records.clear()
    case.see(state)
    case.now, case.ahead = 19.5, 32.0  # which this instance does not notice
    case.put(paths.sharding)
    case.give(0, ME)
    case.ahead = 0.0
    case.see(state)
    assert not state.claimable()
    case.now = 20.1
    case.see(state)
    assert (state.claimable(), case.reported()) == ({0}, [])
