"""The in-memory network: what TCP promises, and what its failures look like."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioelasticjob.testing import Faults, run
from aioelasticjob.testing.network import Listener

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


def test_addresses_are_reported() -> None:
    async def main() -> None:
        async with pair() as (_, client, _, served):
            host, port = client.get_extra_info("peername")
            assert host == "10.0.0.1"
            assert served.get_extra_info("sockname") == (host, port)
            face = client.get_extra_info("socket")
            assert served.get_extra_info("peername") == face.getsockname()
            assert face.getpeername() == (host, port)
            assert (face.fileno(), face.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)) == (-1, 0)
            face.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            assert client.transport.get_protocol() is not served.transport.get_protocol()
        (listening,) = (await asyncio.start_server(echo, "10.0.0.1", 90)).sockets
        with pytest.raises(OSError, match="not connected"):
            listening.getpeername()

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


class Reader(asyncio.BufferedProtocol):
    """Reads into a buffer of its own, smaller than a segment."""

    def __init__(self) -> None:
        self.buffer, self.received, self.ended = bytearray(7), bytearray(), False

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self.buffer[:nbytes]

    def eof_received(self) -> None:
        self.ended = True


def test_a_buffered_protocol_gets_every_byte() -> None:
    async def main() -> None:
        reader = Reader()
        server = await asyncio.get_running_loop().create_server(lambda: reader, "10.0.0.1", 0)
        async with connection(server) as (_, writer):
            writer.write(b"more than fits into seven bytes")
        await asyncio.sleep(1)
        assert reader.received == b"more than fits into seven bytes"
        assert reader.ended

    run(main)


Step = int | Literal["down", "up", "pause", "resume", "wait"]


@given(
    steps=st.lists(st.integers(1, 400_000) | st.sampled_from(["down", "up", "pause", "resume", "wait"]), max_size=12),
    seed=st.integers(0, 1000),
)
def test_whatever_happens_to_the_link_and_the_reader_every_byte_arrives_in_order(steps: list[Step], seed: int) -> None:
    received = bytearray()

    async def collect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100_000):
            received.extend(data)
        writer.close()

    async def serve() -> None:
        await asyncio.start_server(collect, None, 80)
        await asyncio.Event().wait()

    async def main() -> bytes:
        faults, sent = Faults(), bytearray()
        process = faults.start("reader", "10.0.0.1", serve)
        await asyncio.sleep(0)
        _, writer = await asyncio.open_connection("10.0.0.1", 80)
        for number, step in enumerate(steps):
            match step:
                case "down":
                    faults.drop("127.0.0.1", "10.0.0.1", both=number % 2 == 0)
                case "up":
                    faults.heal()
                case "pause":
                    faults.pause(process)
                case "resume":
                    faults.resume(process)
                case "wait":
                    await asyncio.sleep(1)
                case size:
                    sent += (b"%d " % number) * size
                    writer.write((b"%d " % number) * size)
        writer.close()
        faults.heal()
        faults.resume(process)
        await asyncio.sleep(10)
        assert not faults.network.connections
        return bytes(sent)

    assert run(main, seed=seed) == received


def test_a_listener_can_end_all_it_has_accepted() -> None:
    async def main() -> tuple[list[str], list[str]]:
        ended: list[list[str]] = []
        network = Faults().network
        for end in (Listener.close_clients, Listener.abort_clients):
            server = await network.listen(asyncio.Protocol, "10.0.0.1", 0)
            clients = [await network.connect(Recorder, *server.address) for _ in range(2)]
            end(server)
            await asyncio.sleep(1)
            protocols = [protocol for _, protocol in clients]
            ended.append([said for protocol in protocols if isinstance(protocol, Recorder) for said in protocol.said])
        return ended[0], ended[1]

    assert run(main) == (["lost NoneType"] * 2, ["lost ConnectionResetError"] * 2)


class Refuser(Recorder):
    """Does not read, and closes after a second."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self.transport
        self.transport.pause_reading()
        assert not self.transport.is_reading()
        asyncio.get_running_loop().call_later(1, self.transport.close)


def test_closing_with_unread_bytes_resets() -> None:
    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(Refuser, "10.0.0.1", 0)
        async with connection(server) as (reader, writer):
            writer.write(b"never read")
            with pytest.raises(ConnectionResetError):
                await reader.read()

    run(main)


def test_writing_after_a_reset_nobody_noticed_breaks_the_pipe() -> None:
    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        server = await asyncio.start_server(lambda _, writer: writer.transport.abort(), "10.0.0.1", 0)
        transport, protocol = await loop.create_connection(Recorder, *server.sockets[0].getsockname())
        transport.pause_reading()
        await asyncio.sleep(1)
        assert protocol.said == []
        transport.write(b"x")
        await asyncio.sleep(1)
        return protocol.said

    assert run(main) == ["lost BrokenPipeError"]


def test_localhost_is_the_host_of_the_process_that_says_it() -> None:
    async def main() -> None:
        faults = Faults()

        async def serve() -> object:
            server = await asyncio.start_server(echo, "localhost", 80)
            (info,) = await asyncio.get_running_loop().getaddrinfo("localhost", 80)
            async with connection(server) as (reader, writer):
                writer.write(b"x")
                assert await reader.read(1) == b"x"
            with suppress(TimeoutError):
                async with asyncio.timeout(10), server:
                    await server.serve_forever()
            return info[4]

        process = faults.start("a", "10.0.0.1", serve)
        await asyncio.sleep(1)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("localhost", 80)
        assert await process.wait() == ("10.0.0.1", 80)

    run(main)


def test_nothing_can_be_written_after_the_end() -> None:
    async def main() -> None:
        async with pair() as (_, client, _, _):
            client.write_eof()
            with pytest.raises(RuntimeError, match="after write_eof"):
                client.transport.write(b"x")
            client.close()
            client.transport.write(b"unheard, as real transports do it")

    run(main)
