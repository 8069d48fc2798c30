"""The embedded server on a real port, in a thread of its own so that a test's loop may block or end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass

from aioelasticjob.zookeeper.server import serve


@dataclass(frozen=True, slots=True)
class EmbeddedServer:
    """Where the embedded server listens."""

    host: str
    port: int

    @property
    def address(self) -> str:
        """Host and port, as in a connect string."""
        return f"{self.host}:{self.port}"


@contextmanager
def embedded_server(tick_time: int = 1000) -> Iterator[EmbeddedServer]:
    """Yield an embedded server with ticks of ``tick_time`` milliseconds, its tree in memory."""
    started: Future[tuple[EmbeddedServer, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def main() -> None:
        stop = asyncio.Event()
        try:
            async with serve("127.0.0.1", 0, tick_time=tick_time) as server:
                where = EmbeddedServer(server.host, server.port)
                started.set_result((where, asyncio.get_running_loop(), stop))
                await stop.wait()
        except Exception as failure:
            if started.done():
                raise
            started.set_exception(failure)

    thread = threading.Thread(target=lambda: asyncio.run(main()), name="embedded ZooKeeper")
    thread.start()
    try:
        where, loop, stop = started.result(timeout=90)
        try:
            yield where
        finally:
            loop.call_soon_threadsafe(stop.set)
    finally:
        thread.join(timeout=90)
