"""A server's first requests, and what is left of it after `kill -9`."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from struct import pack, unpack_from
from typing import TypeAlias

import pytest

from .servers import Pace, available, embedded, real
from .shapes import begin
from .wire import OPEN, Address, Link, Long, Op, acl, connect_request, frame, jute, multi, record
from .world import Client, World

pytestmark = [pytest.mark.zookeeper, pytest.mark.skipif(not available(), reason="Debian's zookeeper is not installed")]

Start: TypeAlias = Callable[[], AbstractContextManager[Address]]
PACE = Pace()
SESSION_AND_PASSWORD = slice(8, 36)
NO_COUNT = 1000
"""More writes than a life here has."""


def _first_words(start: Start) -> list[bytes]:
    frames: list[bytes] = []
    first_number: int | None = None

    def reply(link: Link) -> bytes:
        """Return a reply whose zxid is counted from the first one: our numbers begin where the clock says."""
        nonlocal first_number
        whole = link.read_frame() or b""
        (number,) = unpack_from(">q", whole, 4)
        first_number = number if first_number is None else first_number
        return whole[:4] + pack(">q", number - first_number) + whole[12:]

    with start() as address, Link(address) as first, Link(address) as second:
        for link in (first, second):
            link.write(frame(connect_request()))
            welcome = link.read_frame() or b""
            frames.append(welcome[: SESSION_AND_PASSWORD.start] + welcome[SESSION_AND_PASSWORD.stop :])
            for path in ("/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"):
                link.write(frame(jute(1, Op.GET_DATA, path, False)))
                frames.append(reply(link))
            link.write(frame(jute(2, Op.DELETE, "/none", -1)))
            frames.append(reply(link))
    return frames


def test_a_new_server_says_the_same_to_the_byte(tmp_path: Path) -> None:
    assert _first_words(lambda: embedded(PACE)) == _first_words(lambda: real(tmp_path, PACE))


def _work(w: World) -> Client:
    """Something of every kind; ends with a write that fails, so that the last number is that of no change."""
    a = w.client("a", timeout=40_000)
    begin(w.names, a.exchange(Op.CREATE2, w.root, b"", OPEN, 0))
    for name in ("one", "two", "three"):
        a.call(Op.CREATE, f"{w.root}/{name}", None if name == "one" else name.encode(), OPEN, 0)
    for flags in (1, 2, 3):
        a.call(Op.CREATE, f"{w.root}/s-", b"", OPEN, flags)
    a.call(Op.CREATE_TTL, f"{w.root}/ttl", b"", OPEN, 5, Long(10**9))
    a.call(Op.CREATE_CONTAINER, f"{w.root}/container", b"", OPEN, 4)
    a.call(Op.SET_DATA, f"{w.root}/two", b"changed", -1)
    a.call(Op.SET_ACL, f"{w.root}/two", [acl(31, "ip", "127.0.0.1")], -1)
    a.call(Op.DELETE, f"{w.root}/three", -1)
    a.call(Op.MULTI, multi((Op.CREATE, record(f"{w.root}/m", b"", OPEN, 0)), (Op.SET_DATA, record(w.root, b"r", -1))))
    closed = w.client("closed")
    closed.call(Op.CREATE, f"{w.root}/gone", b"", OPEN, 1)
    closed.call(Op.CLOSE_SESSION)
    a.call(Op.DELETE, f"{w.root}/none", -1)
    return a


def _look(w: World, a: Client) -> None:
    a.call(Op.GET_CHILDREN2, w.root, False)
    for name in ("", "/one", "/two", "/ttl", "/container", "/m", "/s-0000000003", "/s-0000000004", "/s-0000000005"):
        a.call(Op.GET_DATA, f"{w.root}{name}", False)
        a.call(Op.GET_ACL, f"{w.root}{name}")
    a.call(Op.GET_EPHEMERALS, None)
    a.call(Op.CREATE, f"{w.root}/s-", b"", OPEN, 2)


def _two_lives(start: Start) -> list[str]:
    with start() as address:
        w = World(address, "/r")
        a = _work(w)
    with start() as w.address:
        _look(w, a.reconnect("again", timeout=40_000))
        w.client("new").call(Op.EXISTS, w.root, False)
        w.close()
    return _counted_on(w.transcript)


def _counted_on(lines: list[str]) -> list[str]:
    """Take the jump out of the numbers of the second life: ours follow the clock, and ZooKeeper alone counts on."""
    numbers = [int(number) for line in lines for number in re.findall(r"=\+(\d+)", line)]
    last = max(number for number in numbers if number < NO_COUNT)
    jump = min((number for number in numbers if number >= NO_COUNT), default=last) - last

    def counted(found: re.Match[str]) -> str:
        number = int(found[1])
        return f"=+{number - jump if number >= NO_COUNT else number}"

    return [re.sub(r"=\+(\d+)", counted, line) for line in lines]


def test_the_same_is_left_after_a_kill(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.mkdir()
    assert _two_lives(lambda: embedded(PACE, ours)) == _two_lives(lambda: real(theirs, PACE))
