"""Handshakes, sessions and what ends them."""

from __future__ import annotations

import pytest

from .scenario import on_both
from .wire import OPEN, Op, connect_request, frame, jute
from .world import Client, World

pytestmark = pytest.mark.zookeeper


@on_both
def test_timeouts_are_negotiated(w: World) -> None:
    for timeout in (-(2**31), -1, 0, 1, 3999, 4000, 4001, 12_345, 39_999, 40_000, 40_001, 2**31 - 1):
        w.client(timeout=timeout)


@on_both
def test_the_password_may_be_anything_at_first(w: World) -> None:
    for password in (None, b"", b"x", bytes(16), b"y" * 16, b"z" * 100):
        w.client(password=password).call(Op.EXISTS, w.root, False)


@on_both
def test_old_and_new_forms_of_the_request(w: World) -> None:
    for read_only in (None, False, True):
        w.client(read_only=read_only).call(Op.EXISTS, w.root, False)
    for protocol in (-1, 0, 1, 7, 2**31 - 1):
        w.client(protocol=protocol).call(Op.EXISTS, w.root, False)


@on_both
def test_a_client_that_has_seen_the_future_is_refused(w: World) -> None:
    for last_zxid in (-1, 1, 2**60, 2**63 - 1):
        w.client(last_zxid=last_zxid).call(Op.EXISTS, w.root, False)


@on_both
def test_a_session_is_taken_over_with_its_password(w: World) -> None:
    a = w.client("a")
    a.call(Op.CREATE, f"{w.root}/e", b"", OPEN, 1)
    b = a.reconnect("b", timeout=20_000)
    b.call(Op.EXISTS, f"{w.root}/e", False)
    b.call(Op.CREATE2, f"{w.root}/e2", b"", OPEN, 1)
    a.read_to_end()
    b.link.close()
    c = a.reconnect("c", read_only=None)
    c.call(Op.GET_EPHEMERALS, w.root)
    c.call(Op.CLOSE_SESSION)
    c.read_to_end()
    a.reconnect("d").read_to_end()


@on_both
def test_strangers_get_no_session(w: World) -> None:
    a = w.client("a")
    for password in (b"w" * 16, bytes(16), b"", None, a.password[:15], a.password + b"x"):
        stranger = a.reconnect("stranger", password=password)
        stranger.call(Op.EXISTS, w.root, False)
    a.call(Op.EXISTS, w.root, False)
    for session in (1, -1, 2**62, a.session + 1):
        for password in (b"w" * 16, a.password, None):
            w.client("unknown", session=session, password=password).read_to_end()
    a.call(Op.EXISTS, w.root, False)


@on_both
def test_a_closed_session_takes_its_ephemerals_along(w: World) -> None:
    a, b = w.client("a"), w.client("b")
    for name in ("one", "two"):
        a.call(Op.CREATE, f"{w.root}/{name}", b"", OPEN, 1)
    a.call(Op.CREATE, f"{w.root}/stays", b"", OPEN, 0)
    b.call(Op.GET_CHILDREN, w.root, True)
    a.call(Op.CLOSE_SESSION)
    a.read_to_end()
    b.settle()
    b.call(Op.GET_CHILDREN2, w.root, False)


@on_both
def test_a_close_comes_after_what_was_asked_before(w: World) -> None:
    a, b = w.client("a"), w.client("b")
    a.send(Op.CREATE, f"{w.root}/x", b"", OPEN, 1)
    a.send(Op.EXISTS, f"{w.root}/x", False)
    a.send(Op.CLOSE_SESSION)
    a.read_to_end()
    b.call(Op.GET_CHILDREN2, w.root, False)


@on_both
def test_a_half_closed_or_dropped_connection_keeps_the_session(w: World) -> None:
    a = w.client("a")
    a.call(Op.CREATE, f"{w.root}/e", b"", OPEN, 1)
    a.link.finish()
    a.read_to_end()
    b = a.reconnect("b")
    b.call(Op.GET_EPHEMERALS, w.root)
    b.link.close()
    a.reconnect("c").call(Op.GET_EPHEMERALS, w.root)


@on_both
def test_requests_are_answered_in_order(w: World) -> None:
    a = w.client()
    xids = []
    for number in range(30):
        xids.append(a.send(Op.CREATE, f"{w.root}/{number % 7}", b"", OPEN, 0))
        xids.append(a.send(Op.GET_CHILDREN2, w.root, False))
        a.send(Op.PING)
        a.send(Op.SYNC, "/")
        a.send(Op.DELETE, f"{w.root}/{number % 5}", -1)
    a.read(30 * 5)
    a.call(Op.EXISTS, w.root, False)


@on_both
def test_thousands_of_requests_are_in_flight(w: World) -> None:
    a = w.client()
    for number in range(2500):
        if number % 100 == 0:
            a.send(Op.CREATE, f"{w.root}/{number}", b"", OPEN, 0)
        a.send(Op.EXISTS, f"{w.root}/{number // 100 * 100 + 100}", False)
    a.send(Op.CLOSE_SESSION)
    a.read_to_end()


@on_both
def test_xids_are_echoed_whatever_they_are(w: World) -> None:
    a = w.client()
    for xid in (0, 5, 5, 3, -3, -5, -100, 2**31 - 1, -(2**31)):
        a.call(Op.EXISTS, w.root, False, xid=xid)
        a.call(Op.DELETE, f"{w.root}/none", -1, xid=xid)
    a.send(Op.PING, xid=77)
    a.call(Op.EXISTS, w.root, False)


@on_both
def test_a_ping_with_another_xid_still_says_ping(w: World) -> None:
    a = w.client()
    a.send(Op.PING, xid=42)
    a.read(1)
    a.send(Op.CLOSE_SESSION, xid=-7)
    a.read_to_end()


def _raw(w: World, data: bytes) -> None:
    w.say(f"{len(data)} bytes {data[:24].hex()}")
    client = Client(w, "raw")
    client.link.write(data)
    client.link.patience(0.3)
    client.read()


@on_both
def test_malformed_first_frames_end_the_connection(w: World) -> None:
    good = connect_request()
    for data in (
        frame(b""), frame(b"\0" * 4), frame(good[:20]), frame(good[:27]), b"\xff\xff\xff\xff", b"\x80\0\0\0",
        b"\x7f\xff\xff\xff", jute(1_048_576) + b"x", jute(1_048_575) + b"x", b"GET / HTTP/1.1\r\n\r\n",
        frame(jute(1, Op.EXISTS, "/", False)), frame(connect_request(password=None)[:-5] + b"\xff\xff\xff\xfe\0"),
        frame(connect_request(password=b"")[:-5] + b"\x7f\xff\xff\xff\0"),
    ):  # fmt: skip
        _raw(w, data)
    w.client().call(Op.EXISTS, w.root, False)


@on_both
def test_malformed_frames_end_only_their_connection(w: World) -> None:
    w.names.counts_requests = not w.newer
    bystander = w.client("b")
    for data in (
        frame(b""), frame(b"\0"), frame(b"\0" * 7), b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\x7f\xff\xff\xff",
        jute(1_048_576) + bytes(100), frame(jute(1, Op.EXISTS) + b"\x7f\xff\xff\xff/x"),
        frame(jute(1, Op.EXISTS) + b"\xff\xff\xff\xfe"), frame(jute(1, Op.CREATE, "/x") + b"\xff\xff\xff\xf0"),
        frame(jute(1, Op.CREATE, f"{w.root}/x", b"", -1, 0)), frame(jute(1, Op.CREATE, f"{w.root}/y", b"", -2, 0)),
        frame(jute(1, Op.CREATE, f"{w.root}/y", b"", 2**31 - 1, 0)),
        frame(jute(1, Op.GET_DATA) + jute(10) + b"/x"), frame(jute(1, Op.CREATE, "/x") + jute(2**20 + 1)),
    ):  # fmt: skip
        w.say(data[:40].hex())
        a = w.client("a")
        a.link.write(data)
        a.read()  # before more is sent: a reset would take the answer away
        a.call(Op.EXISTS, w.root, False, xid=2)
        a.link.close()
        bystander.call(Op.EXISTS, w.root, False)


@on_both
def test_a_second_connect_request_is_an_unknown_operation(w: World) -> None:
    a = w.client()
    a.link.write(frame(connect_request()))
    a.read_to_end()


@on_both
def test_frames_have_a_greatest_length(w: World) -> None:
    a = w.client("a")
    overhead = len(jute(1, Op.CREATE, f"{w.root}/d", b"", OPEN, 0))
    for number, size in enumerate((2**20 - 2 - overhead, 2**20 - 1 - overhead, 2**20 - overhead, 2**20)):
        w.say(f"{size + overhead}")
        a.call(Op.CREATE, f"{w.root}/{number}", bytes(size), OPEN, 0)
        a.call(Op.EXISTS, f"{w.root}/{number}", False)
        a = a.reconnect("a")


@on_both
def test_frames_may_arrive_in_pieces(w: World) -> None:
    a = w.client()
    data = frame(jute(9, Op.EXISTS, w.root, False)) + frame(jute(10, Op.GET_CHILDREN, w.root, False))
    a.expect(9, Op.EXISTS)
    a.expect(10, Op.GET_CHILDREN)
    for byte in data:
        a.link.write(bytes([byte]))
    a.read(2)
