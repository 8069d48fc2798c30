"""Replies and watch events as frames, ready for the wire."""

from collections.abc import Iterable
from struct import Struct

from aioelasticjob.zookeeper.acl import AclList, Identity
from aioelasticjob.zookeeper.codes import ErrorCode, EventType, OpCode
from aioelasticjob.zookeeper.jute import INT, encode, pack_buffer, pack_string, pack_strings

_REPLY = Struct(">iiqi")  # length, xid, zxid, error
_REPLY_OVERHEAD = _REPLY.size - 4
_MULTI = Struct(">ibi")  # type, done, error
_CONNECT = Struct(">iiiqi16s")  # length, protocol version, timeout, session, password length, password
_EVENT = Struct(">iiqiiii")  # length, xid, zxid, error, type, state, length of the path
_CONNECTED = 3  # the only state a server reports

MULTI_END = _MULTI.pack(-1, 1, -1)


def reply(xid: int, zxid: int, error: int = 0, body: bytes = b"") -> bytes:
    """Write a reply."""
    return _REPLY.pack(_REPLY_OVERHEAD + len(body), xid, zxid, error) + body


def connect_reply(timeout: int, session: int, password: bytes, *, read_only_byte: bool) -> bytes:
    """Write the answer to a connect; session 0 says that the session is no more."""
    length = _CONNECT.size - 4 + read_only_byte
    body = _CONNECT.pack(length, 0, timeout, session, len(password), password)
    return body + b"\0" if read_only_byte else body


def event(kind: EventType, path: str) -> bytes:
    """Write a watch event."""
    name = encode(path)
    size = len(name)
    return _EVENT.pack(_EVENT.size - 4 + size, -1, -1, 0, kind, _CONNECTED, size) + name


def acls(acl: AclList) -> bytes:
    """Write an ACL."""
    parts = [INT.pack(len(acl))]
    for entry in acl:
        parts.append(INT.pack(entry.perms))
        parts.append(pack_string(entry.scheme))
        parts.append(pack_string(entry.id))
    return b"".join(parts)


def multi_result(op: OpCode, body: bytes) -> bytes:
    """Write the result of one operation that went well."""
    return _MULTI.pack(op, 0, 0) + body


def multi_error(error: ErrorCode) -> bytes:
    """Write the result of one operation that did not, or was not tried."""
    return _MULTI.pack(OpCode.ERROR, 0, error) + INT.pack(error)


def identities(own: Iterable[Identity]) -> bytes:
    """Write who the client is (WhoAmIResponse): a digest is shown by its user name."""
    parts = list[bytes]()
    count = 0
    for who in own:
        user = who.id
        if who.scheme == "digest":
            user, _, _ = user.partition(":")
        parts.append(pack_string(who.scheme))
        parts.append(pack_string(user))
        count += 1
    return INT.pack(count) + b"".join(parts)


def data(value: bytes | None, stat: bytes) -> bytes:
    """Write data and Stat."""
    return pack_buffer(value) + stat


def children(names: Iterable[str], stat: bytes = b"") -> bytes:
    """Write names, with the Stat where the request wants it."""
    return pack_strings(names) + stat
