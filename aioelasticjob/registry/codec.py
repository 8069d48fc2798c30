"""ZooKeeper's wire format for the calls we make often; aiozk's own classes render the rest.

aiozk builds an object per field and a fresh ``struct`` format per string.  Here every kind of operation has one
precompiled layout, which takes a fraction of the time (docs/why/aiozk.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final, TypeAlias

from aiozk import exc, protocol
from aiozk.protocol.request import Request

from aioelasticjob.errors import Conflict, NodeMissing, NotPermitted, Overloaded, RegistryError, SessionEnded
from aioelasticjob.registry.transaction import Check, Committed, Create, Delete, Op, Set
from aioelasticjob.registry.tree import Node, Stat
from aioelasticjob.registry.watches import Roots

EXISTS: Final[int] = protocol.ExistsRequest.opcode
GET: Final[int] = protocol.GetDataRequest.opcode
CHILDREN: Final[int] = protocol.GetChildrenRequest.opcode
SYNC: Final[int] = protocol.SyncRequest.opcode
MULTI: Final[int] = protocol.TransactionRequest.opcode
AUTH: Final[int] = protocol.AuthRequest.opcode
CLOSE: Final[int] = protocol.CloseRequest.opcode
UNWATCH: Final[int] = protocol.RemoveWatchesRequest.opcode
MULTI_READ: Final = 22  # since ZooKeeper 3.6, unknown to aiozk; so is the next one
WATCH: Final = 105

CREATED: Final[int] = protocol.WatchEvent.CREATED
DELETED: Final[int] = protocol.WatchEvent.DELETED
CHANGED: Final[int] = protocol.WatchEvent.DATA_CHANGED

LOST: Final[int] = exc.ConnectionLoss.error_code  # no server sends it: the connection ended before the reply
MISSING: Final[int] = exc.NoNode.error_code
EXISTING: Final[int] = exc.NodeExists.error_code
FORBIDDEN: Final[int] = exc.NoAuth.error_code
SESSION_OVER: Final = (exc.SessionExpired.error_code, exc.SessionMoved.error_code)
CONFLICTS: Final[dict[int, str]] = {
    EXISTING: "exists",
    MISSING: "missing",
    exc.BadVersion.error_code: "version",
    exc.NotEmpty.error_code: "not empty",
    exc.NoChildrenForEphemerals.error_code: "no ephemeral children",
}
READ_ONLY: Final[int] = exc.NotReadOnly.error_code
USED_UP: Final = -125  # a quota
THROTTLED: Final = -127  # the server has more requests than it can bear, and has not looked at this one
UNCERTAIN: Final = (
    exc.ZKSystemError.error_code,
    exc.RuntimeInconsistency.error_code,
    exc.DataInconsistency.error_code,
    exc.OperationTimeout.error_code,
    -122,  # RequestTimeout
)
"""After these answers nobody knows whether the request's transaction was written."""
PLAIN: Final[dict[int, str]] = {  # texts for error codes that aiozk has no name for, or whose name explains too little
    exc.ZKSystemError.error_code: "the registry failed inside",
    exc.DataInconsistency.error_code: "the registry says that its data are inconsistent",
    exc.Unimplemented.error_code: "the registry does not know this operation: it has to be ZooKeeper 3.6 or newer",
    exc.OperationTimeout.error_code: "the registry took too long",
    -116: "the registry is shutting down",
    exc.NotReadOnly.error_code: "the server is read-only because it has lost contact to the other servers",
    -122: "the registry took too long",
    -123: "reconfiguration is switched off in the registry",
    -124: "the registry demands SASL authentication",
    USED_UP: "the quota that somebody set in the registry is used up: raise it (setquota), or remove nodes",
}
BYSTANDERS: Final = (exc.RolledBack.error_code, exc.RuntimeInconsistency.error_code)
"""The codes of the operations before and after the one that failed."""

ANY_WATCH: Final = 3  # removeWatches: whatever we hold at that path
CHUNK: Final = 100_000  # bytes per frame where we can choose: Java's client does the same when it sets watches again
HEADER: Final = Struct("!iqi")  # of a reply: xid, zxid, error
BODY: Final = HEADER.size  # where a reply's body begins

_WATCH_HEAD: Final = 20  # bytes before the lists of paths: a zxid, and three empty lists of other watches
_READ_ONLY: Final = 36  # where the answer to the first frame says so, after a password of 16 bytes
_int = Struct("!i")
_string = Struct("!i").pack
_long = Struct("!q").pack
_part = Struct("!i?i")  # what precedes each part of a multi: kind, last, error
_end = _part.pack(-1, True, -1)
_stat_of_set = Struct("!24xqi")  # of a Stat only mtime and version
_create = protocol.CreateRequest.opcode
_set = protocol.SetDataRequest.opcode

Reply: TypeAlias = tuple[int, int, bytes]  # error (0: none), zxid, the whole frame


def _of_create(op: Create, acl: bytes) -> bytes:
    return _string(len(op.data)) + op.data + acl + _int.pack(op.ephemeral)


def _of_set(op: Set, acl: bytes) -> bytes:
    return _string(len(op.data)) + op.data + _int.pack(op.version)


def _of_version(op: Delete | Check, acl: bytes) -> bytes:
    return _int.pack(op.version)


_OPS: Final[dict[type[Op], tuple[bytes, Callable[..., bytes]]]] = {  # what comes before and after the path
    Create: (_part.pack(_create, False, -1), _of_create),
    Set: (_part.pack(_set, False, -1), _of_set),
    Delete: (_part.pack(protocol.DeleteRequest.opcode, False, -1), _of_version),
    Check: (_part.pack(protocol.CheckVersionRequest.opcode, False, -1), _of_version),
}
_READS: Final[dict[int, bytes]] = {kind: _part.pack(kind, False, -1) for kind in (GET, CHILDREN)}


class Codec:
    """Renders the requests of one namespace, and translates paths between the registry's and ours."""

    def __init__(self, namespace: str, *, private: bool) -> None:
        self.root = f"/{namespace}" if namespace else ""
        acl = protocol.AUTHED_UNRESTRICTED if private else protocol.UNRESTRICTED_ACCESS
        self.acl: bytes = render(protocol.SetACLRequest(path="", acl=[acl], version=0))[4:-4]

    def absolute(self, path: str) -> str:
        """Return the full path in the registry of a ``path`` that begins at the namespace."""
        if path == "/":
            return self.root or "/"
        return self.root + path

    def relative(self, path: str) -> str:
        """Return a full path of the registry as one that begins at the namespace."""
        return path[len(self.root) :] or "/"

    def path(self, path: str) -> bytes:
        """Render a path."""
        raw = self.absolute(path).encode()
        return _string(len(raw)) + raw

    def watching(self, path: str) -> bytes:
        """Render the body of a read of one node; its last byte says that it sets no watch."""
        return self.path(path) + b"\0"

    def long_question(self, size: int) -> bytes:
        """Render the question whether a node with a very long name exists, in ``size`` bytes.

        It changes nothing, so it tells whether a server takes requests of this size.
        """
        shortest = "/x"
        missing = max(size - len(self.watching(shortest)), 0)
        return self.watching(shortest + "x" * missing)

    def multi(self, ops: Sequence[Op]) -> bytes:
        """Render a transaction."""
        parts = bytearray()
        for op in ops:
            head, tail = _OPS[type(op)]
            parts += head
            parts += self.path(op.path)
            parts += tail(op, self.acl)
        parts += _end
        return bytes(parts)

    def multi_read(self, reads: Sequence[tuple[int, str]]) -> bytes:
        """Render reads of many nodes, each GET or CHILDREN."""
        parts = bytearray()
        for kind, path in reads:
            parts += _READS[kind]
            parts += self.watching(path)
        parts += _end
        return bytes(parts)

    def paths(self, opcode: int, body: bytes) -> list[str]:
        """Read which nodes a request is about, for people; of a request that sets watches, only the first one."""
        if opcode in (MULTI, MULTI_READ):
            return self._paths_of_parts(opcode, body)
        at = 0
        if opcode == WATCH:  # two lists, each after the number of its paths; the first may be empty
            at = _WATCH_HEAD + 4
            if _int.unpack_from(body, _WATCH_HEAD)[0] == 0:
                at += 4
        path, _ = _text(body, at)
        return [self.relative(path)]

    def _paths_of_parts(self, opcode: int, body: bytes) -> list[str]:
        found = list[str]()
        at = 0
        while at + _part.size < len(body):
            kind, _, _ = _part.unpack_from(body, at)
            path, at = _text(body, at + _part.size)
            found.append(self.relative(path))
            if kind in (_create, _set):
                at += 4 + _int.unpack_from(body, at)[0]  # the data
            if kind == _create:
                at += len(self.acl)
            at += 1 if opcode == MULTI_READ else 4  # whether it sets a watch; flags or a version
        return found

    def remove_watch(self, path: str) -> bytes:
        """Render the end of a persistent watch."""
        return self.path(path) + _int.pack(ANY_WATCH)

    def watch(self, roots: Roots, zxid: int, most: int = CHUNK) -> list[bytes]:
        """Render requests that set persistent watches, in chunks of at most ``most`` bytes."""
        head = _long(zxid) + 3 * _int.pack(0)  # no one-shot watches
        absolute = {self.absolute(path): shallow for path, shallow in roots.items()}
        requests = list[bytes]()
        for chunk in chunked([*absolute], min(CHUNK, most - len(head))):
            shallow = [path for path in chunk if absolute[path]]
            deep = [path for path in chunk if not absolute[path]]
            requests.append(head + _vector(shallow) + _vector(deep))
        return requests


def _text(body: bytes, at: int) -> tuple[str, int]:
    """Read a text, and return it with the position after it."""
    end = at + 4 + int(_int.unpack_from(body, at)[0])
    return body[at + 4 : end].decode(errors="replace"), end


def _vector(texts: Sequence[str]) -> bytes:
    parts = bytearray(_int.pack(len(texts)))
    for text in texts:
        raw = text.encode()
        parts += _string(len(raw))
        parts += raw
    return bytes(parts)


def joined(bodies: Sequence[bytes]) -> bytes:
    """Join several rendered transactions into one request."""
    operations = [body.removesuffix(_end) for body in bodies]
    return b"".join([*operations, _end])


def chunked(paths: Sequence[str], most: int | None = None, prefix: int = 0) -> list[Sequence[str]]:
    """Split paths into chunks of at most ``most`` bytes, by default CHUNK: it is far below the usual limit of servers.

    The registry's paths are longer by ``prefix`` characters.
    """
    most = CHUNK if most is None else most
    if not paths:
        return []
    characters = sum(map(len, paths)) + len(paths) * prefix
    # a character takes up to four bytes, and what stands around a path less than 32
    size = characters * 4 + len(paths) * 32
    if size <= most or len(paths) == 1:
        return [paths]
    half = len(paths) // 2
    return chunked(paths[:half], most, prefix) + chunked(paths[half:], most, prefix)


def render(request: Request) -> bytes:
    """Return the body of one of aiozk's requests, without xid and opcode."""
    raw: bytes = request.serialize()
    return raw[4:]


def attach(session: int, password: bytes, timeout: float, zxid: int, *, read_only: bool = False) -> bytes:
    """Render the first frame of a connection: it asks for a new session (0), or for an old one with its password.

    A server that has lost contact to the others, and may be read, answers only if ``read_only`` is set.
    """
    raw: bytes = protocol.ConnectRequest(
        protocol_version=0,
        last_seen_zxid=zxid,
        timeout=round(timeout * 1000),
        session_id=session,
        password=password,
        read_only=read_only,
    ).serialize()
    return raw


def attached(frame: bytes) -> tuple[int, bytes, float]:
    """Read the answer to ``attach``: session (0 if the old one has expired), password, timeout in seconds."""
    reply = protocol.ConnectResponse.deserialize(frame)
    return reply.session_id, reply.password, reply.timeout / 1000


def attach_error(frame: bytes) -> int:
    """Read the error code of an answer to ``attach`` that is only a header; 0 if there is none.

    ZooKeeper 3.8 answers so if it is read-only and is asked for a new session.
    """
    if len(frame) != HEADER.size:
        return 0
    _, _, error = HEADER.unpack(frame)
    return int(error)


def is_read_only(frame: bytes) -> bool:
    """Read from the answer to ``attach`` whether the server has lost contact to the others and takes no writes."""
    return len(frame) > _READ_ONLY and frame[_READ_ONLY] != 0


def credentials(digest: str) -> bytes:
    """Render the digest scheme's user:password."""
    return render(protocol.AuthRequest(type=0, scheme="digest", auth=digest.encode()))


def event(frame: bytes) -> tuple[int, str]:
    """Read a watch event: its kind and the path as the registry spells it."""
    (kind,) = _int.unpack_from(frame, BODY)
    path = frame[BODY + 12 :]  # after the kind, a state, and the path's length
    return kind, path.decode()


def stat(frame: bytes, at: int = BODY) -> Stat:
    """Read a Stat."""
    return Stat(frame[at : at + Stat.SIZE])


def node(frame: bytes, at: int = BODY) -> tuple[Node, int]:
    """Read data and Stat; return them with the position after them."""
    (size,) = _int.unpack_from(frame, at)
    end = at + 4 + max(size, 0) + Stat.SIZE  # a length of -1 means no data; we treat that as empty data
    return Node(frame[at + 4 : end]), end


def names(frame: bytes, at: int = BODY) -> tuple[list[str], int]:
    """Read children's names in any order; return them with the position after them."""
    (count,) = _int.unpack_from(frame, at)
    at += 4
    found = []
    for _ in range(count):
        (size,) = _int.unpack_from(frame, at)
        at += 4 + size
        found.append(frame[at - size : at].decode())
    return found, at


def nodes_and_names(frame: bytes, paths: Sequence[str]) -> list[Node | list[str] | None]:
    """Read the answers to a multi-read of ``paths``; None where the node is missing.

    Raises: NotPermitted, RegistryError.
    """
    found: list[Node | list[str] | None] = []
    at = BODY
    for path in paths:
        kind, _, _ = _part.unpack_from(frame, at)
        at += _part.size
        if kind == GET:
            value, at = node(frame, at)
            found.append(value)
        elif kind == CHILDREN:
            children, at = names(frame, at)
            found.append(children)
        else:
            (error,) = _int.unpack_from(frame, at)
            at += 4
            if error != MISSING:
                raise failure(error, path)
            found.append(None)
    return found


def committed(frame: bytes, zxid: int, ops: Sequence[Op]) -> Committed:
    """Read the answer to a transaction.

    Raises: Conflict, NotPermitted, RegistryError.
    """
    versions: list[int] = []
    at = BODY
    mtime = 0
    for _ in ops:
        kind, _, _ = _part.unpack_from(frame, at)
        at += _part.size
        if kind == _set:
            mtime, version = _stat_of_set.unpack_from(frame, at)
            versions.append(version)
            at += Stat.SIZE
        elif kind == _create:
            at += 4 + _int.unpack_from(frame, at)[0]
            versions.append(0)
        elif kind == -1:
            raise _refusal(frame, ops)
        else:
            versions.append(-1)
    return Committed(zxid, tuple(versions), mtime / 1000)


def failure(error: int, path: str) -> RegistryError:
    """Return the error for an error code, with the path it is about."""
    if error == MISSING:
        return NodeMissing(path)
    if error == FORBIDDEN:
        return NotPermitted(path)
    if error in SESSION_OVER:
        return SessionEnded("the registry has ended the session; nothing was written")
    if error == THROTTLED:
        return Overloaded(f"{path}: the registry is overloaded and refuses requests for the time being ({error})")
    known = exc.response_error_xref.get(error)
    if error in PLAIN:
        why = PLAIN[error]
    elif known is not None:
        why = known.__name__
    else:
        why = "the registry answered with an error code that this client does not know"
    return RegistryError(f"{path}: {why} ({error})")


def refused_operation(frame: bytes, ops: Sequence[Op]) -> tuple[int, int] | None:
    """Return which operation of a refused transaction was refused, and its error code; None if the answer has none."""
    at = BODY + _part.size
    for index in range(len(ops)):
        (error,) = _int.unpack_from(frame, at)
        at += 4 + _part.size
        if error not in BYSTANDERS:
            return index, error
    return None


def _refusal(frame: bytes, ops: Sequence[Op]) -> RegistryError:
    found = refused_operation(frame, ops)
    if found is None:
        return RegistryError("a transaction was refused without a reason")
    index, error = found
    path = ops[index].path
    if error in CONFLICTS:
        return Conflict(index, path, CONFLICTS[error])
    return failure(error, path)
