"""A client of bare frames on asyncio, for what no well-behaved client does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from struct import pack, unpack_from
from typing import NamedTuple

from aioelasticjob.zookeeper.acl import OPEN_UNSAFE
from aioelasticjob.zookeeper.codes import OpCode
from aioelasticjob.zookeeper.jute import pack_buffer, pack_string
from aioelasticjob.zookeeper.replies import acls
from aioelasticjob.zookeeper.server import Server, serve
from aioelasticjob.zookeeper.settings import Settings
from tests.support.loops import LoopKind, run_async

LONG = 90_000
"""Milliseconds of a session that no test waits for, whatever else the machine does."""
QUICK = Settings(tick_time=50, max_session_timeout=LONG)


class Reply(NamedTuple):
    """A reply or event."""

    xid: int
    zxid: int
    error: int
    body: bytes


def create_body(path: str, data: bytes = b"", flags: int = 0) -> bytes:
    """Write the body of a create."""
    return pack_string(path) + pack_buffer(data) + acls(OPEN_UNSAFE) + pack(">i", flags)


def read_body(path: str, watch: bool = False) -> bytes:
    """Write the body of exists, getData, getChildren."""
    return pack_string(path) + bytes([watch])


def frame(xid: int, op: int, body: bytes = b"") -> bytes:
    """Write a request with its length."""
    return pack(">iii", 8 + len(body), xid, op) + body


def connect_frame(session: int = 0, password: bytes = bytes(16), timeout: int = LONG) -> bytes:
    """Write a connect request with its length."""
    body = pack(">iqiq", 0, 0, timeout, session) + pack_buffer(password) + b"\0"
    return pack(">i", len(body)) + body


class RawClient:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.session, self.password, self.timeout = 0, b"", 0

    async def connect(self, session: int = 0, password: bytes = bytes(16), timeout: int = 4000) -> None:
        """Open or take up a session."""
        self.writer.write(connect_frame(session, password, timeout))
        welcome = await self.next_frame()
        _, self.timeout, self.session = unpack_from(">iiq", welcome)
        self.password = welcome[20:36]

    async def next_frame(self) -> bytes:
        """Wait for a frame.

        Raises: asyncio.IncompleteReadError at the end of the stream.
        """
        (size,) = unpack_from(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    async def next(self) -> Reply:
        """Wait for a reply or event."""
        data = await self.next_frame()
        return Reply(*unpack_from(">iqi", data), data[16:])

    async def ask(self, op: int, body: bytes = b"", xid: int = 1) -> Reply:
        """Send a request and wait for what comes next."""
        self.writer.write(frame(xid, op, body))
        return await self.next()

    async def ended(self) -> bool:
        """Wait until the server has closed; answers whether it did so without a further byte."""
        try:
            return await self.reader.read() == b""
        except ConnectionResetError:
            return True


@asynccontextmanager
async def opened(server: Server) -> AsyncIterator[RawClient]:
    """Open a connection without a session."""
    reader, writer = await asyncio.open_connection(server.host, server.port)
    try:
        yield RawClient(reader, writer)
    finally:
        writer.close()


@asynccontextmanager
async def connected(server: Server, timeout: int = LONG) -> AsyncIterator[RawClient]:
    """Open a connection with a session of its own; timeout in ms."""
    async with opened(server) as client:
        await client.connect(timeout=timeout)
        yield client


def on_server(
    story: Callable[[Server], Awaitable[None]],
    settings: Settings = QUICK,
    data_dir: Path | None = None,
    loop: LoopKind = "asyncio",
) -> None:
    """Run a story on a server of its own."""

    async def main() -> None:
        async with asyncio.timeout(90), serve(settings=settings, data_dir=data_dir) as server:
            await story(server)

    run_async(loop, main)


async def can_connect(server: Server) -> None:
    """A well-behaved client still gets its answers."""
    async with connected(server) as client:
        assert (await client.ask(OpCode.EXISTS, read_body("/"))).error == 0
