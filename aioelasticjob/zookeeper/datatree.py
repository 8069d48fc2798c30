"""The tree of znodes and every way to change it.  No I/O, no clock, no watches: events are handed out."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from aioelasticjob.zookeeper import quota
from aioelasticjob.zookeeper.acl import READ_UNSAFE, AclList, Identity, require, resolve
from aioelasticjob.zookeeper.codes import CreateFlag, ErrorCode, EventType, OpCode, Perms, RequestError
from aioelasticjob.zookeeper.javaset import JavaSet
from aioelasticjob.zookeeper.messages import Check, Create, Delete, SetAcl, SetData, Write
from aioelasticjob.zookeeper.paths import parent_for_create, parent_for_delete, validate
from aioelasticjob.zookeeper.znode import CONTAINER_OWNER, MAX_TTL, Znode, is_container, is_ttl, ttl_of, ttl_owner


class TreeEvent(NamedTuple):
    """A change a watch may report, with the ACL that says who may hear of it."""

    path: str
    kind: EventType
    acl: AclList


class Author(NamedTuple):
    """Who writes, and at which point in the order and in time (ms since the epoch)."""

    session: int
    identities: Sequence[Identity]
    zxid: int
    now: int


class Applied(NamedTuple):
    """What a write did: its operation, the path as created, and the Stat it left, where the reply tells it."""

    op: OpCode
    path: str
    stat: bytes = b""


class DataTree:
    """All znodes by path.  A write either happens whole or raises RequestError and leaves nothing."""

    def __init__(self, *, extended_types: bool = True) -> None:
        self.extended_types = extended_types
        root = Znode(b"")
        # The root also answers to the empty name, which is what cutting "/a" at its last slash leaves.
        self.nodes: dict[str, Znode] = {"": root, "/": root}
        self.zxid = 0
        self.ephemerals: dict[int, JavaSet] = {}
        self.reapable: dict[str, None] = {}  # containers and nodes with a time to live
        self.data_size = 1
        self.events: list[TreeEvent] = []
        self.dirty: dict[str, None] | None = None  # paths changed since the last `take_dirty`; kept for a disk only
        self._limited: dict[str, None] = {}
        self._undo: list[Callable[[], object]] | None = None
        for path in ("/zookeeper", "/zookeeper/quota", "/zookeeper/config"):
            self.restore(path, Znode(b""))
        config = self.nodes["/zookeeper/config"]
        config.acl, config.aversion = READ_UNSAFE, -1

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

    def apply(self, write: Write, author: Author) -> Applied:
        """Carry out one write.

        Raises: RequestError, and nothing has changed.
        """
        if write.path is None:
            by_validation = isinstance(write, (SetData, SetAcl, Check))
            raise RequestError(ErrorCode.BAD_ARGUMENTS if by_validation else ErrorCode.MARSHALLING_ERROR)
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

    def apply_all(self, writes: Sequence[Write], author: Author) -> Sequence[Applied | ErrorCode]:
        """Carry out all writes or none.

        On failure the answer has OK for those before the one that failed, its error, and RUNTIME_INCONSISTENCY for
        those behind it.
        """
        self._undo = []
        heard = len(self.events)
        done: list[Applied] = []
        try:
            for write in writes:
                done.append(self.apply(write, author))  # noqa: PERF401  (what is done counts when one raises)
        except RequestError as error:
            for undo in reversed(self._undo):
                undo()
            del self.events[heard:]
            if error.code is ErrorCode.MARSHALLING_ERROR:
                raise
            rest = len(writes) - len(done) - 1
            return [ErrorCode.OK] * len(done) + [error.code] + [ErrorCode.RUNTIME_INCONSISTENCY] * rest
        finally:
            self._undo = None
        return done

    def end_session(self, session: int, zxid: int) -> None:
        """Remove what a session owned."""
        if session in self.ephemerals:
            for path in self.ephemerals[session].ordered_as_copy():
                self.remove(path, zxid)
            del self.ephemerals[session]

    def remove(self, path: str, zxid: int) -> None:
        """Remove a leaf that exists, asking nobody."""
        parent_path = path[: path.rfind("/")]
        parent, node = self.nodes[parent_path], self.nodes[path]
        own = self.ephemerals.get(node.owner)
        was = parent.pzxid, parent.children[path[len(parent_path) + 1 :]], own[path] if own else 0
        parent.pzxid = zxid
        self._detach(path, node)
        self._touch(parent_path or "/")
        if self._undo is not None:
            self._undo.append(lambda: self._unremove(path, node, was))
        if path.startswith(quota.ROOT) and path.endswith("/" + quota.LIMITS):
            self._limited.pop(quota.limited_path(parent_path) or "", None)
        self._count(path, -1, -len(node.data or b""))
        # The child's watchers are told before the parent's, as DataTree.deleteNode does.
        self.events.append(TreeEvent(path, EventType.DELETED, node.acl))
        self.events.append(TreeEvent(parent_path or "/", EventType.CHILDREN_CHANGED, parent.acl))

    def stale(self, now: int, never_used: int = 0) -> list[str]:
        """Name containers that were left and nodes that outlived their time (ContainerManager); times in ms."""
        return [path for path in self.reapable if self._is_stale(self.nodes[path], now, never_used)]

    def below(self, path: str) -> Iterator[str]:
        """Walk the names of everything under a znode, any depth."""
        prefix = "" if path in ("/", "") else path
        pending = [f"{prefix}/{child}" for child in self.nodes[path].children]
        while pending:
            found = pending.pop()
            yield found
            pending.extend(f"{found}/{child}" for child in self.nodes[found].children)

    def restore(self, path: str, node: Znode) -> None:
        """Put back a znode as it was stored; its parent must be there already."""
        if path.endswith("/" + quota.LIMITS) and (subject := quota.limited_path(path[: path.rfind("/")])):
            self._limited[subject] = None
        present = self.nodes.get(path)
        if present is not None:
            node.children = present.children
            self.data_size -= len(present.data or b"")
            self.nodes[path] = node
            if path == "/":
                self.nodes[""] = node
            self.data_size += len(node.data or b"")
            return
        self._attach(path, node)

    def take_dirty(self) -> dict[str, None]:
        """Hand out the paths changed since the last time."""
        dirty, self.dirty = self.dirty or {}, {}
        return dirty

    def _create(self, write: Create, path: str, author: Author) -> Applied:
        flag = self._flag(write)
        parent_path = parent_for_create(path)
        acl = resolve(write.acl, author.identities)
        parent = self.node(parent_path)
        require(parent.acl, Perms.CREATE, author.identities)
        if flag.sequential:
            path = f"{path}{_java_int(parent.cversion):010d}"
        validate(path)
        if path in self.nodes:
            raise RequestError(ErrorCode.NODE_EXISTS)
        if self._owned(parent):
            raise RequestError(ErrorCode.NO_CHILDREN_FOR_EPHEMERALS)
        node = Znode(write.data, acl, self._owner(write, flag, author.session), author.zxid, author.now)
        was = parent.cversion, parent.pzxid, parent.children.buckets
        parent.cversion += 1
        parent.pzxid = author.zxid
        self._attach(path, node)
        self._touch(parent_path or "/")
        if self._undo is not None:
            self._undo.append(lambda: self._uncreate(path, node, was))
        if path.startswith(quota.ROOT):
            self._note_quota(path, parent_path)
        self._count(path, 1, len(write.data or b""))
        self.events.append(TreeEvent(path, EventType.CREATED, acl))
        self.events.append(TreeEvent(parent_path or "/", EventType.CHILDREN_CHANGED, parent.acl))
        return Applied(write.op, path, b"" if write.op is OpCode.CREATE else node.stat())

    def _delete(self, write: Delete, path: str, author: Author) -> Applied:
        parent = self.node(parent_for_delete(path))
        require(parent.acl, Perms.DELETE, author.identities)
        node = self.node(path)
        _require_version(node.version, write.version)
        if node.children:
            raise RequestError(ErrorCode.NOT_EMPTY)
        self.remove(path, author.zxid)
        return Applied(OpCode.DELETE, path)

    def _set_data(self, write: SetData, path: str, author: Author) -> Applied:
        validate(path)
        node = self.node(path)
        require(node.acl, Perms.WRITE, author.identities)
        _require_version(node.version, write.version)
        was = node.data, node.version, node.mtime, node.mzxid
        self._put(path, node, (write.data, node.version + 1, author.now, author.zxid))
        if self._undo is not None:
            self._undo.append(lambda: self._put(path, node, was))
        self._count(path, 0, len(write.data or b"") - len(was[0] or b""))
        self.events.append(TreeEvent(path, EventType.DATA_CHANGED, node.acl))
        return Applied(OpCode.SET_DATA, path, node.stat())

    def _set_acl(self, write: SetAcl, path: str, author: Author) -> Applied:
        validate(path)
        acl = resolve(write.acl, author.identities)
        node = self.node(path)
        require(node.acl, Perms.ADMIN, author.identities)
        _require_version(node.aversion, write.version)
        node.acl = acl
        node.aversion += 1
        self._touch(path)
        return Applied(OpCode.SET_ACL, path, node.stat())

    def _check(self, write: Check, path: str, author: Author) -> Applied:
        validate(path)
        node = self.node(path)
        require(node.acl, Perms.READ, author.identities)
        _require_version(node.version, write.version)
        return Applied(OpCode.CHECK, path)

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

    def _owner(self, write: Create, flag: CreateFlag, session: int) -> int:
        if write.op is OpCode.CREATE_CONTAINER:
            return CONTAINER_OWNER
        if write.op is OpCode.CREATE_TTL:
            return ttl_owner(write.ttl)
        return session if flag.ephemeral else 0

    def _owned(self, node: Znode) -> bool:
        """Whether a session owns the node; without extended types a time to live looks like a session."""
        owner = node.owner
        return owner != 0 and not is_container(owner) and not (self.extended_types and is_ttl(owner))

    def _is_stale(self, node: Znode, now: int, never_used: int) -> bool:
        if node.children:
            return False
        if is_ttl(node.owner):
            return now - node.mtime > ttl_of(node.owner)
        return node.cversion > 0 or 0 < never_used < now - node.mtime

    def _attach(self, path: str, node: Znode) -> None:
        slash = path.rfind("/")
        self.nodes[path] = node
        self.nodes[path[:slash]].children.add(path[slash + 1 :])
        self.data_size += len(path) + len(node.data or b"")
        if node.owner == 0:
            pass
        elif self._owned(node):
            self.ephemerals.setdefault(node.owner, JavaSet()).add(path)
        else:
            self.reapable[path] = None
        self._touch(path)

    def _detach(self, path: str, node: Znode) -> None:
        slash = path.rfind("/")
        del self.nodes[path]
        del self.nodes[path[:slash]].children[path[slash + 1 :]]
        self.data_size -= len(path) + len(node.data or b"")
        if node.owner:
            self.reapable.pop(path, None)
            if node.owner in self.ephemerals:
                self.ephemerals[node.owner].pop(path, None)
        self._touch(path)

    def _uncreate(self, path: str, node: Znode, was: tuple[int, int, int]) -> None:
        self._detach(path, node)
        parent = self.nodes[path[: path.rfind("/")]]
        parent.cversion, parent.pzxid, parent.children.buckets = was

    def _unremove(self, path: str, node: Znode, was: tuple[int, int, int]) -> None:
        self._attach(path, node)
        slash = path.rfind("/")
        parent = self.nodes[path[:slash]]
        parent.pzxid, child_added, owned_added = was
        parent.children.put_back(path[slash + 1 :], child_added)
        if node.owner in self.ephemerals:
            self.ephemerals[node.owner].put_back(path, owned_added)

    def _put(self, path: str, node: Znode, now: tuple[bytes | None, int, int, int]) -> None:
        self.data_size += len(now[0] or b"") - len(node.data or b"")
        node.data, node.version, node.mtime, node.mzxid = now
        self._touch(path)

    def _touch(self, path: str) -> None:
        if self.dirty is not None:
            self.dirty[path] = None

    def _note_quota(self, path: str, parent_path: str) -> None:
        subject = quota.limited_path(parent_path)
        if subject is None:
            return
        if path.endswith("/" + quota.LIMITS):
            self._limited[subject] = None
            if self._undo is not None:
                self._undo.append(lambda: self._limited.pop(subject))
        elif path.endswith("/" + quota.STATS) and subject in self.nodes:
            paths = [subject, *self.below(subject)]
            size = sum(len(self.nodes[below].data or b"") for below in paths)
            self._put_stats(path, quota.write(len(paths), size))

    def _count(self, path: str, nodes: int, size: int) -> None:
        subject = quota.covering(path, self._limited)
        if subject is None:
            return
        stats = self.nodes.get(quota.stats_path(subject))
        if stats is not None:
            count, total = quota.read(stats.data)
            self._put_stats(quota.stats_path(subject), quota.write(count + nodes, total + size))

    def _put_stats(self, path: str, data: bytes) -> None:
        node = self.nodes[path]
        was = node.data, node.version, node.mtime, node.mzxid
        self._put(path, node, (data, *was[1:]))
        if self._undo is not None:
            self._undo.append(lambda: self._put(path, node, was))


def _require_version(present: int, expected: int) -> None:
    if expected not in (-1, present):
        raise RequestError(ErrorCode.BAD_VERSION)


def _java_int(value: int) -> int:
    """Wrap a counter as a Java int does."""
    return (value + 2**31) % 2**32 - 2**31
