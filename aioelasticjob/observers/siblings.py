"""The other processes of this host that are asked at the same port for metrics and health.

Each process listens at a socket of its own as well, which has a number in the place of a port: the first process 0, the
next one 1, and so on.  These sockets have names in Linux's abstract namespace.  So there are no files that a killed
process could leave behind, a number is free again at the moment at which its process ends, and the names belong to the
same network namespace as the port: containers that have ports of their own also have siblings of their own.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
import sys
from contextlib import suppress

from anyio import move_on_after

MAX_PROCESSES = 64
"""Processes that can be answered for at one port; further ones are not seen there."""
_CREDENTIALS = struct.Struct("3i")


class Siblings:
    """The processes that use the same port, as one of them sees them."""

    def __init__(self, host: str, port: int) -> None:
        self._name = f"\0aioelasticjob/{os.getuid()}/{host}:{port}/" if sys.platform == "linux" and port else ""
        self.own = 0
        """The number of this process; 0 where processes cannot see each other."""

    def listen(self) -> socket.socket | None:
        """Return the listening socket of this process, under the lowest free number; None if there can be none."""
        if not self._name:
            return None
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        for number in range(MAX_PROCESSES):
            try:
                listening.bind(f"{self._name}{number}")
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    continue
                break
            listening.listen()
            listening.setblocking(False)
            self.own = number
            return listening
        listening.close()
        return None

    def connect(self) -> dict[int, socket.socket]:
        """Return a connection to each other process that is there, by its number."""
        found = dict[int, socket.socket]()
        for number in range(MAX_PROCESSES if self._name else 0):
            if number == self.own:
                continue
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.setblocking(False)  # connecting does not wait: it fails if nobody listens, or the queue is full
            try:
                connection.connect(f"{self._name}{number}")
            except ConnectionRefusedError:
                connection.close()
                continue
            except OSError:  # it is there, and has stopped answering: asking it will say so
                found[number] = connection
                continue
            if _user_of(connection) == os.getuid():
                found[number] = connection
            else:
                connection.close()
        return found

    @property
    def are_there(self) -> bool:
        """Whether any other process is there."""
        others = self.connect()
        for connection in others.values():
            connection.close()
        return bool(others)


def _user_of(connection: socket.socket) -> int:
    """Return the user of the process at the other end: other users could take our names, too."""
    _, user, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return int(user)


async def ask(connection: socket.socket, path: str, accept: str, timeout: float) -> tuple[int, bytes] | None:
    """Return the status and the body that a process answers to a request; None if it has not answered in time."""
    with suppress(OSError, ValueError, IndexError), move_on_after(timeout):
        try:
            reader, writer = await asyncio.open_unix_connection(sock=connection)
        except BaseException:
            connection.close()
            raise
        try:
            writer.write(f"GET {path} HTTP/1.1\r\nAccept: {accept}\r\n\r\n".encode())
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.transport.abort()
        return int(head.split()[1]), body
    return None
