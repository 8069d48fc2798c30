"""The tree of znodes, the indices over it, and every way to change it and to take a change back.

No I/O, no clock, no watches: events are handed out.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from aioelasticjob.zookeeper import quota
from aioelasticjob.zookeeper.acl import READ_UNSAFE, AclList, Identity, require, resolve
from aioelasticjob.zookeeper.codes import CreateFlag, ErrorCode, EventType, OpCode, Perms, RequestError
from aioelasticjob.zookeeper.javaset import JavaSet
from aioelasticjob.zookeeper.messages import Check, Create, Delete, SetAcl, SetData, Write
from aioelasticjob.zookeeper.paths import parent_for_create, parent_for_delete, validate
from aioelasticjob.zookeeper.znode import (
    CONTAINER_OWNER,
    MAX_TTL,
    Contents,
    Znode,
    is_container,
    is_ttl,
    ttl_of,
    ttl_owner,
)


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


class _Trace(NamedTuple):
    """The values that creating or deleting a node changes elsewhere, as they were before."""

    cversion: int
    pzxid: int
    buckets: int
    child_added: int = 0
    owned_added: int = 0


class DataTree:
    """The znodes and the rules for changing them.  A write happens whole, or raises RequestError and leaves nothing.

    While `journal` is a list, every change notes there how to undo it.
    """

    def __init__(self, *, extended_types: bool = True) -> None:
        self.extended_types = extended_types
        root = Znode(b"")
        # The root also answers to the empty name, which is what cutting "/a" at its last slash leaves.
        self.nodes: dict[str, Znode] = {"": root, "/": root}
        self.ephemerals: dict[int, JavaSet] = {}  # by session
        self.reapable: dict[str, None] = {}  # containers and nodes with a time to live
        self.data_size = 1
        self.dirty: dict[str, None] | None = None  # paths changed since the last `take_dirty`; kept for a disk only
        self.journal: list[Callable[[], object]] | None = None
        self._limited: dict[str, None] = {}  # subtrees with a quota
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

    def node(self, path: str | None) -> Znode:
        """Find a znode.

        Raises: RequestError with NO_NODE, or MARSHALLING_ERROR for an absent path as the reference server says it.
        """
        if path is None:
            raise RequestError(ErrorCode.MARSHALLING_ERROR)
        node = self.nodes.get(path)
        if node is None:
            raise RequestError(ErrorCode.NO_NODE)
        return node

    def below(self, path: str) -> Iterator[str]:
        """Walk the names of everything under a znode, any depth."""
        prefix = "" if path in ("/", "") else path
        pending = [f"{prefix}/{child}" for child in self.nodes[path].children]
        while pending:
            found = pending.pop()
            yield found
            pending.extend(f"{found}/{child}" for child in self.nodes[found].children)

    def owned(self, node: Znode) -> bool:
        """Whether a session owns the node; without extended types a time to live looks like a session."""
        owner = node.owner
        if owner == 0 or is_container(owner):
            return False
        return not (self.extended_types and is_ttl(owner))

    def restore(self, path: str, node: Znode) -> None:
        """Put back a znode as it was stored, and with it the quota it may stand for.

        Its parent must be there already.
        """
        self._put_back(path, node)
        subject = quota.limited_path(path)
        if subject is not None:
            self._limited[subject] = None

    def plant(self, path: str, node: Znode) -> None:
        """Add a znode, which changes its parent, and count it.

        A quota counts from the creation of its own znodes on.
        """
        parent = self.nodes[path[: path.rfind("/")]]
        was = _Trace(parent.cversion, parent.pzxid, parent.children.buckets)
        parent.cversion += 1
        parent.pzxid = node.czxid
        self._attach(path, node)
        if self.journal is not None:
            self.journal.append(lambda: self._unplant(path, node, was))
        if path.startswith(quota.ROOT):
            self._begin_quota(path)
        self._count(path, 1, len(node.data or b""))

    def uproot(self, path: str, zxid: int) -> None:
        """Take a leaf away, which changes its parent, and count it off."""
        slash = path.rfind("/")
        parent = self.nodes[path[:slash]]
        node = self.nodes[path]
        owned_added = 0
        if node.owner in self.ephemerals:
            owned_added = self.ephemerals[node.owner].get(path, 0)
        added = parent.children[path[slash + 1 :]]
        was = _Trace(parent.cversion, parent.pzxid, parent.children.buckets, added, owned_added)
        parent.pzxid = zxid
        self._detach(path, node)
        if self.journal is not None:
            self.journal.append(lambda: self._unuproot(path, node, was))
        subject = quota.limited_path(path)
        if subject is not None and subject in self._limited:
            del self._limited[subject]
            if self.journal is not None:
                self.journal.append(lambda: self._limited.setdefault(subject))
        self._count(path, -1, -len(node.data or b""))

    def fill(self, path: str, contents: Contents) -> None:
        """Replace the contents of a znode, and count the difference."""
        before = len(self.nodes[path].data or b"")
        self._overwrite(path, contents)
        self._count(path, 0, len(contents.data or b"") - before)

    def take_back(self) -> None:
        """Undo all that the journal notes."""
        notes = self.journal or []
        self.journal = None
        for undo in reversed(notes):
            undo()

    def touch(self, path: str) -> None:
        """Note that a znode is to be written to disk."""
        if self.dirty is not None:
            self.dirty[path] = None

    def take_dirty(self) -> dict[str, None]:
        """Hand out the paths changed since the last time."""
        dirty = self.dirty or {}
        self.dirty = {}
        return dirty

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

    def _overwrite(self, path: str, contents: Contents) -> None:
        """Replace the contents of a znode without counting."""
        was = self.nodes[path].contents
        self._put(path, contents)
        if self.journal is not None:
            self.journal.append(lambda: self._put(path, was))

    def _put_back(self, path: str, node: Znode) -> None:
        present = self.nodes.get(path)
        if present is None:
            self._attach(path, node)
            return
        node.children = present.children
        self.data_size += len(node.data or b"") - len(present.data or b"")
        self.nodes[path] = node
        if path == "/":
            self.nodes[""] = node

    def _attach(self, path: str, node: Znode) -> None:
        slash = path.rfind("/")
        self.nodes[path] = node
        self.nodes[path[:slash]].children.add(path[slash + 1 :])
        self.data_size += len(path) + len(node.data or b"")
        if self.owned(node):
            self.ephemerals.setdefault(node.owner, JavaSet()).add(path)
        elif node.owner:
            self.reapable[path] = None
        self.touch(path)
        self.touch(path[:slash] or "/")

    def _detach(self, path: str, node: Znode) -> None:
        slash = path.rfind("/")
        del self.nodes[path]
        del self.nodes[path[:slash]].children[path[slash + 1 :]]
        self.data_size -= len(path) + len(node.data or b"")
        if node.owner in self.ephemerals:
            self.ephemerals[node.owner].pop(path, None)
        self.reapable.pop(path, None)
        self.touch(path)
        self.touch(path[:slash] or "/")

    def _put(self, path: str, contents: Contents) -> None:
        node = self.nodes[path]
        self.data_size += len(contents.data or b"") - len(node.data or b"")
        node.contents = contents
        self.touch(path)

    def _unplant(self, path: str, node: Znode, was: _Trace) -> None:
        self._detach(path, node)
        _reset(self.nodes[path[: path.rfind("/")]], was)

    def _unuproot(self, path: str, node: Znode, was: _Trace) -> None:
        self._attach(path, node)
        slash = path.rfind("/")
        parent = self.nodes[path[:slash]]
        _reset(parent, was)
        parent.children.put_back(path[slash + 1 :], was.child_added)
        if node.owner in self.ephemerals:
            self.ephemerals[node.owner].put_back(path, was.owned_added)

    def _begin_quota(self, path: str) -> None:
        limited = quota.limited_path(path)
        measured = quota.measured_path(path)
        if limited is not None:
            self._limited[limited] = None
            if self.journal is not None:
                self.journal.append(lambda: self._limited.pop(limited))
        if measured is not None and measured in self.nodes:
            paths = [measured, *self.below(measured)]
            size = sum(len(self.nodes[each].data or b"") for each in paths)
            self._note(path, quota.write(len(paths), size))

    def _count(self, path: str, nodes: int, size: int) -> None:
        subject = quota.covering(path, self._limited)
        if subject is None:
            return
        place = f"{quota.ROOT}{subject}/{quota.STATS}"
        if place in self.nodes:
            count, total = quota.read(self.nodes[place].data)
            self._note(place, quota.write(count + nodes, total + size))

    def _note(self, place: str, data: bytes) -> None:
        """Write the numbers as the reference server does: the data is other, all else stays."""
        self._overwrite(place, self.nodes[place].contents._replace(data=data))


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


def _reset(parent: Znode, was: _Trace) -> None:
    parent.cversion = was.cversion
    parent.pzxid = was.pzxid
    parent.children.buckets = was.buckets
