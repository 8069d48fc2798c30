"""Processes of the simulated world: paused, killed, restarted and with wrong clocks."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Callable, Coroutine

import anyio
import pytest

from aioelasticjob import ElasticJob, InvalidSetting
from aioelasticjob.testing import (
    Farewell,
    Faults,
    Process,
    ProcessKilled,
    VirtualClock,
    VirtualCluster,
    current_process,
    run,
)
from aioelasticjob.testing.loop import START
from aioelasticjob.testing.transport import WINDOW_BYTES

A, B = "10.0.0.1", "10.0.0.2"


class Listener(asyncio.Protocol):
    """A server on A that notes what it hears and when."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, bytes]] = []
        self.end: str | None = None

    def data_received(self, data: bytes) -> None:
        self.heard.append((round(asyncio.get_running_loop().time()), data))

    def connection_lost(self, exc: Exception | None) -> None:
        self.end = type(exc).__name__ if exc else "closed"


def tell_every_second(
    process_finally: Callable[[], object] = lambda: None,
) -> Callable[[], Coroutine[object, object, None]]:
    """Return a main function that says ``.`` to A:80 once a second, and ``bye`` when it is ended."""

    async def main() -> None:
        _, writer = await asyncio.open_connection(A, 80)
        try:
            while True:
                writer.write(b".")
                await asyncio.sleep(1)
        finally:
            process_finally()
            writer.write(b"bye")
            with anyio.CancelScope(shield=True):
                await asyncio.sleep(0.1)
            writer.write(b"really")
            writer.close()

    return main


async def listen() -> Listener:
    listener = Listener()
    await asyncio.get_running_loop().create_server(lambda: listener, A, 80)
    return listener


@pytest.mark.parametrize(("farewell", "end"), [("fin", "closed"), ("reset", "ConnectionResetError"), ("silent", None)])
def test_a_killed_process_says_nothing_more(farewell: Farewell, end: str | None) -> None:
    last_words: list[str] = []

    async def main() -> Process:
        faults, listener = Faults(), await listen()
        process = faults.start("b", B, tell_every_second(lambda: last_words.append("finally")))
        await asyncio.sleep(2.5)
        faults.crash(process, farewell)
        with pytest.raises(ProcessKilled):
            await process.wait()
        await asyncio.sleep(60)
        assert [data for _, data in listener.heard] == [b".", b".", b"."]
        assert listener.end == end
        assert last_words == []  # kill -9 asks nobody
        return process

    process = run(main)
    assert not process.alive
    assert last_words == ["finally"]  # when the world ends the stacks are unwound, so nothing leaks


@pytest.mark.parametrize("crashed", [True, False])
def test_a_process_logs_nothing_when_the_world_ends(crashed: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def last_words() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            logging.getLogger("b").error("last words")

    async def main() -> None:
        faults = Faults()
        process = faults.start("b", B, last_words)
        await asyncio.sleep(1)
        if crashed:
            faults.crash(process)

    run(main)
    assert caplog.records == []


def test_a_terminated_process_says_goodbye() -> None:
    async def main() -> None:
        faults, listener = Faults(), await listen()
        process = faults.start("b", B, tell_every_second())
        await asyncio.sleep(0.5)
        assert "b at 10.0.0.2, running" in repr(process)
        process.terminate()
        assert await process.wait() is None  # cancelled
        await asyncio.sleep(1)
        assert b"".join(data for _, data in listener.heard) == b".byereally"

    run(main)


def test_a_paused_process_is_silent_then_acts_on_what_it_believed() -> None:
    async def main() -> None:
        faults, listener = Faults(), await listen()
        process = faults.start("b", B, tell_every_second())
        await asyncio.sleep(2.6)
        faults.pause(process)
        await asyncio.sleep(100)
        faults.resume(process)
        await asyncio.sleep(1)
        assert [when for when, _ in listener.heard] == [0, 1, 2, 103]
        assert listener.end is None

    run(main)


def test_bytes_for_a_paused_process_queue_in_order_and_connections_to_it_are_accepted() -> None:
    async def main() -> None:
        faults, listener = Faults(), Listener()

        async def serve() -> None:
            await asyncio.get_running_loop().create_server(lambda: listener, None, 80)
            await anyio.sleep_forever()

        process = faults.start("a", A, serve)
        await asyncio.sleep(1)
        faults.pause(process)
        _, writer = await asyncio.open_connection(A, 80)
        for number in range(5):
            writer.write(b"%d" % number)
            await asyncio.sleep(1)
        assert listener.heard == []
        faults.resume(process)
        await asyncio.sleep(1)
        assert b"".join(data for _, data in listener.heard) == b"01234"
        writer.close()

    run(main)


def test_a_paused_process_that_is_killed_stays_silent() -> None:
    async def main() -> None:
        faults, listener = Faults(), await listen()
        process = faults.start("b", B, tell_every_second())
        await asyncio.sleep(0.5)
        faults.pause(process)
        await asyncio.sleep(5)
        faults.crash(process)
        faults.resume(process)
        await asyncio.sleep(5)
        assert len(listener.heard) == 1

    run(main)


def test_a_dead_host_answers_nothing_until_it_is_started_again() -> None:
    async def main() -> None:
        faults = Faults()

        async def serve() -> None:
            await asyncio.start_server(lambda _reader, writer: writer.close(), None, 80)
            await anyio.sleep_forever()

        faults.crash(faults.start("a", A, serve), "silent")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await asyncio.open_connection(A, 80)
        faults.start("a again", A, serve)
        reader, writer = await asyncio.open_connection(A, 80)
        assert await reader.read() == b""
        writer.close()

    run(main)


def test_an_old_connection_to_a_restarted_host_is_reset_when_used() -> None:
    async def main() -> None:
        faults = Faults()

        async def serve() -> None:
            await asyncio.get_running_loop().create_server(Listener, None, 80)
            await anyio.sleep_forever()

        process = faults.start("a", A, serve)
        await asyncio.sleep(0)
        reader, writer = await asyncio.open_connection(A, 80)
        faults.crash(process, "silent")
        faults.start("a again", A, serve)
        writer.write(b"still there?")
        with pytest.raises(ConnectionResetError):
            await reader.read()

    run(main)


def test_each_process_has_its_own_address_and_clock() -> None:
    async def main() -> tuple[object, object]:
        faults = Faults()

        async def who_and_when() -> tuple[str, float]:
            await asyncio.sleep(1)
            process = current_process()
            assert process
            return process.address, VirtualClock().now() - START

        a = faults.start("a", A, who_and_when)
        b = faults.start("b", B, who_and_when, skew=-300)
        return await a.wait(), await b.wait()

    assert run(main) == ((A, 1.0), (B, -299.0))


def test_a_process_cannot_listen_on_the_address_of_another() -> None:
    async def main() -> None:
        async def steal() -> None:
            await asyncio.start_server(lambda _reader, _writer: None, A, 80)

        with pytest.raises(OSError, match="not an address of"):
            await Faults().start("b", B, steal).wait()

    run(main)


def test_what_a_process_raises_reaches_who_waits() -> None:
    async def main() -> None:
        async def fail() -> None:
            raise LookupError("x")

        with pytest.raises(LookupError):
            await Faults().start("b", B, fail).wait()

    run(main)


def test_of_what_a_killed_process_wrote_only_what_its_kernel_took_arrives() -> None:
    async def main() -> None:
        faults, listener = Faults(), await listen()

        async def flood() -> None:
            _, writer = await asyncio.open_connection(A, 80)
            writer.write(bytes(1_000_000))
            writer.close()
            await anyio.sleep_forever()

        faults.delay(A, B, 1.0)
        process = faults.start("b", B, flood)
        await asyncio.sleep(2.5)
        faults.crash(process)
        await asyncio.sleep(10)
        assert sum(len(data) for _, data in listener.heard) == WINDOW_BYTES
        assert listener.end == "closed"
        assert not faults.network.connections

    run(main)


def test_a_process_that_has_ended_can_be_ended_again() -> None:
    async def main() -> None:
        async def nothing() -> str:
            return "done"

        faults = Faults()
        process = faults.start("b", B, nothing)
        ended = [process.ended]
        assert await process.wait() == "done"
        ended.append(process.ended)
        assert ended == [False, True]
        process.terminate()
        faults.crash(process)
        process.terminate()
        assert await process.wait() == "done"

    run(main)


def test_generators_of_a_killed_process_are_not_closed_among_the_living() -> None:
    closed: list[str] = []

    async def main() -> None:
        async def numbers() -> AsyncIterator[int]:
            try:
                for number in itertools.count():
                    await asyncio.sleep(1)
                    yield number
            finally:
                closed.append(current_process().name)  # type: ignore[union-attr]

        async def leave_one_open() -> None:
            open_numbers = numbers()
            await anext(open_numbers)
            del open_numbers  # closed by the loop
            await anyio.sleep_forever()

        async def read() -> None:
            async for _ in numbers():
                pass

        faults = Faults()
        faults.start("alive", A, leave_one_open)
        dead = faults.start("dead", B, read)
        await asyncio.sleep(5)
        faults.crash(dead)
        await asyncio.sleep(5)
        assert closed == ["alive"]

    run(main)


async def _started_in_another_loop(cluster: VirtualCluster) -> None:
    await cluster.start(ElasticJob("embedded://"))


@pytest.mark.parametrize(
    "outside",
    [
        lambda: asyncio.run(_started_in_another_loop(VirtualCluster())),
        lambda: anyio.run(_started_in_another_loop, VirtualCluster(), backend="trio"),
        lambda: VirtualCluster().faults,
        lambda: VirtualCluster().now,
        Faults,
    ],
)
def test_a_cluster_outside_of_simulated_time_is_refused_with_where_to_start_it(outside: Callable[[], object]) -> None:
    with pytest.raises(InvalidSetting, match=r"start the cluster in the `async def` test .* plain fixtures only"):
        outside()
