"""Other projects' clients log in to the embedded server by SASL, with and without TLS: kazoo, and the Java client."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, NoAuthError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import make_acl

from aioelasticjob.zookeeper.sasl_users import UsersFile
from aioelasticjob.zookeeper.server import Server, serve
from aioelasticjob.zookeeper.settings import Settings
from aioelasticjob.zookeeper.tls import TlsSettings
from tests.support.certificates import Authority, Certificate
from tests.support.processes import TIMEOUT
from tests.support.real_zookeeper import CLASS_PATH, JAVA, installed

USERS = "bob:bob's secret\ncarol:x:y\n"
OWN = make_acl("sasl", "bob", all=True)
REFUSED = (AuthFailedError, KazooTimeoutError)
"""What kazoo raises after a refused login: the second, if it hears of the refusal before it counts as connected."""
REFUSED_IN_JAVA = ("state:AuthFailed", "ConnectionLoss for /bob")
"""What Java's shell prints after a refused login: the second, if it sees the connection end before the answer."""


@pytest.fixture(scope="module")
def of_client(ours: Authority) -> Certificate:
    return ours.issue("client")


def served(ours: Authority, of_server: Certificate, tmp_path: Path, use: Callable[[Server], None]) -> None:
    """Call ``use`` in a thread while there is a server with users and a port for TLS that asks for certificates."""
    (users := tmp_path / "users").write_text(USERS)

    async def main() -> None:
        settings, tls = Settings(sasl_users=UsersFile(users)), TlsSettings(*_files(of_server), ours.certificate, 0)
        async with serve(settings=settings, tls=tls) as server:
            await asyncio.to_thread(use, server)

    asyncio.run(main())


def _files(pair: Certificate) -> tuple[Path, Path]:
    return pair.certificate, pair.key


@contextmanager
def logged_in(address: str, user: str, password: str, options: dict[str, Any]) -> Iterator[Any]:
    sasl = {"mechanism": "DIGEST-MD5", "username": user, "password": password}
    client = KazooClient(address, sasl_options=sasl, timeout=10, **options)
    client.start(TIMEOUT)
    try:
        yield client
    finally:
        client.stop()
        client.close()


@pytest.mark.parametrize("encrypted", [False, True])
def test_kazoo_logs_in_and_keeps_its_nodes_to_itself(
    ours: Authority, of_server: Certificate, of_client: Certificate, tmp_path: Path, encrypted: bool
) -> None:
    own, key = map(str, _files(of_client))
    options = {"use_ssl": True, "ca": str(ours.certificate), "certfile": own, "keyfile": key} if encrypted else {}

    def use(server: Server) -> None:
        address = server.tls_address if encrypted else f"{server.host}:{server.port}"
        with logged_in(address, "bob", "bob's secret", options) as bob:
            bob.create("/bob", b"mine", acl=[OWN])
            assert bob.get("/bob")[0] == b"mine"
            assert bob.get_acls("/bob")[0] == [OWN]
        with logged_in(address, "carol", "x:y", options) as carol, pytest.raises(NoAuthError):
            carol.get("/bob")
        with pytest.raises(REFUSED), logged_in(address, "bob", "another secret", options) as stranger:
            stranger.get("/bob")

    served(ours, of_server, tmp_path, use)


def java_client(server: Server, ours: Authority, keystore: Path, jaas: Path, *commands: str) -> str:
    """Run commands in Java's shell over TLS and return what it prints."""
    properties = {
        "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
        "zookeeper.client.secure": "true",
        "zookeeper.ssl.keyStore.location": keystore,
        "zookeeper.ssl.keyStore.type": "PEM",
        "zookeeper.ssl.trustStore.location": ours.certificate,
        "zookeeper.ssl.trustStore.type": "PEM",
        "java.security.auth.login.config": jaas,
        "zookeeper.fips-mode": "false",  # else 3.9 refuses DIGEST-MD5
    }
    flags = [f"-D{name}={value}" for name, value in properties.items()]
    shell = [str(JAVA), *flags, "-cp", CLASS_PATH, "org.apache.zookeeper.ZooKeeperMain", "-server", server.tls_address]
    given = "\n".join([*commands, "quit", ""])
    done = subprocess.run(shell, input=given, capture_output=True, text=True, timeout=2 * TIMEOUT, check=False)
    return done.stdout + done.stderr


@pytest.mark.zookeeper
@pytest.mark.process
@pytest.mark.skipif(not installed(), reason="Debian's zookeeper is not installed")
def test_the_java_client_logs_in_over_an_encrypted_connection(
    ours: Authority, of_server: Certificate, of_client: Certificate, tmp_path: Path
) -> None:
    keystore, jaas = tmp_path / "keystore.pem", tmp_path / "jaas.conf"
    keystore.write_bytes(of_client.key.read_bytes() + of_client.certificate.read_bytes())
    module = "org.apache.zookeeper.server.auth.DigestLoginModule required"

    def use(server: Server) -> None:
        for password, expected in ("bob's secret", ("sasl: bob",)), ("another secret", REFUSED_IN_JAVA):
            jaas.write_text(f'Client {{ {module} username="bob" password="{password}"; }};\n')
            output = java_client(server, ours, keystore, jaas, "whoami", "create /bob x sasl:bob:cdrwa", "getAcl /bob")
            assert any(line in output for line in expected), output
            assert ("'sasl,'bob" in output) is (expected != REFUSED_IN_JAVA), output

    served(ours, of_server, tmp_path, use)
