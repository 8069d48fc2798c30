"""The registry's tree without wire and loop: transactions applied to a plain mapping, as ZooKeeper would."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from aioelasticjob.errors import Conflict
from aioelasticjob.registry.transaction import Check, Committed, Create, Delete, Op, Set
from aioelasticjob.registry.tree import Node, Tree, parent
from tests.support.stats import changed, stat

Before: TypeAlias = Mapping[str, Node | None]
"""What was there before a transaction, by every path it touched; None where there was nothing."""
Observer: TypeAlias = Callable[[int, Before], None]


class BareRegistry:
    """Nodes by path; ``now`` is the registry's clock, in seconds since the epoch, and moves only when told to."""

    def __init__(self, now: float = 1_000.0) -> None:
        self.now = now
        self.zxid = 0
        self.nodes: dict[str, Node] = {"/": self._node(b"", 0)}
        self.observers: list[Observer] = []
        """Called with every transaction, the session that wrote it (0: by hand) and what was there before."""
        self._before: dict[str, Node | None] = {}

    def tree(self) -> Tree:
        """Return all nodes as they are now."""
        return Tree(self.nodes, self.zxid)

    def commit(self, operations: Sequence[Op], incarnation: int = 0) -> Committed:
        """Write all of ``operations`` or none, in the name of a session; 0 is nobody's.

        Raises:
            Conflict: an operation's condition did not hold.
        """
        self.zxid += 1
        self._before = {}
        try:
            versions = tuple(self._apply(index, operation, incarnation) for index, operation in enumerate(operations))
        except Conflict:
            self._undo()
            raise
        self._tell(incarnation)
        return Committed(self.zxid, versions)

    def make(self, path: str, data: bytes = b"") -> None:
        """Create a node by hand, parents included."""
        if parent(path) not in self.nodes:
            self.make(parent(path))
        self.commit([Create(path, data)])

    def expire(self, incarnation: int) -> None:
        """End a session: its ephemeral nodes go."""
        self.zxid += 1
        self._before = {}
        for path in [path for path, node in self.nodes.items() if node.stat.ephemeral_owner == incarnation]:
            self._remove(path)
        self._tell(incarnation)

    def _tell(self, incarnation: int) -> None:
        for observer in self.observers:
            observer(incarnation, self._before)

    def _undo(self) -> None:
        for path, node in self._before.items():
            if node is None:
                self.nodes.pop(path, None)
            else:
                self.nodes[path] = node

    def _apply(self, index: int, operation: Op, incarnation: int) -> int:
        """Apply one operation and return the version it gave its node, -1 for none."""
        path = operation.path
        if isinstance(operation, Create):
            self._create(index, operation, incarnation)
            return 0
        node = self.nodes.get(path)
        if node is None:
            raise Conflict(index, path, "missing")
        if operation.version not in (-1, node.stat.version):
            raise Conflict(index, path, "version")
        match operation:
            case Check():
                return -1
            case Delete():
                if node.stat.num_children:
                    raise Conflict(index, path, "not empty")
                self._remove(path)
                return -1
            case Set(data=data):
                version = node.stat.version + 1
                stat = changed(node.stat, version=version, mzxid=self.zxid, mtime=self.now)
                self._put(path, Node.of(data, stat))
                return version

    def _create(self, index: int, operation: Create, incarnation: int) -> None:
        path, above = operation.path, self.nodes.get(parent(operation.path))
        if path in self.nodes:
            raise Conflict(index, path, "exists")
        if above is None:
            raise Conflict(index, path, "missing")
        if above.stat.ephemeral_owner:
            raise Conflict(index, path, "no ephemeral children")
        self._put(path, self._node(operation.data, incarnation if operation.ephemeral else 0))
        self._count(parent(path), above, 1)

    def _remove(self, path: str) -> None:
        self._before.setdefault(path, self.nodes.pop(path))
        self._count(parent(path), self.nodes[parent(path)], -1)

    def _put(self, path: str, node: Node) -> None:
        self._before.setdefault(path, self.nodes.get(path))
        self.nodes[path] = node

    def _count(self, path: str, node: Node, more: int) -> None:
        """Note that a node has got, or lost, a child; its data's version stays."""
        self._put(path, Node.of(node.data, changed(node.stat, num_children=node.stat.num_children + more)))

    def _node(self, data: bytes, owner: int) -> Node:
        times = {"ctime": self.now, "mtime": self.now}
        return Node.of(data, stat(czxid=self.zxid, mzxid=self.zxid, ephemeral_owner=owner, **times))
