"""A soak accepts no log line without a cause."""

from __future__ import annotations

from datetime import datetime

import pytest

from benchmarks.soak_causes import CAUSES, MEMBER
from benchmarks.soak_log import (
    BEFORE,
    BUSY,
    END,
    START,
    Cause,
    DeedSpan,
    LogLine,
    complaints,
    deed_spans,
    examine,
)
from tests.simulation.history import Fault, Started, Stopped

NOON = datetime.fromisoformat("2026-11-23 12:00:00").timestamp()
LOST = "the connection to the registry was lost: closed by the server"
LOG = f"""runs /somewhere
2026-11-23 12:00:01,000 aioelasticjob.running.life INFO joined
2026-11-23 12:00:02,500 aioelasticjob.registry.session_keeper WARNING {LOST}
2026-11-23 12:00:03,000 aioelasticjob.error_handlers ERROR item failed
Traceback (most recent call last):
OSError: no
"""


def test_lines_at_warning_or_above_are_found_with_their_times() -> None:
    assert list(complaints(LOG, "worker", NOON)) == [
        LogLine(NOON + 2.5, "worker", "WARNING", LOST),
        LogLine(NOON + 3, "worker", "ERROR", "item failed"),
    ]


def test_the_consoles_lines_have_no_day_and_midnight_comes() -> None:
    evening = datetime.fromisoformat("2026-11-23 23:59:00").timestamp()
    (line,) = complaints("00:00:30.250 WARNING the registry is gone  registry=jobs", "console", evening)
    assert line == LogLine(evening + 90.25, "console", "WARNING", "the registry is gone  registry=jobs")


@pytest.mark.parametrize("text", ["Traceback (most recent call last):", "x.py:3: ResourceWarning: unclosed"])
def test_a_complaint_without_a_format_is_found(text: str) -> None:
    (found,) = complaints(f"The console is at http://localhost\n{text}\n", "console", NOON)
    assert found.text == text


@pytest.mark.parametrize(("at", "explained"), [(9 - 2 * BEFORE, False), (9, True), (14, True), (19, True), (25, False)])
def test_a_line_is_explained_by_a_deed_that_was_done_then(at: float, explained: bool) -> None:
    cause = Cause("a member restarts", "was lost", (MEMBER,), longer=5)
    found = examine([LogLine(at, "worker", "WARNING", LOST)], [DeedSpan(MEMBER, 10, 15)], [cause])
    assert found.explained.total() == explained
    assert len(found.unexplained) == (not explained)


def test_another_deed_or_another_line_explains_nothing() -> None:
    lost, other = LogLine(12, "worker", "WARNING", LOST), LogLine(12, "worker", "WARNING", "out of memory")
    assert examine([lost], [DeedSpan("kill-worker", 10, 15)], CAUSES).unexplained == [lost]
    assert examine([other], [DeedSpan(kind, 10, 15) for kind in (MEMBER, START, END, BUSY)], CAUSES).unexplained == [
        other
    ]


def test_deeds_last_from_the_fault_to_its_mending() -> None:
    entries = [
        Started(1, "a", "host"),
        Fault(2, MEMBER, ("1",), detail="1"),
        Fault(3, "kill-worker", ("a",), detail="a"),
        Fault(4, MEMBER, ("1",), over=True, detail="1"),
        Stopped(50, "a", "host", "left"),
    ]
    found = {span.kind: span for span in deed_spans(entries)}
    assert (found[MEMBER].start, found[MEMBER].stop) == (2, 4)
    assert found["kill-worker"].stop == float("inf")
    assert found[START].start == 1
    assert found[END].stop == 50
