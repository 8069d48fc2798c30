"""A TCP proxy on the real network whose connections can be spoilt."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Literal

Direction = Literal["up", "down"]
"""``up`` is from the client to the server."""

_LINGER_NOT = struct.pack("ii", 1, 0)  # closing a socket then sends a reset


class Proxy:
    """Passes bytes between clients and one server until told otherwise."""

    def __init__(self, target_host: str, target_port: int) -> None:
        self.target = target_host, target_port
        self.host, self.port = "127.0.0.1", 0
        self.refusing = False
        self.delay = 0.0
        """Seconds each piece of data is kept before it is passed on."""
        self.swallowed: set[Direction] = set()
        """Directions whose bytes disappear."""
        self.passed: dict[Direction, int] = {"up": 0, "down": 0}
        """Bytes passed on so far."""
        self.accepted = 0
        """Connections accepted so far."""
        self._writers: dict[Direction, set[asyncio.StreamWriter]] = {"up": set(), "down": set()}
        self._ended: set[asyncio.StreamWriter] = set()
        self._handlers: set[asyncio.Task[object]] = set()

    @property
    def address(self) -> str:
        """Host and port, as in a connect string."""
        return f"{self.host}:{self.port}"

    def cut(self) -> None:
        """End all connections in order, as a restarting server does; new ones are accepted."""
        for writer in self._all():
            writer.close()

    def reset(self) -> None:
        """Break all connections: both ends see a reset."""
        for writer in self._all():
            face: socket.socket = writer.get_extra_info("socket")
            face.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
            writer.transport.abort()

    def half_close(self, direction: Direction) -> None:
        """End one direction of all connections."""
        for writer in self._writers[direction]:
            self._end(writer)

    def swallow(self, *directions: Direction) -> None:
        """Let the bytes of these directions disappear, of new connections too."""
        self.swallowed = set(directions)

    def heal(self) -> None:
        """Pass everything on again, at once."""
        self.refusing, self.delay, self.swallowed = False, 0.0, set()

    def _all(self) -> list[asyncio.StreamWriter]:
        writers = [*self._writers["up"], *self._writers["down"]]
        return [writer for writer in writers if not writer.is_closing()]

    async def serve_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Join one client to the server for as long as both want."""
        self.accepted += 1
        async with self._registered(writer, "down"):
            if self.refusing:
                return
            upstream_reader, upstream = await asyncio.open_connection(*self.target)
            async with self._registered(upstream, "up"), asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pump("up", reader, upstream))
                tasks.create_task(self._pump("down", upstream_reader, writer))

    async def wait_idle(self) -> None:
        """Return when all connections have ended."""
        while self._handlers:
            await asyncio.wait(self._handlers)

    @asynccontextmanager
    async def _registered(self, writer: asyncio.StreamWriter, direction: Direction) -> AsyncIterator[None]:
        handler = asyncio.current_task()
        assert handler
        self._handlers.add(handler)
        handler.add_done_callback(self._handlers.discard)
        self._writers[direction].add(writer)
        try:
            yield
        except* OSError:
            pass  # one side broke it: the other one is told by closing
        finally:
            self._writers[direction].discard(writer)
            self._ended.discard(writer)
            writer.close()

    async def _pump(self, direction: Direction, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if self.delay:
                await asyncio.sleep(self.delay)
            if direction not in self.swallowed and writer not in self._ended:
                self.passed[direction] += len(data)
                writer.write(data)
                await writer.drain()
        if direction not in self.swallowed:
            self._end(writer)

    def _end(self, writer: asyncio.StreamWriter) -> None:
        if writer not in self._ended and not writer.is_closing():
            self._ended.add(writer)
            with suppress(OSError):  # the other side may be gone already
                writer.write_eof()


@asynccontextmanager
async def proxy_to(host: str, port: int) -> AsyncIterator[Proxy]:
    """Yield a proxy in front of ``host:port``; at the end its connections are broken."""
    proxy = Proxy(host, port)
    server = await asyncio.start_server(proxy.serve_client, proxy.host, 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        proxy.reset()
        await proxy.wait_idle()
        await server.wait_closed()
