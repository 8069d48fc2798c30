"""The tree of znodes and every way to change it.  No I/O, no clock, no watches: events are handed out."""

from collections.abc import Sequence
from typing import NamedTuple

from aioelasticjob.zookeeper.acl import READ_UNSAFE, AclList, Identity, require, resolve
from aioelasticjob.zookeeper.codes import CreateFlag, ErrorCode, EventType, OpCode, Perms, RequestError
from aioelasticjob.zookeeper.messages import Check, Create, Delete, SetAcl, SetData, Write
from aioelasticjob.zookeeper.paths import parent_for_create, parent_for_delete, validate
from aioelasticjob.zookeeper.quota import CountingTable
from aioelasticjob.zookeeper.znode import CONTAINER_OWNER, MAX_TTL, Contents, Znode, is_ttl, ttl_of, ttl_owner


class TreeEvent(NamedTuple):
    """A change that a watch may report, with the ACL that says which clients may be told of it."""

    path: str
    kind: EventType
    acl: AclList


class Author(NamedTuple):
    """The author of a write: session and identities, with the write's zxid and time (ms since the epoch)."""

    session: int
    identities: Sequence[Identity]
    zxid: int
    now: int
    sasl: bool = False  # whether the server knows the scheme


class AppliedOperation(NamedTuple):
    """What a write did: its operation, the path as created, and the Stat it left, where the reply tells it."""

    op: OpCode
    path: str
    stat: bytes = b""


class DataTree(CountingTable):
    """The znodes and the rules for changing them.  A write happens whole, or raises RequestError and leaves nothing."""

    def __init__(self, *, extended_types: bool = True) -> None:
        super().__init__(extended_types=extended_types)
        self.zxid = 0
        self.events: list[TreeEvent] = []
        for path in ("/zookeeper", "/zookeeper/quota", "/zookeeper/config"):
            self.restore(path, Znode(b""))
        config = self.nodes["/zookeeper/config"]
        config.acl = READ_UNSAFE
        config.aversion = -1

    def apply(self, write: Write, author: Author) -> AppliedOperation:
        """Carry out one write.

        Raises: RequestError, and nothing has changed.
        """
        if write.path is None:
            if isinstance(write, (SetData, SetAcl, Check)):
                raise RequestError(ErrorCode.BAD_ARGUMENTS)
            raise RequestError(ErrorCode.MARSHALLING_ERROR)
        match write:
            case Create():
                return self._create(write, write.path, author)
            case Delete():
                return self._delete(write, write.path, author)
            case SetData():
                return self._set_data(write, write.path, author)
            case SetAcl():
                return self._set_acl(write, write.path, author)
            case Check():
                return self._check(write, write.path, author)

    def apply_all(self, writes: Sequence[Write], author: Author) -> Sequence[AppliedOperation | ErrorCode]:
        """Carry out all writes or none.

        On failure the answer has OK for those before the one that failed, its error, and RUNTIME_INCONSISTENCY for
        those behind it.
        """
        self.journal = []
        heard = len(self.events)
        done: list[AppliedOperation] = []
        try:
            for write in writes:
                done.append(self.apply(write, author))  # noqa: PERF401  (what is done counts when one raises)
        except RequestError as error:
            self.take_back()
            del self.events[heard:]
            if error.code is ErrorCode.MARSHALLING_ERROR:
                raise
            rest = len(writes) - len(done) - 1
            return [ErrorCode.OK] * len(done) + [error.code] + [ErrorCode.RUNTIME_INCONSISTENCY] * rest
        finally:
            self.journal = None
        return done

    def end_session(self, session: int, zxid: int) -> None:
        """Remove what a session owned."""
        if session in self.ephemerals:
            for path in self.ephemerals[session].ordered_as_copy():
                self.remove(path, zxid)
            del self.ephemerals[session]

    def remove(self, path: str, zxid: int) -> None:
        """Remove a leaf that exists, without any check."""
        parent_path = path[: path.rfind("/")] or "/"
        acl = self.nodes[path].acl
        self.uproot(path, zxid)
        # The child's watchers are told before the parent's, as DataTree.deleteNode does.
        self.events.append(TreeEvent(path, EventType.DELETED, acl))
        self.events.append(TreeEvent(parent_path, EventType.CHILDREN_CHANGED, self.nodes[parent_path].acl))

    def stale(self, now: int, never_used: int = 0) -> list[str]:
        """Name containers that were left and nodes that outlived their time (ContainerManager); times in ms."""
        return [path for path in self.reapable if _is_stale(self.nodes[path], now, never_used)]

    def _create(self, write: Create, path: str, author: Author) -> AppliedOperation:
        flag = self._flag(write)
        parent_path = parent_for_create(path)
        acl = resolve(write.acl, author.identities, sasl=author.sasl)
        parent = self.node(parent_path)
        require(parent.acl, Perms.CREATE, author.identities)
        if flag.sequential:
            path = f"{path}{_java_int(parent.cversion):010d}"
        validate(path)
        if path in self.nodes:
            raise RequestError(ErrorCode.NODE_EXISTS)
        if self.owned(parent):
            raise RequestError(ErrorCode.NO_CHILDREN_FOR_EPHEMERALS)
        owner = _owner(write, flag, author.session)
        node = Znode(write.data, acl, owner, author.zxid, author.now)
        self.plant(path, node)
        self.events.append(TreeEvent(path, EventType.CREATED, acl))
        self.events.append(TreeEvent(parent_path or "/", EventType.CHILDREN_CHANGED, parent.acl))
        stat = b"" if write.op is OpCode.CREATE else node.stat()
        return AppliedOperation(write.op, path, stat)

    def _delete(self, write: Delete, path: str, author: Author) -> AppliedOperation:
        parent = self.node(parent_for_delete(path))
        require(parent.acl, Perms.DELETE, author.identities)
        node = self.node(path)
        _require_version(node.version, write.version)
        if node.children:
            raise RequestError(ErrorCode.NOT_EMPTY)
        self.remove(path, author.zxid)
        return AppliedOperation(OpCode.DELETE, path)

    def _set_data(self, write: SetData, path: str, author: Author) -> AppliedOperation:
        validate(path)
        node = self.node(path)
        require(node.acl, Perms.WRITE, author.identities)
        _require_version(node.version, write.version)
        contents = Contents(write.data, node.version + 1, author.now, author.zxid)
        self.fill(path, contents)
        self.events.append(TreeEvent(path, EventType.DATA_CHANGED, node.acl))
        return AppliedOperation(OpCode.SET_DATA, path, node.stat())

    def _set_acl(self, write: SetAcl, path: str, author: Author) -> AppliedOperation:
        validate(path)
        acl = resolve(write.acl, author.identities, sasl=author.sasl)
        node = self.node(path)
        require(node.acl, Perms.ADMIN, author.identities)
        _require_version(node.aversion, write.version)
        node.acl = acl
        node.aversion += 1
        self.touch(path)
        return AppliedOperation(OpCode.SET_ACL, path, node.stat())

    def _check(self, write: Check, path: str, author: Author) -> AppliedOperation:
        validate(path)
        node = self.node(path)
        require(node.acl, Perms.READ, author.identities)
        _require_version(node.version, write.version)
        return AppliedOperation(OpCode.CHECK, path)

    def _flag(self, write: Create) -> CreateFlag:
        try:
            flag = CreateFlag(write.flags)
        except ValueError:
            raise RequestError(ErrorCode.BAD_ARGUMENTS) from None
        if flag.ttl and not self.extended_types:
            raise RequestError(ErrorCode.UNIMPLEMENTED)
        if (flag.ttl or write.op is OpCode.CREATE_TTL) and not 0 < write.ttl <= MAX_TTL:
            raise RequestError(ErrorCode.BAD_ARGUMENTS)
        if not flag.ttl and write.ttl >= 0:
            raise RequestError(ErrorCode.BAD_ARGUMENTS)
        return flag


def _owner(write: Create, flag: CreateFlag, session: int) -> int:
    if write.op is OpCode.CREATE_CONTAINER:
        return CONTAINER_OWNER
    if write.op is OpCode.CREATE_TTL:
        return ttl_owner(write.ttl)
    return session if flag.ephemeral else 0


def _is_stale(node: Znode, now: int, never_used: int) -> bool:
    if node.children:
        return False
    if is_ttl(node.owner):
        return now - node.mtime > ttl_of(node.owner)
    return node.cversion > 0 or 0 < never_used < now - node.mtime


def _require_version(present: int, expected: int) -> None:
    if expected not in (-1, present):
        raise RequestError(ErrorCode.BAD_VERSION)


def _java_int(value: int) -> int:
    """Wrap a counter as a Java int does."""
    return (value + 2**31) % 2**32 - 2**31
