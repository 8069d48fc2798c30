"""The shared registry of a test: a directory and a port of its own, and the server ended with the test."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from aioelasticjob.registry.shared import SharedServer
from aioelasticjob.zookeeper.lock import LockHeld, locked
from tests.support.ports import reserved_ports


@dataclass(frozen=True, slots=True)
class SharedRegistry:
    """Where it is, and its server as the machine sees it."""

    port: int
    data_dir: Path
    linger: float = 60

    @property
    def address(self) -> str:
        return f"embedded://127.0.0.1:{self.port}/test?data_dir={self.data_dir}&linger={self.linger:g}"

    @property
    def server(self) -> SharedServer:
        return SharedServer("127.0.0.1", self.port, self.data_dir, self.linger)

    @property
    def log(self) -> str:
        log = self.data_dir / "server.log"
        return log.read_text() if log.exists() else ""

    @property
    def starts(self) -> int:
        """How many servers have ever come to listen."""
        return self.log.count("listening on")

    @property
    def pid(self) -> int | None:
        """The server's process, while it lives; what its lock says, since the dead may lie about as zombies."""
        try:
            with locked(self.data_dir, create=False):
                return None
        except (FileNotFoundError, NotADirectoryError):
            return None
        except LockHeld:
            words = (self.data_dir / "server.lock").read_text().split()
            return int(words[1]) if words else 0

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        pid = self.pid
        assert pid, "no server serves"
        os.kill(pid, number)

    def until_gone(self, patience: float = 90) -> None:
        """Wait until the server has ended and nobody holds its lock."""
        deadline = time.monotonic() + patience
        while self.pid is not None:
            assert time.monotonic() < deadline, f"the server lives on:\n{self.log}"
            time.sleep(0.02)  # another program's process: nothing tells us when it ends


@contextmanager
def shared_registry(directory: Path, linger: float = 60) -> Iterator[SharedRegistry]:
    """Yield a registry that nobody has started yet."""
    with reserved_ports(1) as (port,):
        registry = SharedRegistry(port, directory / "registry", linger)
        try:
            yield registry
        finally:
            with suppress(ProcessLookupError, AssertionError):
                registry.kill()
            registry.until_gone()
