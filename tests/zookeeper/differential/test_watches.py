"""Who hears of what, and in which order."""

from __future__ import annotations

import struct

import pytest

from .scenario import on_both, on_both_unless_newer
from .wire import OPEN, SET_WATCHES_XID, Field, Long, Op, acl, multi, record
from .world import Client, World

pytestmark = pytest.mark.zookeeper

PERSISTENT, RECURSIVE = 0, 1
CHILDREN, DATA, ANY, PERSISTENT_ONLY, RECURSIVE_ONLY = 1, 2, 3, 4, 5


def _changes(root: str) -> list[tuple[Op, tuple[Field, ...]]]:
    n = f"{root}/n"
    return [
        (Op.CREATE, (n, b"", OPEN, 0)), (Op.SET_DATA, (n, b"1", -1)), (Op.SET_ACL, (n, OPEN, -1)),
        (Op.CREATE, (f"{n}/c", b"", OPEN, 1)), (Op.SET_DATA, (f"{n}/c", b"1", -1)),
        (Op.CREATE2, (f"{n}/d", b"", OPEN, 0)), (Op.CREATE, (f"{n}/d/e", b"", OPEN, 2)), (Op.SET_DATA, (n, b"1", 77)),
        (Op.CREATE, (n, b"", OPEN, 0)), (Op.DELETE, (f"{n}/d/e0000000000", -1)), (Op.DELETE, (f"{n}/d", -1)),
        (Op.DELETE, (f"{n}/c", -1)), (Op.DELETE, (n, -1)), (Op.CREATE_CONTAINER, (n, b"", OPEN, 4)),
        (Op.CREATE_TTL, (f"{n}/t", b"", OPEN, 5, Long(99_999))), (Op.DELETE, (f"{n}/t", -1)), (Op.DELETE, (n, -1)),
    ]  # fmt: skip


def _watch(client: Client, kind: str, path: str) -> None:
    match kind:
        case "exists":
            client.call(Op.EXISTS, path, True)
        case "data":
            client.call(Op.GET_DATA, path, True)
        case "children":
            client.call(Op.GET_CHILDREN, path, True)
        case "children2":
            client.call(Op.GET_CHILDREN2, path, True)
        case "persistent":
            client.call(Op.ADD_WATCH, path, PERSISTENT)
        case "recursive":
            client.call(Op.ADD_WATCH, path, RECURSIVE)


KINDS = ["exists", "data", "children", "children2", "persistent", "recursive"]


def _kinds(w: World) -> list[str]:
    """Kinds of watches for one client and path; ZooKeeper 3.9 keeps the others beside a recursive one."""
    return [kind for kind in KINDS if not (w.newer and kind == "recursive")]


@on_both
def test_each_kind_hears_each_change(w: World) -> None:
    writer = w.client("writer")
    for suffix in ("", "/n", "/n/c", "/n/d"):
        watchers = [w.client(kind) for kind in KINDS]
        for op, fields in _changes(w.root):
            for watcher in watchers:  # renewed before every change
                _watch(watcher, watcher.name, w.root + suffix)
            writer.call(op, *fields)
            for watcher in watchers:
                watcher.settle()


@on_both
def test_one_shot_watches_fire_once(w: World) -> None:
    watchers = [w.client(kind) for kind in KINDS]
    for watcher in watchers:
        for suffix in ("", "/n", "/n/d"):
            _watch(watcher, watcher.name, w.root + suffix)
    writer = w.client("writer")
    for op, fields in _changes(w.root) * 2:
        writer.call(op, *fields)
        for watcher in watchers:
            watcher.settle()


@on_both
def test_own_events_come_before_the_reply(w: World) -> None:
    a = w.client()
    for kind in _kinds(w):
        for suffix in ("", "/n", "/n/c"):
            _watch(a, kind, w.root + suffix)
    for op, fields in _changes(w.root):
        a.call(op, *fields)
    a.settle()


@on_both
def test_several_watches_on_one_path_are_one_event(w: World) -> None:
    a, b = w.client("a"), w.client("b")
    n = f"{w.root}/n"
    b.call(Op.CREATE, n, b"", OPEN, 0)
    for kinds in (["exists", "data"], ["exists", "data", "children"], ["data", "persistent"], ["recursive", "data"],
                  ["persistent", "recursive"], ["children", "children2"], KINDS):  # fmt: skip
        if w.newer and {"persistent", "recursive"} & {*kinds}:  # it keeps the others beside these
            continue
        for kind in kinds:
            _watch(a, kind, n)
            _watch(a, kind, n)
        b.call(Op.SET_DATA, n, b"x", -1)
        b.call(Op.CREATE, f"{n}/c", b"", OPEN, 0)
        b.call(Op.DELETE, f"{n}/c", -1)
        a.settle()
        b.call(Op.DELETE, n, -1)
        b.call(Op.CREATE, n, b"", OPEN, 0)
        a.settle()


@on_both
def test_events_of_a_multi_come_in_its_order(w: World) -> None:
    a, b = w.client("a"), w.client("b")
    n = f"{w.root}/n"
    a.call(Op.ADD_WATCH, w.root, RECURSIVE)
    a.call(Op.GET_CHILDREN, w.root, True)
    a.call(Op.EXISTS, n, True)
    b.call(Op.ADD_WATCH, w.root, PERSISTENT)
    steps = [
        (Op.CREATE, record(n, b"", OPEN, 0)), (Op.CREATE, record(f"{n}/c", b"", OPEN, 0)), (Op.CHECK, record(n, 0)),
        (Op.SET_DATA, record(f"{n}/c", b"x", 0)), (Op.DELETE, record(f"{n}/c", 1)), (Op.DELETE, record(n, 0)),
        (Op.CREATE, record(n, b"", OPEN, 1)),
    ]  # fmt: skip
    b.call(Op.MULTI, multi(*steps))
    b.call(Op.MULTI, multi(*steps[1:], (Op.CHECK, record(f"{w.root}/none", 0))))
    a.settle()
    b.settle()


@on_both
def test_a_reader_sees_the_event_before_the_new_data(w: World) -> None:
    a, b = w.client("a"), w.client("b")
    a.call(Op.GET_DATA, w.root, True)
    a.call(Op.GET_CHILDREN, w.root, True)
    b.call(Op.SET_DATA, w.root, b"new", -1)
    b.call(Op.CREATE, f"{w.root}/c", b"", OPEN, 0)
    a.call(Op.GET_DATA, w.root, False)
    a.call(Op.GET_CHILDREN, w.root, False)


@on_both
def test_failed_reads_leave_what_watches(w: World) -> None:
    a, b = w.client("a"), w.client("b")
    n = f"{w.root}/n"
    for kind in KINDS[:4]:
        _watch(a, kind, n)
        b.call(Op.CREATE, n, b"", OPEN, 0)
        b.call(Op.SET_DATA, n, b"", -1)
        b.call(Op.DELETE, n, -1)
        a.settle()
    b.call(Op.CREATE, n, b"", [acl(0, "world", "anyone")], 0)
    for kind in _kinds(w):
        if not (w.newer and kind == "exists"):  # asks for permission to read
            _watch(a, kind, n)
    b.call(Op.DELETE, n, -1)
    a.settle()


@on_both_unless_newer("a persistent and a recursive watch are both kept")
def test_modes_of_add_watch(w: World) -> None:
    a = w.client()
    for mode in (-1, 0, 1, 2, 3, 99):
        a.call(Op.ADD_WATCH, w.root, mode)
        a.call(Op.CREATE, f"{w.root}/c", b"", OPEN, 0)
        a.call(Op.DELETE, f"{w.root}/c", -1)
    for path in ("", None, "bad", f"{w.root}/", "/", f"{w.root}/none"):
        a.call(Op.ADD_WATCH, path, PERSISTENT)
        a.call(Op.ADD_WATCH, path, RECURSIVE)
    a.call(Op.CREATE, f"{w.root}/none", b"", OPEN, 0)
    a.settle()


@on_both_unless_newer("a persistent and a recursive watch are both kept")
def test_persistent_and_recursive_replace_each_other(w: World) -> None:
    b = w.client("b")
    for first, second in ((PERSISTENT, RECURSIVE), (RECURSIVE, PERSISTENT), (RECURSIVE, RECURSIVE)):
        a = w.client(f"a{first}{second}")
        a.call(Op.ADD_WATCH, w.root, first)
        a.call(Op.ADD_WATCH, w.root, second)
        for op, fields in _changes(w.root):
            b.call(op, *fields)
        a.settle()
        a.call(Op.REMOVE_WATCHES, w.root, ANY)
        b.call(Op.SET_DATA, w.root, b"", -1)
        a.settle()


@on_both
def test_nested_recursive_watches_are_one_event(w: World) -> None:
    a, b = w.client("a"), w.client("b")
    for path in ("/", w.root, f"{w.root}/n", f"{w.root}/n/c", f"{w.root}/no"):
        a.call(Op.ADD_WATCH, path, RECURSIVE)
    for op, fields in _changes(w.root):
        b.call(op, *fields)
        a.settle()


@on_both
def test_a_sibling_with_the_same_beginning_is_not_below(w: World) -> None:
    a, b = w.client("a"), w.client("b")
    a.call(Op.ADD_WATCH, f"{w.root}/n", RECURSIVE)
    b.call(Op.CREATE, f"{w.root}/nn", b"", OPEN, 0)
    b.call(Op.CREATE, f"{w.root}/nn/x", b"", OPEN, 0)
    a.settle()


@on_both_unless_newer("a request that removes watches of data or of children leaves persistent ones")
def test_watches_are_removed(w: World) -> None:
    a, b = w.client("a"), w.client("b")
    n = f"{w.root}/n"
    b.call(Op.CREATE, n, b"", OPEN, 0)
    for removed in (CHILDREN, DATA, ANY, PERSISTENT_ONLY, RECURSIVE_ONLY, 0, 6, -1):
        for kinds in (["exists"], ["data"], ["children"], ["persistent"], ["recursive"], KINDS[:4], _kinds(w), []):
            w.say(f"{removed} {kinds}")
            for kind in kinds:
                _watch(a, kind, n)
            a.call(Op.CHECK_WATCHES, n, removed)
            a.call(Op.REMOVE_WATCHES, n, removed)
            a.call(Op.CHECK_WATCHES, n, removed)
            b.call(Op.SET_DATA, n, b"x", -1)
            b.call(Op.CREATE, f"{n}/c", b"", OPEN, 0)
            b.call(Op.DELETE, f"{n}/c", -1)
            a.settle()
            a = a.reconnect("a")
    a.call(Op.REMOVE_WATCHES, f"{w.root}/none", ANY)
    a.call(Op.REMOVE_WATCHES, None, ANY)
    _watch(a, "recursive", n)
    _watch(a, "persistent", w.root)
    for removed in (ANY, DATA, CHILDREN):
        for path in (f"{n}/c", f"{n}/c/d", f"{n}x", w.root, n):
            a.call(Op.CHECK_WATCHES, path, removed)
        a.call(Op.REMOVE_WATCHES, f"{n}/c", removed)
    b.call(Op.CREATE, f"{n}/c", b"", OPEN, 0)
    a.settle()


@on_both
def test_an_existence_watch_is_removed_as_data(w: World) -> None:
    a, b = w.client("a"), w.client("b")
    for kind in (DATA, ANY, CHILDREN):
        a.call(Op.EXISTS, f"{w.root}/later", True)
        a.call(Op.REMOVE_WATCHES, f"{w.root}/later", kind)
    b.call(Op.CREATE, f"{w.root}/later", b"", OPEN, 0)
    a.settle()


def _zxid(client: Client) -> int:
    """The zxid in the last reply's header."""
    return int(struct.unpack_from(">q", client.last_reply, 4)[0])


@on_both
def test_watches_set_again_catch_up(w: World) -> None:
    a, b = w.client("a"), w.client("b")
    names = ["same", "changed", "deleted", "children", "created", "never", "recreated", "acl", "grandchild"]
    for name in names:
        if name not in ("created", "never"):
            b.call(Op.CREATE, f"{w.root}/{name}", b"", OPEN, 0)
    b.call(Op.CREATE, f"{w.root}/grandchild/x", b"", OPEN, 0)
    a.call(Op.EXISTS, w.root, False)
    seen = _zxid(a)
    b.call(Op.SET_DATA, f"{w.root}/changed", b"x", -1)
    b.call(Op.DELETE, f"{w.root}/deleted", -1)
    b.call(Op.CREATE, f"{w.root}/children/c", b"", OPEN, 0)
    b.call(Op.CREATE, f"{w.root}/created", b"", OPEN, 0)
    b.call(Op.DELETE, f"{w.root}/recreated", -1)
    b.call(Op.CREATE, f"{w.root}/recreated", b"", OPEN, 0)
    b.call(Op.SET_ACL, f"{w.root}/acl", OPEN, -1)
    b.call(Op.SET_DATA, f"{w.root}/grandchild/x", b"x", -1)
    paths = [f"{w.root}/{name}" for name in names]
    for since in (seen, 0, -1, 2**62):
        for data, exist, child in ((paths, [], []), ([], paths, []), ([], [], paths), (paths, paths, paths)):
            c = w.client("c")
            c.call(Op.SET_WATCHES, Long(since), data, exist, child)
            c.settle()
            b.call(Op.SET_DATA, f"{w.root}/same", b"", -1)
            b.call(Op.SET_ACL, f"{w.root}/never", OPEN, -1)
            c.settle()
        for persistent, recursive in ((paths, []), ([], paths), (paths, paths), ([w.root], []), ([], [w.root])):
            if w.newer and persistent and recursive:  # it keeps both
                continue
            c = w.client("c2")
            c.call(Op.SET_WATCHES2, Long(since), paths[:2], [], [], persistent, recursive)
            c.settle()
            b.call(Op.SET_DATA, f"{w.root}/same", b"", -1)
            b.call(Op.CREATE, f"{w.root}/same/c", b"", OPEN, 0)
            b.call(Op.DELETE, f"{w.root}/same/c", -1)
            c.settle()
            c.link.close()


@on_both
def test_watches_set_again_in_odd_forms(w: World) -> None:
    odd: list[tuple[Field, Field, Field]] = [
        (None, None, None),
        ([], [], []),
        ([None], [], []),
        (["bad", ""], ["bad"], [""]),
    ]
    for data, exist, child in odd:
        a = w.client()
        for xid in (SET_WATCHES_XID, 31):
            a.send(Op.SET_WATCHES, Long(0), data, exist, child, xid=xid)
            a.read_until(xid)
            a.settle()
    a.call(Op.SET_WATCHES2, Long(0), None, None, None, None, None)
    a.settle()


@on_both
def test_a_new_connection_starts_without_watches(w: World) -> None:
    a, b = w.client("a"), w.client("b")
    for kind in KINDS:
        _watch(a, kind, w.root)
    again = a.reconnect("again")
    b.call(Op.SET_DATA, w.root, b"x", -1)
    b.call(Op.CREATE, f"{w.root}/c", b"", OPEN, 0)
    again.settle()
    again.call(Op.REMOVE_WATCHES, w.root, ANY)


@on_both
def test_closing_a_session_is_heard_like_deletes(w: World) -> None:
    a, b = w.client("a"), w.client("b")
    a.call(Op.CREATE, f"{w.root}/p", b"", OPEN, 0)
    a.call(Op.CREATE, f"{w.root}/p/e", b"", OPEN, 1)
    for kind in ("exists", "data", "children"):
        _watch(b, kind, f"{w.root}/p/e")
    b.call(Op.GET_CHILDREN, f"{w.root}/p", True)
    c = w.client("c")
    c.call(Op.ADD_WATCH, w.root, RECURSIVE)
    d = w.client("d")
    d.call(Op.ADD_WATCH, f"{w.root}/p", PERSISTENT)
    a.call(Op.EXISTS, f"{w.root}/p/e", True)
    a.call(Op.CLOSE_SESSION)
    a.read_to_end()
    for client in (b, c, d):
        client.settle()


@on_both
def test_watchers_of_the_root_and_of_system_nodes(w: World) -> None:
    a, b = w.client("a"), w.client("b")
    for kind in _kinds(w):
        _watch(a, kind, "/")
    b.call(Op.SET_DATA, "/", b"", -1)
    b.call(Op.CREATE, f"{w.root}2", b"", OPEN, 0)
    a.settle()
    b.call(Op.DELETE, f"{w.root}2", -1)
    a.settle()
