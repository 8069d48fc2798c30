"""Says which server holds a port or a data directory, and when it ends, to somebody who wants to start another one."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

from aioelasticjob.zookeeper.lock import LOCK

ANSWER_TIMEOUT = 2.0
"""Seconds that a server may take to answer which data directory it serves."""
_MAX_ANSWER = 65536
"""Bytes of an answer that are read at most."""


@dataclass(frozen=True, slots=True)
class PortHolder:
    """A server that listens, as the lock of its data directory describes it."""

    directory: str
    pid: int
    linger: float | None = None
    """How many seconds after its last client it ends; None if it runs until it is stopped."""

    def __str__(self) -> str:
        return f"an embedded server (process {self.pid}) that serves {self.directory}"

    @property
    def advice(self) -> str:
        """When it ends, and what to do about it, except to choose another port."""
        if self.linger is None:
            return f"it runs until it is stopped: stop it (kill {self.pid})"
        end = f"it ends by itself {self.linger:g} s after its last client has left"
        return f"{end}: wait, or stop its clients and then it (kill {self.pid})"


def served_directory(host: str, port: int, timeout: float = ANSWER_TIMEOUT) -> str | None:
    """Return the data directory of the server that listens there, "" if it does not tell, None if nothing listens."""
    try:
        with socket.create_connection((host, port), timeout=timeout) as connection:
            connection.sendall(b"conf")
            answer = b""
            while len(answer) < _MAX_ANSWER and (more := connection.recv(4096)):
                answer += more
    except TimeoutError:
        return ""
    except OSError as error:
        return None if isinstance(error, ConnectionRefusedError) or not isinstance(error, ConnectionError) else ""
    lines = (line.partition("=") for line in answer.decode(errors="replace").splitlines())
    return next((value for name, _, value in lines if name == "dataDir"), "")


def holder_of(directory: str, address: str) -> PortHolder | None:
    """Return the server of this package that serves a directory at an address; None if its lock does not say that.

    A directory of ZooKeeper itself has no such lock.
    """
    try:
        listens_at, pid, *linger = (Path(directory) / LOCK).read_text().split()
        return PortHolder(directory, int(pid), float(linger[0]) if linger else None) if listens_at == address else None
    except (OSError, ValueError):  # there is no lock, or its holder does not listen yet
        return None


def who_listens(host: str, port: int) -> PortHolder | None:
    """Return the server of this package that listens there and has a data directory; None if it is not one."""
    directory = served_directory(host, port)
    return holder_of(directory, f"[{host}]:{port}" if ":" in host else f"{host}:{port}") if directory else None
