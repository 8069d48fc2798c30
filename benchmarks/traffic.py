"""A proxy that counts what a client asks and what it is told, frame by frame."""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

EVENT = -1
"""The xid of a watch event."""
MULTI, SYNC, PING = 14, 9, 11
WRITES = frozenset({1, 2, 5, 7, 13, MULTI, 15, 19, 20, 21})
"""create, delete, setData, setACL, reconfig, multi, create2, createContainer, deleteContainer, createTTL."""
HEARTBEATS = frozenset({SYNC, PING})
LAST_FRAMES = 2.0
"""Seconds that connections may take to end when their clients have left."""


@dataclass(slots=True)
class Traffic:
    """Frames seen so far."""

    port: int = 0
    requests: Counter[int] = field(default_factory=Counter)
    """By opcode."""
    events: int = 0

    def since(self, before: Traffic) -> Traffic:
        """Return what has been seen since a copy was taken."""
        return Traffic(self.port, self.requests - before.requests, self.events - before.events)

    def copy(self) -> Traffic:
        """Return how things stand now."""
        return Traffic(self.port, self.requests.copy(), self.events)

    @property
    def writes(self) -> int:
        """Requests that write."""
        return sum(count for opcode, count in self.requests.items() if opcode in WRITES)

    @property
    def reads(self) -> int:
        """Requests that neither write nor keep the session alive."""
        return sum(count for opcode, count in self.requests.items() if opcode not in WRITES | HEARTBEATS)


@asynccontextmanager
async def counted(host: str, port: int) -> AsyncIterator[Traffic]:
    """Pass everything on to a server, and count."""
    traffic = Traffic()

    joined: set[asyncio.Task[None]] = set()

    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection(host, port)
        async with asyncio.TaskGroup() as tasks:
            both = (
                tasks.create_task(_pass(reader, server_writer, traffic, asked=True)),
                tasks.create_task(_pass(server_reader, writer, traffic, asked=False)),
            )
            joined.update(both)
        joined.difference_update(both)

    async with await asyncio.start_server(join, "127.0.0.1", 0) as listener:
        traffic.port = listener.sockets[0].getsockname()[1]
        yield traffic
        if joined:  # the clients have left; cut off in the midst of it, asyncio's streams would complain
            await asyncio.wait(joined, timeout=LAST_FRAMES)


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, traffic: Traffic, *, asked: bool) -> None:
    greeted = False
    try:
        while True:
            head = await reader.readexactly(4)
            frame = await reader.readexactly(*struct.unpack("!i", head))
            if greeted and asked:
                traffic.requests[struct.unpack_from("!ii", frame)[1]] += 1
            elif greeted:
                traffic.events += struct.unpack_from("!i", frame)[0] == EVENT
            greeted = True
            writer.write(head + frame)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
