"""What an instance's items owe, decided without waiting: facts go in, and commands and reports come out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aioelasticjob.core.account import MAX_FUTURE, JobState, Past
from aioelasticjob.core.clock_skew import STEADY
from aioelasticjob.core.commands import (
    Command,
    FollowReleases,
    ReadItems,
    Report,
    SayAhead,
    SayLowered,
    SayRefused,
    WriteAccounts,
)
from aioelasticjob.core.items import MADE_WITHIN, Lock
from aioelasticjob.core.reasons import (
    AWAY,
    BLOCKED,
    BUSY,
    CLOCK,
    CUT_OFF,
    ENDED,
    GONE,
    HELD_UP,
    NO_INSTANCE_UP,
    OBSTRUCTED,
    OURS,
    REFUSED,
    SKIPPED,
    UNSETTLED,
    Newest,
)
from aioelasticjob.core.request_runs import ended_as
from aioelasticjob.errors import ClockSkew
from aioelasticjob.model import Claim, FireSource, Owing, Record
from aioelasticjob.registry.tree import Node
from tests.core.cases import BEGIN, LAYOUT, ME, OTHER, Case
from tests.support.stats import changed

GONE_ONE = "10.0.0.3@-@1"


def slot(second: float) -> int:
    return int((BEGIN + second) * 1000)


def started(case: Case, now: float | None = None) -> JobState:
    """Return the state of an instance that has seen the nodes, maybe at another time."""
    state = case.state()
    case.see(state)
    if now is not None:
        case.now = now
        case.see(state)
    return state


def running(case: Case, items: frozenset[int] = frozenset({0})) -> tuple[JobState, Claim]:
    """Return the state of an instance that has just begun to run items, for the moment 1."""
    state = started(case, 1.0)
    claim = case.claim(state, items, slot(1))
    assert claim is not None
    return state, claim


def ran(case: Case, until: float) -> JobState:
    """Return the state of an instance that has run item 0 from the moment 1 until a time, and looks then."""
    state, claim = running(case)
    case.now = until
    case.settle(state, claim)
    case.see(state)
    return state


def accounts(case: Case) -> list[WriteAccounts]:
    return [command for command in case.done if isinstance(command, WriteAccounts)]


def accounted(case: Case, item: int = 0) -> float:
    """Return up to where the record of an item accounts for it, in seconds since ``BEGIN``."""
    return case.record(item).accounted / 1000 - BEGIN


def come_back(case: Case, now: float) -> JobState:
    """Return the state of the only instance, which has come up when none was up before."""
    for name in (OTHER, ME):
        case.drop(LAYOUT.instance(name))
    case.now = now
    case.put(LAYOUT.instance(ME), owner=1)
    case.put(LAYOUT.host, ME.encode(), owner=1)
    return case.state(up_since=now)


# What is due.


def test_an_item_is_read_before_anything_is_owed_of_it() -> None:
    case = Case.of(items=2)
    state = case.state()
    steps = state.see(case.view())
    assert next(steps) == ReadItems(frozenset({0, 1}))
    assert not state.held
    case.see(state)
    assert state.held == {0, 1}


def test_a_view_whose_items_could_not_be_read_is_seen_again() -> None:
    case = Case.of()
    state = case.state()
    case.refused.append(ReadItems)
    case.see(state)
    assert not state.held
    case.now = 2.5
    case.see(state)
    assert state.due().on_time == [0]
    case.begin(state)
    assert case.reported() == [(1, 1, HELD_UP)]


def test_a_moment_that_has_just_come_is_run_on_time_and_once() -> None:
    case = Case.of()
    state = started(case, 1.0)
    assert (state.due().on_time, state.due().late) == ([0], [])
    claim = case.begin(state)
    assert (case.record().slot, accounted(case), case.record().owing) == (slot(1), 1.0, ())
    assert not state.due().items
    case.now = 1.4
    case.settle(state, claim)
    case.see(state)
    assert not state.due().items
    assert (case.reports, accounts(case)) == ([], [])


def test_before_its_first_moment_an_item_owes_nothing() -> None:
    case = Case.of(cron="0/10 * * * * ?")
    state = started(case, 9.9)
    assert not state.due().items
    assert state.due_soon(slot(10)) == {0}


def test_what_was_run_by_another_instance_is_not_run_again() -> None:
    case = Case.of()
    case.give(0, OTHER)
    state = started(case)
    case.ran(0, 3)
    case.now = 3.3
    case.give(0, ME)
    case.see(state)
    assert not state.due().items
    case.now = 4.0
    case.see(state)
    assert state.due().on_time == [0]
    assert case.reports == []


def test_without_misfire_a_moment_that_came_late_to_a_living_holder_is_run_all_the_same() -> None:
    case = Case.of(misfire=False)
    state = started(case, 3.4)
    assert state.due().on_time == [0]
    case.begin(state)
    assert case.reported() == [(1, 2, HELD_UP)]


def test_older_moments_are_reported_when_the_claim_of_the_newest_is_accepted_and_promised_in_its_record() -> None:
    case = Case.of()
    state = started(case, 4.2)
    assert case.reports == []
    case.begin(state)
    assert case.reported() == [(1, 3, HELD_UP)]
    assert case.record().owing == (Owing(ME, slot(4.2), slot(1), slot(3), 3, HELD_UP),)
    assert accounted(case) == 4.0


def test_nothing_is_reported_with_a_claim_that_is_refused() -> None:
    case = Case.of()
    state = started(case, 4.2)
    case.put(LAYOUT.sharding)  # which the view does not show
    assert case.claim(state, {0}, slot(4)) is None
    assert case.reports == []
    case.see(state)
    case.begin(state)
    assert case.reported() == [(1, 3, UNSETTLED)]


def test_reports_that_were_made_are_left_out_of_the_next_record() -> None:
    case = Case.of()
    state = started(case, 4.2)
    claim = case.begin(state)
    case.now = 4.5
    case.settle(state, claim)
    assert case.record().owing == ()


def test_moments_with_equal_reasons_of_several_items_are_reported_together() -> None:
    case = Case.of(items=3)
    state = started(case, 3.2)
    case.begin(state)
    assert [(one.items, one.passed.count) for one in case.reports] == [((0, 1, 2), 2)]


@pytest.mark.parametrize("ahead", [False, True])
def test_a_claim_ahead_accounts_for_its_moment_and_names_the_next_fire(ahead: bool) -> None:
    case = Case.of(cron="0/10 * * * * ?")
    state = started(case, 9.9 if ahead else 10.1)
    assert case.claim(state, {0}, slot(10)) is not None
    assert (accounted(case), case.record().next_fire) == (10.0, slot(20))
    assert case.record().begun == slot(10 if ahead else 10.1)
    assert not state.due_soon(slot(10))


def test_a_claim_that_was_given_back_owes_its_moment_to_the_next_holder() -> None:
    case = Case.of()
    state = started(case, 1.9)
    before = case.record()
    claim = case.claim(state, {0}, slot(2))
    assert claim is not None
    case.locks.clear()
    case.write(0, replace(before, accounted=slot(2) - 1))
    state.ended({}, claim)
    case.now = 3.1
    case.see(state)
    case.begin(state)
    reported = [moment for first, last, _ in case.reported() for moment in range(first, last + 1)]
    assert reported == [1, 2]


def test_the_time_that_goes_back_a_little_runs_nothing_twice() -> None:
    case = Case.of()
    state = started(case)
    case.now, case.ahead = 5.0, 1.5
    case.see(state)
    claim = case.begin(state)
    case.settle(state, claim)
    assert (state.timeline.newest, accounted(case)) == (slot(6), 6.0)
    case.now, case.ahead = 5.1, 0.0
    case.see(state)
    assert (state.timeline.newest, state.timeline.upcoming) == (slot(5), slot(6))
    assert not state.due().items
    assert not state.due_soon(slot(6))
    case.now = 7.0
    case.see(state)
    assert state.due().on_time == [0]
    assert [one[:2] for one in case.reported()] == [(1, 5)]


def test_a_run_that_was_asked_for_hides_no_moment_of_the_schedule() -> None:
    case = Case.of()
    state = started(case)
    claim = case.claim(state, {0}, slot(0.7), FireSource.TRIGGER)
    assert claim is not None
    assert case.record().asked == slot(0.7)
    case.now = 3.2
    case.settle(state, claim)
    case.see(state)
    assert state.due().late == [0]
    case.begin(state)
    assert case.reported() == [(1, 2, BUSY)]


def test_a_stream_that_gives_way_is_claimed_again_at_once_and_reports_nothing() -> None:
    case = Case.of(cron="0/10 * * * * ?")
    state = started(case, 10.0)
    claim = case.begin(state)
    case.now = 10.6
    case.settle(state, claim, left_open=True)
    case.see(state)
    assert (state.due().on_time, state.due().late) == ([0], [])
    claim = case.begin(state)
    case.now = 10.9
    case.settle(state, claim)
    case.see(state)
    assert not state.due().items
    assert case.reports == []


def test_a_moment_that_a_stream_left_open_is_not_reported_when_a_newer_one_has_come() -> None:
    case = Case.of(cron="0/10 * * * * ?")
    state = started(case, 10.0)
    claim = case.begin(state)
    case.now = 10.6
    case.settle(state, claim, left_open=True)
    case.now = 30.5  # before it has looked
    case.see(state)
    case.begin(state)
    assert case.reported() == [(20, 20, HELD_UP)]


# Moments that came while the last run went on.


def test_of_the_moments_that_come_during_a_run_older_ones_are_reported_and_the_newest_is_run_late() -> None:
    case = Case.of()
    state = ran(case, 4.5)
    assert case.reports == []
    assert (state.due().late, state.timeline.newest) == ([0], slot(4))
    claim = case.begin(state)
    assert case.reported() == [(2, 3, BUSY)]
    assert [report.newest for report in case.reports] == [Newest.LATE]
    assert case.record().source == FireSource.MISFIRE
    case.now = 7.5
    case.configure(misfire=False)
    case.settle(state, claim)
    case.see(state)
    assert case.reported()[1:] == [(5, 7, BUSY)]
    assert not state.due().items


def test_without_misfire_all_moments_that_came_during_a_run_are_reported_by_one_write() -> None:
    case = Case.of(items=3, misfire=False)
    state, claim = running(case, frozenset({0, 1, 2}))
    case.now = 4.5
    case.settle(state, claim)
    case.see(state)
    (write,) = accounts(case)
    assert {number: record.accounted for number, (_, record) in write.records.items()} == dict.fromkeys(
        range(3), slot(4)
    )
    assert [(one.items, one.passed.count, one.why, one.newest) for one in case.reports] == [
        ((0, 1, 2), 3, BUSY, Newest.MISSED)
    ]
    case.see(state)
    assert len(accounts(case)) == 1
    case.now = 5.0
    case.see(state)
    assert state.due().on_time == [0, 1, 2]


def test_a_moment_to_be_run_late_that_a_newer_one_overtakes_is_reported() -> None:
    case = Case.of(cron="0/2 * * * * ?")
    state = started(case, 2.0)
    claim = case.begin(state)
    case.now = 5.5
    case.settle(state, claim)
    case.see(state)
    assert state.due().late == [0]
    case.now = 6.1
    case.see(state)
    assert (state.due().on_time, state.due().late) == ([0], [])
    case.begin(state)
    assert case.reported() == [(4, 4, BUSY)]


def test_a_moment_at_which_a_run_ended_came_during_it() -> None:
    case = Case.of(misfire=False)
    ran(case, 2.0)
    assert case.reported() == [(2, 2, BUSY)]


# Reasons of this process.


def test_the_registrys_absence_is_the_reason_for_what_came_in_it() -> None:
    case = Case.of(misfire=False)
    state = started(case)
    case.outages.append((0.6, 3.2))
    case.now = 3.4
    case.see(state)
    assert case.reported() == [(1, 3, AWAY)]
    assert not state.due().items


def test_with_misfire_the_newest_moment_of_an_outage_is_run_late() -> None:
    case = Case.of()
    state = started(case)
    case.outages.append((0.6, 3.2))
    case.now = 3.4
    case.see(state)
    assert state.due().late == [0]
    case.begin(state)
    assert case.reported() == [(1, 2, AWAY)]


def test_a_refusal_of_the_registry_is_the_reason_for_what_came_in_it() -> None:
    case = Case.of(misfire=False)
    state = started(case)
    case.refusals.append((1.6, 5.2))
    case.outages.append((2.8, 3.1))  # an outage goes before a refusal
    case.now = 7.4
    case.see(state)
    assert state.due().on_time == [0]
    case.begin(state)
    held_up = (6, 6, HELD_UP)
    assert case.reported() == [(1, 1, HELD_UP), (2, 2, REFUSED), (3, 3, AWAY), (4, 5, REFUSED), held_up]


def test_moments_that_a_clock_skipped_never_came_whatever_else_happened() -> None:
    case = Case.of(cron="0/10 * * * * ?")
    state = started(case)
    case.outages.append((1.0, 6.0))
    case.now, case.ahead = 5.0, 60.0
    case.see(state)
    case.begin(state)
    assert case.reported() == [(10, 50, SKIPPED)]


def test_an_instance_that_was_held_up_says_so() -> None:
    case = Case.of()
    state = started(case, 9.5)
    case.begin(state)
    assert case.reported() == [(1, 8, HELD_UP)]


def test_an_item_that_nodes_made_by_hand_keep_from_being_claimed_has_missed_its_moment() -> None:
    case = Case.of(items=2)
    state = started(case, 1.1)
    state.note_obstructed({1}, slot(1))
    case.see(state)
    assert case.reported(1) == [(1, 1, OBSTRUCTED)]
    assert state.due().on_time == [0]
    assert state.due_soon(slot(1)) == {0}
    assert state.due_soon(slot(2)) == {0, 1}
    case.now = 2.1
    case.see(state)
    assert state.due().on_time == [0, 1]  # it is tried again
    case.begin(state)
    assert case.reported(1) == [(1, 1, OBSTRUCTED)]


# Moments that came while no instance was up.


def test_what_came_while_no_instance_was_up_is_written_before_it_is_reported() -> None:
    case = Case.of(items=2)
    state = come_back(case, 20.5)
    case.see(state)
    (write,) = accounts(case)
    kinds = [type(command) for command in case.done if isinstance(command, WriteAccounts | Report)]
    assert kinds == [WriteAccounts, Report]
    assert {item: record.accounted for item, (_, record) in write.records.items()} == {0: slot(20), 1: slot(20)}
    assert case.reported(0) == case.reported(1) == [(1, 20, NO_INSTANCE_UP)]
    assert not state.due().items


def test_those_who_come_back_later_do_not_report_it_again() -> None:
    case = Case.of()
    case.see(come_back(case, 20.5))
    assert len(case.reports) == 1
    case.see(come_back(case, 20.9))
    assert len(case.reports) == 1


def test_those_of_another_absence_are_reported_by_themselves() -> None:
    case = Case.of()
    case.see(come_back(case, 3.5))
    case.see(come_back(case, 6.5))
    assert case.reported() == [(1, 3, NO_INSTANCE_UP), (4, 6, NO_INSTANCE_UP)]


@pytest.mark.parametrize("catch_up", [3.0, 0.2])
def test_with_catch_up_the_newest_of_them_is_run_if_it_is_recent(catch_up: float) -> None:
    case = Case.of(cron="0/5 * * * * ?", catch_up=catch_up)
    case.ran(0, 0)
    state = come_back(case, 20.5)
    case.see(state)
    if catch_up < 1:
        assert case.reported() == [(5, 20, NO_INSTANCE_UP)]
        assert not state.due().items
        return
    assert case.reports == []
    assert state.due().on_time == [0]
    assert state.is_catch_up(slot(20))
    case.begin(state)
    assert case.reported() == [(5, 15, NO_INSTANCE_UP)]
    assert case.record().source == FireSource.MISFIRE


def test_moments_during_the_last_run_before_an_absence_are_told_as_such() -> None:
    case = Case.of(cron="0/10 * * * * ?")
    case.ran(0, 10, completed_at=slot(33))
    state = come_back(case, 60.5)
    case.see(state)
    assert case.reported() == [(20, 30, BUSY), (40, 60, NO_INSTANCE_UP)]


def test_who_comes_back_shortly_before_a_moment_has_missed_only_those_before_it() -> None:
    case = Case.of(cron="0/10 * * * * ?")
    state = come_back(case, 29.9)
    case.see(state)
    assert case.reported() == [(10, 20, NO_INSTANCE_UP)]
    assert state.due_soon(slot(30)) == {0}


def test_an_instance_goes_on_under_its_next_session_as_if_it_had_always_been_up() -> None:
    case = Case.of()
    case.drop(LAYOUT.instance(OTHER))
    case.put(LAYOUT.instance(ME), owner=1)
    case.now = 9.5
    state = case.state(up_since=-3600)
    case.see(state)
    assert state.due().on_time == [0]


def test_moments_since_an_instance_is_up_are_not_told_as_without_one() -> None:
    case = Case.of()
    case.ran(0, 0)
    state = come_back(case, 3.5)
    case.now = 6.2
    case.see(state)
    case.begin(state)
    assert case.reported() == [(1, 3, NO_INSTANCE_UP), (4, 5, HELD_UP)]


# Reasons of others.


def test_an_item_that_nobody_has_run_yet_is_blamed_on_no_instance_that_is_gone() -> None:
    case = Case.of()
    case.give(0, OTHER)
    state = started(case, 3.0)
    case.give(0, ME)
    case.see(state)
    assert state.due().on_time == [0]
    case.begin(state)
    assert case.reported() == [(1, 2, BLOCKED)]


@pytest.mark.parametrize(
    ("runner", "why"), [(OTHER, BLOCKED), (GONE_ONE, GONE.format(GONE_ONE)), ("10.0.0.1@-@0", OURS)]
)
def test_what_came_before_an_item_was_given_is_told_by_who_ran_it_before(runner: str, why: str) -> None:
    case = Case.of(misfire=False)
    case.ran(0, 2, runner)
    case.now = 5.5
    case.give(0, ME)
    case.put(LAYOUT.sharding)
    case.now = 7.2
    state = case.state()
    state._past.instances = ("10.0.0.1@-@0", ME)
    case.see(state)
    case.begin(state)
    assert case.reported() == [(3, 5, why), (6, 6, HELD_UP)]


def test_what_came_while_the_assignment_was_being_changed_is_told_as_such() -> None:
    case = Case.of()
    state = started(case, 1.2)
    case.settle(state, case.begin(state))
    case.put(LAYOUT.necessary)
    case.now = 3.5
    case.see(state)
    assert case.reports == []
    case.drop(LAYOUT.necessary)
    case.put(LAYOUT.sharding)
    case.now = 5.1
    case.see(state)
    case.begin(state)
    assert case.reported() == [(2, 3, UNSETTLED), (4, 4, HELD_UP)]


def test_what_another_instance_still_runs_is_followed_and_reported_when_that_has_ended() -> None:
    case = Case.of(misfire=False)
    case.was_cut_off(0, 0)
    case.locks[0] = Lock.OTHERS
    state = started(case, 3.5)
    assert FollowReleases(frozenset({0})) in case.done
    assert case.reports == []
    assert not state.due().items
    assert not state.due_soon(slot(4))
    case.locks.clear()
    case.ran(0, 0, completed_at=slot(3.6))
    state.released(0)
    case.now = 3.7
    case.see(state)
    assert case.reported() == [(1, 3, BUSY)]


def test_what_another_instance_still_runs_is_run_late_when_that_has_ended() -> None:
    case = Case.of()
    case.was_cut_off(0, 0)
    case.locks[0] = Lock.OTHERS
    state = started(case, 3.5)
    case.locks.clear()
    case.ran(0, 0, completed_at=slot(3.6))
    state.released(0)
    case.now = 3.7
    case.see(state)
    assert state.due().late == [0]
    case.begin(state)
    assert case.reported() == [(1, 2, BUSY)]


def test_each_run_elsewhere_is_followed_once_until_it_has_ended() -> None:
    case = Case.of(items=2)
    case.locks = {0: Lock.OTHERS, 1: Lock.OTHERS}
    state = started(case, 1.5)
    case.see(state)
    assert [one for one in case.done if isinstance(one, FollowReleases)] == [FollowReleases(frozenset({0, 1}))]
    state.released(1)
    case.see(state)
    assert [one for one in case.done if isinstance(one, FollowReleases)][1:] == [FollowReleases(frozenset({1}))]


def test_an_item_whose_lock_was_made_by_hand_waits_and_is_named() -> None:
    case = Case.of(items=2)
    case.locks[1] = Lock.BY_HAND
    state = started(case, 2.5)
    assert state.blocked_by_hand() == [1]
    assert state.due().on_time == [0]
    assert state.free() == {0}
    assert case.reports == []


def test_a_claim_that_finds_a_record_changed_reads_the_item_again() -> None:
    case = Case.of(items=2)
    state = started(case, 1.2)
    case.ran(1, 1)  # by hand, or by a holder whose session has just ended
    assert case.claim(state, {0, 1}, slot(1)) is None
    case.see(state)
    assert state.due().on_time == [0]


# Schedules that were replaced.


def test_moments_of_a_schedule_that_ended_before_they_could_be_run_are_reported() -> None:
    case = Case.of(misfire=False)
    state = started(case)
    case.now = 4.5
    case.configure(cron="0/10 * * * * ?")
    case.see(state)
    assert case.reports == []
    assert state.due().on_time == [0]  # the newest of all moments is run
    case.now = 10.1
    case.see(state)
    case.begin(state)
    assert case.reported() == [(1, 4, ENDED)]


def test_moments_of_a_schedule_changed_during_a_run_are_missed_because_that_run_was_going_on() -> None:
    case = Case.of(misfire=False)
    state, claim = running(case)
    case.now = 3.5
    case.configure(cron="*/2 * * * * ?")
    case.now = 9.5
    case.settle(state, claim)
    case.see(state)
    assert case.reported() == [(2, 3, BUSY), (4, 8, BUSY)]
    case.now = 14.5
    case.see(state)
    case.begin(state)
    assert case.reported()[2:] == [(10, 12, HELD_UP)]


def test_a_schedule_that_came_and_went_during_a_run_is_told_of_too() -> None:
    case = Case.of(misfire=False, cron="1/20 * * * * ?")
    state, claim = running(case)
    for now, cron in ((5.5, "* * * * * ?"), (8.5, "1/20 * * * * ?")):
        case.now = now
        case.configure(cron=cron)
    case.now = 15.0
    case.settle(state, claim)
    case.see(state)
    assert case.reported() == [(6, 8, BUSY)]


def test_a_schedule_that_the_leader_has_not_noted_yet_changes_nothing() -> None:
    case = Case.of()
    state = started(case, 1.2)
    case.settle(state, case.begin(state))
    case.config = case.config.changed(cron="0/20 * * * * ?")
    case.put(LAYOUT.config, case.config.to_json())
    case.now = 2.0
    case.see(state)
    assert state.due().on_time == [0]
    case.settle(state, case.begin(state))
    case.now = 2.6
    case.note()
    case.now = 3.5
    case.see(state)
    assert (state.due().items, state.timeline.upcoming, case.reports) == (frozenset(), slot(20), [])


def test_a_claim_decided_under_a_schedule_that_was_replaced_is_refused() -> None:
    """Otherwise it would account for moments of the new schedule, of which it does not know."""
    case = Case.of(cron="0/10 * * * * ?")
    state = started(case, 9.9)
    case.configure(cron="* * * * * ?")
    assert case.claim(state, {0}, slot(10)) is None
    case.now = 12.1
    case.see(state)
    case.begin(state)
    assert case.reported() == [(10, 11, HELD_UP)]


def test_another_setting_changes_no_moment() -> None:
    case = Case.of()
    state = started(case, 1.2)
    case.settle(state, case.begin(state))
    case.configure(description="hello")
    case.now = 2.3
    case.see(state)
    assert (state.due().on_time, state.timeline.begins) == ([0], slot(0.5))
    case.begin(state)
    assert case.reports == []


def test_a_schedule_does_not_apply_to_what_came_before_it_was_noted() -> None:
    case = Case.of(cron="0 0 0 1 1 ? 2090")
    state = started(case)
    case.now = 30.5
    case.configure(cron="* * * * * ?")
    case.see(state)
    assert not state.due().items
    case.now = 31.0
    case.see(state)
    assert state.due().on_time == [0]
    assert case.reports == []


# Switched off and on again.

FLAGS = [LAYOUT.paused, LAYOUT.server_paused("10.0.0.1"), LAYOUT.server_disabled("10.0.0.1"), LAYOUT.item(0).disabled]


@pytest.mark.parametrize("flag", FLAGS)
def test_what_comes_while_an_item_is_switched_off_is_excused_by_one_write_when_it_is_on_again(flag: str) -> None:
    case = Case.of(misfire=False)
    state = ran(case, 1.4)
    case.now = 2.5
    case.put(flag)
    case.now = 2.6
    case.see(state)
    assert [one[:2] for one in case.reported()] == [(2, 2)]  # which came before the flag
    for case.now in (3.5, 9.5):
        case.see(state)
        assert not state.due().items
        assert not state.free()
        assert not state.due_soon(slot(10))
    before = len(accounts(case))
    case.drop(flag)
    case.now = 9.7
    case.see(state)
    assert len(accounts(case)) == before + 1
    assert not state.due().items
    case.now = 10.0
    case.see(state)
    assert state.due().on_time == [0]
    case.begin(state)
    assert len(case.reports) == 1


@pytest.mark.parametrize("flag", FLAGS)
def test_if_no_moment_passed_while_an_item_was_switched_off_nothing_is_written(flag: str) -> None:
    case = Case.of(cron="0/10 * * * * ?")
    state = started(case)
    case.put(flag)
    case.see(state)
    case.now = 8.0
    case.see(state)
    case.drop(flag)
    case.see(state)
    assert accounts(case) == []
    assert state.due_soon(slot(10)) == {0}


@pytest.mark.parametrize("flag", FLAGS)
def test_what_came_during_a_run_before_the_item_was_switched_off_is_missed_and_the_rest_is_excused(flag: str) -> None:
    case = Case.of(misfire=False)
    state, claim = running(case)
    case.now = 3.5
    case.put(flag)
    case.now = 5.2
    case.settle(state, claim)
    case.see(state)
    case.now = 7.2
    case.see(state)
    case.now = 7.5
    case.drop(flag)
    case.see(state)
    assert case.reported() == [(2, 3, BUSY)]
    case.now = 8.0
    case.see(state)
    assert state.due().on_time == [0]
    case.begin(state)
    assert case.reported() == [(2, 3, BUSY)]


def test_moments_after_the_last_look_at_a_switch_that_is_on_again_are_owed() -> None:
    case = Case.of()
    state = started(case)
    case.put(LAYOUT.paused)
    for case.now in range(1, 10):
        case.see(state)
    case.drop(LAYOUT.paused)
    case.see(state)
    case.now = 12.5
    case.see(state)
    case.begin(state)
    assert case.reported() == [(10, 11, HELD_UP)]


@pytest.mark.parametrize("flag", FLAGS)
def test_an_instance_without_a_connection_does_not_know_whether_an_item_is_still_switched_off(flag: str) -> None:
    case = Case.of(misfire=False)
    state = started(case)
    case.put(flag)
    case.now = 2.5
    case.see(state)
    view = state.view
    for case.now in (4.5, 8.5):
        case.outages = [(2.6, case.now)]
        case.see(state, view)
    case.drop(flag)
    view.tree.mark_outdated()  # connected again, and nothing has been read yet
    case.now = 8.6
    case.see(state, view)
    case.see(state, case.view())
    assert case.reported() == [(3, 8, AWAY)]


def test_an_item_that_is_still_switched_off_after_an_outage_has_missed_nothing_in_it() -> None:
    case = Case.of(misfire=False)
    state = started(case)
    case.put(LAYOUT.paused)
    case.see(state)
    case.now = 4.5
    case.outages = [(0.6, 4.5)]
    case.see(state)
    case.now = 4.7
    case.see(state, case.view())
    case.drop(LAYOUT.paused)
    case.now = 4.9
    case.see(state)
    assert (case.reports, case.record().accounted) == ([], slot(4.9))


def test_an_item_that_was_switched_on_while_its_holder_was_busy_owes_what_came_since_then() -> None:
    case = Case.of(items=2)
    case.put(LAYOUT.item(1).disabled)
    state, claim = running(case)
    case.drop(LAYOUT.item(1).disabled)
    case.now = 2.2
    case.show_clocks(state)
    state.notice_what_is_off(case.view())
    case.now = 4.2
    case.settle(state, claim)
    case.see(state)
    assert 1 in state.due().items
    case.claim(state, {1}, slot(4))
    assert case.reported(1) == [(3, 3, HELD_UP)]


def test_an_item_that_nobody_looked_at_while_it_was_off_is_excused_until_the_news_that_it_is_on_came() -> None:
    case = Case.of(misfire=False)
    case.put(LAYOUT.item(0).disabled)
    state = started(case)
    case.drop(LAYOUT.item(0).disabled)
    case.now = 6.2
    case.see(state)
    assert (case.reports, case.record().accounted) == ([], slot(6.2))


def test_a_process_that_stood_still_does_not_know_whether_an_item_is_still_switched_off() -> None:
    case = Case.of(misfire=False)
    state = started(case)
    case.put(LAYOUT.item(0).disabled)
    case.now = 2.5
    case.see(state)
    stale = state.view
    case.drop(LAYOUT.item(0).disabled)
    case.now = 8.5
    case.unheard = 5.8
    case.see(state, stale)
    case.now = 8.6
    case.unheard = 5.9
    case.see(state, case.view())
    assert case.record().accounted == slot(2.7)
    assert state.due().items == {0}


def test_what_was_switched_off_before_its_holder_came_is_excused_since_the_date_of_the_flag() -> None:
    case = Case.of()
    case.ran(0, 0)
    case.now = 4.5
    case.put(LAYOUT.item(0).disabled)
    case.now = 10.5
    state = started(case)
    assert case.reported() == [(1, 4, HELD_UP)]
    case.drop(LAYOUT.item(0).disabled)
    case.now = 10.7
    case.see(state)
    case.now = 11.0
    case.see(state)
    assert state.due().on_time == [0]
    case.begin(state)
    assert len(case.reports) == 1


@pytest.mark.parametrize("flag", FLAGS[:1] + FLAGS[3:])
def test_what_was_switched_off_while_no_instance_was_up_is_excused_since_the_date_of_the_flag(flag: str) -> None:
    case = Case.of()
    case.now = 3.5
    case.put(flag)
    state = come_back(case, 20.5)
    case.see(state)
    assert case.reported() == [(1, 3, NO_INSTANCE_UP)]
    case.drop(flag)
    case.now = 20.7
    case.see(state)
    assert case.record().accounted == slot(20.7)
    assert len(case.reports) == 1


def test_an_item_that_moves_while_the_job_is_paused_owes_nothing_to_anybody() -> None:
    case = Case.of()
    case.give(0, OTHER)
    case.put(LAYOUT.paused)
    state = started(case, 30.5)
    case.give(0, ME)
    case.see(state)
    case.drop(LAYOUT.paused)
    case.now = 30.7
    case.see(state)
    case.now = 31.0
    case.see(state)
    assert state.due().on_time == [0]
    case.begin(state)
    assert case.reports == []


def test_an_item_that_was_taken_from_a_paused_instance_owes_nothing_that_came_before() -> None:
    case = Case.of()
    case.ran(0, 1)
    case.give(0, OTHER)
    state = started(case, 60.5)
    case.give(0, ME)
    case.put(LAYOUT.item(0).sharding)  # as the leader does
    case.see(state)
    assert (state.due().items, case.reports) == (frozenset(), [])
    case.now = 61.0
    case.see(state)
    assert state.due().on_time == [0]
    case.begin(state)
    assert case.reports == []


def test_an_item_that_was_not_there_missed_nothing() -> None:
    case = Case.of()
    case.ran(0, 1)
    case.drop(LAYOUT.item(0).sharding)
    case.now = 40.5
    case.put(LAYOUT.item(0).sharding)
    case.give(0, ME)
    state = started(case, 41.1)
    assert state.due().on_time == [0]
    case.begin(state)
    assert case.reports == []


def test_the_excuse_of_a_switch_is_reported_by_nobody_if_the_item_moves_and_is_forgotten_with_it() -> None:
    case = Case.of()
    state = started(case)
    case.put(LAYOUT.item(0).disabled)
    for case.now in (1.5, 5.5):
        case.see(state)
    case.give(0, OTHER)
    case.see(state)
    assert not state.held
    case.drop(LAYOUT.item(0).disabled)
    case.now = 6.5
    case.give(0, ME)
    case.see(state)
    case.begin(state)
    assert case.reported() == [(1, 5, BLOCKED)]  # nobody who is up has seen all of it switched off


# Cut off.


def test_without_failover_a_run_that_was_cut_off_is_ended_and_reported_once() -> None:
    case = Case.of(items=2, failover=False)
    for item in (0, 1):
        case.was_cut_off(item, 0, GONE_ONE)
    state = started(case)
    assert [(one.items, one.passed.first, one.why, one.cut_off) for one in case.reports] == [
        ((0, 1), slot(0), CUT_OFF, GONE_ONE)
    ]
    record = case.record()
    assert (record.completed, record.outcome, accounted(case)) == (True, "cancelled", 0.0)
    assert record.owing == (Owing(ME, slot(0.5), slot(0), slot(0), 1, CUT_OFF, GONE_ONE),)
    case.give(0, OTHER)
    case.see(state)
    case.give(0, ME)
    case.see(state)
    assert len(case.reports) == 1
    case.now = 1.0
    case.see(state)
    assert state.due().items == {0, 1}


def test_runs_that_were_cut_off_of_different_instances_and_moments_are_reported_by_themselves() -> None:
    case = Case.of(items=4, failover=False)
    for item, (second, instance) in enumerate([(0, GONE_ONE), (0, "gone"), (-1, GONE_ONE), (0, GONE_ONE)]):
        case.was_cut_off(item, second, instance)
    started(case)
    assert [(one.items, one.passed.last, one.cut_off) for one in case.reports] == [
        ((2,), slot(-1), GONE_ONE),
        ((0, 3), slot(0), GONE_ONE),
        ((1,), slot(0), "gone"),
    ]


def test_the_moments_after_a_run_that_was_cut_off_are_told_as_such_too() -> None:
    case = Case.of(failover=False)
    case.was_cut_off(0, 1, GONE_ONE)
    case.now = 3.5
    case.give(0, ME)
    case.now = 3.6
    state = started(case)
    case.begin(state)
    cut_off, missed = case.reported()
    assert cut_off == (1, 1, CUT_OFF)
    assert missed == (2, 2, GONE.format(GONE_ONE))


def test_a_run_that_was_cut_off_of_an_item_that_is_switched_off_is_ended_all_the_same() -> None:
    case = Case.of(failover=False)
    case.was_cut_off(0, 0, GONE_ONE)
    case.put(LAYOUT.item(0).disabled)
    started(case)
    assert [one.cut_off for one in case.reports] == [GONE_ONE]


def test_with_failover_a_run_that_was_cut_off_waits_for_its_rescue() -> None:
    case = Case.of(failover=True)
    case.was_cut_off(0, 0, GONE_ONE)
    case.put(LAYOUT.orphans)
    case.put(LAYOUT.item(0).orphan)
    state = started(case, 3.5)
    assert (case.reports, accounts(case), state.due().items) == ([], [], frozenset())
    assert not state.due_soon(slot(4))
    assert not state.free()
    case.drop(LAYOUT.item(0).orphan)
    case.ran(0, 0, source="FAILOVER", begun=slot(3.6), completed_at=slot(3.8))
    case.now = 3.9
    case.see(state)
    assert state.due().on_time == [0]  # it came before the rescue began
    case.begin(state)
    assert case.reported() == [(1, 2, BUSY)]


def test_an_item_whose_rescue_another_instance_makes_is_not_followed_because_the_view_shows_its_end() -> None:
    case = Case.of(failover=True)
    case.was_cut_off(0, 0, OTHER)
    case.locks[0] = Lock.OTHERS
    case.put(LAYOUT.item(0).failover, OTHER.encode(), owner=2)
    state = started(case)
    assert not any(isinstance(one, FollowReleases) for one in case.done)
    case.drop(LAYOUT.item(0).failover)
    case.see(state)
    assert any(isinstance(one, FollowReleases) for one in case.done)  # the lock may still be there


def test_with_failover_switched_off_a_run_that_waited_for_its_rescue_is_ended() -> None:
    case = Case.of(failover=True)
    case.was_cut_off(0, 0, GONE_ONE)
    state = started(case)
    case.configure(failover=False)
    case.see(state)
    assert [one.cut_off for one in case.reports] == [GONE_ONE]
    assert case.record().completed


def test_a_run_that_the_leader_will_end_is_followed_until_then() -> None:
    case = Case.of(failover=True, max_rescues=1)
    case.was_cut_off(0, 0, GONE_ONE, rescues=1)
    state = started(case)
    view = case.view()
    assert ended_as(view, 0, case.record(), case.records[0].zxid)
    assert FollowReleases(frozenset({0})) in case.done
    case.write(0, replace(case.record(), completed=True, completed_at=slot(1.2)))
    state.released(0)
    case.now = 1.5
    case.see(state)
    assert state.due().late == [0]


# What has been promised by others.


def promised(case: Case, by: str, at: float = 0.5) -> Owing:
    """Write a record in which an instance has promised the report of two moments."""
    owing = Owing(by, slot(at), slot(-3), slot(-2), 2, AWAY)
    case.ran(0, 0, by, owing=(owing,))
    return owing


def test_a_report_that_an_instance_which_is_gone_has_promised_is_taken_over_and_made_once() -> None:
    case = Case.of()
    owing = promised(case, GONE_ONE)
    state = started(case)
    assert case.reported() == [(-3, -2, AWAY)]
    assert case.record().owing == (replace(owing, by=ME),)
    for case.now in (0.6, 0.8):
        case.see(state)
    assert len(case.reports) == 1
    case.now = 1.0
    case.see(state)
    case.begin(state)
    assert case.record().owing == ()
    assert len(case.reports) == 1


def test_a_report_that_a_living_instance_has_promised_is_left_to_it() -> None:
    case = Case.of()
    owing = promised(case, OTHER)
    state = started(case, 1.0)
    claim = case.begin(state)
    assert case.record().owing == (owing,)
    case.settle(state, claim)
    assert (case.record().owing, case.reports) == ((owing,), [])
    case.drop(LAYOUT.instance(OTHER))
    case.now = 1.7
    case.see(state)
    assert case.reported() == [(-3, -2, AWAY)]
    assert case.record().owing == (replace(owing, by=ME, at=slot(1.7)),)


def test_a_report_that_was_promised_long_before_its_instance_went_was_made() -> None:
    case = Case.of(cron="0 0 0 1 1 ? 2090")
    promised(case, OTHER)
    state = started(case)
    case.now = 1.0 + MADE_WITHIN / 1000
    case.drop(LAYOUT.instance(OTHER))
    case.see(state)
    case.see(state)
    assert (case.reports, accounts(case)) == ([], [])


def test_a_claim_takes_a_report_over_from_an_instance_that_is_gone() -> None:
    case = Case.of()
    state = started(case, 1.0)
    promised(case, GONE_ONE)
    state.read_again([0])
    case.refused = [WriteAccounts]
    case.see(state)
    assert case.reports == []
    case.refused = []
    case.begin(state)
    assert case.reported() == [(-3, -2, AWAY)]
    assert [one.by for one in case.record().owing] == [ME]


def test_a_report_of_a_run_that_was_cut_off_is_taken_over_with_the_instance_that_ran_it() -> None:
    case = Case.of(failover=False)
    case.ran(0, 0, owing=(Owing(GONE_ONE, slot(0.1), slot(0), slot(0), 1, CUT_OFF, "another"),))
    started(case)
    assert [(one.why, one.cut_off) for one in case.reports] == [(CUT_OFF, "another")]


# Writes that are refused.


@pytest.mark.parametrize("refused", [(ReadItems,), (WriteAccounts,), (ReadItems, WriteAccounts, WriteAccounts)])
def test_what_no_instance_was_up_for_is_reported_once_although_the_registry_refuses_commands(
    refused: tuple[type[Command], ...],
) -> None:
    case = Case.of(items=3)
    case.at_once = 2
    state = come_back(case, 20.5)
    for command in refused:
        case.refused = [command]
        case.see(state)
        assert case.reports == []
    for _ in range(3):
        case.see(state)
    assert state.held == {0, 1, 2}
    assert [one.items for one in case.reports] == [(0, 1, 2)]
    assert case.reported() == [(1, 20, NO_INSTANCE_UP)]


def test_on_an_old_view_nothing_is_written_and_nothing_reported() -> None:
    case = Case.of()
    case.ran(0, 0)
    state = come_back(case, 20.5)
    view = case.view()
    case.give(0, ME)  # again, which the view does not show
    case.see(state, view)
    assert (case.reports, accounted(case)) == ([], 0.0)
    case.see(state)
    assert [one[:2] for one in case.reported()] == [(1, 20)]


def test_on_a_view_with_an_old_schedule_nothing_is_written_and_nothing_reported() -> None:
    case = Case.of(misfire=False)
    state, claim = running(case)
    view = case.view()
    case.now = 4.5
    case.configure(cron="0/2 * * * * ?")
    case.settle(state, claim)
    case.see(state, view)
    assert case.reports == []
    case.see(state)
    assert case.reported() == [(2, 4, BUSY)]


def test_an_item_whose_record_was_written_by_somebody_else_is_read_again_and_decided_anew() -> None:
    case = Case.of(items=3)
    case.at_once = 1
    state = come_back(case, 20.5)
    view = case.view()
    case.show_clocks(state)
    steps = state.see(view)
    reading = next(steps)
    answer = case.answer(reading)
    case.ran(1, 18)  # meanwhile, by hand or by a holder whose session has ended
    write = steps.send(answer)
    assert isinstance(write, WriteAccounts)
    written = case.account(write)
    assert written is not None
    assert written.keys() == {0, 2}
    assert steps.send(written) == ReadItems(frozenset({1}))
    again = steps.send(case.answer(ReadItems(frozenset({1}))))
    assert isinstance(again, WriteAccounts)
    assert again.records.keys() == {1}
    with pytest.raises(StopIteration):
        steps.send(case.account(again))
    case.take_reports(state)
    assert case.reported(0) == case.reported(2) == [(1, 20, NO_INSTANCE_UP)]
    assert case.reported(1) == [(19, 20, NO_INSTANCE_UP)]


def test_records_that_are_always_written_by_somebody_else_do_not_keep_an_instance_busy() -> None:
    case = Case.of()
    state = come_back(case, 20.5)
    case.show_clocks(state)
    steps, writes = state.see(case.view()), 0
    command = next(steps, None)
    while command is not None:
        writes += isinstance(command, WriteAccounts)
        try:
            command = steps.send({} if isinstance(command, WriteAccounts) else case.answer(command))
        except StopIteration:
            command = None
    assert 1 < writes < 10
    assert state.reports == []


def test_an_instance_that_was_removed_writes_nothing_and_leaves_its_items_to_the_next_holder() -> None:
    case = Case.of()
    case.ran(0, 0)
    state = come_back(case, 20.5)
    case.drop(LAYOUT.instance(ME))
    case.see(state)
    assert (accounts(case), case.reports) == ([], [])
    case.put(LAYOUT.instance(ME), owner=1)
    case.see(state)
    assert [one[:2] for one in case.reported()] == [(1, 20)]


@pytest.mark.parametrize("mark", [LAYOUT.necessary, LAYOUT.processing])
def test_while_the_assignment_is_being_changed_nothing_is_written(mark: str) -> None:
    case = Case.of()
    state = come_back(case, 20.5)
    case.put(mark)
    case.see(state)
    assert accounts(case) == []
    case.drop(mark)
    case.see(state)
    assert len(accounts(case)) == 1


def test_a_run_elsewhere_is_followed_although_the_accounts_of_another_item_are_refused() -> None:
    case = Case.of(items=2)
    case.locks[1] = Lock.OTHERS
    state = come_back(case, 20.5)
    case.refused = [WriteAccounts]
    case.see(state)
    assert FollowReleases(frozenset({1})) in case.done


# Refused fires.


def test_a_fire_that_is_refused_because_of_the_clock_is_accounted_for_and_older_moments_are_missed() -> None:
    case = Case.of(max_time_diff_seconds=0)
    state = started(case, 3.2)
    case.perform(state, state.refuse_due(state.view, state.due().items, ClockSkew.of(5.0, 0)))
    assert case.reported() == [(1, 2, HELD_UP)]
    assert [one.again for one in case.done if isinstance(one, SayRefused)] == [False]
    assert accounted(case) == 3.0
    assert not state.due().items
    case.now = 4.0
    case.see(state)
    assert state.due().on_time == [0]


def test_a_refused_fire_is_reported_by_the_next_holder_if_who_refused_it_is_gone_before_it_could_say_so() -> None:
    case = Case.of(max_time_diff_seconds=0)
    state = started(case, 3.2)
    case.perform(state, state.refuse_due(state.view, state.due().items, ClockSkew.of(5.0, 0)))
    case.reports.clear()
    case.drop(LAYOUT.instance(ME))
    case.put(LAYOUT.instance(OTHER), owner=2)
    case.give(0, OTHER)
    case.now = 3.4
    next_holder = JobState(OTHER, case.view(), case.reading(), Past(BEGIN - 3600))
    case.see(next_holder)
    assert case.reported() == [(1, 2, HELD_UP), (3, 3, CLOCK)]


# Clocks ahead.


def test_a_record_up_to_a_minute_ahead_stands_and_the_log_says_so_once_the_clock_is_steady() -> None:
    case = Case.of()
    case.ran(0, 40)
    state = started(case)
    said = SayAhead((0,), slot(40))
    assert said not in case.done  # it is not certain yet that this clock is right
    for case.now in (12.5, 13.5, 39.5):
        case.see(state)
        assert (state.due().items, case.reports, accounts(case)) == (frozenset(), [], [])
        assert case.done.count(said) == 1
    case.now = 41.0
    case.see(state)
    assert state.due().on_time == [0]


def test_an_item_that_this_instance_itself_has_run_by_a_clock_ahead_is_told_of_when_the_clock_was_put_right() -> None:
    case = Case.of(items=2)
    case.give(1, OTHER)
    state = started(case, 20.5)
    case.ahead = 30.0
    case.see(state)
    case.settle(state, case.begin(state))
    case.now, case.ahead = 21.5, 0.0
    for case.now in (21.5, 22.5 + STEADY, 30.0 + STEADY):
        case.see(state)
    assert case.done.count(SayAhead((0,), slot(50))) == 1
    case.ran(1, 55)
    case.give(1, ME)
    case.see(state)
    assert [one for one in case.done if isinstance(one, SayAhead)][1:] == [SayAhead((1,), slot(55))]


def test_a_record_far_ahead_is_lowered_to_now_after_ten_steady_seconds() -> None:
    case = Case.of()
    case.ran(0, 3600)
    state = started(case)
    assert 0 < state.steady_in <= STEADY
    case.now = 9.5
    case.see(state)
    assert accounts(case) == []
    case.now = 10.6
    case.see(state)
    assert case.record().accounted == slot(10.6)
    assert SayLowered(0, slot(3600), slot(10.6)) in case.done
    assert state.steady_in == float("inf")
    assert not state.due().items
    case.now = 11.0
    case.see(state)
    assert state.due().on_time == [0]
    case.begin(state)
    assert case.reports == []


def test_a_record_far_ahead_is_not_lowered_by_a_clock_that_was_just_set_or_not_heard_after_an_outage() -> None:
    case = Case.of()
    state = started(case, 20.5)
    case.settle(state, case.begin(state))
    case.now, case.ahead = 21.5, -3600.0
    case.see(state)
    assert (accounts(case), state.due().items) == ([], frozenset())
    case.outages = [(24.0, 60.0)]
    case.now = 60.5
    case.see(state)
    assert accounts(case) == []
    case.now, case.ahead = 61.2, 0.0
    case.see(state)
    assert (state.timeline.newest, state.due().items) == (slot(61), frozenset({0}))


def test_a_clock_that_was_set_back_and_stays_there_is_followed_after_a_while() -> None:
    case = Case.of()
    state = started(case, 20.5)
    case.settle(state, case.begin(state))
    case.now, case.ahead = 21.5, -3600.0
    case.see(state)
    case.now = 21.6 + STEADY
    case.see(state)
    assert accounted(case) == pytest.approx(21.6 + STEADY - 3600)
    case.now += 1.0
    case.see(state)
    # the schedule was noted in what is the future now, so its leader notes it anew
    assert state.timeline.newest == 0


@pytest.mark.parametrize("ahead", [MAX_FUTURE, MAX_FUTURE + 1])
def test_only_what_is_more_than_a_minute_ahead_is_lowered(ahead: int) -> None:
    case = Case.of()
    case.now = 20.0
    state = started(case)
    case.now = 40.0
    case.write(0, Record(slot=slot(1), accounted=slot(40) + ahead))
    state.read_again([0])
    case.see(state)
    assert len(accounts(case)) == (ahead > MAX_FUTURE)


def test_a_far_record_of_an_item_that_runs_elsewhere_is_left_alone_until_it_is_free() -> None:
    case = Case.of()
    case.ran(0, 3600)
    case.locks[0] = Lock.OTHERS
    state = started(case, 15.0)
    assert accounts(case) == []
    case.locks.clear()
    state.released(0)
    case.see(state)
    assert accounted(case) == 15.0


# Items that come and go.


def test_an_item_that_moved_away_and_came_back_is_read_anew() -> None:
    case = Case.of()
    state = started(case, 1.2)
    case.give(0, OTHER)
    case.ran(0, 5)
    case.now = 5.5
    case.give(0, ME)  # both before this instance has looked
    case.see(state)
    assert not state.due().items
    assert case.reports == []


def test_a_settlement_of_an_item_that_has_moved_away_changes_nothing_here() -> None:
    case = Case.of()
    state, claim = running(case)
    case.give(0, OTHER)
    case.now = 2.5
    case.settle(state, claim)
    case.see(state)
    assert (state.held, state.items, case.reports) == (frozenset(), {}, [])


def test_items_whose_settlement_was_lost_are_read_again() -> None:
    case = Case.of()
    state, claim = running(case)
    case.now = 1.5
    case.end(claim)
    state.ended({}, claim)
    case.see(state)
    assert state.items[0].lock is Lock.FREE
    assert case.done[-1] == ReadItems(frozenset({0}))


def test_the_same_set_of_held_items_is_used_for_each_fire() -> None:
    case = Case.of(items=3)
    state = started(case, 0.9)
    assert state.due_soon(slot(1)) is state.held


# Without records.


def test_without_records_nothing_is_written_and_what_the_process_itself_saw_is_reported() -> None:
    case = Case.of(items=2, monitor_execution=False)
    state = started(case, 1.0)
    claim = case.begin(state)
    case.now = 4.5
    case.settle(state, claim)
    case.see(state)
    assert state.due().late == [0, 1]
    case.settle(state, case.begin(state))
    assert case.reported(0) == case.reported(1) == [(2, 3, BUSY)]
    case.configure(misfire=False)
    case.now = 7.5
    case.outages.append((4.8, 7.1))
    case.see(state)
    assert case.reported(0)[1:] == [(5, 7, AWAY)]
    assert (accounts(case), case.records) == ([], {})


def test_without_records_what_no_process_saw_is_not_reported() -> None:
    case = Case.of(monitor_execution=False)
    state = come_back(case, 20.5)
    case.give(0, ME)
    case.see(state)
    assert (case.reports, state.due().items) == ([], frozenset())
    case.now = 21.0
    case.see(state)
    assert state.due().on_time == [0]


def test_without_records_who_was_busy_when_given_an_item_owes_what_came_since_it_was_given() -> None:
    case = Case.of(items=2, monitor_execution=False)
    case.give(1, OTHER)
    state, claim = running(case)
    case.now = 2.5
    case.give(1, ME)
    case.now = 5.2
    case.settle(state, claim)
    case.see(state)
    assert 1 in state.due().items
    case.claim(state, {1}, slot(5))
    assert case.reported(1) == [(3, 4, HELD_UP)]


def test_without_records_nobody_misses_a_moment_on_a_paused_server_either() -> None:
    case = Case.of(monitor_execution=False)
    state = started(case)
    case.put(LAYOUT.server_paused("10.0.0.1"))
    for case.now in (0.8, 3.5, 9.5):
        case.see(state)
    case.drop(LAYOUT.server_paused("10.0.0.1"))
    case.now = 9.7
    case.see(state)
    case.now = 10.0
    case.see(state)
    assert state.due().on_time == [0]
    case.begin(state)
    assert case.reports == []


def test_what_the_former_holder_ran_without_records_is_not_reported_when_they_are_switched_on() -> None:
    case = Case.of(monitor_execution=False)
    case.give(0, OTHER)
    state = started(case)
    case.now = 9.5  # the other instance has run all moments so far, and nothing shows it
    case.configure(monitor_execution=True)
    case.give(0, ME)
    case.see(state)
    assert (case.reports, state.due().items) == ([], frozenset())
    case.now = 10.0
    case.see(state)
    assert state.due().on_time == [0]
    case.begin(state)
    assert case.reports == []


def test_nothing_runs_again_if_the_first_look_at_records_that_are_switched_on_is_cut_off_half_way() -> None:
    case = Case.of(monitor_execution=False, cron="0/20 * * * * ?")
    state = started(case, 20.5)
    case.settle(state, case.begin(state))
    case.now = 25.0
    case.configure(monitor_execution=True)
    case.refused = [ReadItems]
    case.see(state)
    case.see(state)
    assert (state.held, state.due().items) == (frozenset({0}), frozenset())


def test_records_count_since_they_were_switched_on_even_if_the_schedule_was_replaced_after_that() -> None:
    case = Case.of(cron="0/2 * * * * ?", misfire=False)
    case.ran(0, 0)
    for now, changes in (
        (2.5, {"monitor_execution": False}),
        (5.5, {"monitor_execution": True}),
        (9.5, {"cron": "* * * * * ?"}),
    ):
        case.now = now
        case.configure(**changes)
    case.now = 12.2
    state = started(case)
    case.begin(state)
    assert case.reported() == [(6, 8, ENDED), (10, 11, HELD_UP)]


def test_moments_that_came_during_a_run_are_reported_though_records_were_switched_off_after_it() -> None:
    case = Case.of(misfire=False)
    state, claim = running(case)
    case.now = 4.5
    case.settle(state, claim)
    case.see(state)
    case.configure(monitor_execution=False)
    case.see(state)
    assert case.reported() == [(2, 4, BUSY)]
    assert not state.due().items


# An instance that leaves.


def test_who_leaves_writes_what_it_saw_switched_off() -> None:
    case = Case.of()
    state = started(case)
    case.put(LAYOUT.paused)
    for case.now in (0.8, 5.5):
        case.see(state)
    case.leave(state)
    assert (accounted(case), case.reports) == (5.5, [])
    case.leave(state)
    assert len(accounts(case)) == 1


def test_who_leaves_drops_what_it_has_promised_and_reported() -> None:
    case = Case.of(misfire=False)
    state = ran(case, 4.5)
    assert case.record().owing
    case.leave(state)
    assert case.record().owing == ()
    assert accounted(case) == 4.0
    assert case.reported() == [(2, 4, BUSY)]


def test_who_leaves_while_items_are_being_assigned_drops_what_it_has_promised_and_reported() -> None:
    case = Case.of(misfire=False)
    state = ran(case, 4.5)
    case.put(LAYOUT.necessary)
    case.leave(state)
    assert case.record().owing == ()


def test_what_an_instance_reports_only_when_it_leaves_is_promised_first_and_dropped_then() -> None:
    case = Case.of(misfire=False)
    state = started(case)
    case.now = 2.5
    case.put(LAYOUT.paused)
    case.show_clocks(state)
    state.notice_what_is_off(case.view())
    case.now = 5.5
    case.leave(state)
    first, second = accounts(case)
    assert [one.by for _, record in first.records.values() for one in record.owing] == [ME]
    assert [record.owing for _, record in second.records.values()] == [()]
    assert case.reported() == [(1, 2, HELD_UP)]


def test_who_leaves_with_nothing_to_write_writes_nothing() -> None:
    case = Case.of(items=3)
    case.locks = {1: Lock.OTHERS}
    state = started(case, 1.0)
    case.settle(state, case.begin(state))
    case.leave(state)
    assert accounts(case) == []


def test_who_leaves_writes_nothing_of_items_that_others_run_or_hold() -> None:
    case = Case.of(items=2)
    state = started(case)
    case.put(LAYOUT.paused)
    for case.now in (0.8, 5.5):
        case.see(state)
    case.locks[0] = Lock.OTHERS
    state.read_again([0])
    case.see(state)
    case.give(1, OTHER)
    case.leave(state)
    assert accounts(case) == []


def test_the_reason_of_a_moment_is_taken_from_the_node_that_gave_the_item() -> None:
    """A date of the registry in whole milliseconds is that of the node, not of this process."""
    case = Case.of()
    case.ran(0, 1)
    node = case.nodes[LAYOUT.item(0).instance]
    case.nodes[LAYOUT.item(0).instance] = Node.of(node.data, changed(node.stat, mtime=BEGIN + 3.0))
    case.now = 5.2
    state = case.state()
    case.see(state)
    case.begin(state)
    assert case.reported() == [(2, 3, BLOCKED), (4, 4, HELD_UP)]


def test_what_an_item_owes_is_reported_when_records_are_switched_off_while_it_seems_to_run_elsewhere() -> None:
    case = Case.of(failover=False)
    case.was_cut_off(0, -2)
    case.locks[0] = Lock.OTHERS
    state = started(case)
    case.now = 3.5
    case.locks.clear()
    case.configure(monitor_execution=False)
    case.see(state)
    assert [(first, last) for first, last, _ in case.reported()] == [(1, 3)]


@pytest.mark.parametrize("is_recorded", [True, False])
def test_who_was_busy_when_given_an_item_reports_what_it_owed_when_records_are_switched(is_recorded: bool) -> None:
    case = Case.of(items=2, monitor_execution=is_recorded)
    case.give(1, OTHER)
    case.ran(1, 2)
    state, claim = running(case)
    case.now = 2.5
    case.give(1, ME)
    case.now = 5.2
    case.settle(state, claim)
    case.configure(monitor_execution=not is_recorded)
    case.see(state)
    assert case.reported(1) == [(3, 5, HELD_UP)]
    case.see(state)
    assert case.reported(1) == [(3, 5, HELD_UP)]
    assert not state.due().items


def test_what_an_item_owed_when_records_were_switched_off_is_not_reported_by_who_is_given_it_later() -> None:
    case = Case.of(items=2)
    case.give(1, OTHER)
    state, claim = running(case)
    case.now = 3.5
    case.configure(monitor_execution=False)  # then the other instance reports what has come so far
    case.now = 4.5
    case.give(1, ME)
    case.now = 5.2
    case.settle(state, claim)
    case.see(state)
    assert case.reported(1) == []
    assert 1 in state.due().items


def test_without_records_an_item_owes_nothing_that_came_before_it_was_given_by_a_clock_that_was_behind() -> None:
    case = Case.of(monitor_execution=False)
    case.give(0, OTHER)
    state = started(case, 100.0)
    case.ahead = -3600.0
    case.give(0, ME)
    case.ahead = 0.0
    case.now = 100.8
    case.see(state)
    case.now = 101.2
    case.see(state)
    assert state.due().on_time == [0]
    case.begin(state)
    assert case.reports == []


def test_an_item_that_a_clock_behind_has_dated_owes_nothing_that_came_before_the_news_of_it() -> None:
    case = Case.of(misfire=False)
    state = started(case, 100.0)
    case.ahead = -3600.0
    case.put(LAYOUT.item(1).sharding)
    case.give(1, ME)
    case.ahead = 0.0
    case.now = 120.4
    case.outages = [(118.5, 120.3)]
    case.see(state, case.view())
    assert case.reported(1) == [(119, 120, AWAY)]


def test_an_item_that_was_made_by_a_clock_that_was_behind_owes_nothing_that_came_before() -> None:
    case = Case.of()
    case.drop(LAYOUT.item(0).sharding)
    case.drop(LAYOUT.item(0).instance)
    state = started(case, 100.0)
    case.ahead = -3600.0
    case.put(LAYOUT.item(0).sharding)
    case.give(0, ME)
    case.ahead = 0.0
    case.now = 101.2
    case.see(state)
    case.begin(state)
    assert case.reports == []


def test_records_that_were_switched_off_by_a_clock_ahead_and_on_again_are_not_taken_as_off_later() -> None:
    case = Case.of()
    state = started(case)
    case.ahead = 30.0
    case.configure(monitor_execution=False)
    case.ahead = 0.0
    case.configure(monitor_execution=True)
    case.now = 1.0
    case.see(state)
    claim = case.begin(state)
    case.now = 2.5
    case.settle(state, claim)
    case.put(LAYOUT.sharding)
    case.see(state)
    assert (case.reports, state.due().late) == ([], [0])


@pytest.mark.parametrize("again", [False, True])
def test_what_an_item_owes_is_reported_when_records_are_switched_off_during_its_run(again: bool) -> None:
    case = Case.of(misfire=False, failover=False)
    state, claim = running(case)
    case.now = 3.5
    case.configure(monitor_execution=False)
    if again:
        case.now = 4.5
        case.configure(monitor_execution=True)
    case.now = 6.5
    case.settle(state, claim)
    case.see(state)
    assert case.reported()[0] == (2, 3, BUSY)
