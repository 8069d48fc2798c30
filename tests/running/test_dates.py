"""Dates that a registry's clock gave while it was ahead: later signs correct them, so no moment is lost for them."""

from __future__ import annotations

from aioelasticjob.model import Record
from tests.running.cases import BEGIN, ME, OTHER, Case


def slot(second: int) -> int:
    return (BEGIN + second) * 1000


def known(case: Case, item: int = 0) -> set[int]:
    """Return the seconds of the moments that were reported of an item."""
    return {second for first, last, _ in case.reported(item) for second in range(first, last + 1)}


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
