"""The dump of a job as text."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from aioelasticjob.dump import render
from aioelasticjob.registry.tree import Node, Stat, Tree
from tests.cli.conftest import command as command
from tests.cli.conftest import root_log as root_log
from tests.support.simulated_jobs import LAYOUT
from tests.support.stats import stat

STAT = stat(version=3)
EPHEMERAL = stat(ephemeral_owner=0xABC)


def tree(nodes: dict[str, str | bytes], of: Stat = STAT) -> Tree:
    return Tree({path: Node.of(data.encode() if isinstance(data, str) else data, of) for path, data in nodes.items()})


def test_a_line_holds_path_data_owner_and_version() -> None:
    assert render(tree({"/job": "", "/job/config": "{}"}), LAYOUT) == "/job |  | v3\n/job/config | {} | v3"
    assert render(tree({"/job/x": "me"}, EPHEMERAL), LAYOUT) == "/job/x | me | ephemeral 0xabc v0"


def test_items_come_by_number_and_what_is_below_a_node_right_after_it() -> None:
    nodes = ["/job", "/job/a", "/job/a-b", "/job/a/c", "/job/s/10", "/job/s/2", "/job/s/2/x", "/job/s/abc", "/job/s"]
    shown = [line.partition(" ")[0] for line in render(tree(dict.fromkeys(nodes, "")), LAYOUT).splitlines()]
    assert shown == [
        *["/job", "/job/a", "/job/a/c", "/job/a-b", "/job/s", "/job/s/2", "/job/s/2/x", "/job/s/10", "/job/s/abc"]
    ]


@settings(deadline=None)
@given(st.lists(st.tuples(st.text(st.characters(exclude_characters="/", codec="utf-8"), min_size=1), st.binary())))
def test_whatever_a_node_holds_it_is_one_line_of_three_parts(nodes: list[tuple[str, bytes]]) -> None:
    made = tree({f"/job/{name}": data for name, data in nodes})
    text = render(made, LAYOUT)
    text.encode()
    lines = text.split("\n") if len(made) else []
    assert len(lines) == len(made)
    assert all(len(re.split(r"(?<!\\)(?:\\\\)* \| ", line)) == 3 and line.isprintable() for line in lines)


def test_strange_bytes_are_told_apart() -> None:
    assert render(tree({"/job/a": b"\xff|\\\n\xe4\xb8\xad"}), LAYOUT) == "/job/a | \\xff\\|\\\\\\n中 | v3"


def test_what_is_too_much_is_counted() -> None:
    nodes = tree({f"/job/{n:03}": "x" * 100 for n in range(50)})
    text = render(nodes, LAYOUT, limit=1000)
    assert len(text) < 1050
    assert text.endswith("… and 42 nodes more")
