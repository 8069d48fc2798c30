"""A console on a real port, with a registry beside it, in a thread of its own: for browsers."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import uvicorn

from aioelasticjob.console import Console, ConsoleSettings, RegistrySettings
from aioelasticjob.operations import JobStatus
from aioelasticjob.zookeeper.server import serve
from tests.console.conftest import CHEAP, BentClock

TIMEOUT = 90.0
"""Seconds after which what should be there is missing."""
TICK = 100
"""Milliseconds: a session is over two seconds after its process was killed."""


@dataclass(frozen=True)
class Site:
    """Where it is, and what a test may turn."""

    url: str
    registry: str
    """The registry's address."""
    console: Console
    clock: BentClock = field(default_factory=BentClock)

    @property
    def invitation(self) -> str:
        """The link to set the first password."""
        assert self.console.state.invitation is not None
        return f"{self.url}{self.console.state.invitation}"

    def until(self, holds: Callable[[Mapping[str, JobStatus]], bool]) -> None:
        """Wait until the console sees the jobs so."""
        watched = self.console.state.registries.get("billing")
        assert watched is not None
        end = time.monotonic() + TIMEOUT
        while not holds(watched.snapshot.value.jobs):
            assert time.monotonic() < end, watched.snapshot.value
            time.sleep(0.02)  # another thread's state, and no event crosses threads


@asynccontextmanager
async def serving(console: Console) -> AsyncIterator[str]:
    """Serve a console that runs already, and yield its address."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        config = uvicorn.Config(console, lifespan="off", log_config=None, timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: server.serve(sockets=[listening]))
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
            server.should_exit = True


@contextmanager
def site(data: Path, *, event_store: str | None = None) -> Iterator[Site]:
    """Yield a console with one registry, ``billing``."""
    started: Future[tuple[Site, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def main() -> None:
        stop, clock = asyncio.Event(), BentClock()
        async with serve("127.0.0.1", 0, tick_time=TICK) as server:
            address = f"zk://{server.host}:{server.port}/billing"
            registry = RegistrySettings("billing", address, event_store=event_store)
            console = Console(ConsoleSettings((registry,), data), clock=clock, hasher=CHEAP)
            async with console.running(), serving(console) as url:
                started.set_result((Site(url, address, console, clock), asyncio.get_running_loop(), stop))
                await stop.wait()

    def run() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    thread = threading.Thread(target=run, name="console")
    thread.start()
    try:
        found, loop, stop = started.result(timeout=90)
        try:
            yield found
        finally:
            loop.call_soon_threadsafe(stop.set)
    finally:
        thread.join(timeout=90)
