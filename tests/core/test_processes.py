"""What a process says that it cannot do: read as it was written, and written anew only if it has changed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from aioelasticjob.core.layout import PROCESSES
from aioelasticjob.core.processes import (
    CLOCK_CHANGE,
    MOST_REFUSED,
    NO_PROBLEMS,
    Author,
    LostEvents,
    ProcessProblems,
    RefusedToProcess,
    UnwrittenEvents,
    is_news,
    process_status,
    refused_in,
    renewal,
)
from aioelasticjob.registry.transaction import Create, Delete, Set
from aioelasticjob.registry.tree import Node, Stat

AUTHOR = Author("10.0.0.5", "web-1", 4711, 0x10A)
NOON = 1_795_950_000.0
ALL = ProcessProblems(
    event_store=UnwrittenEvents(NOON, "the disk is full", 335),
    lost=LostEvents(12, NOON - 60, NOON - 30),
    clock_differs=300.2,
    refused=(RefusedToProcess("to settle items", "no permission", NOON, "report", 3),),
)


def node_with(data: bytes, version: int = 0) -> Node:
    return Node.of(data, Stat.of((1, 2), (NOON, NOON), version, 0x10A))


def test_a_note_is_read_as_it_was_written() -> None:
    (made,) = renewal(AUTHOR, node_with(b""), None, ALL)
    assert isinstance(made, Create)
    assert made.path == f"{PROCESSES}/10.0.0.5@-@4711-10a"
    assert made.ephemeral
    read = process_status("10.0.0.5@-@4711-10a", node_with(made.data))
    assert (read.ip, read.host, read.pid, read.incarnation) == ("10.0.0.5", "web-1", 4711, 0x10A)
    assert read.problems == ALL
    assert read.name == "process 4711 on web-1"


def test_nothing_is_written_while_all_is_well_and_a_note_is_removed_when_all_is_well_again() -> None:
    assert renewal(AUTHOR, None, None, NO_PROBLEMS) == []
    assert renewal(AUTHOR, node_with(b""), node_with(b"{}", 7), NO_PROBLEMS) == [Delete(AUTHOR.path, 7)]


def test_the_first_note_of_all_makes_the_parent_and_a_later_one_replaces_what_was_seen() -> None:
    first = renewal(AUTHOR, None, None, ALL)
    assert first[0] == Create(PROCESSES)
    (later,) = renewal(AUTHOR, node_with(b""), node_with(b"{}", 3), ALL)
    assert isinstance(later, Set)
    assert later.version == 3


@pytest.mark.parametrize(
    ("changed", "news"),
    [
        (ALL, False),
        (replace(ALL, clock_differs=300.2 + CLOCK_CHANGE), False),
        (replace(ALL, clock_differs=302.0), True),
        (replace(ALL, clock_differs=None), True),
        (replace(ALL, event_store=UnwrittenEvents(NOON, "the disk is full", 350)), False),
        (replace(ALL, event_store=UnwrittenEvents(NOON, "the disk is full", 400)), True),
        (replace(ALL, event_store=UnwrittenEvents(NOON, "it does not answer", 335)), True),
        (replace(ALL, event_store=None), True),
        (replace(ALL, lost=LostEvents(13, NOON - 60, NOON)), False),
        (replace(ALL, lost=LostEvents(99, NOON - 60, NOON)), True),
        (replace(ALL, refused=()), True),
    ],
)
def test_small_changes_are_no_news(changed: ProcessProblems, news: bool) -> None:
    assert is_news(ALL, changed) is news


def test_what_is_refused_in_several_jobs_is_said_once_the_oldest_first() -> None:
    found = refused_in(
        {"a": [("to lead", "no", NOON)], "b": [("to lead", "never", NOON - 5), ("to join", "no", NOON - 9)]}
    )
    assert found == (
        RefusedToProcess("to join", "no", NOON - 9, "b", 1),
        RefusedToProcess("to lead", "no", NOON - 5, "a", 2),
    )
    many = refused_in({"a": [(f"to do {n}", "no", NOON) for n in range(50)]})
    assert len(many) == MOST_REFUSED


def test_each_problem_is_one_sentence() -> None:
    assert ALL.sentences() == (
        "its event store has not been written since 2026-11-29T11:00:00+00:00, 335 events wait: the disk is full",
        "the event store lacks 12 events from 2026-11-29T10:59:00+00:00 to 2026-11-29T10:59:30+00:00, which are lost",
        "its clock is 300.2 s ahead of the registry's, so its jobs use the registry's time",
        "the registry has refused it to settle items since 2026-11-29T11:00:00+00:00 (report and 2 more jobs):"
        " no permission",
    )
    assert NO_PROBLEMS.sentences() == ()
    assert not NO_PROBLEMS


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"not JSON",
        json.dumps({"eventStore": 5, "lost": [], "clockDiffers": "much", "refused": {"what": "all"}}).encode(),
        json.dumps({"eventStore": {"since": 1e300}, "lost": {"first": -1, "last": 5}, "refused": [7, {}]}).encode(),
    ],
)
def test_what_somebody_has_written_by_hand_is_no_problem_if_it_makes_no_sense(data: bytes) -> None:
    status = process_status("by-hand", node_with(data))
    assert not status.problems
    assert status.problems.sentences() == ()
