"""What ends without being asked: sessions, containers, nodes with a time to live."""

from __future__ import annotations

import pytest

from .scenario import on_both
from .servers import Pace
from .wire import OPEN, Long, Op, multi, record
from .world import World

pytestmark = pytest.mark.zookeeper


@pytest.fixture(scope="module")
def pace() -> Pace:
    return Pace(tick=500, container_check=300)


@on_both
def test_a_session_expires_when_its_client_is_gone(w: World) -> None:
    watcher, a = w.client("watcher", timeout=10_000), w.client("a", timeout=1000)
    a.call(Op.CREATE, f"{w.root}/e", b"", OPEN, 1)
    watcher.call(Op.GET_DATA, f"{w.root}/e", True)
    watcher.call(Op.GET_CHILDREN, w.root, True)
    a.link.close()
    watcher.read(2)
    watcher.call(Op.GET_CHILDREN2, w.root, False)
    a.reconnect("late").read_to_end()


@on_both
def test_a_silent_client_is_cut_off(w: World) -> None:
    a = w.client("a", timeout=1000)
    a.call(Op.CREATE, f"{w.root}/e", b"", OPEN, 1)
    a.read_to_end()
    b = w.client("b", timeout=10_000)
    b.call(Op.EXISTS, f"{w.root}/e", False)
    a.reconnect("again").read_to_end()


@on_both
def test_every_request_keeps_a_session_alive(w: World) -> None:
    a, clock = w.client("a", timeout=4000), w.client("clock", timeout=4000)
    a.call(Op.CREATE, f"{w.root}/e", b"", OPEN, 1)
    for number in range(9):
        a.call(Op.PING)
        a.call(Op.EXISTS, f"{w.root}/e", number % 2 == 0)
        clock.link.patience(0.6)
        clock.read()  # nothing comes, and more than the timeout goes by in all
        clock.call(Op.PING)
    a.call(Op.GET_EPHEMERALS, w.root)


@on_both
def test_a_new_connection_keeps_a_session_alive(w: World) -> None:
    a, clock = w.client("a", timeout=4000), w.client("clock", timeout=10_000)
    a.call(Op.CREATE, f"{w.root}/e", b"", OPEN, 1)
    for _ in range(4):
        clock.link.patience(1.3)
        clock.read()
        a.link.close()
        a = a.reconnect("a", timeout=4000)
    a.call(Op.GET_EPHEMERALS, w.root)


@on_both
def test_empty_containers_vanish_if_they_had_a_child(w: World) -> None:
    a = w.client("a", timeout=10_000)
    for name in ("used", "fresh"):
        a.call(Op.CREATE_CONTAINER, f"{w.root}/{name}", b"", OPEN, 4)
    a.call(Op.CREATE, f"{w.root}/used/c", b"", OPEN, 0)
    a.call(Op.EXISTS, f"{w.root}/used", True)
    a.call(Op.GET_CHILDREN, w.root, True)
    a.call(Op.DELETE, f"{w.root}/used/c", -1)
    a.read(2)
    a.call(Op.GET_CHILDREN2, w.root, False)


@on_both
def test_nodes_outlive_their_time_only_with_children(w: World) -> None:
    a, parent = w.client("a", timeout=10_000), f"{w.root}/parent"
    # the watch comes before the nodes, and parent and child come at once: a slow machine may need more than their time
    a.call(Op.ADD_WATCH, w.root, 1)
    made = ((parent, 400), (f"{parent}/child", 100_000))
    a.call(Op.MULTI, multi(*((Op.CREATE_TTL, record(path, b"", OPEN, 5, Long(ttl))) for path, ttl in made)))
    a.call(Op.CREATE_TTL, f"{w.root}/short", b"", OPEN, 5, Long(400))
    a.read(1)
    a.call(Op.GET_CHILDREN2, w.root, False)
    a.call(Op.DELETE, f"{parent}/child", -1)
    a.read(1)
    a.call(Op.GET_CHILDREN2, w.root, False)
