"""The dump of a job as text."""

from __future__ import annotations

import re

from anyio import create_task_group
from anyio.lowlevel import checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st

from aioelasticjob import testing
from aioelasticjob.core.layout import Layout
from aioelasticjob.engine.dump import lines, render
from aioelasticjob.registry.tree import Node, Stat, Tree
from tests.cli.conftest import command as command
from tests.cli.conftest import root_log as root_log
from tests.support.simulated_jobs import LAYOUT
from tests.support.stats import stat

STAT = stat(version=3)
EPHEMERAL = stat(ephemeral_owner=0xABC)


def text_of(nodes: Tree, layout: Layout, *, masked: bool = False, limit: int | None = None) -> str:
    return "\n".join(lines(nodes, layout, masked=masked, limit=limit))


def tree(nodes: dict[str, str | bytes], of: Stat = STAT) -> Tree:
    return Tree({path: Node.of(data.encode() if isinstance(data, str) else data, of) for path, data in nodes.items()})


def test_a_line_holds_path_data_owner_and_version() -> None:
    assert text_of(tree({"/job": "", "/job/config": "{}"}), LAYOUT) == "/job |  | v3\n/job/config | {} | v3"
    assert text_of(tree({"/job/x": "me"}, EPHEMERAL), LAYOUT) == "/job/x | me | ephemeral 0xabc v0"


def test_items_come_by_number_and_what_is_below_a_node_right_after_it() -> None:
    nodes = ["/job", "/job/a", "/job/a-b", "/job/a/c", "/job/s/10", "/job/s/2", "/job/s/2/x", "/job/s/abc", "/job/s"]
    shown = [line.partition(" ")[0] for line in text_of(tree(dict.fromkeys(nodes, "")), LAYOUT).splitlines()]
    assert shown == [
        *["/job", "/job/a", "/job/a/c", "/job/a-b", "/job/s", "/job/s/2", "/job/s/2/x", "/job/s/10", "/job/s/abc"]
    ]


@settings(deadline=None)
@given(st.lists(st.tuples(st.text(st.characters(exclude_characters="/", codec="utf-8"), min_size=1), st.binary())))
def test_whatever_a_node_holds_it_is_one_line_of_three_parts(nodes: list[tuple[str, bytes]]) -> None:
    made = tree({f"/job/{name}": data for name, data in nodes})
    text = text_of(made, LAYOUT)
    text.encode()
    found = text.split("\n") if len(made) else []
    assert len(found) == len(made)
    assert all(len(re.split(r"(?<!\\)(?:\\\\)* \| ", line)) == 3 and line.isprintable() for line in found)


def test_strange_bytes_are_told_apart() -> None:
    assert text_of(tree({"/job/a": b"\xff|\\\n\xe4\xb8\xad"}), LAYOUT) == "/job/a | \\xff\\|\\\\\\n中 | v3"


def test_what_is_too_much_is_counted() -> None:
    nodes = tree({f"/job/{n:03}": "x" * 100 for n in range(50)})
    text = text_of(nodes, LAYOUT, limit=1000)
    assert len(text) < 1050
    assert text.endswith("… and 42 nodes more")


def test_the_event_loop_goes_on_while_thousands_of_nodes_are_rendered() -> None:
    nodes = tree({f"/job/execution/{n}": f"item {n} on 10.0.0.5" for n in range(2000)})
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await checkpoint()
            turns += 1

    async def main() -> str:
        async with create_task_group() as tasks:
            tasks.start_soon(count_turns)
            text = await render(nodes, LAYOUT, masked=True)
            tasks.cancel_scope.cancel()
        return text

    assert testing.run(main) == text_of(nodes, LAYOUT, masked=True)
    assert turns >= 10
