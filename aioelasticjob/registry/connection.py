"""Connection: one TCP connection to one server, from its first frame to its end.

It replaces aiozk's own connection class (docs/why/aiozk.md).  However the connection ends, all pending calls fail in
the same callback.  Requests of one turn of the loop leave in one write.  A reply costs one future, no task and no
timer.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from struct import Struct
from struct import error as Malformed  # noqa: N812  # a class, whatever its name
from typing import Final, cast

from aiozk import protocol

from aioelasticjob.registry.codec import AUTH, HEADER, LOST, MULTI, SYNC, Reply
from aioelasticjob.registry.lease import Lease

EVENT_XID: Final[int] = protocol.WATCH_XID
AUTH_XID: Final[int] = protocol.AUTH_XID
LAST_XID: Final = 0x7FFFFFFF
MAX_FRAME_BYTES: Final = 1 << 30  # bytes; a frame that claims to be longer does not come from a ZooKeeper server
THROUGH_LEADER: Final = frozenset({MULTI, SYNC})

_size = Struct("!i")
_head = Struct("!iii")  # size, xid, opcode
CLOSED = "closed by the server"
TLS_ALERT = b"\x15\x03"
"""The beginning of what a port for TLS answers to a connection that is not encrypted."""


class Connection(asyncio.Protocol):
    """Sends requests as frames, and hands replies to their callers and watch events to ``on_event``.

    There is no back-pressure on purpose: every caller waits for its reply, so the number of callers bounds the unsent
    data.
    """

    def __init__(self, lease: Lease, on_event: Callable[[bytes], None], on_lost: Callable[[Connection], None]) -> None:
        self.lease = lease
        self.on_event = on_event
        self.on_lost = on_lost
        self.loop = asyncio.get_running_loop()
        self.heard = self.loop.time()  # when the last byte came
        self.lost = asyncio.Event()  # no more calls
        self.gone = asyncio.Event()  # no more socket
        self.reason = ""
        self.opened = False  # with TLS: the handshake is over
        self.answers_with_tls = False
        self.error: Exception | None = None  # that ended the connection from below, such as a TLS alert
        self.largest_answered = 0  # bytes of a request
        self.suspect: tuple[int, bytes] = (0, b"")  # the largest request that was unanswered when the server ended all
        self._transport: asyncio.Transport | None = None
        self._greeting: asyncio.Future[bytes] | None = None
        self._pending: dict[int, tuple[asyncio.Future[Reply], float, int, bytes]] = {}
        self._auths: deque[asyncio.Future[Reply]] = deque()
        self._rest = bytearray()  # the beginning of a frame
        self._missing = 0  # bytes of it still to come, as far as known
        self._out: list[bytes] = []
        self._xid = 0

    @property
    def host(self) -> str:
        """Our own address on this connection."""
        return self._name("sockname")[0]

    @property
    def peer(self) -> str:
        """The server's address and port."""
        return ":".join(self._name("peername"))

    @property
    def encryption(self) -> ssl.SSLObject | None:
        """What was agreed with the server about TLS; None without TLS."""
        return self._transport.get_extra_info("ssl_object") if self._transport else None

    async def greet(self, frame: bytes) -> bytes:
        """Send the frame that attaches a session, and return the server's answer.

        Raises: ConnectionError when the connection ends instead, or has ended already.
        """
        if self.lost.is_set():
            raise ConnectionError(self.reason)
        self._greeting = self.loop.create_future()
        self._write(_size.pack(len(frame)) + frame)
        return await self._greeting

    def call(self, opcode: int, body: bytes) -> asyncio.Future[Reply]:
        """Send a request and return a future of its reply; if the connection ends first, its error is LOST."""
        future: asyncio.Future[Reply] = self.loop.create_future()
        if self.lost.is_set():
            future.set_result((LOST, 0, b""))
            return future
        self.lease.requests += 1
        if opcode == AUTH:  # the server answers it out of order, under a fixed xid
            xid = AUTH_XID
            self._auths.append(future)
        else:
            self._xid = self._xid % LAST_XID + 1
            xid = self._xid
            self._pending[xid] = (future, self.lease.now(), opcode, body)
        self._write(_head.pack(len(body) + 8, xid, opcode) + body)
        return future

    def abort(self, reason: str) -> None:
        """End the connection and every call on it, now."""
        if self.lost.is_set():
            return
        self.reason = reason
        self.lost.set()
        if self._transport is not None:
            self._transport.abort()
        if self._greeting is not None and not self._greeting.done():
            self._greeting.set_exception(ConnectionError(reason))
            # mark the error as retrieved: the caller that waited for it may have been cancelled
            self._greeting.exception()
        pending = [*self._auths, *(future for future, _, _, _ in self._pending.values())]
        self._auths.clear()
        self._pending.clear()
        self._out.clear()
        for future in pending:
            if not future.done():
                future.set_result((LOST, 0, b""))
        self.on_lost(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)
        self.opened = True

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self.gone.set()
        self.error = exc
        if not self.lost.is_set():
            unanswered = [(opcode, body) for _, _, opcode, body in self._pending.values()]
            self.suspect = max(unanswered, key=lambda request: len(request[1]), default=self.suspect)
        self.abort(str(exc or "") or CLOSED)

    def data_received(self, data: bytes) -> None:
        """Take frames off what has come."""
        self.heard = self.loop.time()
        if self._greeting is not None and data.startswith(TLS_ALERT):
            self.answers_with_tls = True
            self.abort("the server answers with TLS")
            return
        if self._rest:
            self._rest += data
            if len(self._rest) < self._missing:  # a long frame is joined once, not with every packet
                return
            data = bytes(self._rest)
            self._rest.clear()
            self._missing = 0
        at = 0
        end = len(data)
        try:
            while end - at >= 4:
                (size,) = _size.unpack_from(data, at)
                if not 0 <= size <= MAX_FRAME_BYTES:
                    raise ValueError(f"a frame of {size} bytes")
                if end - at - 4 < size:
                    self._missing = size + 4
                    break
                at += 4 + size
                self._frame(data[at - size : at])
        except (ValueError, Malformed) as error:
            self.abort(f"not ZooKeeper's protocol: {error}")
            return
        if at < end:
            self._rest += data[at:]

    def _frame(self, frame: bytes) -> None:
        if self._greeting is not None:
            greeting = self._greeting
            self._greeting = None
            if not greeting.done():
                greeting.set_result(frame)
            return
        xid, zxid, error = HEADER.unpack_from(frame)
        if xid == EVENT_XID:
            self.on_event(frame)
            return
        if xid == AUTH_XID:
            if not self._auths:
                raise ValueError("an answer to no credentials")
            future = self._auths.popleft()
        else:
            waiting = self._pending.pop(xid, None)
            if waiting is None:
                raise ValueError(f"an answer to no request, {xid}")
            future, sent, opcode, body = waiting
            self.largest_answered = max(self.largest_answered, len(body))
            self.lease.zxid = max(self.lease.zxid, zxid)
            if opcode in THROUGH_LEADER and not error:  # a refused request may not have got to the leader
                self.lease.prove(sent)
        if not future.done():
            future.set_result((error, zxid, frame))

    def _name(self, which: str) -> tuple[str, str]:
        name = self._transport.get_extra_info(which) if self._transport else None
        if not name:
            return ("", "")
        return (str(name[0]), str(name[1]))

    def _write(self, frame: bytes) -> None:
        if not self._out:
            self.loop.call_soon(self._flush)
        self._out.append(frame)

    def _flush(self) -> None:
        out = self._out
        self._out = []
        if out and self._transport is not None:
            self._transport.write(b"".join(out))
