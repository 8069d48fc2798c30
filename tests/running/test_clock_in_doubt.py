"""What an instance decides while nobody knows whether the registry's clock was set back by mistake."""

from __future__ import annotations

from aioelasticjob.running.step import JobState
from tests.running.cases import BEGIN, LAYOUT, Case


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


def test_what_was_reported_is_not_run_because_the_item_was_switched_off_for_a_while() -> None:
    case = Case.of(misfire=False)
    state = running(case)
    case.now, case.ahead = 5.0, 30.0
    case.settle(state, frozenset({0}))
    case.tell(state, lambda: state.collapse(state.view, run_late=False))
    assert case.reported()[-1][1] == 35
    for case.now, case.ahead in [(6.0, 0.0), (17.0, 0.0)]:  # so it is certain that the clock is right
        case.see(state)
    case.put(LAYOUT.item(0).disabled)
    case.now = 18.0
    case.see(state)
    case.drop(LAYOUT.item(0).disabled)
    for case.now in (20.0, 35.0):
        case.see(state)
        assert not state.owed()
    case.now = 36.0
    case.see(state)
    assert state.owed() == {0}
