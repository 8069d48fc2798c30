"""A soak accepts no log line without a cause."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from aioelasticjob.core.reasons import GONE, OURS
from tests.chaos.stage import LEAVE, RECOVERED
from tests.soak.causes import CAUSES, MEMBER
from tests.soak.log import BEFORE, BUSY, ActionSpan, Cause, LogLine, action_spans, examine, problem_lines
from tests.support.history import Fault
from tests.support.worker_journal import START

NOON = datetime.fromisoformat("2026-11-23 12:00:00").timestamp()
LOST = "the connection to the registry was lost: closed by the server"
LOG = f"""runs /somewhere
2026-11-23 12:00:01,000 aioelasticjob.engine.life INFO joined
2026-11-23 12:00:02,500 aioelasticjob.registry.session_keeper WARNING {LOST}
2026-11-23 12:00:03,000 aioelasticjob.error_handlers ERROR item failed
Traceback (most recent call last):
OSError: no
"""


def test_lines_at_warning_or_above_are_found_with_their_times() -> None:
    assert list(problem_lines(LOG, "worker", NOON)) == [
        LogLine(NOON + 2.5, "worker", "WARNING", LOST),
        LogLine(NOON + 3, "worker", "ERROR", "item failed"),
    ]


def test_the_consoles_lines_say_their_offset() -> None:
    (line,) = problem_lines("2026-11-23T12:00:30.250+00:00 WARNING the registry is gone", "console", 0.0)
    at = datetime.fromisoformat("2026-11-23T12:00:30.250+00:00").timestamp()
    assert line == LogLine(at, "console", "WARNING", "the registry is gone")


def test_lines_may_have_no_day_and_midnight_comes() -> None:
    evening = datetime.fromisoformat("2026-11-23 23:59:00").timestamp()
    (line,) = problem_lines("00:00:30.250 WARNING the registry is gone  registry=jobs", "console", evening)
    assert line == LogLine(evening + 90.25, "console", "WARNING", "the registry is gone  registry=jobs")


@pytest.mark.parametrize("text", ["Traceback (most recent call last):", "x.py:3: ResourceWarning: unclosed"])
def test_a_problem_without_a_format_is_found(text: str) -> None:
    (found,) = problem_lines(f"The console is at http://localhost\n{text}\n", "console", NOON)
    assert found.text == text


@pytest.mark.parametrize(("at", "explained"), [(9 - 2 * BEFORE, False), (9, True), (14, True), (19, True), (25, False)])
def test_a_line_is_explained_by_a_deed_that_was_done_then(at: float, explained: bool) -> None:
    cause = Cause("a member restarts", "was lost", anyones=(MEMBER,), longer=5)
    found = examine([LogLine(at, "worker", "WARNING", LOST)], [ActionSpan(MEMBER, "1", 10, 15)], [cause])
    assert found.explained.total() == explained
    assert len(found.unexplained) == (not explained)


def test_another_deed_or_another_line_explains_nothing() -> None:
    lost, other = LogLine(12, "worker", "WARNING", LOST), LogLine(12, "worker", "WARNING", "out of memory")
    assert examine([lost], [ActionSpan("kill-worker", "worker", 10, 15)], CAUSES).unexplained == [lost]
    actions = [ActionSpan(kind, "worker", 10, 15) for kind in (MEMBER, START, LEAVE, BUSY)]
    assert examine([other], actions, CAUSES).unexplained == [other]


@pytest.mark.parametrize("busy", ["worker-1.2", "worker-2.1"])
def test_what_a_process_waited_for_explains_no_line_of_another_process(busy: str) -> None:
    blocked = LogLine(12, "worker-1.2", "ERROR", "the event loop has been blocked for 0.7 s")
    found = examine([blocked], [ActionSpan(BUSY, busy, 11, 11.5)], CAUSES)
    assert found.explained.total() == (busy == "worker-1.2")


def missed(at: float, moment: float, why: str, process: str = "worker-1.2") -> LogLine:
    when = datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")
    return LogLine(at, process, "WARNING", f"stream-1: item 0 missed the run of {when}: {why}")


@pytest.mark.parametrize(
    "why", ["the assignment of items was being changed", GONE.format("10.0.0.5@-@4711-0a1b2c3d"), OURS]
)
def test_a_missed_moment_is_explained_by_what_was_done_from_before_it_to_its_report(why: str) -> None:
    line = missed(NOON + 60, NOON, why)
    assert line.since == NOON
    assert LogLine(NOON, "worker-1.2", "WARNING", LOST).since == NOON
    for at, explained in ((NOON - 2 * RECOVERED, False), (NOON - 1, True), (NOON + 59, True), (NOON + 70, False)):
        found = examine([line], [ActionSpan("kill-worker", "worker-2.1", at, at)], CAUSES)
        assert found.explained.total() == explained


def test_a_line_that_has_a_cause_may_be_the_cause_of_others() -> None:
    lost = LogLine(NOON, "worker-1.2", "WARNING", LOST)
    own = missed(NOON + 9, NOON + 5, "the registry could not be reached")
    others = missed(NOON + 9, NOON + 5, "the registry could not be reached", process="worker-2.1")
    restart = ActionSpan(MEMBER, "1", NOON - 1, NOON)
    assert examine([lost, own, others], [restart], CAUSES).unexplained == [others]
    assert examine([lost, own, others], [], CAUSES).unexplained == [lost, own, others]


def test_a_registry_that_closes_the_first_connection_is_a_member_that_restarts() -> None:
    reason = "closed by the server before it answered"
    text = f"the registry at zk://a:1/soak does not answer ({reason}): it is tried for 20 s in all"
    line = LogLine(12, "worker-1.2", "WARNING", text)
    assert not examine([line], [ActionSpan(MEMBER, "1", 10, 15)], CAUSES).unexplained
    assert examine([line], [ActionSpan(START, "worker-1.2", 10, 15)], CAUSES).unexplained == [line]


def test_a_run_that_fails_on_purpose_needs_a_worker_that_leaves_unless_it_is_attempted_again() -> None:
    again = "retried-1: item 0: attempt 1 of 3 failed: OnPurpose: failed on purpose; the next one begins in 0.1 s"
    assert not examine([LogLine(12, "worker-1.2", "WARNING", again)], [], CAUSES).unexplained
    last = LogLine(12, "worker-1.2", "ERROR", "retried-1: item 0 after 2 attempts failed: OnPurpose: failed on purpose")
    assert examine([last], [], CAUSES).unexplained == [last]
    assert not examine([last], [ActionSpan(LEAVE, "worker-1.2", 11, 13)], CAUSES).unexplained


def test_deeds_last_from_the_fault_to_its_mending() -> None:
    entries = [
        Fault(1, START, ("worker-1.1",)),
        Fault(2, MEMBER, ("1",)),
        Fault(3, "restart-worker", ("worker-1.1",)),
        Fault(4, MEMBER, ("1",), over=True),
        Fault(5, "restart-worker", ("worker-1.2",), over=True),
        Fault(6, "kill-worker", ("worker-2.1",)),
        Fault(7, START, ("worker-1.2",)),
        Fault(9, START, ("worker-1.2",), over=True),
    ]
    spans = action_spans(entries)
    found = {span.kind: span for span in spans}
    assert found[MEMBER] == ActionSpan(MEMBER, "1", 2, 4)
    assert found["restart-worker"] == ActionSpan("restart-worker", "worker-1.1", 3, 5)
    assert found["kill-worker"] == ActionSpan("kill-worker", "worker-2.1", 6, float("inf"))
    first, second = (span for span in spans if span.kind == START)
    assert first == ActionSpan(START, "worker-1.1", 1, 7)  # it ended before all its jobs had joined
    assert second == ActionSpan(START, "worker-1.2", 7, 9)


def test_the_line_that_counts_those_about_a_connection_is_explained_by_what_broke_it() -> None:
    kind = "the connection to the registry at zk://h:1/soak comes and goes"
    text = f"80 more lines were left out: {kind}; the newest: connected to it"
    actions = [ActionSpan(MEMBER, "1", 10, 15)]
    assert not examine([LogLine(70, "worker", "WARNING", text)], actions, CAUSES).unexplained
    assert examine([LogLine(200, "worker", "WARNING", text)], actions, CAUSES).unexplained
