"""The server over TCP: clients that misbehave, clients that do not read, clients that vanish."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
from contextlib import closing
from pathlib import Path
from struct import pack, unpack_from

import anyio
import pytest

from aioelasticjob.zookeeper import Server, Settings, serve
from aioelasticjob.zookeeper.codes import ErrorCode, OpCode
from aioelasticjob.zookeeper.jute import pack_buffer, pack_string
from aioelasticjob.zookeeper.store import FILE, Changes, Store, Stored, StoreError, open_store
from tests.zookeeper.raw_client import (
    QUICK,
    RawClient,
    can_connect,
    connect_frame,
    connected,
    create_body,
    frame,
    on_server,
    opened,
    read_body,
)

KIB = 1024


@pytest.mark.parametrize(
    "garbage",
    [
        b"\0\0\0\0",
        b"\xff\xff\xff\xff",
        b"\x80\0\0\0",
        b"\0\x10\0\0",
        b"\x7f\xff\xff\xff",
        b"\0\0\0\x04abcd",
        b"GET / HTTP/1.1\r\n\r\n",
        b"abcd",
        b"\0\0\0\x2c" + bytes(24) + b"\x7f" * 20,
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
    ],
)
def test_garbage_in_place_of_a_connect_ends_that_connection_and_no_other(garbage: bytes) -> None:
    async def story(server: Server) -> None:
        async with connected(server) as other, opened(server) as client:
            client.writer.write(garbage)
            assert await client.ended()
            assert (await other.ask(OpCode.PING)).error == 0
            await can_connect(server)

    on_server(story)


@pytest.mark.parametrize("garbage", [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\0\x10\0\0", b"\0\0\0\x04abcd", b"ruok"])
def test_garbage_within_a_session_ends_the_connection_but_not_the_session(garbage: bytes) -> None:
    async def story(server: Server) -> None:
        async with connected(server) as client:
            client.writer.write(garbage)
            assert await client.ended()
            async with opened(server) as again:
                await again.connect(client.session, client.password)
                assert again.session == client.session

    on_server(story)


def test_random_bytes_harm_nobody() -> None:
    chance = random.Random(7)

    async def attack(server: Server) -> None:
        async with opened(server) as client:
            if chance.random() < 0.7:
                await client.connect()
            for _ in range(chance.randrange(1, 12)):
                body = chance.randbytes(chance.randrange(60))
                known = chance.choice([*OpCode, chance.randrange(-20, 120)])
                honest = frame(chance.randrange(2**31), known, body)
                client.writer.write(honest if chance.random() < 0.8 else chance.randbytes(chance.randrange(40)))

    async def story(server: Server) -> None:
        async with connected(server) as witness:
            for _ in range(40):
                async with asyncio.TaskGroup() as attackers:
                    for _ in range(8):
                        attackers.create_task(attack(server))
                assert (await witness.ask(OpCode.EXISTS, read_body("/zookeeper"))).error == 0
        await can_connect(server)

    on_server(story)


def test_requests_in_pieces_and_in_heaps_are_answered_in_order() -> None:
    async def story(server: Server) -> None:
        async with connected(server) as client:
            heap = b"".join(frame(xid, OpCode.SYNC, pack_string(f"/{xid}")) for xid in range(3000))
            for start in range(0, len(heap), 7001):
                client.writer.write(heap[start : start + 7001])
                await client.writer.drain()
            for xid in range(3000):
                reply = await client.next()
                assert (reply.xid, reply.body) == (xid, pack_string(f"/{xid}"))

    on_server(story)


def test_who_asks_for_much_and_reads_nothing_is_made_to_wait() -> None:
    async def story(server: Server) -> None:
        async with connected(server) as client:
            await client.ask(OpCode.CREATE, create_body("/big", bytes(900 * KIB)))
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            ask = frame(1, OpCode.GET_DATA, read_body("/big"))
            client.writer.write(ask * 5000)  # four and a half gigabytes, if all were answered at once
            for _ in range(20):
                await can_connect(server)
            (busy,) = (each for each in server.clients.values() if each.connection.session == client.session)
            held = busy.transport.get_write_buffer_size() + busy.connection.backlog
            assert held < 4 * KIB * KIB
            client.writer.transport.resume_reading()  # type: ignore[attr-defined]
            for _ in range(50):
                assert len((await client.next()).body) > 900 * KIB

    on_server(story)


def test_who_watches_much_and_reads_nothing_is_dropped() -> None:
    async def story(server: Server) -> None:
        async with connected(server) as lazy, connected(server) as busy:
            await lazy.ask(OpCode.ADD_WATCH, pack_string("/") + pack(">i", 1))
            lazy.writer.transport.pause_reading()  # type: ignore[attr-defined]
            name = "/" + "n" * 900
            await busy.ask(OpCode.CREATE, create_body(name))
            change = frame(1, OpCode.SET_DATA, pack_string(name) + pack_buffer(b"") + pack(">i", -1))
            while any(each.session == lazy.session for each in server.clients):
                busy.writer.write(change * 200)
                for _ in range(200):
                    await busy.next()
            await can_connect(server)

    on_server(story, Settings(tick_time=2000, max_output=256 * KIB))


def test_who_never_says_hello_is_sent_away() -> None:
    async def story(server: Server) -> None:
        async with opened(server) as silent:
            assert await silent.ended()

    on_server(story, Settings(tick_time=50, sessionless_timeout=100))


@pytest.mark.parametrize("host", ["localhost", ""])
def test_a_name_is_listened_at_where_this_machine_has_it(host: str) -> None:
    async def main() -> None:
        async with serve(host) as server:
            server.host = "127.0.0.1"
            await can_connect(server)

    asyncio.run(main())


def test_a_silent_client_loses_session_connection_and_nodes() -> None:
    async def story(server: Server) -> None:
        async with connected(server) as watcher, connected(server, timeout=100) as silent:
            await silent.ask(OpCode.CREATE, create_body("/mine", flags=1))
            await watcher.ask(OpCode.EXISTS, read_body("/mine", True))
            event = await watcher.next()
            assert (event.xid, event.body) == (-1, pack(">ii", 2, 3) + pack_string("/mine"))
            assert await silent.ended()
            async with opened(server) as late:
                await late.connect(silent.session, silent.password)
                assert (late.session, late.timeout) == (0, 0)
                assert await late.ended()

    on_server(story, loop="virtual")


def test_the_newer_connection_takes_the_session_and_the_older_is_closed() -> None:
    async def story(server: Server) -> None:
        async with connected(server) as older, opened(server) as newer:
            await older.ask(OpCode.CREATE, create_body("/e", flags=1))
            await newer.connect(older.session, older.password)
            assert await older.ended()
            assert (await newer.ask(OpCode.EXISTS, read_body("/e"))).error == 0

    on_server(story)


def test_closing_a_session_is_answered_before_the_end() -> None:
    async def story(server: Server) -> None:
        async with connected(server) as client:
            reply = await client.ask(OpCode.CLOSE_SESSION, xid=9)
            assert (reply.xid, reply.error) == (9, ErrorCode.OK)
            assert await client.ended()

    on_server(story)


def test_a_word_is_answered_even_to_who_has_finished_speaking() -> None:
    async def story(server: Server) -> None:
        async with opened(server) as client:
            client.writer.write(b"srvr\n")
            client.writer.write_eof()
            assert b"Mode: standalone" in await client.reader.read()

    on_server(story)


def test_a_port_in_use_is_an_error() -> None:
    async def main() -> None:
        async with serve() as server:
            with pytest.raises(OSError, match="in use"):
                async with serve(port=server.port):
                    pass

    asyncio.run(main())


def test_an_ipv6_address_is_written_in_brackets() -> None:
    async def main() -> None:
        async with serve("::1") as server:
            assert server.address == f"[::1]:{server.port}"
            await can_connect(server)

    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:  # a host without IPv6 has to be told so; skipping would fail where nothing may be skipped
        with pytest.raises(OSError):  # noqa: PT011  # its text is the host's
            asyncio.run(main())
    else:
        asyncio.run(main())


def test_the_clock_of_the_caller_dates_the_nodes() -> None:
    async def main() -> None:
        async with serve(clock=lambda: 1_000_000.5) as server, connected(server) as client:
            reply = await client.ask(OpCode.CREATE2, create_body("/a"))
            assert unpack_from(">q", reply.body, 6 + 16)[0] == 1_000_000_500

    asyncio.run(main())


def test_after_a_restart_sessions_nodes_and_numbers_are_there(tmp_path: Path) -> None:
    kept: list[RawClient] = []

    async def before(server: Server) -> None:
        async with connected(server) as client:
            await client.ask(OpCode.CREATE, create_body("/e", b"data", flags=1))
            kept.append(client)

    async def after(server: Server) -> None:
        (old,) = kept
        async with opened(server) as client:
            await client.connect(old.session, old.password)
            assert (client.session, client.password) == (old.session, old.password)
            reply = await client.ask(OpCode.GET_DATA, read_body("/e"))
            assert (reply.error, reply.body[:8]) == (0, pack_buffer(b"data"))
            await client.ask(OpCode.CLOSE_SESSION)
        async with connected(server) as client:
            assert (await client.ask(OpCode.EXISTS, read_body("/e"))).error == ErrorCode.NO_NODE

    on_server(before, data_dir=tmp_path)
    on_server(after, data_dir=tmp_path)


def test_a_session_that_nobody_takes_up_after_a_restart_ends(tmp_path: Path) -> None:
    async def before(server: Server) -> None:
        async with connected(server, timeout=100) as client:
            await client.ask(OpCode.CREATE, create_body("/e", flags=1))

    async def after(server: Server) -> None:
        async with connected(server) as client:
            reply = await client.ask(OpCode.EXISTS, read_body("/e", True))
            if reply.error == 0:
                assert (await client.next()).xid == -1
            else:  # the machine was slow, and the session's tenth of a second is over already
                assert reply.error == ErrorCode.NO_NODE

    on_server(before, data_dir=tmp_path)
    on_server(after, data_dir=tmp_path)


def test_a_failing_disk_ends_the_server_before_it_acknowledges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with serve(data_dir=tmp_path, settings=QUICK) as server, connected(server) as client:

            def full(self: Store, changes: object) -> None:
                raise OSError("disk full")

            monkeypatch.setattr(Store, "commit", full)
            client.writer.write(frame(1, OpCode.CREATE, create_body("/lost")))
            assert await client.ended()
            with pytest.raises(OSError, match="disk full"):
                await server.ended

    asyncio.run(main())


def test_a_disk_that_fails_while_the_server_stops_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(self: Store, changes: object) -> None:
        raise StoreError("disk full")

    async def main() -> None:
        async with serve(data_dir=tmp_path, settings=QUICK) as server, connected(server) as client:
            server.request_stop()
            await server.ended
            monkeypatch.setattr(Store, "commit", full)
            client.writer.write(frame(1, OpCode.CREATE, create_body("/lost")))
            assert await client.ended()

    asyncio.run(main())
    assert [record.getMessage() for record in caplog.records if record.name == "aioelasticjob.zookeeper"] == [
        "while the server stopped: disk full; the last changes are lost, and were confirmed to nobody"
    ]


def test_a_server_that_is_cancelled_while_the_disk_works_writes_everything_and_leaves_no_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, through, commit = threading.Event(), threading.Event(), Store.commit

    def slow(self: Store, changes: Changes) -> None:
        begun.set()
        through.wait(timeout=5)
        commit(self, changes)

    async def main() -> None:
        with anyio.CancelScope() as scope:
            async with serve(data_dir=tmp_path, settings=QUICK) as server, opened(server) as client:
                await client.connect()
                monkeypatch.setattr(Store, "commit", slow)
                client.writer.write(frame(1, OpCode.CREATE, create_body("/first")))
                await asyncio.to_thread(begun.wait, 90)
                client.writer.write(frame(2, OpCode.CREATE, create_body("/second")))
                while "/second" not in server.processor.tree.nodes:
                    await asyncio.sleep(0)
                asyncio.get_running_loop().call_later(0.05, through.set)
                scope.cancel()
                await server.ended
        through.set()
        assert not server.clients

    asyncio.run(main())
    with closing(open_store(tmp_path)) as store:  # nobody has it open any more
        assert {"/first", "/second"} <= set(store.load().tree.nodes)


def test_a_server_that_is_cancelled_while_it_loads_closes_its_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, through, load, close = threading.Event(), threading.Event(), Store.load, Store.close
    closed: list[str] = []

    def slow(self: Store, *, extended_types: bool = True) -> Stored:
        begun.set()
        through.wait(timeout=5)
        return load(self, extended_types=extended_types)

    def noted(self: Store) -> None:
        closed.append(threading.current_thread().name)
        close(self)

    async def main() -> None:
        monkeypatch.setattr(Store, "load", slow)
        monkeypatch.setattr(Store, "close", noted)
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(serve(data_dir=tmp_path).__aenter__)
                while not begun.is_set():
                    await asyncio.sleep(0)
                asyncio.get_running_loop().call_later(0.05, through.set)
                scope.cancel()

    asyncio.run(main())
    assert closed == ["zookeeper-disk_0"]


def test_a_damaged_directory_is_not_kept_open(tmp_path: Path) -> None:
    async def main() -> None:
        async with serve(data_dir=tmp_path):
            pass
        content = (tmp_path / FILE).read_bytes()
        (tmp_path / FILE).write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
        errors = []
        for _ in range(2):
            with pytest.raises(StoreError, match="is damaged") as caught:
                async with serve(data_dir=tmp_path):
                    pass
            errors.append(caught.value)  # its traceback refers to everything that was opened

    asyncio.run(main())


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with serve(data_dir=tmp_path):
            with pytest.raises(StoreError, match="in use"):
                async with serve(data_dir=tmp_path):
                    pass

    asyncio.run(main())


def test_nothing_is_left_when_the_server_has_stopped() -> None:
    async def main() -> None:
        async with serve(settings=QUICK) as server:
            async with connected(server) as client:
                await client.ask(OpCode.PING)
            client_reader, client_writer = await asyncio.open_connection(server.host, server.port)
            client_writer.write(connect_frame())
            await client_reader.readexactly(41)
        assert await client_reader.read() == b""
        client_writer.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
