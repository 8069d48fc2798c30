"""Who may do what: lists, identities, and the error each refusal has."""

from __future__ import annotations

import base64
import hashlib

import pytest

from .scenario import on_both
from .wire import AUTH_XID, OPEN, Field, Long, Op, Record, acl, multi, record
from .world import Client, World

pytestmark = pytest.mark.zookeeper

READ, WRITE, CREATE, DELETE, ADMIN, ALL = 1, 2, 4, 8, 16, 31


def digest(user: str, password: str) -> str:
    """The identity of scheme digest that a name and a password prove."""
    hashed = base64.b64encode(hashlib.sha1(f"{user}:{password}".encode()).digest()).decode()
    return f"{user}:{hashed}"


BOB = digest("bob", "secret")


def _login(client: Client, credentials: bytes | None = b"bob:secret", scheme: str | None = "digest") -> None:
    client.call(Op.AUTH, 0, scheme, credentials)


@on_both
def test_lists_are_checked_when_a_node_is_made(w: World) -> None:
    lists: list[list[Record] | None] = [
        [], None, [acl(ALL, "world", "anyone")], [acl(0, "world", "anyone")], [acl(-1, "world", "anyone")],
        [acl(64, "world", "anyone")], [acl(ALL, "world", "nobody")], [acl(ALL, "world", "")], [acl(ALL, "world", None)],
        [acl(ALL, "", "anyone")], [acl(ALL, None, "anyone")], [acl(ALL, "unknown", "x")], [acl(ALL, "auth", "")],
        [acl(ALL, "auth", "x")], [acl(ALL, "digest", "")], [acl(ALL, "digest", "bob")], [acl(ALL, "digest", "bob:")],
        [acl(ALL, "digest", ":x")], [acl(ALL, "digest", "a:b:c")], [acl(ALL, "digest", BOB)],
        [acl(ALL, "digest", None)],
        [acl(ALL, "ip", "127.0.0.1")], [acl(ALL, "ip", "127.0.0.0/8")], [acl(ALL, "ip", "127.0.0.1/33")],
        [acl(ALL, "ip", "127.0.0.1/-1")], [acl(ALL, "ip", "127.0.0.1/x")], [acl(ALL, "ip", "1.2.3")],
        [acl(ALL, "ip", "1.2.3.256")], [acl(ALL, "ip", "::1")], [acl(ALL, "ip", "")], [acl(ALL, "ip", "1.2.3.4/0")],
        [acl(ALL, "ip", " 1.2.3.4")], [acl(ALL, "ip", "+1.2.3.4")], [acl(ALL, "ip", "1_0.2.3.4")],
        [acl(ALL, "ip", "1.2.3.4.")], [acl(ALL, "ip", "1.2.3.4/8/9")], [acl(ALL, "ip", "1.2.3.4/")],
        [acl(ALL, "ip", "1.2.3.\u0663")], [acl(ALL, "ip", "-1.2.3.4")], [acl(ALL, "ip", "/8")],
        [acl(ALL, "ip", "1.2.3.4.5")], [acl(ALL, "ip", None)], [acl(ALL, "auth", None)],
        [acl(ALL, "ip", "localhost")], [acl(ALL, "x509", "CN=x")], [acl(ALL, "sasl", "bob")], [acl(ALL, "super", "x")],
        [acl(1, "world", "anyone"), acl(1, "world", "anyone"), acl(2, "world", "anyone")],
        [acl(ALL, "world", "anyone"), acl(ALL, "unknown", "x")], [acl(ALL, "world", "anyone"), acl(ALL, "auth", "")],
    ]  # fmt: skip
    if w.newer:  # knows IPv6
        lists.remove([acl(ALL, "ip", "::1")])
    a = w.client()
    for number, entries in enumerate(lists):
        w.say(f"{number} {entries!r}")
        a.call(Op.CREATE, f"{w.root}/{number}", b"", entries, 0)
        a.call(Op.GET_ACL, f"{w.root}/{number}")
        a.call(Op.SET_ACL, w.root, entries, -2)
    for op, flags, tail in ((Op.CREATE2, 0, ()), (Op.CREATE_CONTAINER, 4, ()), (Op.CREATE_TTL, 5, (Long(99_999),))):
        a.call(op, f"{w.root}/o{op}", b"", [], flags, *tail)
        a.call(op, f"{w.root}/o{op}", b"", [acl(ALL, "digest", BOB)], flags, *tail)


@on_both
def test_what_each_permission_allows(w: World) -> None:
    a, b = w.client("a"), w.client("b")
    _login(a)
    for perms in (0, READ, WRITE, CREATE, DELETE, ADMIN, READ | ADMIN, ALL):
        node = f"{w.root}/{perms}"
        w.say(f"perms {perms}")
        a.call(Op.CREATE, node, b"data", [acl(perms, "world", "anyone"), acl(ALL, "digest", BOB)], 0)
        a.call(Op.CREATE, f"{node}/child", b"", OPEN, 0)
        for name, fields in _everything(node):
            if w.newer and name in (Op.EXISTS, Op.CHECK):  # asks for permission to read; is no request of clients
                continue
            b.send(name, *fields)
            b.call(Op.PING)
        a.call(Op.GET_CHILDREN2, node, False)
        a.call(Op.GET_ACL, node)


def _everything(node: str) -> list[tuple[Op, tuple[Field, ...]]]:
    return [
        (Op.EXISTS, (node, True)),
        (Op.GET_DATA, (node, True)),
        (Op.GET_CHILDREN, (node, True)),
        (Op.GET_CHILDREN2, (node, True)),
        (Op.GET_ALL_CHILDREN_NUMBER, (node,)),
        (Op.GET_EPHEMERALS, (node,)),
        (Op.SYNC, (node,)),
        (Op.CHECK, (node, 9)),
        (Op.CHECK, (node, -1)),
        (Op.GET_ACL, (node,)),
        (Op.ADD_WATCH, (node, 0)),
        (Op.REMOVE_WATCHES, (node, 3)),
        (Op.MULTI_READ, (multi((Op.GET_DATA, record(node, False)), (Op.GET_CHILDREN, record(node, False))),)),
        (Op.MULTI, (multi((Op.CHECK, record(node, -1))),)),
        (Op.MULTI, (multi((Op.SET_DATA, record(node, b"m", 5))),)),
        (Op.SET_DATA, (node, b"new", 7)),
        (Op.SET_DATA, (node, b"new", -1)),
        (Op.CREATE, (f"{node}/new", b"", OPEN, 0)),
        (Op.CREATE, (f"{node}/child", b"", OPEN, 0)),
        (Op.CREATE_TTL, (f"{node}/ttl", b"", OPEN, 5, Long(100_000))),
        (Op.CREATE_CONTAINER, (f"{node}/container", b"", OPEN, 4)),
        (Op.CREATE, (f"{node}/child/grandchild", b"", OPEN, 0)),
        (Op.DELETE, (f"{node}/child", 4)),
        (Op.DELETE, (f"{node}/child", -1)),
        (Op.DELETE, (f"{node}/child/grandchild", -1)),
        (Op.DELETE, (f"{node}/child", -1)),
        (Op.DELETE, (f"{node}/nothing", -1)),
        (Op.DELETE, (node, -1)),
        (Op.SET_ACL, (node, [acl(ALL, "digest", BOB)], 9)),
        (Op.SET_ACL, (node, [], -1)),
        (Op.SET_ACL, (node, [acl(ALL, "digest", BOB)], -1)),
        (Op.GET_DATA, (node, False)),
    ]


@on_both
def test_logging_in(w: World) -> None:
    a = w.client()
    a.call(Op.WHO_AM_I)
    _login(a)
    a.call(Op.WHO_AM_I)
    _login(a)
    _login(a, b"alice:x")
    _login(a, b"bob:other")
    a.call(Op.WHO_AM_I)
    for credentials in (b"", b"nopassword", b":", b":x", b"x:", b"a:b:c", b"\xff\xfe:x", None):
        w.say(repr(credentials))
        b = w.client("b")
        _login(b, credentials)
        b.call(Op.WHO_AM_I)
    a.send(Op.AUTH, 0, "digest", b"carol:x", xid=17)
    a.read_until(17)
    a.call(Op.WHO_AM_I)
    a.reconnect("again").call(Op.WHO_AM_I)


@on_both
def test_schemes_that_nobody_can_prove(w: World) -> None:
    for scheme in ("unknown", "world", "", None, "ip", "auth", "super", "sasl", "DIGEST"):
        w.say(str(scheme))
        a = w.client()
        a.send(Op.AUTH, 0, scheme, b"x:y")
        a.send(Op.WHO_AM_I)
        a.read(2)
    a = w.client()
    a.call(Op.AUTH, 77, "digest", b"bob:secret")
    a.call(Op.WHO_AM_I)


@on_both
def test_auth_stands_for_all_identities_of_the_connection(w: World) -> None:
    a, b = w.client("a"), w.client("b")
    _login(a)
    _login(a, b"alice:x")
    a.call(Op.CREATE2, f"{w.root}/auth", b"", [acl(READ, "auth", "ignored"), acl(ADMIN, "world", "anyone")], 0)
    for client in (a, b):
        client.call(Op.GET_DATA, f"{w.root}/auth", False)
    a.call(Op.CREATE2, f"{w.root}/one", b"", [acl(ALL, "digest", BOB), acl(ALL, "auth", "")], 0)
    a.call(Op.CREATE2, f"{w.root}/null", b"", [acl(ALL, "auth", None), acl(READ, "auth", "x")], 0)
    for name in ("auth", "one", "null"):
        a.call(Op.GET_ACL, f"{w.root}/{name}")
    a.call(Op.SET_ACL, f"{w.root}/one", [acl(ALL, "auth", "")], -1)
    b.call(Op.SET_ACL, f"{w.root}/auth", [acl(ALL, "auth", "")], -1)


@on_both
def test_hashes_are_shown_to_administrators_only(w: World) -> None:
    a, b = w.client("a"), w.client("b")
    _login(a)
    for perms in (0, READ, ADMIN, WRITE, CREATE | DELETE):
        node = f"{w.root}/{perms}"
        a.call(Op.CREATE, node, b"", [acl(ALL, "digest", BOB), acl(perms, "world", "anyone")], 0)
        for client in (a, b):
            client.call(Op.GET_ACL, node)
    a.call(Op.CREATE, f"{w.root}/x", b"", [acl(ALL, "digest", "no-colon:x"), acl(READ, "ip", "127.0.0.1")], 0)
    a.call(Op.GET_ACL, f"{w.root}/x")
    b.call(Op.GET_ACL, f"{w.root}/x")


@on_both
def test_addresses_are_identities(w: World) -> None:
    a = w.client()
    addresses = ("127.0.0.1", "127.0.0.0/8", "127.0.0.2", "10.0.0.0/8", "127.0.0.0/31", "0.0.0.0/0")
    for number, address in enumerate(addresses):
        a.call(Op.CREATE, f"{w.root}/{number}", b"", [acl(READ, "ip", address)], 0)
        a.call(Op.GET_DATA, f"{w.root}/{number}", False)
        a.call(Op.GET_ACL, f"{w.root}/{number}")


@on_both
def test_permissions_within_a_multi(w: World) -> None:
    a, b = w.client("a"), w.client("b")
    _login(a)
    node = f"{w.root}/n"
    a.call(Op.CREATE, node, b"", [acl(READ, "world", "anyone"), acl(ALL, "digest", BOB)], 0)
    fine = (Op.CREATE, record(f"{w.root}/fine", b"", OPEN, 0))
    no_list = (Op.CREATE, record(f"{w.root}/bad", b"", None, 0))
    for refused in (
        (Op.CREATE, record(f"{node}/c", b"", OPEN, 0)), (Op.SET_DATA, record(node, b"", -1)),
        (Op.DELETE, record(f"{node}/none", -1)), (Op.CHECK, record(node, -1)),
        (Op.CREATE, record(f"{w.root}/bad", b"", [], 0)), no_list,
        (Op.CREATE2, record(f"{w.root}/auth", b"", [acl(31, "auth", "")], 0)),
    ):  # fmt: skip
        if not (w.newer and refused == no_list):  # refuses the whole multi
            b.call(Op.MULTI, multi(fine, refused, fine))
    b.call(Op.GET_CHILDREN2, w.root, False)


@on_both
def test_authentication_arrives_before_what_is_behind_it(w: World) -> None:
    a = w.client("a")
    a.call(Op.CREATE, f"{w.root}/n", b"x", [acl(ALL, "digest", BOB)], 0)
    a.call(Op.GET_DATA, f"{w.root}/n", False)
    a.send(Op.AUTH, 0, "digest", b"bob:secret", xid=AUTH_XID)
    a.call(Op.GET_DATA, f"{w.root}/n", False)
