"""Raw bytes to a ZooKeeper server and back.

Written from the protocol alone: it shares no code with the server, nor with any client.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Self, TypeAlias, TypedDict

Field: TypeAlias = "bool | int | Long | str | bytes | Raw | Record | Sequence[Field] | None"
Address: TypeAlias = tuple[str, int]

EVENT_XID, PING_XID, AUTH_XID, SET_WATCHES_XID = -1, -2, -4, -8


class Op(IntEnum):
    """Request codes (ZooDefs.OpCode)."""

    NOTIFICATION = 0
    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    RECONFIG = 16
    CHECK_WATCHES = 17
    REMOVE_WATCHES = 18
    CREATE_CONTAINER = 19
    DELETE_CONTAINER = 20
    CREATE_TTL = 21
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES = 101
    SASL = 102
    GET_EPHEMERALS = 103
    GET_ALL_CHILDREN_NUMBER = 104
    SET_WATCHES2 = 105
    ADD_WATCH = 106
    WHO_AM_I = 107
    CREATE_SESSION = -10
    CLOSE_SESSION = -11
    ERROR = -1


@dataclass(frozen=True, slots=True)
class Long:
    """A 64-bit field."""

    value: int


@dataclass(frozen=True, slots=True)
class Raw:
    """Bytes that go out as they are, without a length."""

    value: bytes


@dataclass(frozen=True, slots=True)
class Record:
    """Fields one after the other, without a count."""

    fields: tuple[Field, ...]


def record(*fields: Field) -> Record:
    """Fields of one jute record."""
    return Record(fields)


def acl(perms: int, scheme: str | None, identity: str | None) -> Record:
    """One ACL entry."""
    return record(perms, scheme, identity)


OPEN: Sequence[Field] = [acl(31, "world", "anyone")]


def jute(*fields: Field) -> bytes:
    """The jute encoding of some fields: int is 32 bits, None a length of -1, a list a counted vector."""
    return b"".join(map(_one, fields))


def _one(field: Field) -> bytes:
    match field:
        case bool():
            return b"\1" if field else b"\0"
        case int():
            return struct.pack(">i", field)
        case Long(value):
            return struct.pack(">q", value)
        case Raw(value):
            return value
        case Record(fields):
            return jute(*fields)
        case None:
            return b"\xff\xff\xff\xff"
        case bytes():
            return struct.pack(">i", len(field)) + field
        case str():
            return _one(field.encode("utf-8", "surrogatepass"))
        case _:
            return struct.pack(">i", len(field)) + b"".join(map(_one, field))


def frame(body: bytes) -> bytes:
    """A body behind its length."""
    return struct.pack(">i", len(body)) + body


class Connecting(TypedDict, total=False):
    """What a connect request may say; timeout in milliseconds, `read_only` None for a client older than 3.4."""

    timeout: int
    session: int
    password: bytes | None
    read_only: bool | None
    protocol: int
    last_zxid: int


def connect_request(
    timeout: int = 10_000,
    *,
    session: int = 0,
    password: bytes | None = bytes(16),
    read_only: bool | None = False,
    protocol: int = 0,
    last_zxid: int = 0,
) -> bytes:
    """The body of a connect request."""
    tail: tuple[Field, ...] = () if read_only is None else (read_only,)
    return jute(protocol, Long(last_zxid), timeout, Long(session), password, *tail)


def multi(*operations: tuple[int, Record], ending: bool = True) -> Raw:
    """The body of a multi: a header before each operation, and one that ends it."""
    parts = [jute(op, False, -1) + jute(fields) for op, fields in operations]
    return Raw(b"".join(parts) + (jute(-1, True, -1) if ending else b""))


class Link:
    """One TCP connection, seen as frames; a context that closes it."""

    def __init__(self, address: Address, patience: float = 5.0) -> None:
        self._socket = socket.create_connection(address, timeout=patience)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, data: bytes) -> None:
        """Send bytes; what the server no longer wants is lost, as on any network."""
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return

    def read_frame(self) -> bytes | None:
        """The next frame, None at the end of the stream.

        Raises:
            TimeoutError: the server stays silent.
        """
        head = self._exactly(4)
        if head is None:
            return None
        return self._exactly(int(struct.unpack(">i", head)[0]))

    def read_all(self) -> bytes:
        """Everything until the server closes."""
        parts: list[bytes] = []
        while True:
            try:
                part = self._socket.recv(65536)
            except ConnectionResetError:
                part = b""
            if not part:
                return b"".join(parts)
            parts.append(part)

    def patience(self, seconds: float) -> None:
        """Wait at most so long for a frame; seconds."""
        self._socket.settimeout(seconds)

    def finish(self) -> None:
        """Send the end of our side of the stream."""
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Drop the connection without a word."""
        self._socket.close()

    def _exactly(self, count: int) -> bytes | None:
        data = b""
        while len(data) < count:
            try:
                part = self._socket.recv(count - len(data))
            except ConnectionResetError:
                part = b""
            if not part:
                return None
            data += part
        return data
