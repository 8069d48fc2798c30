"""The two ends of a simulated TCP connection and the pipes between them."""

from __future__ import annotations

import asyncio
import contextvars
import errno
import socket
from asyncio.protocols import _feed_data_to_buffered_proto  # type: ignore[attr-defined]  # as asyncio's own transports
from asyncio.transports import _FlowControlMixin
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Final, Protocol

from aioelasticjob.testing.process import Process, current_process
from aioelasticjob.testing.simulated_loop import SimulatedLoop

Address = tuple[str, int]

WINDOW_BYTES: Final = 256 * 1024
"""Bytes the kernels of both ends take before a writer has to wait."""
SEGMENT_BYTES: Final = 64 * 1024
RETRANSMIT_TIMEOUT: Final = 924.6
"""Seconds after which Linux gives up a connection whose bytes are not acknowledged."""
Failure = ConnectionError | TimeoutError | None


class Signal(Enum):
    """A segment without bytes."""

    END = b"<end>"
    RESET = b"<reset>"


Segment = bytes | Signal


def _size(segment: Segment) -> int:
    return len(segment) if isinstance(segment, bytes) else 0


class FakeSocket:
    """A stand-in for a transport's socket, which does not exist."""

    family = socket.AF_INET
    type = socket.SOCK_STREAM
    proto = socket.IPPROTO_TCP

    def __init__(self, name: Address, peer: Address | None) -> None:
        self._name = name
        self._peer = peer

    def getsockname(self) -> Address:
        """Return the own address."""
        return self._name

    def getpeername(self) -> Address:
        """Return the other end's address.

        Raises: OSError for a listening socket.
        """
        if self._peer is None:
            raise OSError(errno.ENOTCONN, "not connected")
        return self._peer

    def fileno(self) -> int:
        """Return -1: there is no descriptor."""
        return -1

    def setsockopt(self, *_args: object) -> None:
        """Accept any option."""

    def getsockopt(self, *_args: object) -> int:
        """Return 0 for any option."""
        return 0


class _Network(Protocol):
    """The part of the network that a connection needs."""

    loop: SimulatedLoop
    context: contextvars.Context
    connections: dict[int, Connection]

    def travel_time(self, source: str, target: str) -> float: ...
    def passes(self, source: str, target: str) -> bool: ...
    def delivered(self, source: Address, target: Address, data: bytes) -> None: ...


class Connection:
    """A connection as the network sees it."""

    def __init__(
        self, network: _Network, number: int, client: Address, server: Address, server_process: Process | None
    ) -> None:
        self.network = network
        self.number = number
        self.client = Endpoint(self, client, server, current_process())
        self.server = Endpoint(self, server, client, server_process)
        self.client.peer = self.server
        self.server.peer = self.client
        self.severed = False
        """Whether it is half open: both ends take it for open, but no packet passes any more."""

    def joins(self, a: str, b: str) -> bool:
        """Say whether it is between hosts ``a`` and ``b``."""
        return {self.client.address[0], self.server.address[0]} == {a, b}

    def ends(self) -> tuple[Endpoint, Endpoint]:
        """Return both ends."""
        return self.client, self.server

    def reset(self) -> None:
        """Break it: both ends see a reset."""
        for end in self.ends():
            end.fail(ConnectionResetError(errno.ECONNRESET, "connection reset by peer"))

    def retransmit(self) -> None:
        """Send again what is still on the way, where the link is up."""
        for end in self.ends():
            end.retransmit()

    def discard_when_over(self) -> None:
        """Leave the network once neither end is open and nothing is on the way."""
        if all(end.over for end in self.ends()):
            self.network.connections.pop(self.number, None)


class Endpoint(_FlowControlMixin):
    """One end of a connection: asyncio's transport."""

    peer: Endpoint
    _maybe_pause_protocol: Callable[[], None]
    _maybe_resume_protocol: Callable[[], None]

    def __init__(self, connection: Connection, address: Address, remote: Address, process: Process | None) -> None:
        face = FakeSocket(address, remote)
        loop = connection.network.loop
        super().__init__({"sockname": address, "peername": remote, "socket": face}, loop)
        self.connection = connection
        self.address = address
        self.process = process
        self._network = connection.network
        self._clock = loop
        self._context = contextvars.Context()
        self._protocol: asyncio.BaseProtocol | None = None
        self._closing = False
        self._reading_paused = False
        self._eof_written = False
        self._reader_due = False
        self._broken = False
        self.gone = False
        self._backlog: deque[Segment] = deque()  # written, but beyond the window
        self._wire: deque[Segment] = deque()  # sent, not yet arrived
        self._inbox: deque[Segment] = deque()  # arrived, not yet read
        self._backlog_size = 0
        self._in_flight = 0
        self._coming = 0
        self._last_arrival = 0.0
        self._abandon: asyncio.TimerHandle | None = None
        self._on_closed: list[Callable[[], None]] = []

    # -- the life of the transport

    def attach(self, make: Callable[[], asyncio.BaseProtocol], context: contextvars.Context) -> None:
        """Connect a new protocol to this end as soon as its process runs."""
        self._context = context
        self._clock.call_soon(self.attach_now, make, context, context=context)

    def attach_now(
        self, make: Callable[[], asyncio.BaseProtocol], context: contextvars.Context
    ) -> asyncio.BaseProtocol:
        """Connect a new protocol to this end at once and return it."""
        self._context = context
        self._protocol = make()
        self._protocol.connection_made(self)
        self._wake_reader()
        return self._protocol

    def whenever_closed(self, call: Callable[[], None]) -> None:
        """Have ``call`` made when this end is gone."""
        self._on_closed.append(call)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Exchange the protocol."""
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol.

        Raises: RuntimeError before there is one.
        """
        if self._protocol is None:
            raise RuntimeError("not connected yet")
        return self._protocol

    def is_closing(self) -> bool:
        """Say whether it is closed or about to be."""
        return self._closing

    @property
    def over(self) -> bool:
        """Whether it is closed and has nothing left to send."""
        return self.gone and not self._wire

    def close(self) -> None:
        """Send what was written, then close; nothing is received from now on."""
        if not self._closing:
            self._closing = True
            if not self._backlog:
                self._leave()

    def abort(self) -> None:
        """Close at once: what was not sent is lost, and the other end sees a reset."""
        if not self.gone:
            self._wire.clear()
            self._send(Signal.RESET)
            self._lose(None)

    def fail(self, failure: Failure) -> None:
        """End because of the network or the other end."""
        if not self.gone:
            self._wire.clear()
            self._lose(failure)

    def close_after_kill(self) -> None:
        """End as the kernel ends the connections of a process that was killed: only what it had taken is sent."""
        if not self.gone:
            self._leave()

    def vanish(self) -> None:
        """Close without telling the other end."""
        self._wire.clear()
        if self.gone:
            self.connection.discard_when_over()
        else:
            self._lose(None)

    def _leave(self) -> None:
        """Close after the last byte was sent; as on Linux, with a reset if bytes for this end were left unread."""
        if any(isinstance(segment, bytes) for segment in self._inbox):
            self._send(Signal.RESET)
        elif Signal.END in self._backlog or not self._eof_written:
            self._send(Signal.END)
        self._lose(None)

    def _lose(self, failure: Failure) -> None:
        self._closing = True
        self.gone = True
        self._backlog.clear()
        self._inbox.clear()
        self._backlog_size = 0
        self._clock.call_soon(self._connection_lost, failure, context=self._context)
        for call in self._on_closed:
            call()
        self.connection.discard_when_over()

    def _connection_lost(self, failure: Failure) -> None:
        if self._protocol is not None:
            self._protocol.connection_lost(failure)

    # -- writing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send ``data``; pause the protocol when the other end does not keep up.

        Raises: RuntimeError after ``write_eof``.
        """
        if self._closing:
            return  # as real transports, which at most log it
        if self._eof_written:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._broken:
            self.fail(BrokenPipeError(errno.EPIPE, "connection reset by peer"))
            return
        for start in range(0, len(data), SEGMENT_BYTES):
            segment = bytes(data[start : start + SEGMENT_BYTES])
            self._backlog.append(segment)
            self._backlog_size += len(segment)
        self._pump()
        self._maybe_pause_protocol()

    def can_write_eof(self) -> bool:
        """Return True."""
        return True

    def write_eof(self) -> None:
        """Close the sending direction after what was written."""
        if not self._eof_written and not self.gone:
            self._eof_written = True
            self._backlog.append(Signal.END)
            self._pump()

    def get_write_buffer_size(self) -> int:
        """Return the bytes that the kernel has not taken yet."""
        return self._backlog_size

    def _pump(self) -> None:
        """Move what the window admits from the backlog to the wire."""
        while self._backlog and self._in_flight < WINDOW_BYTES:
            segment = self._backlog.popleft()
            self._backlog_size -= _size(segment)
            self._in_flight += _size(segment)
            self._wire.append(segment)
        self.retransmit()

    def _send(self, signal: Signal) -> None:
        self._wire.append(signal)
        self.retransmit()

    def retransmit(self) -> None:
        """Send again the segments that were lost, as far as the link is up."""
        if not self._wire:
            return
        if not self._passes():
            if self._abandon is None:
                self._abandon = self._clock.call_later(RETRANSMIT_TIMEOUT, self._give_up, context=self._network.context)
            return
        if self._abandon is not None:
            self._abandon.cancel()
            self._abandon = None
        while self._coming < len(self._wire):
            delay = self._network.travel_time(self.address[0], self.peer.address[0])
            self._last_arrival = max(self._last_arrival, self._clock.boot_time() + delay)
            self._clock.call_at_boot_time(self._last_arrival, self._arrive, context=self._network.context)
            self._coming += 1

    def _passes(self) -> bool:
        return not self.connection.severed and self._network.passes(self.address[0], self.peer.address[0])

    def _give_up(self) -> None:
        self._wire.clear()
        self.connection.discard_when_over()
        self.fail(TimeoutError(errno.ETIMEDOUT, f"{self.peer.address[0]} acknowledges nothing"))

    def _arrive(self) -> None:
        """Hand the oldest segment on the wire to the other end, unless it is lost after all."""
        self._coming -= 1
        if not self._wire:
            return
        if not self._passes():
            self.retransmit()
            return
        segment = self._wire.popleft()
        self.peer.receive(segment)
        if self.over:
            self.connection.discard_when_over()

    def _acknowledge(self, size: int) -> None:
        """Note that the other end has read ``size`` bytes."""
        self._in_flight -= size
        if self._backlog:
            self._pump()
            self._clock.call_soon(self._maybe_resume_protocol, context=self._context)
            if self._closing and not self._backlog:
                self._leave()

    # -- reading

    def receive(self, segment: Segment) -> None:
        """Take a segment from the network; the protocol gets it when its process runs and wants to read."""
        data = segment if isinstance(segment, bytes) else segment.value
        self._network.delivered(self.peer.address, self.address, data)
        if not self.gone:
            self._broken = self._broken or segment is Signal.RESET
            self._inbox.append(segment)
            self._wake_reader()
        elif isinstance(segment, bytes):
            self._send(Signal.RESET)  # nobody reads here any more

    def is_reading(self) -> bool:
        """Say whether data is being received."""
        return not self._closing and not self._reading_paused

    def pause_reading(self) -> None:
        """Leave what arrives in the kernel."""
        self._reading_paused = True

    def resume_reading(self) -> None:
        """Receive again."""
        self._reading_paused = False
        self._wake_reader()

    def _wake_reader(self) -> None:
        if self._inbox and self._protocol is not None and not self._reading_paused and not self._reader_due:
            self._reader_due = True
            self._clock.call_soon(self._deliver, context=self._context)

    def _deliver(self) -> None:
        """Give the protocol one segment."""
        self._reader_due = False
        if not self._inbox or self._reading_paused or self._closing or self._protocol is None:
            return
        segment = self._inbox.popleft()
        self.peer._acknowledge(_size(segment))
        try:
            self._hand_over(self._protocol, segment)
        except Exception as failure:
            message = "protocol failed on what it received"
            self._clock.call_exception_handler({"message": message, "exception": failure, "transport": self})
            self.abort()
        self._wake_reader()

    def _hand_over(self, protocol: asyncio.BaseProtocol, segment: Segment) -> None:
        if segment is Signal.RESET:
            self.fail(ConnectionResetError(errno.ECONNRESET, "connection reset by peer"))
        elif isinstance(protocol, asyncio.BufferedProtocol):
            if isinstance(segment, bytes):
                _feed_data_to_buffered_proto(protocol, segment)
            elif not protocol.eof_received():
                self.close()
        elif isinstance(protocol, asyncio.Protocol):
            if isinstance(segment, bytes):
                protocol.data_received(segment)
            elif not protocol.eof_received():
                self.close()
