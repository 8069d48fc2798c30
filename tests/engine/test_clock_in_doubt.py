"""What an instance decides while nobody knows whether the registry's clock was set back by mistake."""

from __future__ import annotations

import pytest

from aioelasticjob.core.clock_skew import ClockSkewMonitor
from aioelasticjob.core.missed import WAITED
from aioelasticjob.core.state import BUSY, ENDED, Came
from aioelasticjob.core.step import JobState
from aioelasticjob.model import ClockReading, Record
from tests.core.cases import BEGIN, LAYOUT, ME, OTHER, Case

HOUR = 3600.0


def slot(second: int) -> int:
    return (BEGIN + second) * 1000


def running(case: Case) -> JobState:
    """Return the state of an instance that runs item 0 for the moment 3."""
    state = case.state()
    case.see(state)
    case.now = 3.0
    case.see(state)
    case.claim(state, frozenset({0}), slot(3))
    state.items.ran([0], slot(3))
    return state


def test_moments_that_came_while_the_instance_waited_for_a_clock_set_back_are_not_blamed_on_a_slow_process() -> None:
    case = Case.of(cron="1/3 * * * * ?")
    state = running(case)
    case.settle(state, frozenset({0}))
    case.ahead = -HOUR
    for second in range(5, 17):
        case.now = second + 0.5
        case.see(state)
    hour = int(HOUR)
    assert case.reported() == [(6 - hour, 12 - hour, WAITED)]
    assert state.claimable() == {0}  # the newest is run late
    case.claim(state, frozenset({0}), slot(15 - hour))
    state.items.ran([0], slot(15 - hour))
    case.settle(state, frozenset({0}))
    case.now = 25.5
    case.see(state)
    assert case.reported()[1:] == [(18 - hour, 21 - hour, Came.HELD_UP.value.why)]  # now nobody has waited


def test_moments_that_come_again_were_neither_skipped_nor_waited_for() -> None:
    clock = ClockSkewMonitor(ClockReading(BEGIN, 0.0))
    for now, ahead in ((1.0, HOUR), (2.0, 0.0), (13.0, 0.0), (14.0, -HOUR)):
        clock.take(ClockReading(BEGIN + now + ahead, now))
        clock.is_set_back()
    assert (clock.skipped, len(clock.waits)) == ((), 1)
    clock.take(ClockReading(BEGIN + 25.0 - HOUR, 25.0))
    assert clock.is_set_back()
    assert clock.waits == ((slot(14) - int(HOUR) * 1000, slot(25) - int(HOUR) * 1000),)


def test_the_old_schedules_moments_are_reported_though_the_clock_was_set_back_when_its_end_is_seen() -> None:
    case = Case.of(cron="1/3 * * * * ?")
    state = running(case)
    case.now = 14.5
    case.configure(cron="1/10 * * * * ?")
    case.now, case.ahead = 15.5, -HOUR
    case.settle(state, frozenset({0}))
    case.see(state)
    case.now, case.ahead = 21.0, 0.0
    case.see(state)
    assert case.reported() == [(6, 12, ENDED)]
    assert state.claimable() == {0}


def test_an_item_given_away_during_a_run_is_reported_for_the_old_schedule_though_the_clock_was_set_back() -> None:
    case = Case.of(cron="1/3 * * * * ?")
    state = running(case)
    case.now = 13.5
    case.configure(cron="1/10 * * * * ?")
    case.give(0, OTHER)
    case.now, case.ahead = 15.5, -HOUR
    case.settle(state, frozenset({0}))
    case.tell(state, lambda: state.run_ended(case.view()))
    case.see(state)
    assert [report[:2] for report in case.reported()] == [(6, 9), (12, 12)]
    assert case.reported()[0][2] == BUSY


def test_what_was_due_when_records_are_switched_on_is_reported_though_the_clock_was_set_back() -> None:
    case = Case.of(cron="1/3 * * * * ?", monitor_execution=False)
    state = running(case)
    case.now = 14.5
    case.configure(monitor_execution=True)
    case.now, case.ahead = 15.5, -HOUR
    case.see(state)
    assert case.reported()[0][:2] == (6, 12)


def test_a_date_by_a_clock_ahead_is_not_believed_because_the_clock_was_set_back_too_far_since() -> None:
    case = Case.of(cron="1/3 * * * * ?")
    state = running(case)
    case.now, case.ahead = 10.0, 30.0
    case.configure(cron="* * * * * ?")  # dated 40
    case.now, case.ahead = 12.5, -HOUR
    case.settle(state, frozenset({0}))
    case.see(state)
    case.now, case.ahead = 14.0, 0.0
    case.see(state)
    assert state.claimable() == {0}


def test_what_a_clock_ahead_passed_over_hides_no_moment_of_a_new_schedule_that_has_yet_to_come() -> None:
    case = Case.of(cron="1/3 * * * * ?")
    state = running(case)
    case.settle(state, frozenset({0}))
    disabled = LAYOUT.item(0).disabled
    case.put(disabled)
    case.now, case.ahead = 5.5, 30.0
    case.see(state)
    case.now, case.ahead = 6.5, 0.0
    case.see(state)
    case.drop(disabled)
    case.see(state)
    case.now = 8.5
    case.configure(cron="0/2 * * * * ?")
    case.see(state)
    case.now = 18.0  # so it is certain that the clock is right
    case.see(state)
    assert max([last for _, last, _ in case.reported()], default=0) < 18
    assert state.claimable() == {0}


def test_what_was_reported_is_not_run_because_the_item_was_switched_off_for_a_while() -> None:
    case = Case.of(misfire=False)
    state = running(case)
    case.now, case.ahead = 5.0, 30.0
    case.settle(state, frozenset({0}))
    case.tell(state, lambda: state.run_ended(state.view))
    assert case.reported()[-1][1] == 35
    for case.now, case.ahead in [(6.0, 0.0), (17.0, 0.0)]:  # so it is certain that the clock is right
        case.see(state)
    case.put(LAYOUT.item(0).disabled)
    case.now = 18.0
    case.see(state)
    case.drop(LAYOUT.item(0).disabled)
    for case.now in (20.0, 35.0):
        case.see(state)
        assert not state.claimable()
    case.now = 36.0
    case.see(state)
    assert state.claimable() == {0}


@pytest.mark.parametrize("looks", [[13.4], [11.0, 13.4]], ids=["after", "before"])
def test_what_an_item_missed_until_the_time_comes_where_it_was_is_reported_whenever_somebody_looks(
    looks: list[float],
) -> None:
    case = Case.of(2)
    case.give(1, OTHER)
    state = running(case)
    case.settle(state, frozenset({0}))
    case.now, case.ahead = 5.0, 8.0
    case.see(state)  # at 13
    case.now, case.ahead = 6.0, 0.0
    case.see(state)
    case.now = 7.2
    case.records[1] = Record(slot(3), "CRON", OTHER)
    case.give(1, ME)
    case.see(state)
    for case.now in looks:
        case.see(state)
    spans = [report[:2] for report in case.reported(1)]
    assert [second for first, last in spans for second in range(first, last + 1)] == [*range(4, int(looks[-1]))]
    assert 1 in state.claimable()


def test_a_clock_that_is_put_nearly_right_in_two_steps_is_not_in_doubt_any_more() -> None:
    clock = ClockSkewMonitor(ClockReading(BEGIN, 0.0))
    for second, skew in ((1.0, 2.5), (2.0, 1.5)):  # the second change is less than a jump
        clock.take(ClockReading(BEGIN + second, second, skew))
    assert (clock.may_be_set_back, clock.latest - clock.now) == (False, 0)


def test_what_the_time_was_is_known_to_the_millisecond_after_it_was_set() -> None:
    back, ahead = (
        ClockSkewMonitor(ClockReading(BEGIN + 0.0015, 0.0)),
        ClockSkewMonitor(ClockReading(BEGIN + 0.0007, 0.0)),
    )
    before = back.now
    back.take(ClockReading(BEGIN + 0.0015 - 5.0008, 0.0))
    assert back.latest == before == BEGIN * 1000 + 1
    ahead.take(ClockReading(BEGIN + 1.0007 + 5.0008, 1.0))
    assert ahead.skipped == ((slot(1), slot(6) + 1),)


def test_a_step_back_after_a_jump_ahead_is_the_newest_setting() -> None:
    clock = ClockSkewMonitor(ClockReading(BEGIN, 0.0))
    for second, ahead in ((1.0, 100.0), (5.0, 97.0)):
        clock.take(ClockReading(BEGIN + second + ahead, second))
    assert clock.since == clock.set_to == slot(102)


@pytest.mark.parametrize(
    ("zxid", "date", "corrected"),
    [(5, 53, 53), (5, 58, 51), (7, 58, 58), (7, 70, 51), (8, 70, 70), (8, 99, 51)],
    ids=["made before, past", "made before", "noticed, past", "noticed", "later, past", "later"],
)
def test_a_date_is_corrected_if_it_lay_in_the_future_when_its_transaction_was_known_first(
    zxid: int, date: int, corrected: int
) -> None:
    clock = ClockSkewMonitor(ClockReading(BEGIN + 100, 100.0, zxid=5))
    clock.take(ClockReading(BEGIN + 60, 110.0, gap=9.0, zxid=7))  # it was set back after 51
    clock.take(ClockReading(BEGIN + 80, 130.0, zxid=9))
    assert clock.is_set_back()
    assert clock.in_time(slot(date), zxid) == slot(corrected)


@pytest.mark.parametrize("what", ["schedule", "item"])
def test_what_was_excused_while_the_clock_was_ahead_is_not_owed_from_before_the_schedule_or_the_item(what: str) -> None:
    case, disabled = Case.of(cron="0/2 * * * * ?"), LAYOUT.item(0).disabled
    if what == "item":
        case.give(0, OTHER)
    state = case.state()
    case.see(state)
    for case.now, case.ahead in [(0.7, 0.0), (1.0, 30.0)]:
        case.put(disabled)
        case.see(state)
    case.now, case.ahead = 1.5, 0.0
    case.see(state)
    case.drop(disabled)
    case.now = 6.5  # when it is not certain yet that the clock was set back
    if what == "schedule":
        case.configure(cron="1/2 * * * * ?")
    else:
        case.drop(LAYOUT.item(0).sharding)
        case.put(LAYOUT.item(0).sharding)
        case.give(0, ME)
    case.see(state)
    case.now = 14.5
    case.see(state)
    newest = state.timetable.newest // 1000 - BEGIN
    assert (state.claimable(), newest) == ({0}, 13 if what == "schedule" else 14)
    assert [report[:2] for report in case.reported()] == [(7, 11) if what == "schedule" else (8, 12)]
