"""A simulated registry and the hand that breaks the way to it, and how a session is ended behind its owner's back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import uuid4

from aioelasticjob.registry.codec import CLOSE, attach, attached
from aioelasticjob.registry.connection import Connection
from aioelasticjob.registry.lease import Lease
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.settings import ConnectionSettings
from aioelasticjob.testing import Faults, VirtualClock
from aioelasticjob.zookeeper.server import Server, serve
from aioelasticjob.zookeeper.settings import Settings

OUR_HOST = "127.0.0.1"
PORT = 2181


@dataclass
class SimulatedRegistry:
    """Embedded servers on hosts of their own, one after the other at 10.0.0.1, 10.0.0.2, …; each has its own tree."""

    faults: Faults
    servers: list[Server]

    def settings(self, **options: float | str | None) -> ConnectionSettings:
        """Return settings that reach all servers."""
        hosts = ",".join(f"{server.host}:{PORT}" for server in self.servers)
        return settings(f"zk://{hosts}/test", **options)

    def half_open(self) -> None:
        for server in self.servers:
            self.faults.half_open(OUR_HOST, server.host)

    def partition(self) -> None:
        self.faults.partition([OUR_HOST], [server.host for server in self.servers])

    def heal(self) -> None:
        self.faults.heal()

    def reset(self) -> None:
        for server in self.servers:
            self.faults.reset(OUR_HOST, server.host)


@asynccontextmanager
async def simulated(
    servers: int = 1, tick_time: int = 500, settings: Settings | None = None
) -> AsyncIterator[SimulatedRegistry]:
    """Run embedded servers in the present simulation; ``tick_time`` counts where no ``settings`` are given."""
    faults = Faults()
    started: list[asyncio.Future[Server]] = []

    def main(host: str, up: asyncio.Future[Server]) -> Callable[[], Coroutine[object, object, None]]:
        async def run() -> None:
            async with serve(host, PORT, tick_time=tick_time, settings=settings, clock=VirtualClock().now) as server:
                up.set_result(server)
                await asyncio.get_running_loop().create_future()

        return run

    for number in range(1, servers + 1):
        host, up = f"10.0.0.{number}", asyncio.get_running_loop().create_future()
        started.append(up)
        faults.start(f"registry {number}", host, main(host, up))
    yield SimulatedRegistry(faults, [await up for up in started])


def settings(address: str, **options: float | str | None) -> ConnectionSettings:
    """Parse an address as a program would."""
    return ConnectionSettings.parse(address, **options)  # type: ignore[arg-type]


def fresh(server: str, **options: float | str | None) -> ConnectionSettings:
    """Return settings for a namespace nobody has used."""
    return settings(f"zk://{server}/test-{uuid4().hex}", **options)


async def expire(session: Session, host: str, port: int) -> None:
    """End a session from elsewhere, as the server's clock would."""
    connection = Connection(Lease(), lambda frame: None, lambda lost: None)
    await asyncio.get_running_loop().create_connection(lambda: connection, host, port)
    answer = await connection.greet(attach(session.incarnation, session._keeper._password, 10, 0))
    assert attached(answer)[0] == session.incarnation
    await connection.call(CLOSE, b"")
    connection.abort("done")
    await connection.gone.wait()
