"""Dates that a registry's clock gave while it was ahead: later signs correct them, so no moment is lost for them."""

from __future__ import annotations

from aioelasticjob.model import Record
from aioelasticjob.running.state import SET_BACK
from tests.running.cases import BEGIN, ME, OTHER, Case


def slot(second: int) -> int:
    return (BEGIN + second) * 1000


def known(case: Case, item: int = 0) -> set[int]:
    """Return the seconds of the moments that were reported of an item."""
    return {second for first, last, _ in case.reported(item) for second in range(first, last + 1)}


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
    case.tell(state, lambda: state.collapse(case.view(), run_late=True))
    case.see(state)
    case.now = 23.5  # so it is certain that the clock is right
    case.see(state)
    assert (14, 20, SET_BACK) in case.reported()
    assert state.owed() == {0}


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
    case.tell(state, lambda: state.collapse(case.view(), run_late=False))
    case.now, case.ahead = 5.7, 0.0
    case.give(1, ME)
    case.see(state)
    for second in (6, 7, 8):
        case.now = second + 0.2
        case.see(state)
        assert (state.owed(), state.timetable.newest) == ({1}, slot(second))
        case.claim(state, frozenset({1}), slot(second))
        case.settle(state, frozenset({1}))
    assert {6, 7, 8} <= known(case)
