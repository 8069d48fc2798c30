"""The journal's checker finds what it is there to find."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.run_journal import JournalWriter, Line, What, WorkerEvents, check, read

A, B = 1, 2
"""Processes."""


def line(what: What, pid: int, at: float, slot: float, fence: int, *, reborn: bool = False) -> Line:
    return Line(what, pid, at, f"{pid}{'-again' * reborn}", 0, slot, "SCHEDULE", fence)


def misfire(pid: int, slot: float) -> Line:
    return Line("misfire", pid, slot, slot=slot)


GOOD = [
    line("begin", A, 1.0, 1, 10),
    line("end", A, 1.5, 1, 10),
    line("begin", A, 2.0, 2, 12),
    line("end", A, 2.5, 2, 12),
]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    assert read(path) == []
    JournalWriter(path).write("begin", item=3, slot=5.0)
    (one,) = read(path)
    assert (one.what, one.item, one.slot) == ("begin", 3, 5.0)


def test_a_good_journal_passes() -> None:
    (of_item,) = check(GOOD, WorkerEvents()).values()
    assert [(run.first.slot, run.until) for run in of_item] == [(1, 1.5), (2, 2.5)]


def test_a_killed_and_a_stopped_run_are_over() -> None:
    unfinished = [GOOD[0], line("begin", B, 5.0, 5, 12), line("end", B, 5.5, 5, 12)]
    check(unfinished, WorkerEvents(killed={A: 4.0}))
    zombie = [*unfinished, line("end", A, 7.0, 1, 10), line("begin", A, 8.0, 8, 14, reborn=True)]
    check(zombie, WorkerEvents(stopped={A: (1.2, 6.0)}))


@pytest.mark.parametrize(
    ("lines", "fates", "message"),
    [
        ([GOOD[0], line("begin", B, 1.2, 2, 12)], WorkerEvents(), "two runners"),
        ([GOOD[0], line("begin", B, 1.2, 2, 12)], WorkerEvents(killed={A: 1.3}), "two runners"),
        ([*GOOD[:2], line("begin", B, 2.0, 1, 12)], WorkerEvents(), "run twice"),
        ([*GOOD[:2], line("begin", B, 2.0, 2, 9)], WorkerEvents(), "fence does not grow"),
        ([*GOOD[:2], line("begin", A, 5.0, 5, 12)], WorkerEvents(), "lost without a word"),
        ([*GOOD[:2], misfire(B, 4), line("begin", A, 5.0, 5, 12)], WorkerEvents(), "lost without a word"),
        ([*GOOD[:2], line("begin", B, 9.0, 9, 12)], WorkerEvents(), "lost in handing over"),
        ([*GOOD[:2], misfire(A, 8), line("begin", B, 9.0, 9, 12)], WorkerEvents(), "lost in handing over"),
        ([GOOD[0], line("begin", A, 1.2, 2, 12)], WorkerEvents(), "begins within"),
        (
            [*GOOD[:2], line("begin", A, 9.0, 9, 12)],
            WorkerEvents(stopped={A: (1.6, 8.0)}),
            "lost without a word|began something",
        ),
        ([GOOD[0], line("begin", B, 5, 5, 9), line("end", A, 9, 1, 10)], WorkerEvents(stopped={A: (1.2, 8)}), "fence"),
    ],
)
def test_a_broken_promise_is_found(lines: list[Line], fates: WorkerEvents, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check(lines, fates)


def test_a_reported_misfire_is_not_lost() -> None:
    check([*GOOD[:2], misfire(A, 5), line("begin", A, 5.0, 5, 12)], WorkerEvents())
    check([*GOOD[:2], misfire(B, 8), line("begin", B, 9.0, 9, 12)], WorkerEvents())
