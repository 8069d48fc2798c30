"""One connection against a server made of bytes."""

from __future__ import annotations

import asyncio
from struct import pack, unpack_from
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioelasticjob.registry.codec import AUTH, GET, LOST, MULTI, SYNC
from aioelasticjob.registry.connection import Connection
from aioelasticjob.registry.lease import Lease
from tests.support.loops import run_async


class Wire(asyncio.Transport):
    """Keeps what was written, and whether it was cut."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.aborted = False

    def write(self, data: Any) -> None:
        self.written.append(data)

    def abort(self) -> None:
        self.aborted = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"sockname": ("10.0.0.5", 40000), "peername": ("10.0.0.9", 2181)}.get(name, default)


class Talk:
    """A connection with both of its ends in hand."""

    def __init__(self) -> None:
        self.lease, self.wire = Lease(), Wire()
        self.events: list[bytes] = []
        self.ends: list[Connection] = []
        self.connection = Connection(self.lease, self.events.append, self.ends.append)
        self.connection.connection_made(self.wire)

    def hear(self, *frames: bytes) -> None:
        self.connection.data_received(b"".join(framed(frame) for frame in frames))


def framed(frame: bytes) -> bytes:
    return pack("!i", len(frame)) + frame


def reply(xid: int, zxid: int = 7, error: int = 0, body: bytes = b"") -> bytes:
    return pack("!iqi", xid, zxid, error) + body


def test_requests_of_one_round_leave_in_one_write() -> None:
    async def main() -> None:
        talk = Talk()
        for body in (b"a", b"bc"):
            talk.connection.call(GET, body)
        assert talk.wire.written == []
        await asyncio.sleep(0)
        assert talk.wire.written == [framed(pack("!ii", 1, GET) + b"a") + framed(pack("!ii", 2, GET) + b"bc")]

    asyncio.run(main())


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=6), st.data())
def test_replies_are_the_same_however_they_are_cut(bodies: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(framed(reply(xid, body=body)) for xid, body in enumerate(bodies, 1))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))

    async def main() -> None:
        talk = Talk()
        futures = [talk.connection.call(GET, b"") for _ in bodies]
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            talk.connection.data_received(stream[start:end])
        assert [future.result() for future in futures] == [(0, 7, reply(n, body=b)) for n, b in enumerate(bodies, 1)]

    asyncio.run(main())


def test_replies_find_their_requests_in_any_order_and_cancelled_ones_harm_nobody() -> None:
    async def main() -> None:
        talk = Talk()
        first, second, third = (talk.connection.call(GET, b"") for _ in range(3))
        second.cancel()
        talk.hear(reply(3, error=-101), reply(2), reply(1))
        assert (await first)[0] == 0
        assert (await third)[0] == -101
        assert not talk.ends

    asyncio.run(main())


def test_credentials_are_answered_out_of_turn() -> None:
    async def main() -> None:
        talk = Talk()
        read, auth = talk.connection.call(GET, b""), talk.connection.call(AUTH, b"")
        talk.hear(reply(-4, error=-115))
        assert (await auth)[0] == -115
        assert not read.done()

    asyncio.run(main())


def test_events_are_handed_on_before_the_reply_that_follows_them() -> None:
    async def main() -> None:
        talk = Talk()
        future = talk.connection.call(MULTI, b"")
        future.add_done_callback(lambda _: talk.events.append(b"reply"))
        talk.hear(reply(-1, -1, body=b"event"), reply(1))
        await asyncio.sleep(0)
        assert talk.events == [reply(-1, -1, body=b"event"), b"reply"]

    asyncio.run(main())


@pytest.mark.parametrize("how", ["eof", "reset", "abort", "garbage", "negative size", "unknown xid", "unasked auth"])
def test_every_end_fails_all_pending_calls_in_the_same_callback(how: str) -> None:
    async def main() -> None:
        talk = Talk()
        futures = [talk.connection.call(GET, b""), talk.connection.call(AUTH, b"")]
        {
            "eof": lambda: talk.connection.connection_lost(None),
            "reset": lambda: talk.connection.connection_lost(ConnectionResetError(104, "reset")),
            "abort": lambda: talk.connection.abort("silent"),
            "garbage": lambda: talk.connection.data_received(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
            "negative size": lambda: talk.connection.data_received(pack("!i", -5)),
            "unknown xid": lambda: talk.hear(reply(99)),
            "unasked auth": lambda: talk.hear(reply(-4), reply(-4)),
        }[how]()
        assert talk.ends == [talk.connection]
        assert talk.connection.lost.is_set()
        assert talk.wire.aborted
        assert talk.connection.reason
        assert futures[0].result()[0] == LOST
        assert futures[1].done()
        late = talk.connection.call(GET, b"")
        assert late.result()[0] == LOST
        talk.connection.connection_lost(None)
        await asyncio.sleep(0)
        assert talk.wire.written == []  # nothing leaves once the end is known
        assert talk.ends == [talk.connection]  # told once

    asyncio.run(main())


def test_only_answers_through_the_leader_prove_the_session_alive() -> None:
    async def main() -> None:
        talk = Talk()
        before = asyncio.get_running_loop().time()
        talk.connection.call(GET, b"")
        talk.hear(reply(1, zxid=12))
        assert talk.lease.proven < 0
        assert talk.lease.zxid == 12
        talk.connection.call(SYNC, b"")
        talk.hear(reply(2, zxid=11))
        assert talk.lease.proven >= before
        assert talk.lease.zxid == 12

    asyncio.run(main())


def test_the_first_answer_is_the_greeting() -> None:
    async def main() -> None:
        talk = Talk()
        greeting = asyncio.ensure_future(talk.connection.greet(b"hello"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert talk.wire.written == [framed(b"hello")]
        talk.hear(b"welcome")
        assert await greeting == b"welcome"
        assert (talk.connection.host, talk.connection.peer) == ("10.0.0.5", "10.0.0.9:2181")

    asyncio.run(main())


def test_a_connection_that_ends_in_place_of_a_greeting_says_why() -> None:
    async def main() -> None:
        talk = Talk()
        greeting = asyncio.ensure_future(talk.connection.greet(b"hello"))
        await asyncio.sleep(0)
        talk.connection.connection_lost(None)
        with pytest.raises(ConnectionError, match="closed by the server"):
            await greeting

    asyncio.run(main())


def test_a_connection_that_has_ended_before_the_greeting_says_why() -> None:
    async def main() -> None:
        talk = Talk()
        talk.connection.connection_lost(None)
        with pytest.raises(ConnectionError, match="closed by the server"):
            await asyncio.wait_for(talk.connection.greet(b"hello"), 1)

    run_async("virtual", main)


def test_request_numbers_stay_positive() -> None:
    async def main() -> None:
        talk = Talk()
        talk.connection._xid = 0x7FFFFFFE
        for _ in range(3):
            talk.connection.call(GET, b"")
        await asyncio.sleep(0)
        (written,) = talk.wire.written
        assert [unpack_from("!i", written, at)[0] for at in (4, 16, 28)] == [0x7FFFFFFF, 1, 2]

    asyncio.run(main())
