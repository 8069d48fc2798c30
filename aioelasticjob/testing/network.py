"""TCP in memory: listeners, connections with latency and flow control, and links that can fail.

A *host* is an address such as ``10.0.0.1``.  Code that runs in a ``Process`` has that process's address, all other code
is on ``127.0.0.1`` and may listen on any address.  What TCP promises holds: bytes arrive in order or not at all, a link
that is down delays them until it is up again, and who sends into the void learns of it after a quarter of an hour.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import socket
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from aioelasticjob.testing.process import Process, current_process
from aioelasticjob.testing.simulated_loop import SimulatedLoop
from aioelasticjob.testing.transport import Connection, Endpoint, FakeSocket

LOOPBACK = "127.0.0.1"
_HERE = frozenset({None, "", "0.0.0.0", "::", "::1", "localhost", LOOPBACK})
_SYN_WAITS = (1, 2, 4, 8, 16, 32, 64)
"""Seconds between the attempts to connect, as Linux makes them."""


@dataclass(frozen=True, slots=True)
class Link:
    """One direction between two hosts: seconds of latency, of random jitter on top, and whether bytes pass at all."""

    latency: float = 0.0005
    jitter: float = 0.0005
    up: bool = True


class Listener(asyncio.AbstractServer):
    """A server socket; what ``loop.create_server`` returns."""

    def __init__(self, network: Network, make: Callable[[], asyncio.BaseProtocol], address: tuple[str, int]) -> None:
        self._network = network
        self._make = make
        self.address = address
        self.process = current_process()
        self._context = contextvars.copy_context()
        self._accepted: set[Endpoint] = set()
        self._open = True
        self._forever: asyncio.Future[None] | None = None

    @property
    def sockets(self) -> tuple[FakeSocket, ...]:
        """What stands in for the listening socket; empty once closed."""
        if not self._open:
            return ()
        return (FakeSocket(self.address, None),)

    def accept(self, connection: Connection) -> None:
        """Give a new connection to the server's code, which meets it when it next runs."""
        end = connection.server
        self._accepted.add(end)
        end.whenever_closed(lambda: self._accepted.discard(end))
        end.attach(self._make, self._context.copy())

    def is_serving(self) -> bool:
        """Say whether new connections are accepted."""
        return self._open

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop."""
        return self._network.loop

    def close(self) -> None:
        """Stop listening; connections that were accepted live on."""
        if self._open:
            self._open = False
            self._network.forget(self)
            if self._forever and not self._forever.done():
                self._forever.cancel()

    def close_clients(self) -> None:
        """Close all accepted connections."""
        for end in sorted(self._accepted, key=lambda end: end.connection.number):
            end.close()

    def abort_clients(self) -> None:
        """Reset all accepted connections."""
        for end in sorted(self._accepted, key=lambda end: end.connection.number):
            end.abort()

    async def start_serving(self) -> None:
        """Do nothing: it listens already."""

    async def serve_forever(self) -> None:
        """Wait until cancelled, then close."""
        self._forever = self._network.loop.create_future()
        try:
            await self._forever
        finally:
            self.close()

    async def wait_closed(self) -> None:
        """Let one turn pass; as before Python 3.12, connections are not waited for."""
        await asyncio.sleep(0)


class Network:
    """All hosts, links, listeners and connections of one loop."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.default = Link()
        self.links: dict[tuple[str, str], Link] = {}
        self.unpowered: set[str] = set()
        """Hosts that answer nothing, not even with a refusal."""
        self.connections: dict[int, Connection] = {}
        self.context = contextvars.Context()
        """The context of the simulated kernels: packets travel even if their processes are paused or killed."""
        self.fingerprint = 0
        """Checksum over every delivered segment with its time and direction: equal for equal runs."""
        self._listeners: dict[tuple[str, int], Listener] = {}
        self._ports: dict[str, int] = {}
        self._opened = 0

    def link(self, source: str, target: str) -> Link:
        """Return the link from ``source`` to ``target``."""
        return self.links.get((source, target), self.default)

    def passes(self, source: str, target: str) -> bool:
        """Say whether a packet from ``source`` gets to ``target``."""
        return self.link(source, target).up and not {source, target} & self.unpowered

    def travel_time(self, source: str, target: str) -> float:
        """Return the seconds that the next packet from ``source`` to ``target`` takes."""
        link = self.link(source, target)
        return link.latency + link.jitter * self.loop.random.random()

    def addresses(self, host: str | None, port: int | str | None) -> list[tuple[Any, ...]]:
        """Answer ``getaddrinfo``: a name is its own address, and loopback is the asking host's."""
        address = (self._locate(host), int(port or 0))
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", address)]

    async def listen(
        self,
        make: Callable[[], asyncio.BaseProtocol],
        host: str | list[str] | None = None,
        port: int | None = None,
        *,
        ssl: object = None,
        sock: object = None,
        **_options: object,
    ) -> Listener:
        """Listen on ``host`` and ``port``; port 0 picks a free one.

        Raises: OSError when the port is taken, or the address is another host's.
        """
        _refuse_sockets(ssl, sock)
        if isinstance(host, list):
            host = host[0]
        address = self._locate(host)
        process = current_process()
        if process and address != process.address:
            raise OSError(errno.EADDRNOTAVAIL, f"{address} is not an address of {process}")
        port = port or self._free_port(address)
        if (address, port) in self._listeners:
            raise OSError(errno.EADDRINUSE, f"{address}:{port} is already in use")
        listener = Listener(self, make, (address, port))
        self._listeners[address, port] = listener
        return listener

    async def connect(
        self,
        make: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: object = None,
        sock: object = None,
        **_options: object,
    ) -> tuple[Endpoint, asyncio.BaseProtocol]:
        """Open a connection.

        Raises: ConnectionRefusedError when nothing listens there, TimeoutError after two minutes without an answer.
        """
        _refuse_sockets(ssl, sock)
        source = self._locate(None)
        address = self._locate(host)
        target = address, port or 0
        await self._handshake(source, address)
        listener = self._listeners.get(target)
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nothing listens on {address}:{port or 0}")
        self._opened += 1
        client = source, self._free_port(source)
        connection = Connection(self, self._opened, client, target, listener.process)
        self.connections[connection.number] = connection
        listener.accept(connection)
        protocol = connection.client.attach_now(make, contextvars.copy_context())
        return connection.client, protocol

    def forget(self, listener: Listener) -> None:
        """Free the listener's address."""
        if self._listeners.get(listener.address) is listener:
            del self._listeners[listener.address]

    def between(self, a: str, b: str) -> Iterator[Connection]:
        """Yield the connections between two hosts, oldest first."""
        for connection in list(self.connections.values()):
            if connection.joins(a, b):
                yield connection

    def listeners_of(self, process: Process) -> list[Listener]:
        """Return what ``process`` listens on."""
        return [listener for listener in self._listeners.values() if listener.process is process]

    def links_changed(self) -> None:
        """Send again what was lost on links that are up by now."""
        for connection in list(self.connections.values()):
            connection.retransmit()

    def dissolve(self) -> None:
        """Drop every connection at the end of the simulation."""
        for connection in list(self.connections.values()):
            for end in connection.ends():
                end.vanish()

    def delivered(self, source: tuple[str, int], target: tuple[str, int], data: bytes) -> None:
        """Count a segment in the fingerprint."""
        head = f"{self.loop.boot_time()!r} {source} {target} ".encode()
        with_head = zlib.crc32(head, self.fingerprint)
        self.fingerprint = zlib.crc32(data, with_head)

    async def _handshake(self, source: str, target: str) -> None:
        for wait in _SYN_WAITS:
            if self.passes(source, target) and self.passes(target, source):
                await asyncio.sleep(self.travel_time(source, target) + self.travel_time(target, source))
                return
            await asyncio.sleep(wait)
        raise TimeoutError(errno.ETIMEDOUT, f"no answer from {target}")

    def _locate(self, host: str | None) -> str:
        if host not in _HERE:
            return str(host)
        process = current_process()
        return process.address if process else LOOPBACK

    def _free_port(self, address: str) -> int:
        """Return a port of ``address`` that was never picked before."""
        port = self._ports.get(address, 32767) + 1
        while (address, port) in self._listeners:
            port += 1
        self._ports[address] = port
        return port


def _refuse_sockets(ssl: object, sock: object) -> None:
    if ssl or sock:
        raise ValueError("the in-memory network takes neither TLS nor sockets: give a host and a port")
