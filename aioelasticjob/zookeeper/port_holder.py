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
            while len(answer) < _MAX_ANSWER:
                more = connection.recv(4096)
                if not more:
                    break
                answer += more
    except ConnectionRefusedError:
        return None
    except (TimeoutError, ConnectionError):  # something listens, and does not speak as such a server does
        return ""
    except OSError:
        return None
    for line in answer.decode(errors="replace").splitlines():
        name, _, value = line.partition("=")
        if name == "dataDir":
            return value
    return ""


def holder_of(directory: str, address: str) -> Holder | None:
    """Return the server of this package that serves a directory at an address; None if its lock does not say that.

    A directory of ZooKeeper itself has no such lock.
    """
    try:
        written = (Path(directory) / LOCK).read_text()
    except (OSError, UnicodeDecodeError):
        return None
    holder = Holder.parse(Path(directory), written)
    if holder is None or holder.address != address:
        return None
    return holder


def who_listens(host: str, port: int) -> Holder | None:
    """Return the server of this package that listens there and has a data directory; None if it is not one."""
    directory = served_directory(host, port)
    if not directory:
        return None
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return holder_of(directory, address)
