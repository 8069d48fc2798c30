"""Requests as values, read from frames.

They are named tuples rather than dataclasses: one is built for every frame, and a tuple costs a third.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from aioelasticjob.zookeeper.acl import Acl
from aioelasticjob.zookeeper.codes import CreateFlag, OpCode
from aioelasticjob.zookeeper.jute import MalformedError, Reader

T = TypeVar("T")


class Connect(NamedTuple):
    """The first request of a connection."""

    last_zxid: int
    timeout: int  # ms
    session: int
    password: bytes
    knows_read_only: bool  # clients before 3.4 send no such byte and expect none


class Create(NamedTuple):
    """Make a znode; `op` tells containers and times to live (ms) apart."""

    op: OpCode
    path: str | None
    data: bytes | None
    acl: Sequence[Acl] | None
    flags: int
    ttl: int = -1


class Delete(NamedTuple):
    """Remove a leaf, if its version is as expected (-1: any)."""

    path: str | None
    version: int


class SetData(NamedTuple):
    """Replace the data, if its version is as expected (-1: any)."""

    path: str | None
    data: bytes | None
    version: int


class SetAcl(NamedTuple):
    """Replace the ACL, if its version is as expected (-1: any)."""

    path: str | None
    acl: Sequence[Acl] | None
    version: int


class Check(NamedTuple):
    """Go on only if the version is as expected (-1: any)."""

    path: str | None
    version: int


Write = Create | Delete | SetData | SetAcl | Check


class Read(NamedTuple):
    """Look at a znode, and perhaps watch it."""

    path: str | None
    watch: bool


class ReadOf(NamedTuple):
    """One read of a multi-read."""

    op: OpCode
    path: str | None


class PathMode(NamedTuple):
    """A path with a kind of watch: addWatch, removeWatches, checkWatches."""

    path: str | None
    mode: int


class SetWatches(NamedTuple):
    """The watches a client had before it lost its connection, and what it had seen by then."""

    zxid: int
    data: Sequence[str]
    exist: Sequence[str]
    child: Sequence[str]
    persistent: Sequence[str] = ()
    recursive: Sequence[str] = ()


class Auth(NamedTuple):
    """Credentials in one scheme."""

    scheme: str | None
    credentials: bytes | None


def read_connect(frame: bytes) -> Connect:
    """Decode the first frame of a connection.

    Raises: MalformedError.
    """
    reader = Reader(frame)
    reader.integer()
    last_zxid = reader.long()
    timeout = reader.integer()
    session = reader.long()
    password = reader.buffer() or b""
    knows_read_only = reader.position < len(frame)
    return Connect(last_zxid, timeout, session, password, knows_read_only)


def read_create(op: OpCode) -> Callable[[Reader], Create]:
    """Name the decoder of one of the four creates."""

    def read(reader: Reader) -> Create:
        path = reader.string()
        data = reader.buffer()
        acl = read_acl(reader)
        flags = reader.integer()
        ttl = reader.long() if op is OpCode.CREATE_TTL else -1
        return Create(op, path, data, acl, flags, ttl)

    return read


def read_delete(reader: Reader) -> Delete:
    """Decode a delete."""
    return Delete(reader.string(), reader.integer())


def read_set_data(reader: Reader) -> SetData:
    """Decode a setData."""
    return SetData(reader.string(), reader.buffer(), reader.integer())


def read_set_acl(reader: Reader) -> SetAcl:
    """Decode a setACL."""
    return SetAcl(reader.string(), read_acl(reader), reader.integer())


def read_check(reader: Reader) -> Check:
    """Decode a check."""
    return Check(reader.string(), reader.integer())


def read_read(reader: Reader) -> Read:
    """Decode exists, getData, getChildren and getChildren2, which look the same."""
    return Read(reader.string(), reader.boolean())


def read_path_mode(reader: Reader) -> PathMode:
    """Decode addWatch, removeWatches and checkWatches, which look the same."""
    return PathMode(reader.string(), reader.integer())


def read_set_watches(reader: Reader) -> SetWatches:
    """Decode setWatches."""
    return SetWatches(reader.long(), _paths(reader), _paths(reader), _paths(reader))


def read_set_watches2(reader: Reader) -> SetWatches:
    """Decode setWatches2, which knows persistent watches."""
    zxid = reader.long()
    data = _paths(reader)
    exist = _paths(reader)
    child = _paths(reader)
    persistent = _paths(reader)
    recursive = _paths(reader)
    return SetWatches(zxid, data, exist, child, persistent, recursive)


def read_auth(reader: Reader) -> Auth:
    """Decode credentials; the type in front of them has no meaning."""
    reader.integer()
    return Auth(reader.string(), reader.buffer())


def read_reconfig(reader: Reader) -> None:
    """Walk over a reconfig, which is refused if it is well-formed and malformed if not."""
    for _ in range(3):
        reader.string()
    reader.long()


def read_acl(reader: Reader) -> list[Acl] | None:
    """Decode an ACL."""
    return reader.vector(lambda: Acl(reader.integer(), reader.string(), reader.string()))


def read_multi(reader: Reader) -> list[Write]:
    """Decode a transaction.

    Raises: MalformedError, also for operations that cannot be part of one.
    """
    writes = list[Write]()
    for write in _operations(reader, _IN_MULTI):
        if isinstance(write, Create):
            writes.append(_as_multi_create(write))
        else:
            writes.append(write)
    return writes


def read_multi_read(reader: Reader) -> list[ReadOf | Write]:
    """Decode several reads; writes alone are decoded, too, for they are refused otherwise than what is malformed.

    Raises: MalformedError, also for a mixture.
    """
    operations = list(_operations(reader, _IN_ANY_MULTI))
    reads = [operation for operation in operations if isinstance(operation, ReadOf)]
    if reads and len(reads) < len(operations):
        raise MalformedError("reads and writes in one multi")
    return operations


def _operations(reader: Reader, known: Mapping[int, Callable[[Reader], T]]) -> Iterator[T]:
    """Read operations up to the header that says there are no more."""
    while True:
        kind = reader.integer()
        done = reader.boolean()
        _ = reader.integer()
        if done:
            return
        if kind not in known:
            raise MalformedError(f"operation {kind} in a multi")
        yield known[kind](reader)


def _as_multi_create(create: Create) -> Create:
    """Inside a multi the flags alone decide the kind, and only a container or a TTL is answered with a Stat."""
    if create.flags == CreateFlag.CONTAINER:
        return create._replace(op=OpCode.CREATE_CONTAINER)
    if create.flags in (CreateFlag.PERSISTENT_TTL, CreateFlag.PERSISTENT_SEQUENTIAL_TTL):
        if create.op is not OpCode.CREATE_TTL:
            raise MalformedError("a time to live needs createTTL")
        return create
    return create._replace(op=OpCode.CREATE, ttl=-1)


def _paths(reader: Reader) -> list[str]:
    paths = reader.vector(reader.string)
    if paths is None:
        raise MalformedError("no list of paths")
    given = [path for path in paths if path is not None]
    if len(given) < len(paths):
        raise MalformedError("a path that is none")
    return given


WRITES: Mapping[int, Callable[[Reader], Write]] = {
    OpCode.CREATE: read_create(OpCode.CREATE),
    OpCode.CREATE2: read_create(OpCode.CREATE2),
    OpCode.CREATE_CONTAINER: read_create(OpCode.CREATE_CONTAINER),
    OpCode.CREATE_TTL: read_create(OpCode.CREATE_TTL),
    OpCode.DELETE: read_delete,
    OpCode.SET_DATA: read_set_data,
    OpCode.SET_ACL: read_set_acl,
    OpCode.CHECK: read_check,
}
_IN_MULTI = {op: decode for op, decode in WRITES.items() if op != OpCode.SET_ACL}
_IN_MULTI_READ: Mapping[int, Callable[[Reader], ReadOf]] = {
    OpCode.GET_DATA: lambda reader: ReadOf(OpCode.GET_DATA, read_read(reader).path),
    OpCode.GET_CHILDREN: lambda reader: ReadOf(OpCode.GET_CHILDREN, read_read(reader).path),
}
_IN_ANY_MULTI: Mapping[int, Callable[[Reader], ReadOf | Write]] = {**_IN_MULTI, **_IN_MULTI_READ}
