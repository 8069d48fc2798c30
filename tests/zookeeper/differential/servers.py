"""The two servers under comparison, each as a process of its own on loopback."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.ports import reserved_ports

from .wire import Address

JAVA_FLAGS = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dzookeeper.admin.enableServer=false",
    "-Dzookeeper.4lw.commands.whitelist=*",
    "-Dzookeeper.extendedTypesEnabled=true",
    "-Dzookeeper.forceSync=no",
    "-Dfile.encoding=UTF-8",
)
CLASS_PATH = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-nop.jar"
MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a server's clocks run, in milliseconds; by default no container is looked for during a test."""

    tick: int = 2000
    container_check: int = 600_000


def is_newer(address: Address) -> bool:
    """Whether a server is ZooKeeper 3.9 or newer; the embedded server answers as 3.8 does."""
    with socket.create_connection(address, timeout=5) as connection:
        connection.sendall(b"srvr")
        found = re.match(rb"Zookeeper version: (\d+)\.(\d+)", connection.recv(65536))
    assert found, "no version in the answer to srvr"
    return (int(found[1]), int(found[2])) >= (3, 9)


def available() -> bool:
    """Whether Debian's ZooKeeper is installed."""
    return all(Path(jar).exists() for jar in CLASS_PATH.split(":"))


@contextmanager
def real(directory: Path, pace: Pace, more: Sequence[str] = ()) -> Iterator[Address]:
    """Debian's server on a data directory of its own, killed at the end; ``more`` are options of its Java."""
    settings = directory / "zoo.cfg"
    with reserved_ports(1) as (port,):
        settings.write_text(
            f"dataDir={directory / 'data'}\nclientPort={port}\nclientPortAddress=127.0.0.1\n"
            f"tickTime={pace.tick}\nmaxClientCnxns=0\n"
        )
        flags = (*JAVA_FLAGS, *more, f"-Dznode.container.checkIntervalMs={pace.container_check}")
        with _process(["java", *flags, "-cp", CLASS_PATH, MAIN, str(settings)]) as process:
            _await_serving(process, ("127.0.0.1", port))
            yield "127.0.0.1", port


@contextmanager
def embedded(pace: Pace, directory: Path | None = None, more: Sequence[str] = ()) -> Iterator[Address]:
    """Our server, in memory or on a data directory, killed at the end; ``more`` are options of its command."""
    options = [*more, "--port", "0", "--tick-time", str(pace.tick), "--container-check", str(pace.container_check)]
    if directory is not None:
        options += ["--data-dir", str(directory)]
    command = [sys.executable, "-m", "aioelasticjob.zookeeper", *options]
    with _process(command) as process:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        found = re.search(r"(\d+\.\d+\.\d+\.\d+):(\d+)", line)
        assert found, f"no address in the first line: {line!r}"
        yield found[1], int(found[2])


@contextmanager
def _process(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def _await_serving(process: subprocess.Popen[bytes], address: Address) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with socket.create_connection(address, timeout=5) as probe:
                probe.sendall(b"srvr")
                if b"Mode" in probe.recv(65536):  # `ruok` is answered long before the server takes sessions
                    return
        except OSError:
            time.sleep(0.02)  # the JVM tells nobody when it is ready
    raise AssertionError(f"server did not start: {process.args!r}")
