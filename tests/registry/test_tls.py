"""Encrypted connections: with the embedded server and with Debian's, and what is said of each certificate amiss."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aioelasticjob.clock import SystemClock
from aioelasticjob.errors import (
    CertificateExpired,
    CertificateMissing,
    CertificateRefused,
    InvalidSetting,
    RegistryError,
    RegistryUnreachable,
    TlsFailed,
)
from aioelasticjob.registry.session import ConnectionSettings, Session, SessionState, open_session
from aioelasticjob.registry.tls import TlsSettings, context
from aioelasticjob.registry.transaction import Create
from aioelasticjob.zookeeper import server as embedded
from aioelasticjob.zookeeper import tls as server_tls
from tests.support import real_zookeeper
from tests.support.certificates import Authority, Certificate, authority, encrypted
from tests.support.loops import LoopKind, run_async
from tests.support.real_zookeeper import Access, RealServer

CONNECTION_TIMEOUT = 60.0
"""Seconds until a session that cannot be opened gives up; what is known to be amiss is said long before."""


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("ours"), "our CA")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("theirs"), "their CA")


@pytest.fixture(scope="module")
def of_server(ours: Authority) -> Certificate:
    return ours.issue("server")


@pytest.fixture(scope="module")
def of_client(ours: Authority) -> Certificate:
    return ours.issue("client")


@asynccontextmanager
async def encrypting(certificate: Certificate, client_ca: Path | None = None) -> AsyncIterator[embedded.Server]:
    tls = server_tls.TlsSettings(certificate.certificate, certificate.key, client_ca, 0)
    async with embedded.serve(tick_time=500, tls=tls) as server:
        yield server


def settings(port: int | None, tls: dict[str, Any], **options: Any) -> ConnectionSettings:
    return ConnectionSettings.parse(
        f"zks://localhost:{port}/test", tls=tls, connection_timeout=CONNECTION_TIMEOUT, **options
    )


async def write_and_read(session: Session) -> None:
    data = os.urandom(300_000)
    await session.commit([Create("/a", data)], incarnation=session.incarnation)
    assert (await session.get("/a")).data == data


def test_a_session_is_encrypted_and_the_server_verified(
    ours: Authority, of_server: Certificate, real_loop_kind: LoopKind
) -> None:
    async def main() -> None:
        async with encrypting(of_server) as server:
            tls = {"ca": ours.certificate}
            async with open_session(settings(server.tls_port, tls)) as session:
                await write_and_read(session)
                assert session._keeper.connection is not None
                assert session._keeper.connection._transport is not None
                assert session._keeper.connection._transport.get_extra_info("cipher")
            async with open_session(settings(server.tls_port, {**tls, "minimum_version": 1.3})) as session:
                assert session.host in ("127.0.0.1", "::1")

    run_async(real_loop_kind, main)


def test_a_client_shows_its_certificate_and_may_encrypt_its_key(
    ours: Authority, of_server: Certificate, of_client: Certificate, real_loop_kind: LoopKind, tmp_path: Path
) -> None:
    password = tmp_path / "password"
    password.write_text("a secret\n")
    own = {"ca": ours.certificate, "certificate": of_client.certificate}
    hidden = {**own, "key": encrypted(of_client.key, "a secret")}

    async def main() -> None:
        async with encrypting(of_server, ours.certificate) as server:
            for tls in ({**own, "key": of_client.key}, {**hidden, "key_password_file": password}):
                async with open_session(settings(server.tls_port, tls)) as session:
                    await session.get("/")

    run_async(real_loop_kind, main)
    with pytest.raises(CertificateRefused, match=r"is encrypted: set tls.key_password_file") as refused:
        context(made(hidden), SystemClock().now())
    assert refused.value.file == str(hidden["key"])
    for wrong in ("other", "a secret "):
        with pytest.raises(CertificateRefused, match="cannot be decrypted") as refused:
            context(made({**hidden, "key_password": wrong}), SystemClock().now())
        assert wrong not in str(refused.value)


def made(tls: dict[str, Any]) -> TlsSettings:
    found = TlsSettings.of(tls)
    assert found is not None
    return found


def refused(port: int | None, tls: dict[str, Any], loop_kind: LoopKind = "asyncio") -> Any:
    async def main() -> TlsFailed:
        with pytest.raises(TlsFailed) as caught:
            async with open_session(settings(port, tls)):
                pass
        return caught.value

    return run_async(loop_kind, main)


async def refusal(certificate: Certificate, tls: dict[str, Any], client_ca: Path | None = None) -> TlsFailed:
    async with encrypting(certificate, client_ca) as server:
        with pytest.raises(TlsFailed) as caught:
            async with open_session(settings(server.tls_port, tls)):
                pass
    return caught.value


def test_a_servers_certificate_amiss_is_said_with_the_file(
    ours: Authority, theirs: Authority, of_server: Certificate, real_loop_kind: LoopKind
) -> None:
    async def main() -> None:
        ca = {"ca": ours.certificate}
        expired = await refusal(ours.issue("expired", days=-1), ca)
        assert isinstance(expired, CertificateExpired)
        assert (expired.file, "has expired" in str(expired)) == (str(ours.certificate), True)
        other = await refusal(of_server, {"ca": theirs.certificate})
        assert isinstance(other, CertificateRefused)
        assert (other.file, "not issued by a CA in" in str(other)) == (str(theirs.certificate), True)
        system = await refusal(of_server, {})
        assert isinstance(system, CertificateRefused)
        assert "this system's trusted certificates: set tls.ca" in str(system)
        elsewhere = ours.issue("elsewhere", names="DNS:zk1.example")
        named = await refusal(elsewhere, ca)
        assert isinstance(named, CertificateRefused)
        assert "set tls.server_name" in str(named)
        async with encrypting(elsewhere) as server:
            renamed = settings(server.tls_port, {**ca, "server_name": "zk1.example"})
            async with open_session(renamed) as session:
                await session.get("/")

    run_async(real_loop_kind, main)


def test_our_certificate_amiss_is_said_with_the_file(
    ours: Authority, theirs: Authority, of_server: Certificate, real_loop_kind: LoopKind
) -> None:
    async def main() -> None:
        ca = {"ca": ours.certificate}
        none = await refusal(of_server, ca, ours.certificate)
        assert isinstance(none, CertificateMissing)
        assert "set tls.certificate and tls.key" in str(none)
        foreign = theirs.issue("foreign")
        own = {**ca, "certificate": foreign.certificate, "key": foreign.key}
        other = await refusal(of_server, own, ours.certificate)
        assert isinstance(other, CertificateRefused)
        assert other.file == str(foreign.certificate)

    run_async(real_loop_kind, main)


def test_files_amiss_are_said_before_anything_is_tried(
    ours: Authority, of_server: Certificate, of_client: Certificate, tmp_path: Path
) -> None:
    nothing, nonsense = tmp_path / "none.pem", tmp_path / "nonsense.pem"
    nonsense.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    expired = ours.issue("expired client", days=-1)
    certificate, key = of_client.certificate, of_client.key
    for tls, error, file in (
        ({"ca": nothing}, CertificateMissing, nothing),
        ({"ca": nonsense}, CertificateRefused, nonsense),
        ({"certificate": nothing, "key": key}, CertificateMissing, nothing),
        ({"certificate": nonsense, "key": key}, CertificateRefused, nonsense),
        ({"certificate": key, "key": key}, CertificateRefused, key),
        ({"certificate": certificate, "key": nothing}, CertificateMissing, nothing),
        ({"certificate": certificate, "key": nonsense}, CertificateRefused, nonsense),
        ({"certificate": certificate}, CertificateRefused, certificate),
        ({"certificate": certificate, "key": of_server.key}, CertificateRefused, of_server.key),
        ({"certificate": expired.certificate, "key": expired.key}, CertificateExpired, expired.certificate),
    ):
        found = refused(1, tls)
        assert (type(found), found.file) == (error, str(file))
        assert str(file) in str(found)
    with pytest.raises(CertificateRefused, match="not valid before"):
        context(made({"certificate": certificate, "key": key}), SystemClock().now() - 30 * 86_400)


def test_certificates_are_renewed_without_a_restart(
    ours: Authority, theirs: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture, real_loop_kind: LoopKind
) -> None:
    """Both sides read their files anew: here they change their authority, and have nothing old in common."""
    ca, both = tmp_path / "ca.pem", {side: tmp_path / side for side in ("server", "client")}

    def install(authority: Authority, *sides: str) -> None:
        for side in sides:
            new = authority.issue(f"{side} {real_loop_kind}")
            both[side].write_bytes(new.certificate.read_bytes() + new.key.read_bytes())

    shutil.copy(ours.certificate, ca)
    install(ours, "server", "client")
    tls = {"ca": ca, "certificate": both["client"]}

    async def main() -> None:
        async with (
            embedded.serve(tick_time=500, tls=server_tls.TlsSettings(both["server"], None, ca, 0)) as server,
            open_session(settings(server.tls_port, tls, session_timeout=10)) as session,
        ):
            incarnation = session.incarnation
            shutil.copy(theirs.certificate, ca)
            install(theirs, "server")  # the client's own certificate is still an old one
            with caplog.at_level(logging.WARNING, "aioelasticjob.registry"):
                await cut(session, server)
                async with asyncio.timeout(60):
                    while not any("certificate in" in line for line in caplog.messages):
                        await asyncio.sleep(0.01)
            install(theirs, "client")
            async with asyncio.timeout(60):
                await session.status.until(lambda status: status.state is SessionState.CONNECTED)
                await session.get("/")
            assert session.incarnation == incarnation
            both["server"].write_text("nonsense")
            await cut(session, server)  # the server goes on with the certificate that it has read before
            async with asyncio.timeout(60):
                await session.status.until(lambda status: status.state is SessionState.CONNECTED)

    async def cut(session: Session, server: embedded.Server) -> None:
        for client in list(server.clients.values()):
            client.transport.abort()
        await session.status.until(lambda status: status.state is not SessionState.CONNECTED)

    run_async(real_loop_kind, main)


def test_a_port_without_tls_is_told_apart(ours: Authority, of_server: Certificate, real_loop_kind: LoopKind) -> None:
    async def main() -> None:
        async with encrypting(of_server) as server:
            with pytest.raises(TlsFailed, match="name its port for TLS"):
                async with open_session(replace(settings(server.port, {"ca": ours.certificate}), connection_timeout=3)):
                    pass

    run_async(real_loop_kind, main)


@pytest.mark.parametrize(
    ("tls", "setting"),
    [
        ("ca.pem", "tls"),
        ({"certfile": "x"}, "tls.certfile"),
        ({"ca": 5}, "tls.ca"),
        ({"key_password": 5}, "tls.key_password"),
        ({"key": "x"}, "tls.key"),
        ({"minimum_version": "1.1"}, "tls.minimum_version"),
        ({"key_password": "x", "key_password_file": "y"}, "tls.key_password_file"),
    ],
)
def test_a_wrong_setting_is_named(tls: Any, setting: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        ConnectionSettings.parse("zks://h", tls=tls)
    assert caught.value.setting == setting


def test_an_address_says_whether_connections_are_encrypted() -> None:
    parsed = ConnectionSettings.parse("zks://zk1,zk2:2300/billing")
    assert (parsed.hosts, parsed.tls) == ((("zk1", 2281), ("zk2", 2300)), TlsSettings())
    assert ConnectionSettings.parse("zk://zk1").tls is None
    with pytest.raises(InvalidSetting, match="write zks://"):
        ConnectionSettings.parse("zk://zk1", tls={"ca": "ca.pem"})


def test_no_password_is_shown() -> None:
    tls = {"certificate": "c", "key_password": "a secret"}
    assert "a secret" not in repr(ConnectionSettings.parse("zks://h", tls=tls))


# Debian's ZooKeeper


def keystore(directory: Path, certificate: Certificate) -> Path:
    made = directory / "keystore.pem"
    made.write_bytes(certificate.key.read_bytes() + certificate.certificate.read_bytes())
    return made


@pytest.fixture(scope="module")
def secured(ours: Authority, of_server: Certificate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """Debian's ZooKeeper with a port for TLS, which asks for certificates of ours."""
    directory = tmp_path_factory.mktemp("secured")
    access = Access(keystore(directory, of_server), ours.certificate)
    with real_zookeeper.standalone(directory, access) as server:
        yield server


@pytest.mark.zookeeper
def test_zookeeper_is_reached_with_a_certificate(
    secured: RealServer, ours: Authority, of_client: Certificate, real_loop_kind: LoopKind
) -> None:
    tls = {"ca": ours.certificate, "certificate": of_client.certificate, "key": of_client.key}

    async def main() -> None:
        options = settings(secured.secure_port, tls, session_timeout=10)
        async with open_session(replace(options, namespace=f"test-{real_loop_kind}")) as session:
            await write_and_read(session)

    run_async(real_loop_kind, main)


@pytest.mark.zookeeper
def test_zookeepers_refusals_have_their_types(
    secured: RealServer, ours: Authority, theirs: Authority, of_client: Certificate, real_loop_kind: LoopKind
) -> None:
    foreign = theirs.issue(f"foreign {real_loop_kind}")
    for tls, error, file in (
        ({"ca": ours.certificate}, CertificateMissing, None),
        ({"ca": theirs.certificate}, CertificateRefused, theirs.certificate),
        (
            {"ca": ours.certificate, "certificate": foreign.certificate, "key": foreign.key},
            CertificateRefused,
            foreign.certificate,
        ),
    ):
        found = refused(secured.secure_port, tls, real_loop_kind)
        assert (type(found), found.file) == (error, None if file is None else str(file)), found


@pytest.mark.zookeeper
def test_a_session_goes_over_to_another_member_of_an_encrypted_ensemble(
    ours: Authority, of_server: Certificate, of_client: Certificate, tmp_path: Path
) -> None:
    tls = {"ca": ours.certificate, "certificate": of_client.certificate, "key": of_client.key}

    async def main(members: real_zookeeper.Ensemble) -> None:
        address = f"zks://{members.secure_addresses}/test"
        async with open_session(ConnectionSettings.parse(address, tls=tls, session_timeout=20)) as session:
            incarnation, connection = session.incarnation, session._keeper.connection
            assert connection is not None
            served = next(one for one in members.members if connection.peer.endswith(f":{one.secure_port}"))
            served.kill()
            await session.status.until(lambda status: status.state is not SessionState.CONNECTED)
            async with asyncio.timeout(60):
                await session.connected()
                await write_and_read(session)
            assert session.incarnation == incarnation

    access = Access(keystore(tmp_path, of_server), ours.certificate)
    with real_zookeeper.ensemble(tmp_path, access=access) as members:
        asyncio.run(main(members))


def test_a_port_for_tls_is_told_apart_from_one_without(of_server: Certificate, real_loop_kind: LoopKind) -> None:
    async def main() -> None:
        async with encrypting(of_server) as server:
            address = f"zk://127.0.0.1:{server.tls_port}/x"
            with pytest.raises(RegistryError, match="write zks://") as caught:
                async with open_session(ConnectionSettings.parse(address, connection_timeout=3)):
                    pass
        assert f"127.0.0.1:{server.tls_port}" in str(caught.value)

    run_async(real_loop_kind, main)


@pytest.mark.parametrize(("answer", "kind"), [(b"\x15\x03\x03\x00\x02\x02\x46", TlsFailed), (b"", RegistryUnreachable)])
def test_a_server_that_answers_with_tls_or_not_at_all_has_a_hint(
    answer: bytes, kind: type[RegistryError], real_loop_kind: LoopKind
) -> None:
    async def main() -> None:
        async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(answer)
            writer.close()

        async with await asyncio.start_server(answered, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(kind, match="write zks://"):
                async with open_session(ConnectionSettings.parse(f"zk://127.0.0.1:{port}/x", connection_timeout=1)):
                    pass

    run_async(real_loop_kind, main)
