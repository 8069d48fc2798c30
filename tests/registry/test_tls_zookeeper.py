"""Certificates amiss, renewal without a restart, and logins, with Debian's ZooKeeper behind Netty."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aioelasticjob.errors import (
    AuthenticationFailed,
    CertificateExpired,
    CertificateMissing,
    CertificateRefused,
    RegistryError,
    TlsFailed,
)
from aioelasticjob.registry.session import ConnectionSettings, Session, SessionState, open_session
from aioelasticjob.registry.transaction import Create
from tests.support import real_zookeeper
from tests.support.certificates import Authority, Certificate, authority
from tests.support.real_zookeeper import Access, RealServer

pytestmark = pytest.mark.zookeeper

CONNECTION_TIMEOUT = 60.0
USERS = {"bob": "bob's secret", "carol": "x:y"}


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("ours"), "our CA")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("theirs"), "their CA")


def joined(file: Path, certificate: Certificate) -> Path:
    """Write key and certificate into one file, as ZooKeeper reads its key store."""
    file.write_bytes(certificate.key.read_bytes() + certificate.certificate.read_bytes())
    return file


@pytest.fixture(scope="module")
def zookeeper(ours: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """A server that asks for certificates of ours."""
    directory = tmp_path_factory.mktemp("zookeeper")
    access = Access(joined(directory / "keystore.pem", ours.issue("server")), ours.certificate)
    with real_zookeeper.standalone(directory, access) as server:
        yield server


def settings(addresses: str, name: str, tls: dict[str, Any], **options: Any) -> ConnectionSettings:
    return ConnectionSettings.parse(
        f"zks://{addresses}/{name}", tls=tls, connection_timeout=CONNECTION_TIMEOUT, **options
    )


def refusal(server: RealServer, tls: dict[str, Any]) -> TlsFailed:
    async def main() -> TlsFailed:
        with pytest.raises(TlsFailed) as caught:
            async with open_session(settings(server.secure_address, "test", tls)):
                pass
        return caught.value

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("issued", "error", "said"),
    [
        ({"name": "expired", "days": -1}, CertificateExpired, "has expired"),
        ({"name": "elsewhere", "names": "DNS:zk1.example"}, CertificateRefused, "set tls.server_name"),
    ],
)
def test_a_servers_certificate_amiss_is_said_with_the_file(
    ours: Authority, tmp_path: Path, issued: dict[str, Any], error: type[TlsFailed], said: str
) -> None:
    keystore = joined(tmp_path / "keystore.pem", ours.issue(**issued))
    with real_zookeeper.standalone(tmp_path, Access(keystore)) as server:
        found = refusal(server, {"ca": ours.certificate})
    assert (type(found), found.file, said in str(found)) == (error, str(ours.certificate), True)


def test_a_file_that_is_missing_wrong_or_expired_is_named(
    zookeeper: RealServer, ours: Authority, theirs: Authority, tmp_path: Path
) -> None:
    own, missing = ours.issue("client"), tmp_path / "missing.pem"
    expired, foreign = ours.issue("expired client", days=-1), theirs.issue("foreign")
    ca = {"ca": ours.certificate}
    for tls, error, file in (
        ({"ca": missing}, CertificateMissing, missing),
        ({**ca, "certificate": missing, "key": own.key}, CertificateMissing, missing),
        ({**ca, "certificate": own.certificate, "key": missing}, CertificateMissing, missing),
        (ca, CertificateMissing, None),
        ({**ca, "certificate": own.certificate, "key": foreign.key}, CertificateRefused, foreign.key),
        ({**ca, "certificate": foreign.certificate, "key": foreign.key}, CertificateRefused, foreign.certificate),
        ({**ca, "certificate": expired.certificate, "key": expired.key}, CertificateExpired, expired.certificate),
    ):
        found = refusal(zookeeper, tls)
        assert (type(found), found.file) == (error, None if file is None else str(file)), found


def test_a_server_with_older_versions_of_tls_only_is_told_apart(zookeeper: RealServer, ours: Authority) -> None:
    """This release of ZooKeeper speaks TLS 1.2, unless it is told otherwise."""
    found = refusal(zookeeper, {"ca": ours.certificate, "minimum_version": "1.3"})
    assert "speaks no TLS 1.3 or newer" in str(found)
    assert "lower tls.minimum_version" in str(found)


def test_a_certificate_that_only_the_server_finds_expired_is_named(
    zookeeper: RealServer, ours: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a host's clock is behind, so that its own look at the certificate finds nothing."""
    monkeypatch.setattr("aioelasticjob.registry.tls.check_validity", lambda *_: None)
    expired = ours.issue("expired for the server", days=-1)
    found = refusal(zookeeper, {"ca": ours.certificate, "certificate": expired.certificate, "key": expired.key})
    assert isinstance(found, CertificateExpired | CertificateRefused)
    assert found.file == str(expired.certificate)


def test_certificates_are_renewed_without_a_restart_of_ours(
    ours: Authority, theirs: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """ZooKeeper 3.8.0 reads its own files at its start only, so the server is restarted; this process goes on."""
    of_server = tmp_path / "ca-of-server.pem"
    ca, own, keystore = tmp_path / "ca.pem", tmp_path / "own.pem", tmp_path / "keystore.pem"

    def install(authority: Authority, name: str, file: Path, trusted: Path) -> None:
        shutil.copy(authority.certificate, trusted)
        joined(file, authority.issue(name))

    async def main(server: RealServer) -> None:
        tls = {"ca": ca, "certificate": own}
        async with open_session(settings(server.secure_address, "test", tls, session_timeout=60)) as session:
            incarnation = session.incarnation
            await session.commit([Create("/mine", ephemeral=True)], incarnation=incarnation)
            install(theirs, "renewed server", keystore, of_server)
            with caplog.at_level(logging.WARNING, "aioelasticjob.registry"):
                await asyncio.to_thread(restart, server)
                async with asyncio.timeout(CONNECTION_TIMEOUT):
                    while not any(str(ca) in line for line in caplog.messages):
                        await asyncio.sleep(0.01)
            assert session.status.value.state is not SessionState.CONNECTED
            install(theirs, "renewed client", own, ca)
            async with asyncio.timeout(CONNECTION_TIMEOUT):
                await session.status.until(lambda status: status.state is SessionState.CONNECTED)
            assert await session.exists("/mine") is not None
            assert session.incarnation == incarnation

    install(ours, "first server", keystore, of_server)
    install(ours, "first client", own, ca)
    with real_zookeeper.standalone(tmp_path, Access(keystore, of_server)) as server:
        asyncio.run(main(server))


def restart(server: RealServer) -> None:
    server.kill()
    server.start()
    server.wait_until_serving()


def test_an_encrypted_ensemble_with_users_keeps_a_session_when_a_member_dies(ours: Authority, tmp_path: Path) -> None:
    keystore, own = joined(tmp_path / "keystore.pem", ours.issue("member")), ours.issue("worker")
    others = ours.issue("other worker")

    async def main(members: real_zookeeper.Ensemble) -> None:
        def of(sasl: str, shown: Certificate) -> ConnectionSettings:
            tls = {"ca": ours.certificate, "certificate": shown.certificate, "key": shown.key}
            return settings(members.secure_addresses, "test", tls, sasl=sasl, session_timeout=20)

        async with open_session(of("bob:bob's secret", own)) as session:
            incarnation, connection = session.incarnation, session._keeper.connection
            await session.commit([Create("/mine", ephemeral=True)], incarnation=incarnation)
            assert connection is not None
            served = next(one for one in members.members if connection.peer.endswith(f":{one.secure_port}"))
            served.kill()
            await session.status.until(lambda status: status.state is not SessionState.CONNECTED)
            async with asyncio.timeout(CONNECTION_TIMEOUT):
                await session.connected()
            await until_written(session)
            assert await session.exists("/mine") is not None
            assert session.incarnation == incarnation
            for sasl, why in (("bob:guess", "refused the SASL user 'bob'"), ("carol:x:y", "does not open /test")):
                with pytest.raises(AuthenticationFailed, match=why) as refused:
                    async with open_session(of(sasl, others)):
                        pass
                assert "guess" not in str(refused.value)
            async with open_session(of("carol:x:y", own)) as known:  # by the certificate: that is an identity as well
                assert await known.exists("/written") is not None
        with pytest.raises(CertificateMissing):
            async with open_session(settings(members.secure_addresses, "test", {"ca": ours.certificate})):
                pass

    with real_zookeeper.ensemble(tmp_path, access=Access(keystore, ours.certificate, USERS)) as members:
        asyncio.run(main(members))


async def until_written(session: Session) -> None:
    """Write, as soon as there is a leader again: the member that died may have been it."""
    async with asyncio.timeout(CONNECTION_TIMEOUT):
        while True:
            try:
                await session.commit([Create("/written")], incarnation=session.incarnation)
            except RegistryError:
                if await session.exists("/written"):
                    return
                await session.connected()
                await asyncio.sleep(0.05)
            else:
                return
