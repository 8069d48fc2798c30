"""One value says how far the end of a job has come, and why."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from aioelasticjob.engine.ending import Ending, Stage

TRANSITIONS: list[Callable[[Ending], Ending]] = [
    Ending.with_process,
    lambda ending: ending.dismissed("an operator has asked for it"),
    Ending.given_up,
    Ending.gone,
]


@given(st.lists(st.sampled_from(TRANSITIONS)))
def test_no_stage_is_followed_by_an_earlier_one_and_no_reason_is_lost(
    transitions: list[Callable[[Ending], Ending]],
) -> None:
    ending = Ending()
    for transition in transitions:
        before = ending
        ending = transition(before)
        assert ending.stage >= before.stage
        assert ending.process_stops >= before.process_stops
        assert bool(ending.dismissal) >= bool(before.dismissal)


def test_a_job_leaves_for_either_reason_and_does_not_come_back() -> None:
    assert not Ending().leaves
    for leaving in (Ending().with_process(), Ending().dismissed("an operator has asked for it")):
        assert leaving.leaves
        assert leaving.stage is Stage.LEAVES
        assert leaving.gone().stage is Stage.GONE
        assert leaving.gone().given_up().stage is Stage.GONE


def test_both_reasons_to_leave_are_kept() -> None:
    ending = Ending().dismissed("the job was removed").with_process()
    assert (ending.leaves, ending.process_stops, ending.dismissal) == (True, True, "the job was removed")


def test_nobody_waits_for_a_job_that_has_left_or_that_its_process_has_given_up() -> None:
    leaving = Ending().with_process()
    assert leaving.is_awaited
    assert not leaving.given_up().is_awaited
    assert not leaving.gone().is_awaited
