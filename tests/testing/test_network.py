"""The in-memory network: what TCP promises, and what its failures look like."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from aioelasticjob.testing import Faults, run

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def pair() -> AsyncIterator[
    tuple[asyncio.StreamReader, asyncio.StreamWriter, asyncio.StreamReader, asyncio.StreamWriter]
]:
    """Yield a client's and a server's reader and writer, joined over 10.0.0.1."""
    accepted: asyncio.Future[Streams] = asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(lambda r, w: accepted.set_result((r, w)), "10.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    served, answer = await accepted
    try:
        yield reader, writer, served, answer
    finally:
        writer.close()
        answer.close()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1000):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


@asynccontextmanager
async def connection(server: asyncio.Server) -> AsyncIterator[Streams]:
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    try:
        yield reader, writer
    finally:
        writer.close()


def test_unmodified_streams_echo_in_order_then_end() -> None:
    async def main() -> bytes:
        server = await asyncio.start_server(echo, "10.0.0.1", 0)
        async with server, connection(server) as (reader, writer):
            for number in range(100):
                writer.write(b"%d " % number)
            writer.write_eof()
            return await reader.read()

    assert run(main) == b"".join(b"%d " % number for number in range(100))


def test_addresses_are_told() -> None:
    async def main() -> None:
        async with pair() as (_, client, _, served):
            host, port = client.get_extra_info("peername")
            assert host == "10.0.0.1"
            assert served.get_extra_info("sockname") == (host, port)
            assert served.get_extra_info("peername") == client.get_extra_info("socket").getsockname()

    run(main)


def test_packets_take_time() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        Faults().delay("127.0.0.1", "10.0.0.1", 0.25)
        async with pair() as (_, client, served, _):
            assert loop.time() == pytest.approx(0.5)  # there and back
            client.write(b"x")
            await served.readexactly(1)
            return loop.time()

    assert run(main) == pytest.approx(0.75)


def test_nobody_listening_refuses_and_a_taken_port_is_taken() -> None:
    async def main() -> None:
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("10.0.0.1", 80)
        server = await asyncio.start_server(echo, "10.0.0.1", 80)
        with pytest.raises(OSError, match="already in use"):
            await asyncio.start_server(echo, "10.0.0.1", 80)
        server.close()
        await server.wait_closed()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("10.0.0.1", 80)

    run(main)


class Recorder(asyncio.Protocol):
    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.said: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def pause_writing(self) -> None:
        self.said.append("pause")

    def resume_writing(self) -> None:
        self.said.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.said.append(f"lost {type(exc).__name__}")


def test_a_slow_reader_stops_the_writer() -> None:
    async def main() -> None:
        accepted: asyncio.Future[Streams] = asyncio.get_running_loop().create_future()
        server = await asyncio.start_server(lambda r, w: accepted.set_result((r, w)), "10.0.0.1", 0)
        address = server.sockets[0].getsockname()
        transport, writer = await asyncio.get_running_loop().create_connection(Recorder, *address)
        reader, other = await accepted
        transport.write(bytes(1_000_000))
        assert writer.said == ["pause"]
        await asyncio.sleep(10)
        assert writer.said == ["pause"]
        assert len(await reader.readexactly(1_000_000)) == 1_000_000
        await asyncio.sleep(1)
        assert writer.said == ["pause", "resume"]
        assert transport.get_write_buffer_size() == 0
        other.close()

    run(main)


def test_close_flushes_what_was_written() -> None:
    async def main() -> int:
        async with pair() as (_, client, served, _):
            client.write(bytes(2_000_000))
            client.close()
            return len(await served.read())

    assert run(main) == 2_000_000


def test_half_closed_still_receives() -> None:
    async def main() -> bytes:
        async with pair() as (reader, client, served, answer):
            client.write(b"question")
            client.write_eof()
            question = await served.read()
            answer.write(question + b" answered")
            answer.close()
            return await reader.read()

    assert run(main) == b"question answered"


def test_abort_resets_the_other_end() -> None:
    async def main() -> None:
        async with pair() as (_, client, served, _):
            client.transport.abort()
            with pytest.raises(ConnectionResetError):
                await served.read()

    run(main)


def test_writing_to_a_closed_end_is_answered_by_a_reset() -> None:
    async def main() -> None:
        async with pair() as (reader, client, _, served):
            served.close()
            assert await reader.read() == b""
            client.write(b"anybody?")
            await asyncio.sleep(1)
            with pytest.raises(ConnectionResetError):
                await client.drain()

    run(main)


def test_the_network_forgets_closed_connections() -> None:
    async def main() -> None:
        faults = Faults()
        server = await asyncio.start_server(echo, "10.0.0.1", 0)
        for _ in range(20):
            async with connection(server) as (reader, writer):
                writer.write(b"x")
                await reader.readexactly(1)
        await asyncio.sleep(1)
        assert not faults.network.connections

    run(main)


def test_a_partition_delays_bytes_until_it_heals() -> None:
    async def main() -> None:
        loop, faults = asyncio.get_running_loop(), Faults()
        async with pair() as (_, client, served, _):
            faults.partition(["127.0.0.1"], ["10.0.0.1", "10.0.0.2"])
            client.write(b"late")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(60):
                    await served.read(1)
            faults.heal()
            assert await served.readexactly(4) == b"late"
            assert loop.time() < 61

    run(main)


def test_a_segment_on_its_way_is_lost_with_the_link_and_sent_again() -> None:
    async def main() -> None:
        faults = Faults()
        async with pair() as (_, client, served, _):
            client.write(b"one ")
            faults.drop("127.0.0.1", "10.0.0.1", both=False)
            client.write(b"two")
            await asyncio.sleep(5)
            faults.heal("127.0.0.1")
            assert await served.readexactly(7) == b"one two"

    run(main)


def test_one_direction_can_be_swallowed_alone() -> None:
    async def main() -> None:
        faults = Faults()
        async with pair() as (reader, client, served, answer):
            faults.drop("10.0.0.1", "127.0.0.1", both=False)
            client.write(b"heard")
            assert await served.readexactly(5) == b"heard"
            answer.write(b"unheard")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(60):
                    await reader.read(1)

    run(main)


def test_a_half_open_connection_gives_up_after_a_quarter_of_an_hour() -> None:
    async def main() -> float:
        loop, faults = asyncio.get_running_loop(), Faults()
        async with pair() as (reader, client, _, _):
            faults.half_open("127.0.0.1", "10.0.0.1")
            faults.heal()
            client.write(b"anybody?")
            with pytest.raises(TimeoutError):
                await reader.read()
            return loop.time()

    assert run(main) == pytest.approx(924.6, abs=0.1)


def test_connecting_over_a_dead_link_waits_and_then_succeeds_or_times_out() -> None:
    async def main() -> tuple[float, float]:
        loop, faults = asyncio.get_running_loop(), Faults()
        server = await asyncio.start_server(echo, "10.0.0.1", 0)
        faults.drop("127.0.0.1", "10.0.0.1")
        loop.call_later(2, faults.heal)
        async with connection(server):
            connected = loop.time()
        faults.drop("127.0.0.1", "10.0.0.1")
        with pytest.raises(TimeoutError):
            await asyncio.open_connection(*server.sockets[0].getsockname())
        return connected, loop.time() - connected

    connected, gave_up = run(main)
    assert connected == pytest.approx(3, abs=0.1)  # the third attempt
    assert gave_up == pytest.approx(127)


def test_a_reset_breaks_both_ends() -> None:
    async def main() -> None:
        faults = Faults()
        async with pair() as (reader, _, served, _):
            faults.reset("127.0.0.1", "10.0.0.1")
            for end in (reader, served):
                with pytest.raises(ConnectionResetError):
                    await end.read()

    run(main)


def traffic(seed: int) -> int:
    async def chatter(server: asyncio.Server) -> None:
        async with connection(server) as (reader, writer):
            for number in range(20):
                writer.write(b"%d" % number)
                await reader.read(100)

    async def main() -> int:
        faults = Faults()
        server = await asyncio.start_server(echo, "10.0.0.1", 0)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(5):
                tasks.create_task(chatter(server))
        return faults.network.fingerprint

    return run(main, seed=seed)


def test_the_same_seed_gives_the_same_traffic() -> None:
    assert traffic(1) == traffic(1) != traffic(2)


def test_a_failing_protocol_loses_its_connection() -> None:
    class Failing(Recorder):
        def data_received(self, data: bytes) -> None:
            raise ValueError(data)

    async def main() -> list[str]:
        failing = Failing()
        loop = asyncio.get_running_loop()
        failures: list[object] = []
        loop.set_exception_handler(lambda _loop, context: failures.append(context["exception"]))
        server = await loop.create_server(lambda: failing, "10.0.0.1", 0)
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"poison")
        await asyncio.sleep(1)
        writer.close()
        assert [type(failure) for failure in failures] == [ValueError]
        return failing.said

    assert run(main) == ["lost NoneType"]
