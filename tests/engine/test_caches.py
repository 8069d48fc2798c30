"""What a process keeps of nodes that are gone is bounded: it runs for months, and new nodes come all the time."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from aioelasticjob.core.diagnostics import _wrong_data
from aioelasticjob.core.requests import Request, decode, decode_progress, encode, encode_progress
from aioelasticjob.model import FireSource, Progress
from aioelasticjob.registry.tree import Node
from tests.support.stats import stat

NOW = 1_795_132_800_000
SOME = 1000
MIB = 1024 * 1024


def kept(read: Callable[[int], object], count: int) -> float:
    """Return the MiB that are kept after so many nodes have been read."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(count):
            read(number)
        after, _ = tracemalloc.get_traced_memory()
        return (after - before) / MIB
    finally:
        tracemalloc.stop()


def test_nothing_is_kept_of_the_parameters_of_requests() -> None:
    def read(number: int) -> object:
        request = Request(f"r{number}", FireSource.TRIGGER, 4, NOW, parameter=f"{number} ".ljust(60_000, "x"))
        return decode(request.id, Node.of(encode(request), stat(czxid=number)))

    assert kept(read, 100) < 1


def progress(number: int) -> object:
    """Read how far an item has come with a request."""
    return decode_progress(encode_progress(Progress(NOW + number, 1, outcome="completed")))


def member(number: int) -> tuple[str, bytes]:
    """Return the name of an instance of one session, and the data of its node."""
    fields = {"host": "worker-17.example.org", "pid": number, "ip": "10.0.0.7", "upSince": NOW / 1000}
    return f"10.0.0.7@-@{number}-{number:08x}", json.dumps(fields).encode()


@pytest.mark.parametrize(
    ("cache", "read"),
    [
        (decode_progress, progress),
        (_wrong_data, lambda number: _wrong_data(*member(number))),
    ],
    ids=["progress", "wrong data of instances"],
)
def test_few_megabytes_are_kept_of_nodes_that_are_gone(cache: Any, read: Callable[[int], object]) -> None:
    each = kept(read, SOME) / SOME
    assert each * cache.cache_info().maxsize < 2
