"""The servers that are measured: Debian's ZooKeeper and the embedded one, each a process of its own."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.support.ports import reserved_ports
from tests.support.processes import ChildProcess

HOST: Final = "127.0.0.1"
JARS: Final = Path("/usr/share/java")
MAIN: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
TIMEOUT: Final = 90.0  # seconds a server may take until it serves

_SETTINGS: Final = {
    "maxClientCnxns": 0,
    "admin.enableServer": "false",
    "4lw.commands.whitelist": "*",
    "clientPortAddress": HOST,
}  # Debian's defaults but for what a benchmark needs: above all, every write is synced to the disk (forceSync=yes)
_TICK: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Server:
    """A server that serves."""

    name: str
    port: int
    process: ChildProcess

    @property
    def address(self) -> str:
        """Where clients connect to."""
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        """Its process."""
        return self.process.pid

    def monitor(self) -> dict[str, str]:
        """Return the server's own figures, as ``mntr`` tells them."""
        lines = (line.partition("\t") for line in _ask(self.port, b"mntr").splitlines())
        return {name: value for name, _, value in lines}

    def packets(self) -> int:
        """Return the frames received and sent so far, by the server's own count."""
        counters = self.monitor()
        return int(counters["zk_packets_received"]) + int(counters["zk_packets_sent"])


@contextmanager
def real_server(*, tick_time: int = 2000, synced: bool = True) -> Iterator[Server]:
    """Start Debian's ZooKeeper on a fresh directory; ``synced`` is its default, a sync to the disk per write."""
    with TemporaryDirectory(prefix="benchmark-") as name, reserved_ports(1) as (port,):
        directory = Path(name)
        settings = _SETTINGS | {"tickTime": tick_time, "clientPort": port, "dataDir": directory / "data"}
        settings |= {} if synced else {"forceSync": "no"}
        (directory / "zoo.cfg").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        class_path = f"{JARS}/zookeeper.jar:{JARS}/slf4j-nop.jar"
        flags = ("-Xmx512m", "-Dzookeeper.jmx.log4j.disable=true")
        command = ["java", *flags, "-cp", class_path, MAIN, str(directory / "zoo.cfg")]
        with _started("ZooKeeper 3.8" if synced else "ZooKeeper 3.8, not synced", port, command, directory) as server:
            yield server


@contextmanager
def embedded_server(*, tick_time: int = 2000, durable: bool = False) -> Iterator[Server]:
    """Start the embedded server as a process; ``durable`` gives it a data directory."""
    with TemporaryDirectory(prefix="benchmark-") as name, reserved_ports(1) as (port,):
        directory = Path(name)
        command = [sys.executable, "-m", "aioelasticjob.zookeeper", "--host", HOST, "--port", str(port)]
        command += ["--tick-time", str(tick_time)]
        command += ["--data-dir", str(directory / "data")] if durable else []
        with _started("embedded, durable" if durable else "embedded", port, command, directory) as server:
            yield server


def measured_server(*, quick: bool, tick_time: int = 2000) -> AbstractContextManager[Server]:
    """Start Debian's ZooKeeper, whose figures are wanted, or in a quick run the embedded server: Java starts slowly."""
    return (embedded_server if quick else real_server)(tick_time=tick_time)


def measured_servers(*, quick: bool) -> Sequence[Callable[[], AbstractContextManager[Server]]]:
    """Return what starts each kind of server, or in a quick run the embedded one only."""
    return (embedded_server,) if quick else (real_server, embedded_server)


def cpu_of(pid: int) -> float:
    """Return the processor seconds, user and system, that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


@contextmanager
def _started(name: str, port: int, command: list[str], directory: Path) -> Iterator[Server]:
    server = Server(name, port, ChildProcess(command, directory / "server.log"))
    try:
        deadline = time.monotonic() + TIMEOUT
        while "Mode:" not in _ask(port, b"srvr"):
            if server.process.exit_code is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{name} does not serve:\n{server.process.output}")
            time.sleep(0.05)
        yield server
    finally:
        server.process.kill()


def _ask(port: int, word: bytes) -> str:
    answer = bytearray()
    try:
        with socket.create_connection((HOST, port), timeout=5) as connection:
            connection.sendall(word)
            while part := connection.recv(65536):
                answer += part
    except OSError:
        return ""
    return answer.decode()
