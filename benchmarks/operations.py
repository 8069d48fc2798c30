"""The embedded server's operations per second beside the real one's: same client, same run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from statistics import median
from struct import Struct
from typing import Final

import uvloop

from aioelasticjob.registry.codec import CLOSE, GET, MULTI, Codec, attach, attached
from aioelasticjob.registry.connection import Connection
from aioelasticjob.registry.lease import Lease
from aioelasticjob.registry.transaction import Check, Create, Delete, Set
from benchmarks.report import Figure
from benchmarks.servers import HOST, Server, embedded_server, real_server

NAME: Final = "operations per second, one client"
IN_FLIGHT: Final = 64
DATA: Final = b"x" * 200
CREATE, DELETE, SET = 1, 2, 5
SERVERS: Final[tuple[Callable[[], AbstractContextManager[Server]], ...]] = (
    real_server,
    partial(real_server, synced=False),
    embedded_server,
    partial(embedded_server, durable=True),
)
_int = Struct("!i").pack


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of request, by number of node; rounds follow each other on one tree."""

    name: str
    opcode: int
    body: Callable[[int], bytes]


def measure(*, quick: bool) -> Iterator[Figure]:
    """Yield the figures."""
    count, rounds = (10, 1) if quick else (1000, 5)
    rates: dict[str, dict[tuple[str, str], float]] = {}
    for start in SERVERS:
        with start() as server, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            rates[server.name] = runner.run(_rates(server, count, rounds))
    real = rates["ZooKeeper 3.8"]
    for server_name, measured in rates.items():
        for (kind, way), rate in measured.items():
            case = f"{kind}, {way}"
            yield Figure(NAME, case, server_name, rate, "/s")
            if server_name.startswith("embedded"):
                yield Figure(NAME, case, f"{server_name}: part of the real one's", rate / real[kind, way], "", "≥ 0.5")


async def _rates(server: Server, count: int, rounds: int) -> dict[tuple[str, str], float]:
    """Return the median rate of each kind of request; a round leaves the tree as it was."""
    connection = Connection(Lease(), lambda frame: None, lambda lost: None)
    await asyncio.get_running_loop().create_connection(lambda: connection, HOST, server.port)
    session, _, _ = attached(await connection.greet(attach(0, bytes(16), 30, 0)))
    assert session, "the server gave no session"
    found: dict[tuple[str, str], list[float]] = {}
    for number in range(rounds + 1):  # the first one warms the server up
        for way, window in (("one by one", 1), (f"{IN_FLIGHT} in flight", IN_FLIGHT)):
            for kind in _kinds(Codec("", private=False)):
                rate = await _rate(connection, kind, count, window)
                if number or rounds == 1:
                    found.setdefault((kind.name, way), []).append(rate)
    await connection.call(CLOSE, b"")
    connection.abort("done")
    await connection.gone.wait()
    return {what: median(several) for what, several in found.items()}


def _kinds(codec: Codec) -> Sequence[Kind]:
    data, acl = _int(len(DATA)) + DATA, codec.acl

    def multi(n: int) -> bytes:
        """A claim and its settlement at once: as many operations as a fire has."""
        path = f"/node-{n}"
        running = f"{path}/running"
        return codec.multi(
            [
                Check(path),
                Set(path, DATA, -1),
                Create(running, b"", ephemeral=True),
                Set(path, DATA, -1),
                Delete(running),
            ]
        )

    return (
        Kind("create", CREATE, lambda n: codec.path(f"/node-{n}") + data + acl + _int(0)),
        Kind("get", GET, lambda n: codec.watching(f"/node-{n}")),
        Kind("set", SET, lambda n: codec.path(f"/node-{n}") + data + _int(-1)),
        Kind("multi of 5", MULTI, multi),
        Kind("delete", DELETE, lambda n: codec.path(f"/node-{n}") + _int(-1)),
    )


async def _rate(connection: Connection, kind: Kind, count: int, window: int) -> float:
    """Send ``count`` requests with ``window`` of them under way at any time; return how many were answered a second."""
    bodies = [kind.body(n) for n in range(count)]
    under_way: list[asyncio.Future[tuple[int, int, bytes]]] = []
    started = time.perf_counter()
    for n, body in enumerate(bodies):
        if n >= window:
            _check(await under_way[n - window], kind)
        under_way.append(connection.call(kind.opcode, body))
    for future in under_way[-window:]:
        _check(await future, kind)
    return count / (time.perf_counter() - started)


def _check(reply: tuple[int, int, bytes], kind: Kind) -> None:
    if reply[0]:
        raise RuntimeError(f"{kind.name} was refused: error {reply[0]}")
