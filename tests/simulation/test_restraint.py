"""The rule that no node is written over and over notices it, and nothing less."""

from __future__ import annotations

from tests.simulation.facts import Facts
from tests.simulation.history import Entry
from tests.simulation.judges.restraint import MOST, no_node_is_written_over_and_over
from tests.simulation.test_conduct import history_of
from tests.simulation.test_invariants import gone, put, written

MARK = "leader/failover/items/0"


def named(*entries: Entry) -> list[str]:
    return [violation.text for violation in no_node_is_written_over_and_over(Facts(history_of(*entries)))]


def undone(times: int, pause: float, path: str = MARK) -> list[Entry]:
    changes = put(path, "{}"), gone(path)
    return [written(12 + number * pause, 1 + number % 2, changes[number % 2]) for number in range(times)]


def test_instances_that_undo_what_the_others_do_are_noticed_once() -> None:
    (text,) = named(*undone(3 * MOST, 0.001))
    assert text == f"/job/{MARK} has changed {MOST + 1} times within a second"


def test_a_node_may_change_often_in_the_course_of_time() -> None:
    assert not named(*undone(MOST, 0.001))
    assert not named(*undone(3 * MOST, 1.01 / MOST))
    assert not named(*undone(3 * MOST, 0.001, "guarantee"))
