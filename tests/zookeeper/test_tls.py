"""The server's port for TLS, as other people's clients see it, and what it bears."""

from __future__ import annotations

import asyncio
import logging
import shutil
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pytest
from kazoo.client import KazooClient

from aioelasticjob.zookeeper.server import Server, serve
from aioelasticjob.zookeeper.settings import Settings
from aioelasticjob.zookeeper.tls import Certificates, TlsError, TlsSettings, context
from tests.support.certificates import Authority, Certificate
from tests.support.loops import LoopKind, run_async
from tests.support.processes import TIMEOUT
from tests.zookeeper.raw_client import connect_frame

T = TypeVar("T")


def served(tls: TlsSettings, kind: LoopKind, use: Callable[[Server], T], settings: Settings | None = None) -> T:
    """Return what ``use`` returns in a thread, while there is a server."""

    async def main() -> T:
        async with serve(settings=settings or Settings(tick_time=500), tls=tls) as server:
            return await asyncio.to_thread(use, server)

    return run_async(kind, main)


def dialled(server: Server, ca: Authority) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", server.tls_port or 0), TIMEOUT)
    return ssl.create_default_context(cafile=str(ca.certificate)).wrap_socket(plain, server_hostname="localhost")


def test_kazoo_works_encrypted_and_with_a_certificate(
    ours: Authority, of_server: Certificate, real_loop_kind: LoopKind
) -> None:
    own = ours.issue(f"kazoo {real_loop_kind}")

    def use(server: Server) -> None:
        client = KazooClient(
            server.tls_address,
            use_ssl=True,
            ca=str(ours.certificate),
            certfile=str(own.certificate),
            keyfile=str(own.key),
            timeout=5,
        )
        client.start(TIMEOUT)
        try:
            data = bytes(900_000)
            for number in range(8):
                client.create(f"/{number}", data)
            pending = [client.get_async(f"/{number % 8}") for number in range(64)]  # far more than buffers take
            assert all(each.get(timeout=TIMEOUT)[0] == data for each in pending)
        finally:
            client.stop()
            client.close()

    served(TlsSettings(of_server.certificate, of_server.key, ours.certificate, 0), real_loop_kind, use)


def test_a_word_is_answered_and_the_connection_ended_properly(
    ours: Authority, of_server: Certificate, real_loop_kind: LoopKind
) -> None:
    def use(server: Server) -> list[bytes]:
        answers = []
        for word in (b"ruok", b"conf"):
            with dialled(server, ours) as client:
                client.sendall(word)
                answers.append(b"".join(iter(lambda client=client: client.recv(4096), b"")))
        return [*answers, f"secureClientPort={server.tls_port}".encode()]

    word, conf, port = served(TlsSettings(of_server.certificate, of_server.key, port=0), real_loop_kind, use)
    assert word == b"imok"
    assert port in conf.split(b"\n")


def test_a_client_that_ends_its_side_gets_its_answer(
    ours: Authority, of_server: Certificate, real_loop_kind: LoopKind
) -> None:
    def use(server: Server) -> None:
        with dialled(server, ours) as client:
            client.sendall(connect_frame())
            assert client.recv(1)
            assert client.recv(4096)
            client.unwrap().close()

    served(TlsSettings(of_server.certificate, of_server.key, port=0), real_loop_kind, use)


def test_who_does_not_begin_the_handshake_is_sent_away_after_a_while(
    of_server: Certificate, real_loop_kind: LoopKind
) -> None:
    def use(server: Server) -> None:
        with socket.create_connection(("127.0.0.1", server.tls_port or 0), TIMEOUT) as silent:
            assert silent.recv(1) == b""

    settings = Settings(tick_time=500, sessionless_timeout=100)
    served(TlsSettings(of_server.certificate, of_server.key, port=0), real_loop_kind, use, settings)


def test_connections_count_before_their_handshake_and_need_one(
    of_server: Certificate, real_loop_kind: LoopKind
) -> None:
    def use(server: Server) -> None:
        address = ("127.0.0.1", server.tls_port or 0)
        with socket.create_connection(address, TIMEOUT) as first, socket.create_connection(address, TIMEOUT) as second:
            with socket.create_connection(address, TIMEOUT) as third:
                assert third.recv(1) == b"", "it is one too many"
            for client in (first, second):
                client.sendall(b"ruok" * 10)
                with suppress(ConnectionResetError):
                    assert b"imok" not in b"".join(iter(lambda client=client: client.recv(100), b""))

    settings = Settings(tick_time=500, sessionless_timeout=TIMEOUT * 1000, max_client_connections=2)
    served(TlsSettings(of_server.certificate, of_server.key, port=0), real_loop_kind, use, settings)


def test_a_failed_handshake_is_reported_to_the_client_and_logged(
    ours: Authority, of_server: Certificate, real_loop_kind: LoopKind, caplog: pytest.LogCaptureFixture
) -> None:
    def use(server: Server) -> None:
        for _ in range(2):
            with dialled(server, ours) as client, pytest.raises(ssl.SSLError, match="certificate required"):
                client.recv(1)

    with caplog.at_level(logging.WARNING, "aioelasticjob.zookeeper"):
        served(TlsSettings(of_server.certificate, of_server.key, ours.certificate, 0), real_loop_kind, use)
    assert caplog.messages == ["no TLS connection with 127.0.0.1: peer did not return a certificate"]


def test_files_are_read_again_when_they_have_changed_and_a_bad_one_changes_nothing(
    ours: Authority, of_server: Certificate, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, key = tmp_path / "server.pem", tmp_path / "server.key"
    shutil.copy(of_server.certificate, file)
    shutil.copy(of_server.key, key)

    async def main() -> None:
        certificates = Certificates(TlsSettings(file, key))
        first = certificates.current()
        assert certificates.current() is first
        file.write_text("nonsense")
        assert certificates.current() is first
        renewed = ours.issue("renewed")
        shutil.copy(renewed.certificate, file)
        assert certificates.current() is first, "its key is not there yet"
        shutil.copy(renewed.key, key)
        assert certificates.current() is not first
        certificates.stop()

    with caplog.at_level(logging.WARNING, "aioelasticjob.zookeeper"):
        asyncio.run(main())
    assert [str(file) in line for line in caplog.messages] == [True]


def test_a_file_that_cannot_be_used_is_named(ours: Authority, of_server: Certificate, tmp_path: Path) -> None:
    none, nonsense = tmp_path / "none", tmp_path / "nonsense"
    nonsense.write_text("nonsense")
    certificate, key = of_server.certificate, of_server.key
    for tls, file in (
        (TlsSettings(none, key), none),
        (TlsSettings(certificate, none), none),
        (TlsSettings(certificate), certificate),
        (TlsSettings(nonsense, key), nonsense),
        (TlsSettings(certificate, ours.key), ours.key),
        (TlsSettings(certificate, key, nonsense), nonsense),
    ):
        with pytest.raises(TlsError) as refused:
            context(tls)
        assert str(file) in str(refused.value)
