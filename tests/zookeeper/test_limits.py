"""What one client may take of the server: connections, descriptors, memory, time."""

from __future__ import annotations

import asyncio
import re
import socket
from contextlib import AsyncExitStack
from errno import EMFILE
from typing import Any

import pytest

from aioelasticjob.zookeeper import Server, Settings, listener, repeated_warning
from aioelasticjob.zookeeper.codes import OpCode
from aioelasticjob.zookeeper.connection import MAX_FRAME
from tests.zookeeper.raw_client import can_connect, connected, create_body, frame, on_server, opened

KIB = 1024


def test_one_address_gets_so_many_connections_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    async def story(server: Server) -> None:
        async with connected(server), connected(server):
            for _ in range(5):
                async with opened(server) as third:
                    assert await third.ended()
            assert len(server.clients) == 2
        while server.clients:
            await asyncio.sleep(0)
        await can_connect(server)

    on_server(story, Settings(max_client_connections=2))
    assert caplog.messages == [
        "127.0.0.1 has more than 2 connections (maxClientCnxns): closed the newest; no more are accepted"
    ]


def test_half_a_request_lasts_as_long_as_its_session() -> None:
    async def story(server: Server) -> None:
        async with connected(server, timeout=100) as client:
            client.writer.write(frame(1, OpCode.CREATE, create_body("/a"))[:-1])
            assert await client.ended()
        await can_connect(server)

    on_server(story, loop="virtual")


def test_halves_of_requests_are_kept_up_to_a_limit_and_the_oldest_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    half = frame(1, OpCode.CREATE, create_body("/big", bytes(60 * KIB)))[:-1]

    async def story(server: Server) -> None:
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(connected(server)) for _ in range(30)]
            for client in clients:
                client.writer.write(half)
                while not any(each.unread == len(half) for each in server.clients if each.session == client.session):
                    await asyncio.sleep(0)
            while len(server.clients) > 17:  # a megabyte of halves
                await asyncio.sleep(0)
            assert sum(each.unread for each in server.clients) <= MAX_FRAME
            assert await clients[0].ended()
            clients[-1].writer.write(b"\0" * 4)
            assert (await clients[-1].next()).error == 0
        await can_connect(server)

    on_server(story, Settings(tick_time=2000, max_unfinished=MAX_FRAME))
    assert caplog.messages == [
        f"unfinished requests take more than {MAX_FRAME} bytes (max-unfinished):"
        " closed the connection from 127.0.0.1 whose request has been unfinished for longest"
    ]


def test_without_descriptors_clients_wait_and_the_log_has_two_lines(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever accepting a connection raises, the server goes on."""
    monkeypatch.setattr(listener, "RETRY_PAUSE", 0.01)
    monkeypatch.setattr(repeated_warning, "QUIET_PERIOD", 600)
    accept, attempts = socket.socket.accept, list[int]()

    def exhausted(self: socket.socket) -> tuple[socket.socket, object]:
        attempts.append(1)
        if len(attempts) == 3:  # the attempts before it count as one problem, however slow this machine is
            monkeypatch.setattr(repeated_warning, "QUIET_PERIOD", 0.01)
        if len(attempts) < 4:
            raise OSError(EMFILE, "Too many open files")
        if len(attempts) == 4:
            raise ConnectionAbortedError
        return accept(self)

    async def story(server: Server) -> None:
        monkeypatch.setattr(socket.socket, "accept", exhausted)
        async with connected(server):  # accepted by the attempt that waited already
            await can_connect(server)
        while len(caplog.records) < 2:
            await asyncio.sleep(0.01)

    on_server(story)
    first, last = caplog.messages
    assert first == "cannot accept connections: Too many open files; clients wait and are tried every 0.01 s"
    assert re.fullmatch(r"connections are accepted again; it had happened 3 times in \d+ s", last)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tick_time", 0),
        ("container_check_interval", 0),
        ("sessionless_timeout", 0),
        ("max_client_connections", -1),
        ("max_frame", 100),
        ("max_unfinished", 1000),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(name: str, value: int) -> None:
    given: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match=f"{name} is {value}, and"):
        Settings(**given)
