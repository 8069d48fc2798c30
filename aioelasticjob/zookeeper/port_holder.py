"""Says which server holds a port or a data directory, and when it ends, to somebody who wants to start another one."""

from __future__ import annotations

import socket
from pathlib import Path

from aioelasticjob.zookeeper.lock import LOCK, Holder

ANSWER_TIMEOUT = 2.0
"""Seconds that a server may take to answer which data directory it serves."""
_MAX_ANSWER = 65536
"""Bytes of an answer that are read at most."""


def served_directory(host: str, port: int) -> str | None:
    """Return the data directory of the server that listens there, "" if it does not tell, None if nothing listens."""
    try:
        with socket.create_connection((host, port), timeout=ANSWER_TIMEOUT) as connection:
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


def holder_of(directory: str, address: str) -> Holder | None:
    """Return the server of this package that serves a directory at an address; None if its lock does not say that.

    A directory of ZooKeeper itself has no such lock.
    """
    try:
        holder = Holder.parse(Path(directory), (Path(directory) / LOCK).read_text())
    except (OSError, UnicodeDecodeError):
        return None
    return holder if holder is not None and holder.address == address else None


def who_listens(host: str, port: int) -> Holder | None:
    """Return the server of this package that listens there and has a data directory; None if it is not one."""
    directory = served_directory(host, port)
    return holder_of(directory, f"[{host}]:{port}" if ":" in host else f"{host}:{port}") if directory else None
