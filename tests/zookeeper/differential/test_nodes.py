"""Single operations on nodes: replies, errors and stats."""

from __future__ import annotations

import pytest

from .scenario import on_both, on_both_unless_newer
from .wire import OPEN, Long, Op, Raw, jute
from .world import Client, World

pytestmark = pytest.mark.zookeeper

PERSISTENT, EPHEMERAL, SEQUENTIAL, EPHEMERAL_SEQUENTIAL, CONTAINER, TTL, TTL_SEQUENTIAL = range(7)
BAD_PATHS = [
    None, "", "x", "//", "/s/", "/s//x", "/.", "/..", "/s/.", "/s/..", "/s/./x", "/s/../x", "/s/.x", "/s/x.", "/s/...",
    "/s/\0", "/s/\1", "/s/\x1f", "/s/\x7f", "/s/\x9f", "/s/\ud800", "/s/\uf8ff", "/s/\ufff0", "/s/\uffef", "/s/ ",
    "/s/ü", "/s/\U0001f600", "/s/\u2028",
]  # fmt: skip


@on_both
def test_create_answers_with_the_path(w: World) -> None:
    a = w.client()
    for flags in range(-1, 9):
        a.call(Op.CREATE, f"{w.root}/n{flags}", b"x", OPEN, flags)
        a.call(Op.CREATE2, f"{w.root}/m{flags}", b"x", OPEN, flags)
        a.call(Op.CREATE_CONTAINER, f"{w.root}/c{flags}", b"x", OPEN, flags)
        a.call(Op.CREATE_TTL, f"{w.root}/t{flags}", b"x", OPEN, flags, Long(100_000))
    a.call(Op.GET_CHILDREN2, w.root, False)


@on_both
def test_every_kind_of_node_has_its_stat(w: World) -> None:
    a = w.client()
    for op, flags, tail in [
        (Op.CREATE2, PERSISTENT, ()), (Op.CREATE2, EPHEMERAL, ()), (Op.CREATE2, SEQUENTIAL, ()),
        (Op.CREATE2, EPHEMERAL_SEQUENTIAL, ()), (Op.CREATE_CONTAINER, CONTAINER, ()),
        (Op.CREATE_TTL, TTL, (Long(5_000_000),)), (Op.CREATE_TTL, TTL_SEQUENTIAL, (Long(5_000_000),)),
    ]:  # fmt: skip
        a.call(op, f"{w.root}/k{flags}-", b"data", OPEN, flags, *tail)
        a.call(Op.EXISTS, w.root, False)
        a.call(Op.GET_EPHEMERALS, w.root)


@on_both
def test_a_missing_parent_or_node_is_reported(w: World) -> None:
    a = w.client()
    missing = f"{w.root}/no/x"
    a.call(Op.CREATE, missing, b"", OPEN, 0)
    a.call(Op.CREATE2, missing, b"", OPEN, 1)
    a.call(Op.CREATE_CONTAINER, missing, b"", OPEN, 4)
    a.call(Op.CREATE_TTL, missing, b"", OPEN, 5, Long(10))
    a.call(Op.DELETE, missing, -1)
    a.call(Op.EXISTS, missing, False)
    a.call(Op.GET_DATA, missing, False)
    a.call(Op.SET_DATA, missing, b"", -1)
    a.call(Op.GET_ACL, missing)
    a.call(Op.SET_ACL, missing, OPEN, -1)
    a.call(Op.GET_CHILDREN, missing, False)
    a.call(Op.GET_CHILDREN2, missing, False)
    a.call(Op.SYNC, missing)
    a.call(Op.GET_EPHEMERALS, missing)
    a.call(Op.GET_ALL_CHILDREN_NUMBER, missing)
    a.call(Op.GET_CHILDREN2, w.root, False)


@on_both
def test_create_refuses_what_exists(w: World) -> None:
    a = w.client()
    for path in (f"{w.root}/x", f"{w.root}/x", w.root, "/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"):
        a.call(Op.CREATE, path, b"", OPEN, 0)
    a.call(Op.CREATE, f"{w.root}/x", b"", OPEN, EPHEMERAL)
    a.call(Op.CREATE, "/", b"", OPEN, SEQUENTIAL)
    a.call(Op.EXISTS, w.root, False)


@on_both
def test_paths_are_validated(w: World) -> None:
    a = w.client()
    for bad in BAD_PATHS:
        path = bad if bad is None else bad.replace("/s", w.root)
        w.say(ascii(bad))
        a.call(Op.CREATE, path, b"", OPEN, 0)
        a.call(Op.CREATE2, path, b"", OPEN, SEQUENTIAL)
        a.call(Op.EXISTS, path, False)
        a.call(Op.GET_DATA, path, False)
        a.call(Op.SET_DATA, path, b"x", -1)
        a.call(Op.GET_CHILDREN, path, False)
        a.call(Op.GET_CHILDREN2, path, False)
        a.call(Op.GET_ACL, path)
        a.call(Op.SET_ACL, path, OPEN, -1)
        a.call(Op.SYNC, path)
        a.call(Op.GET_ALL_CHILDREN_NUMBER, path)
        a.call(Op.GET_EPHEMERALS, path)
        a.call(Op.DELETE, path, -1)
    a.call(Op.GET_CHILDREN2, w.root, False)


@on_both
def test_versions_must_match(w: World) -> None:
    a = w.client()
    node = f"{w.root}/v"
    a.call(Op.CREATE, node, b"0", OPEN, 0)
    for version in (1, -2, 0, 0, -1, 2, 2**31 - 1, -(2**31)):
        a.call(Op.SET_DATA, node, b"data", version)
        a.call(Op.SET_ACL, node, OPEN, version)
        if not w.newer:  # it is no request of clients any more
            a.send(Op.CHECK, node, version)  # the real server never answers a check that holds
    a.call(Op.EXISTS, node, False)
    for version in (0, -2, 3, -1):
        a.call(Op.DELETE, node, version)


@on_both
def test_a_node_with_children_is_not_deleted(w: World) -> None:
    a = w.client()
    a.call(Op.CREATE, f"{w.root}/p", b"", OPEN, 0)
    a.call(Op.CREATE, f"{w.root}/p/c", b"", OPEN, 0)
    a.call(Op.DELETE, f"{w.root}/p", 7)
    a.call(Op.DELETE, f"{w.root}/p", -1)
    a.call(Op.DELETE, f"{w.root}/p/c", -1)
    a.call(Op.EXISTS, f"{w.root}/p", False)
    a.call(Op.DELETE, f"{w.root}/p", 0)
    a.call(Op.EXISTS, w.root, False)


@on_both
def test_ephemerals_have_no_children(w: World) -> None:
    a = w.client()
    a.call(Op.CREATE, f"{w.root}/e", b"", OPEN, EPHEMERAL)
    for flags in (PERSISTENT, EPHEMERAL, SEQUENTIAL):
        a.call(Op.CREATE, f"{w.root}/e/c", b"", OPEN, flags)
    a.call(Op.CREATE_CONTAINER, f"{w.root}/e/c", b"", OPEN, CONTAINER)
    a.call(Op.CREATE_TTL, f"{w.root}/e/c", b"", OPEN, TTL, Long(1000))
    a.call(Op.CREATE_CONTAINER, f"{w.root}/container", b"", OPEN, CONTAINER)
    a.call(Op.CREATE_TTL, f"{w.root}/ttl", b"", OPEN, TTL, Long(1_000_000))
    a.call(Op.CREATE2, f"{w.root}/container/c", b"", OPEN, PERSISTENT)
    a.call(Op.CREATE2, f"{w.root}/ttl/c", b"", OPEN, EPHEMERAL)


@on_both
def test_sequence_numbers_come_from_the_parent(w: World) -> None:
    a = w.client()
    for flags in (SEQUENTIAL, EPHEMERAL_SEQUENTIAL, SEQUENTIAL):
        a.call(Op.CREATE, f"{w.root}/s-", b"", OPEN, flags)
    a.call(Op.DELETE, f"{w.root}/s-0000000001", -1)
    a.call(Op.CREATE, f"{w.root}/s-", b"", OPEN, SEQUENTIAL)
    a.call(Op.CREATE, f"{w.root}/plain", b"", OPEN, PERSISTENT)
    a.call(Op.CREATE2, f"{w.root}/s-", b"", OPEN, SEQUENTIAL)
    a.call(Op.CREATE2, f"{w.root}/", b"", OPEN, SEQUENTIAL)
    a.call(Op.CREATE2, f"{w.root}/0000000001", b"", OPEN, SEQUENTIAL)
    a.call(Op.CREATE_TTL, f"{w.root}/t-", b"", OPEN, TTL_SEQUENTIAL, Long(1_000_000))
    a.call(Op.CREATE, f"{w.root}/s-0000000020", b"", OPEN, PERSISTENT)
    a.call(Op.CREATE2, f"{w.root}/s-", b"", OPEN, SEQUENTIAL)
    a.call(Op.GET_CHILDREN2, w.root, False)
    a.call(Op.CREATE, "/", b"", OPEN, EPHEMERAL_SEQUENTIAL)


@on_both
def test_time_to_live_is_limited(w: World) -> None:
    a = w.client()
    for number, ttl in enumerate([0, -1, 1, 2**40 - 2, 2**40 - 1, 2**40, 2**63 - 1, -(2**63)]):
        a.call(Op.CREATE_TTL, f"{w.root}/t{number}", b"", OPEN, TTL, Long(ttl))
        a.call(Op.CREATE_TTL, f"{w.root}/s{number}", b"", OPEN, TTL_SEQUENTIAL, Long(ttl))
        a.call(Op.EXISTS, f"{w.root}/t{number}", False)
    for ttl in (0, 1, 2**40):  # anything below zero ends the real server's process
        a.call(Op.CREATE_TTL, f"{w.root}/p", b"", OPEN, PERSISTENT, Long(ttl))


@on_both
def test_data_may_be_null_or_empty(w: World) -> None:
    a = w.client()
    for number, data in enumerate([None, b"", b"x", bytes(1000)]):
        node = f"{w.root}/{number}"
        a.call(Op.CREATE2, node, data, OPEN, 0)
        a.call(Op.GET_DATA, node, False)
        a.call(Op.SET_DATA, node, None, -1)
        a.call(Op.GET_DATA, node, False)
        a.call(Op.SET_DATA, node, data, -1)
        a.call(Op.GET_DATA, node, False)


@on_both
def test_the_root_and_the_system_nodes(w: World) -> None:
    a = w.client()
    for path in ("/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"):
        a.call(Op.EXISTS, path, False)
        a.call(Op.GET_DATA, path, False)
        a.call(Op.GET_ACL, path)
        a.call(Op.GET_ALL_CHILDREN_NUMBER, path)
        a.call(Op.GET_CHILDREN, "/zookeeper", False)
        if not w.newer:  # it is no request of clients any more
            a.send(Op.CHECK, path, 0)
        a.call(Op.DELETE, path, -1)
        a.call(Op.DELETE, path, 5)
    a.call(Op.SET_DATA, "/", b"root", -1)
    a.call(Op.SET_DATA, "/", b"", -1)
    a.call(Op.SET_DATA, "/zookeeper", b"x", 9)
    a.call(Op.SET_DATA, "/zookeeper/config", b"x", -1)
    a.call(Op.CREATE, "/zookeeper/x", b"x", OPEN, 0)
    a.call(Op.DELETE, "/zookeeper/x", -1)
    a.call(Op.CREATE, "/zookeeper/config/x", b"x", OPEN, 0)
    a.call(Op.RECONFIG, None, None, None, Long(-1))
    a.call(Op.RECONFIG, "server.1=localhost:1:2", None, None, Long(-1))


@on_both
def test_listing_counts_and_ephemerals(w: World) -> None:
    a, b = w.client("a"), w.client("b")
    for name in ("d", "d/e", "d/e/f", "dd"):
        a.call(Op.CREATE, f"{w.root}/{name}", b"", OPEN, 0)
    for client in (a, b):
        client.call(Op.CREATE, f"{w.root}/d/{client.name}", b"", OPEN, EPHEMERAL)
        client.call(Op.CREATE, f"{w.root}/dd/{client.name}", b"", OPEN, EPHEMERAL)
    for path in (w.root, f"{w.root}/d", f"{w.root}/dd", f"{w.root}/d/e", f"{w.root}/d/e/f", f"{w.root}/d/a", "/none"):
        for client in (a, b):
            client.call(Op.GET_EPHEMERALS, path)
        a.call(Op.GET_ALL_CHILDREN_NUMBER, path)
        a.call(Op.GET_CHILDREN, path, False)
        a.call(Op.GET_CHILDREN2, path, False)
    a.call(Op.GET_EPHEMERALS, None)
    a.call(Op.GET_EPHEMERALS, "")


@on_both
def test_names_may_be_long(w: World) -> None:
    a = w.client()
    for length in (255, 256, 4096, 32_767, 65_536, 300_000):
        a.call(Op.CREATE, f"{w.root}/{'n' * length}", b"", OPEN, 0)
        a.call(Op.EXISTS, f"{w.root}/{'n' * length}", False)


@on_both
def test_requests_may_be_too_short_or_too_long(w: World) -> None:
    w.names.counts_requests = not w.newer
    a = w.client()
    a.call(Op.EXISTS, w.root, False, Raw(b"more than asked for"))
    for op, body in [
        (Op.EXISTS, jute(w.root)), (Op.EXISTS, b""), (Op.CREATE, jute(f"{w.root}/x", b"")), (Op.CREATE, b""),
        (Op.GET_DATA, jute("/")), (Op.SET_DATA, jute("/")), (Op.DELETE, jute("/")), (Op.GET_ACL, b""),
        (Op.SET_ACL, jute("/")), (Op.GET_CHILDREN, b""), (Op.GET_CHILDREN2, b""), (Op.SYNC, b""), (Op.CHECK, b""),
        (Op.MULTI, b""), (Op.MULTI_READ, b""), (Op.SET_WATCHES, b""), (Op.SET_WATCHES2, b""), (Op.ADD_WATCH, b""),
        (Op.REMOVE_WATCHES, b""), (Op.CHECK_WATCHES, b""), (Op.GET_EPHEMERALS, b""), (Op.WHO_AM_I, b""),
        (Op.GET_ALL_CHILDREN_NUMBER, b""), (Op.CREATE_TTL, b""), (Op.CREATE_CONTAINER, b""), (Op.RECONFIG, b""),
        (Op.AUTH, b""), (Op.SASL, b""), (Op.PING, b""),
    ]:  # fmt: skip
        if w.newer and op == Op.CHECK:  # it is no request of clients any more
            continue
        w.say(op.name)
        b: Client = w.client("b")
        b.call(op, Raw(body))
        b.call(Op.EXISTS, w.root, False)
        b.link.close()


@on_both_unless_newer("the request is the servers' own, and ends the connection of a client")
def test_a_client_may_reap_containers(w: World) -> None:
    a = w.client()
    a.call(Op.CREATE, f"{w.root}/plain", b"", OPEN, 0)
    a.call(Op.CREATE_CONTAINER, f"{w.root}/c", b"", OPEN, CONTAINER)
    a.call(Op.CREATE, f"{w.root}/c/x", b"", OPEN, 0)
    a.call(Op.CREATE_TTL, f"{w.root}/t", b"", OPEN, TTL, Long(100_000))
    for path in ("/plain", "/c", "/c/x", "/t", "/none", "/", ""):
        a.call(Op.DELETE_CONTAINER, Raw(f"{w.root}{path}".encode()))  # the path is the whole body, without a length
    a.call(Op.DELETE, f"{w.root}/c/x", -1)
    a.call(Op.DELETE_CONTAINER, Raw(f"{w.root}/c".encode()))
    a.call(Op.DELETE_CONTAINER, Raw(b""))
    a.call(Op.GET_CHILDREN2, w.root, False)


@on_both
def test_any_byte_but_zero_is_true(w: World) -> None:
    a = w.client()
    for byte in (b"\1", b"\2", b"\x80", b"\0"):
        a.call(Op.EXISTS, w.root, Raw(byte))
        a.call(Op.SET_DATA, w.root, byte, -1)


@on_both
def test_unknown_operations_end_the_connection(w: World) -> None:
    for op in (-1, 0, 10, 23, 99, 108, 1000, -12, 2**31 - 1):
        w.say(str(op))
        a = w.client()
        a.call(op, "/", False)
        a.read_to_end()


@on_both
def test_unusual_operations_do_not(w: World) -> None:
    w.names.counts_requests = not w.newer
    for op in (Op.CHECK_WATCHES, Op.DELETE_CONTAINER, Op.SASL):
        if w.newer and op == Op.DELETE_CONTAINER:  # ends the connection
            continue
        a = w.client()
        a.call(op, "/", False)
        a.call(Op.EXISTS, w.root, False)
