"""All znodes by path, what is known of them besides, and how to take a change back."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from aioelasticjob.zookeeper.codes import ErrorCode, RequestError
from aioelasticjob.zookeeper.javaset import JavaSet
from aioelasticjob.zookeeper.znode import Contents, Znode, is_container, is_ttl


class _Trace(NamedTuple):
    """The values that creating or deleting a node changes elsewhere, as they were before."""

    cversion: int
    pzxid: int
    buckets: int
    child_added: int = 0
    owned_added: int = 0


class ZnodeTable:
    """The znodes and the indices over them.  While `journal` is a list, every change notes there how to undo it."""

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
        """Put back a znode as it was stored; its parent must be there already."""
        present = self.nodes.get(path)
        if present is None:
            self._attach(path, node)
            return
        node.children = present.children
        self.data_size += len(node.data or b"") - len(present.data or b"")
        self.nodes[path] = node
        if path == "/":
            self.nodes[""] = node

    def plant(self, path: str, node: Znode) -> None:
        """Add a znode, which changes its parent."""
        parent = self.nodes[path[: path.rfind("/")]]
        was = _Trace(parent.cversion, parent.pzxid, parent.children.buckets)
        parent.cversion += 1
        parent.pzxid = node.czxid
        self._attach(path, node)
        if self.journal is not None:
            self.journal.append(lambda: self._unplant(path, node, was))

    def uproot(self, path: str, zxid: int) -> None:
        """Take a leaf away, which changes its parent."""
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

    def fill(self, path: str, contents: Contents) -> None:
        """Replace the contents of a znode."""
        was = self.nodes[path].contents
        self._put(path, contents)
        if self.journal is not None:
            self.journal.append(lambda: self._put(path, was))

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


def _reset(parent: Znode, was: _Trace) -> None:
    parent.cversion = was.cversion
    parent.pzxid = was.pzxid
    parent.children.buckets = was.buckets
