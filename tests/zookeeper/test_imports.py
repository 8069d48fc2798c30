"""The layers of the server: which modules may wait, and what they may import of the package above them."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import aioelasticjob.zookeeper

ROOMS = sorted(Path(aioelasticjob.zookeeper.__file__).parent.glob("*.py"))
WAITING = {
    "__main__",
    "commits",
    "listener",
    "server",
    "repeated_warning",
    "tls",
}  # all others get bytes and times and give bytes


def imported(room: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(room.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.stem)
def test_it_imports_nothing_of_the_house_above(room: Path) -> None:
    own = {name for name in imported(room) if name.split(".")[0] == "aioelasticjob"}
    own.discard("aioelasticjob.host.signals")  # which imports nothing of ours, and is wanted before anything else
    assert all(name.startswith("aioelasticjob.zookeeper") for name in own)


@pytest.mark.parametrize("room", [room for room in ROOMS if room.stem not in WAITING], ids=lambda room: room.stem)
def test_it_never_waits_and_reads_no_clock(room: Path) -> None:
    waiting = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    assert not [node for node in ast.walk(ast.parse(room.read_text())) if isinstance(node, waiting)]
    assert not {"asyncio", "time", "threading"} & set(imported(room))
