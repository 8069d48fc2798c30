"""Connections on which a request begins and does not go on are dropped; those that work are left alone."""

from __future__ import annotations

import socket

import anyio
import pytest
import uvicorn
from anyio.abc import SocketStream

from aioelasticjob.console import Console, ConsoleSettings
from aioelasticjob.console.connections.half_open import HttpProtocol
from tests.console.conftest import CHEAP
from tests.support.processes import TIMEOUT

FORM = (
    b"POST /login HTTP/1.1\r\nhost: a\r\ncontent-type: application/x-www-form-urlencoded\r\ncontent-length: 9\r\n\r\n"
)
PAGE = b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n"


async def _everything(stream: SocketStream) -> bytes:
    """Return what the console sends until it closes the connection."""
    received = b""
    with anyio.fail_after(TIMEOUT):
        try:
            while True:
                received += await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return received


@pytest.mark.parametrize(
    ("sent", "answered"),
    [(b"", b""), (b"GET / HT", b""), (PAGE + b"GET / HT", b" 200 OK"), (FORM + b"csrf", b" 408 Request Timeout")],
)
def test_half_a_request_is_dropped(
    sent: bytes, answered: bytes, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioelasticjob.console.connections.half_open.HEAD_TIMEOUT", 2.0)
    monkeypatch.setattr("aioelasticjob.console.connections.middleware.BODY_TIMEOUT", 0.2)

    async def main() -> None:
        console = Console(ConsoleSettings((), tmp_path), hasher=CHEAP)
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            server = uvicorn.Server(
                uvicorn.Config(console, lifespan="off", log_config=None, http=HttpProtocol, timeout_keep_alive=3600)
            )
            async with console.running(), anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: server.serve(sockets=[listening]))
                async with await anyio.connect_tcp("127.0.0.1", listening.getsockname()[1]) as stream:
                    if sent:
                        await stream.send(sent)
                    received = await _everything(stream)
                    assert answered in received
                    assert bool(received) is bool(answered)
                server.should_exit = True

    anyio.run(main)
