"""A console on a real port, with a registry beside it, in a thread of its own: for browsers."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import anyio
import uvicorn
from argon2 import PasswordHasher

from aioelasticjob.clock import SystemClock
from aioelasticjob.console import Console, ConsoleSettings, RegistrySettings
from aioelasticjob.console.watching.registry_watch import RegistryWatch
from aioelasticjob.operations import JobStatus
from aioelasticjob.zookeeper.server import serve
from tests.support.ports import reserved_ports
from tests.support.processes import TIMEOUT

T = TypeVar("T")

TICK = 1000
"""Milliseconds: sessions last 2 to 20 of these; the console asks for the longest, so it survives a long stall."""


CHEAP = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
"""Hashes that take no time: their strength is argon2's affair."""


@dataclass
class BentClock:
    """The host's clock, put forward at will."""

    ahead: float = 0.0

    def now(self) -> float:
        return SystemClock().now() + self.ahead


@dataclass(frozen=True)
class Site:
    """Where it is, and what a test may turn."""

    url: str
    registry: str
    """The registry's address."""
    console: Console
    server: Registry
    clock: BentClock
    loop: asyncio.AbstractEventLoop

    @property
    def invitation(self) -> str:
        """The link to set the first password."""
        assert self.console.state.invitation is not None
        return f"{self.url}{self.console.state.invitation}"

    @property
    def watch(self) -> RegistryWatch:
        """What the console sees of the registry."""
        found = self.console.state.registries.get("billing")
        assert found is not None
        return found

    def until(self, holds: Callable[[Mapping[str, JobStatus]], bool]) -> None:
        """Wait until the console sees the jobs so."""
        self.wait(lambda: holds(self.watch.snapshot.value.jobs))

    def wait(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds in the console's thread: no event crosses threads."""
        end = time.monotonic() + TIMEOUT
        while not holds():
            assert time.monotonic() < end, self.watch.snapshot.value
            time.sleep(0.02)

    def show(self, *jobs: JobStatus) -> None:
        """Make the console believe that its registry, which is empty, holds these jobs."""
        self.wait(lambda: self.watch.snapshot.value.read)

        async def publish() -> None:
            self.watch._statuses = jobs  # which are published again when a connection that was lost is back
            self.watch._publish(jobs)

        self.run(publish)

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in the console's loop."""
        return asyncio.run_coroutine_threadsafe(work(), self.loop).result(TIMEOUT)


class Registry:
    """A registry that can be stopped and started again with what it held."""

    def __init__(self, port: int, data: Path) -> None:
        self.address = f"zk://127.0.0.1:{port}/billing"
        self._port, self._data = port, data
        self._stack = AsyncExitStack()

    async def start(self) -> None:
        await self._stack.enter_async_context(serve("127.0.0.1", self._port, tick_time=TICK, data_dir=self._data))

    async def stop(self) -> None:
        await self._stack.aclose()


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
def site(data: Path, *, event_store: str | None = None, **settings: Any) -> Iterator[Site]:
    """Yield a console with one registry, ``billing``."""
    started: Future[tuple[Site, asyncio.Event]] = Future()

    async def main(port: int) -> None:
        stop, clock = asyncio.Event(), BentClock()
        server = Registry(port, data / "registry")
        await server.start()
        try:
            registry = RegistrySettings("billing", server.address, event_store=event_store)
            console = Console(ConsoleSettings((registry,), data, **settings), clock=clock, hasher=CHEAP)
            async with console.running(), serving(console) as url:
                loop = asyncio.get_running_loop()
                started.set_result((Site(url, server.address, console, server, clock, loop), stop))
                await stop.wait()
        finally:
            await server.stop()

    def run() -> None:
        try:
            with reserved_ports(1) as (port,):
                asyncio.run(main(port))
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    thread = threading.Thread(target=run, name="console")
    thread.start()
    try:
        found, stop = started.result(timeout=90)
        try:
            yield found
        finally:
            found.loop.call_soon_threadsafe(stop.set)
    finally:
        thread.join(timeout=90)
