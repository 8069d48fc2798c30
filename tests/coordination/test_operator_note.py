"""Who has acted is known only of the action that was noted, and what others write there harms nothing."""

from __future__ import annotations

import pytest

from aioelasticjob.coordination.operator_note import (
    ANYBODY,
    MAX_NAME,
    MAX_PATHS,
    decode_note,
    encode_note,
    shown_name,
    who_acted,
)
from aioelasticjob.registry.tree import Node, Stat

PAUSED = "/job/leader/paused"


def node(data: bytes, zxid: int = 7) -> Node:
    return Node.of(data, Stat.of((1, zxid), (0, 0), 0))


def test_an_action_is_that_of_the_note_that_was_written_with_it() -> None:
    after = node(encode_note("anna@desk", [PAUSED]))
    assert who_acted(PAUSED, None, after) == "anna@desk"
    assert who_acted(PAUSED, node(b"", 6), after) == "anna@desk"
    assert who_acted(PAUSED, after, after) == ""  # somebody else has acted since, without a note
    assert who_acted("/job/config", None, after) == ""
    assert who_acted(PAUSED, None, None) == ""


def test_of_many_nodes_only_their_parents_are_noted() -> None:
    asked = [f"/job/trigger/{number}" for number in range(1000)]
    after = node(encode_note("anna", asked))
    assert len(after.data) < 100
    assert who_acted(asked[-1], None, after) == "anna"
    everywhere = node(encode_note("anna", [f"/job{number}/servers/ip/paused" for number in range(1000)]))
    note = decode_note(everywhere)
    assert note is not None
    assert len(note.paths) == MAX_PATHS


@pytest.mark.parametrize("data", [b"", b"x", b"[]", b"{}", b'{"by": 1, "paths": []}', b'{"by": "a", "paths": [1]}'])
def test_what_is_no_note_names_nobody(data: bytes) -> None:
    assert who_acted(PAUSED, None, node(data)) == ""


def test_a_name_is_shown_short_and_on_one_line() -> None:
    assert shown_name("anna\nERROR all is lost") == "annaERROR all is lost"
    assert len(shown_name("x" * 1000)) == MAX_NAME
    assert shown_name("") == ANYBODY
