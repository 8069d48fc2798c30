"""What the tests themselves stand on: proxies, ports, processes and real servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from aioelasticjob.registry.session import ConnectionSettings, open_session
from aioelasticjob.registry.transaction import Create
from tests.support.loops import LoopKind, run_async
from tests.support.ports import reserved_ports
from tests.support.processes import TIMEOUT, Workers
from tests.support.proxy import Proxy, proxy_to
from tests.support.real_zookeeper import Ensemble, RealServer

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1000):
            writer.write(data)
    except ConnectionResetError:
        pass
    finally:
        writer.close()


@asynccontextmanager
async def through_proxy() -> AsyncIterator[tuple[Proxy, asyncio.StreamReader, asyncio.StreamWriter]]:
    """Yield a proxy before an echo server, and a client's reader and writer through it."""
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server, proxy_to(*server.sockets[0].getsockname()) as proxy:
        reader, writer = await asyncio.open_connection(proxy.host, proxy.port)
        try:
            yield proxy, reader, writer
        finally:
            writer.close()


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes) -> bytes:
    writer.write(data)
    return await reader.readexactly(len(data))


def test_every_loop_runs_the_same_code(loop_kind: LoopKind) -> None:
    async def main() -> bytes:
        async with through_proxy() as (_, reader, writer):
            return await exchange(reader, writer, b"hello")

    assert run_async(loop_kind, main) == b"hello"


def test_the_proxy_counts_and_cuts(real_loop_kind: LoopKind) -> None:
    async def main() -> None:
        async with through_proxy() as (proxy, reader, writer):
            assert await exchange(reader, writer, b"hello") == b"hello"
            assert proxy.passed == {"up": 5, "down": 5}
            proxy.cut()
            assert await reader.read() == b""

    run_async(real_loop_kind, main)


def test_the_proxy_resets(real_loop_kind: LoopKind) -> None:
    async def main() -> None:
        async with through_proxy() as (proxy, reader, writer):
            await exchange(reader, writer, b"hello")
            proxy.reset()
            with pytest.raises(ConnectionResetError):
                await reader.read()

    run_async(real_loop_kind, main)


@pytest.mark.parametrize("direction", ["up", "down"])
def test_the_proxy_swallows_one_direction_and_heals(direction: str) -> None:
    async def main() -> None:
        async with through_proxy() as (proxy, reader, writer):
            proxy.swallow("up" if direction == "up" else "down")
            writer.write(b"lost")
            async with asyncio.timeout(TIMEOUT):
                while direction == "down" and proxy.passed["up"] < 4:
                    await asyncio.sleep(0.01)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await reader.read(1)
            assert proxy.passed == {"up": 0 if direction == "up" else 4, "down": 0}
            proxy.heal()
            assert await exchange(reader, writer, b"found") == b"found"

    run_async("asyncio", main)


def test_the_proxy_closes_half(real_loop_kind: LoopKind) -> None:
    async def main() -> None:
        async with through_proxy() as (proxy, reader, writer):
            assert await exchange(reader, writer, b"hello") == b"hello"
            proxy.half_close("down")
            assert await reader.read() == b""
            writer.write(b"still heard")
            await writer.drain()

    run_async(real_loop_kind, main)


def test_the_proxy_refuses_and_delays() -> None:
    async def main() -> None:
        async with through_proxy() as (proxy, reader, writer):
            proxy.delay = 0.05
            began = asyncio.get_running_loop().time()
            await exchange(reader, writer, b"slow")
            assert asyncio.get_running_loop().time() - began >= 0.1
            proxy.refusing = True
            refused, other = await asyncio.open_connection(proxy.host, proxy.port)
            assert await refused.read() == b""
            other.close()

    run_async("asyncio", main)


def test_reserved_ports_are_given_once() -> None:
    with reserved_ports(5) as some, reserved_ports(5) as others:
        assert len({*some, *others}) == 10


@pytest.mark.process
def test_a_worker_is_paused_killed_and_its_output_read(worker_processes: Workers) -> None:
    script = "import itertools, time\nfor n in itertools.count(): print('line', n); time.sleep(0.01)"
    worker = worker_processes.start("-c", script)
    assert worker.wait_for_output("line 3") == "line 3"
    worker.pause()
    worker.resume()
    worker.wait_for_output(f"line {worker.output.count('line') + 5}")
    worker.kill()
    assert worker.exit_code == -9


@pytest.mark.process
def test_a_worker_that_ends_too_early_shows_its_last_words(worker_processes: Workers) -> None:
    worker = worker_processes.start("-c", "raise SystemExit('no coffee')")
    with pytest.raises(AssertionError, match="no coffee"):
        worker.wait_for_output("ready")


@pytest.mark.zookeeper
def test_the_real_server_serves(real_zookeeper: RealServer) -> None:
    assert real_zookeeper.mode() == "standalone"
    assert real_zookeeper.version in real_zookeeper.ask("srvr")


@pytest.mark.zookeeper
@pytest.mark.process
def test_an_ensemble_elects_another_leader_and_is_repaired(real_ensemble: Ensemble) -> None:
    first = real_ensemble.leader()
    first.kill()
    second = real_ensemble.leader()
    assert second is not first
    second.process.pause()
    real_ensemble.repair()
    assert sorted(str(member.mode()) for member in real_ensemble.members) == ["follower", "follower", "leader"]


def test_both_kinds_of_server_hold_a_session(registry_address: str, real_loop_kind: LoopKind) -> None:
    async def main() -> bytes:
        async with open_session(ConnectionSettings.parse(registry_address)) as registry:
            await registry.commit([Create("/job", b"config")], incarnation=registry.incarnation)
            return (await registry.get("/job")).data

    assert run_async(real_loop_kind, main) == b"config"


@pytest.mark.process
@pytest.mark.parametrize(("required", "code"), [("0", 0), ("1", 1)])
def test_a_skip_fails_where_all_tests_are_required(
    worker_processes: Workers, tmp_path: Path, required: str, code: int
) -> None:
    suite = tmp_path / "test_it.py"
    suite.write_text("import pytest\ndef test_it():\n    pytest.skip('not today')\n")
    command = ("-m", "pytest", "-q", "-p", "tests.conftest", "--rootdir", str(tmp_path), str(suite))
    worker = worker_processes.start(*command, environment={"AIOELASTICJOB_REQUIRE_ALL": required})
    assert worker.wait(90) == code, worker.output
    assert "not today" in worker.output or required == "0"
