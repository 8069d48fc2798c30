"""The embedded server on a real port, in a thread of its own, so that a test's loop may block or end."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aioelasticjob.zookeeper.server import serve
from aioelasticjob.zookeeper.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

START_TIMEOUT = 10.0
"""Seconds for the server to start, and to end."""
QUICK = Settings(tick_time=100, min_session_timeout=200, max_session_timeout=60_000)
"""Sessions of a fifth of a second for those who wait for their end, of a minute for those who stand in a debugger."""


@contextmanager
def embedded_server() -> Iterator[str]:
    """Yield ``host:port`` of a server whose tree is in memory."""
    started: Future[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def main() -> None:
        stop = asyncio.Event()
        try:
            async with serve("127.0.0.1", 0, settings=QUICK) as server:
                started.set_result((server.address, asyncio.get_running_loop(), stop))
                await stop.wait()
        except Exception as failure:
            if started.done():
                raise
            started.set_exception(failure)

    thread = threading.Thread(target=lambda: asyncio.run(main()), name="embedded registry", daemon=True)
    thread.start()
    try:
        address, loop, stop = started.result(timeout=START_TIMEOUT)
        try:
            yield address
        finally:
            loop.call_soon_threadsafe(stop.set)
    finally:
        thread.join(timeout=START_TIMEOUT)
