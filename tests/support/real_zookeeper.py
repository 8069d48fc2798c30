"""Debian's ZooKeeper as child processes: one alone, or an ensemble of three on loopback."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tests.support.ports import reserved_ports
from tests.support.processes import ChildProcess

HOST: Final = "127.0.0.1"
TICK_TIME_MS: Final = 500
JARS: Final = Path("/usr/share/java")
JAVA: Final = Path("/usr/bin/java")

_FLAGS = (
    *("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"),
    *("-Dzookeeper.jmx.log4j.disable=true", "-Dznode.container.checkIntervalMs=500"),
    "-Dzookeeper.enforceQuota=true",
)
_SETTINGS = {
    "tickTime": TICK_TIME_MS,
    "initLimit": 20,
    "syncLimit": 6,
    "maxSessionTimeout": 60_000,
    "maxClientCnxns": 0,
    "admin.enableServer": "false",
    "4lw.commands.whitelist": "*",
    "extendedTypesEnabled": "true",
    "forceSync": "no",  # no test pulls the plug of the machine
}


_NETTY = ("buffer", "codec", "common", "handler", "resolver", "transport")
CLASS_PATH: Final = ":".join(
    f"{JARS}/{name}.jar" for name in ("zookeeper", "slf4j-nop", *(f"netty-{part}" for part in _NETTY))
)
"""What both the server and the client of Java need."""


@dataclass(frozen=True, slots=True)
class Access:
    """Who may reach a server, and how: certificates for a port with TLS, and users for SASL."""

    certificate: Path | None = None
    """A file with the server's key and certificate; without it there is no port for TLS."""
    client_ca: Path | None = None
    """Clients need a certificate of this authority."""
    users: Mapping[str, str] = field(default_factory=dict)

    def settings(self, secure_port: int) -> dict[str, object]:
        """Return the lines of zoo.cfg."""
        found: dict[str, object] = {}
        if self.users:
            found["authProvider.1"] = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
        if self.certificate is not None:
            found |= {
                "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
                "secureClientPort": secure_port,
                "secureClientPortAddress": HOST,
                "ssl.keyStore.location": self.certificate,
                "ssl.keyStore.type": "PEM",
                "ssl.trustStore.location": self.client_ca or self.certificate,
                "ssl.trustStore.type": "PEM",
                "ssl.clientAuth": "none" if self.client_ca is None else "need",
            }
        return found

    def flags(self, directory: Path) -> list[str]:
        """Return the options of the Java virtual machine."""
        if not self.users:
            return []
        lines = "".join(f'\n  user_{user}="{password}"' for user, password in self.users.items())
        module = "org.apache.zookeeper.server.auth.DigestLoginModule required"
        (directory / "jaas.conf").write_text(f"Server {{\n  {module}{lines};\n}};\n")
        digest = "-Dzookeeper.fips-mode=false"  # else 3.9 refuses DIGEST-MD5
        return [f"-Djava.security.auth.login.config={directory / 'jaas.conf'}", digest]


OPEN: Final = Access()


@dataclass(frozen=True, slots=True)
class Changes:
    """How a server is configured otherwise than usual."""

    settings: Mapping[str, object] = field(default_factory=dict)
    """Lines of zoo.cfg."""
    properties: Mapping[str, object] = field(default_factory=dict)
    """System properties of the Java virtual machine."""
    host: str = HOST
    """The address for clients."""

    @property
    def flags(self) -> list[str]:
        """The options of the Java virtual machine."""
        return [f"-D{name}={value}" for name, value in self.properties.items()]


USUAL: Final = Changes()


def installed() -> bool:
    """Say whether Debian's packages are here."""
    return JAVA.exists() and (JARS / "zookeeper.jar").exists()


class RealServer:
    """One ZooKeeper server, which can be killed, paused and started again on its data."""

    def __init__(
        self,
        directory: Path,
        ports: tuple[int, int],
        members: Mapping[int, str] = MappingProxyType({}),
        number: int = 0,
        access: Access = OPEN,
        changes: Changes = USUAL,
    ) -> None:
        self.host, (self.port, self.secure_port), self.number = changes.host, ports, number
        self._directory = directory
        directory.mkdir(parents=True)
        settings = _SETTINGS | {"clientPort": self.port, "dataDir": directory} | access.settings(self.secure_port)
        settings |= {"clientPortAddress": self.host, **changes.settings}
        self._flags = [*access.flags(directory), *changes.flags]
        settings |= {f"server.{member}": address for member, address in members.items()}
        (directory / "zoo.cfg").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        (directory / "myid").write_text(f"{number}\n")
        self._process: ChildProcess | None = None

    @property
    def address(self) -> str:
        """Host and port, as in a connect string."""
        return f"{self.host}:{self.port}"

    @property
    def secure_address(self) -> str:
        """Host and port for TLS, by the name in the tests' certificates."""
        return f"localhost:{self.secure_port}"

    @property
    def process(self) -> ChildProcess:
        """The server's process."""
        assert self._process is not None, "not started"
        return self._process

    def start(self) -> None:
        """Start the process; ``wait_until_serving`` says when it answers."""
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = [str(JAVA), *_FLAGS, *self._flags, "-cp", CLASS_PATH, main, str(self._directory / "zoo.cfg")]
        self._process = ChildProcess(command, self._directory / "server.log")

    def wait_until_serving(self, patience: float = 90) -> None:
        """Return once clients are served.

        Raises: AssertionError when the process ends first or time runs out.
        """
        deadline = time.monotonic() + patience
        while not self.mode():
            assert self.process.exit_code is None, f"ZooKeeper ended:\n{self.process.output}"
            assert time.monotonic() < deadline, f"ZooKeeper does not serve:\n{self.process.output}"
            time.sleep(0.05)

    def mode(self) -> str | None:
        """Return ``standalone``, ``leader`` or ``follower``; None while it does not serve."""
        lines = self.ask("srvr").splitlines()
        return next((line.removeprefix("Mode: ") for line in lines if line.startswith("Mode: ")), None)

    @property
    def version(self) -> str:
        """The version that it says it is, such as 3.8.0."""
        return re.findall(r"^Zookeeper version: ([\d.]+)", self.ask("srvr"))[0]

    def ask(self, word: str) -> str:
        """Return the answer to a four-letter word; empty when there is none within a second."""
        answer = bytearray()
        try:
            with socket.create_connection((self.host, self.port), timeout=1) as connection:
                connection.sendall(word.encode())
                while part := connection.recv(65536):
                    answer += part
        except OSError:
            return ""
        return answer.decode()

    def kill(self) -> None:
        """End the process as ``kill -9`` does; harmless if it has ended."""
        if self._process is not None:
            self._process.kill()


class Ensemble:
    """Three servers that elect a leader among them."""

    def __init__(self, members: list[RealServer]) -> None:
        self.members = members

    @property
    def addresses(self) -> str:
        """All members, as in a connect string."""
        return ",".join(member.address for member in self.members)

    @property
    def secure_addresses(self) -> str:
        """All members with their ports for TLS."""
        return ",".join(member.secure_address for member in self.members)

    def leader(self, patience: float = 90) -> RealServer:
        """Return the member that leads, as soon as there is one."""
        deadline = time.monotonic() + patience
        while True:
            for member in self.members:
                if member.mode() == "leader":
                    return member
            assert time.monotonic() < deadline, "no leader was elected"
            time.sleep(0.05)

    def repair(self) -> None:
        """Start the members that have ended, let paused ones go on, and wait until all serve."""
        for member in self.members:
            if member.process.exit_code is None:
                member.process.resume()
            else:
                member.start()
        for member in self.members:
            member.wait_until_serving()


@contextmanager
def standalone(directory: Path, access: Access = OPEN, changes: Changes = USUAL) -> Iterator[RealServer]:
    """Yield a single server that serves."""
    with reserved_ports(2) as (port, secure), ExitStack() as stack:
        server = RealServer(directory / "standalone", (port, secure), access=access, changes=changes)
        stack.callback(server.kill)
        server.start()
        server.wait_until_serving()
        yield server


@contextmanager
def ensemble(directory: Path, size: int = 3, access: Access = OPEN, changes: Changes = USUAL) -> Iterator[Ensemble]:
    """Yield an ensemble of which all members serve."""
    with reserved_ports(4 * size) as ports, ExitStack() as stack:
        numbers = range(1, size + 1)
        quorum, election, *client = (ports[n * size : (n + 1) * size] for n in range(4))
        addresses = {n: f"{HOST}:{q}:{e}" for n, q, e in zip(numbers, quorum, election, strict=True)}
        places = list(zip(*client, strict=True))
        members = [RealServer(directory / f"member-{n}", places[n - 1], addresses, n, access, changes) for n in numbers]
        for member in members:
            stack.callback(member.kill)
            member.start()
        for member in members:
            member.wait_until_serving()
        yield Ensemble(members)
