"""The registry's tree without wire and loop: transactions applied to a plain mapping, as ZooKeeper would."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aioelasticjob.errors import Conflict
from aioelasticjob.registry.tree import Node, Stat, Tree, parent
from aioelasticjob.registry.txn import Check, Create, Delete, Op, Set


class BareRegistry:
    """Nodes by path; ``now`` is the registry's clock and moves only when told to."""

    def __init__(self, now: float = 1_000.0) -> None:
        self.now = now
        self.zxid = 0
        self.nodes: dict[str, Node] = {"/": self._node(b"", 0)}

    def tree(self) -> Tree:
        return Tree(self.nodes, self.zxid)

    def commit(self, operations: Sequence[Op], incarnation: int = 0) -> None:
        before, self.zxid = dict(self.nodes), self.zxid + 1
        try:
            for index, operation in enumerate(operations):
                self._apply(index, operation, incarnation)
        except Conflict:
            self.nodes = before
            raise

    def make(self, path: str, data: bytes = b"") -> None:
        """Create a node by hand, parents included."""
        if parent(path) not in self.nodes:
            self.make(parent(path))
        self.commit([Create(path, data)])

    def expire(self, incarnation: int) -> None:
        """End a session: its ephemeral nodes go."""
        self.zxid += 1
        self.nodes = {path: node for path, node in self.nodes.items() if node.stat.ephemeral_owner != incarnation}

    def _apply(self, index: int, operation: Op, incarnation: int) -> None:
        path = operation.path
        node = self.nodes.get(path)
        match operation:
            case Create(data=data, ephemeral=ephemeral):
                if node is not None:
                    raise Conflict(index, path, "exists")
                if parent(path) not in self.nodes:
                    raise Conflict(index, path, "missing")
                self.nodes[path] = self._node(data, incarnation if ephemeral else 0)
                return
            case Check(version=version) | Delete(version=version) | Set(version=version):
                if node is None:
                    raise Conflict(index, path, "missing")
                if version not in (-1, node.stat.version):
                    raise Conflict(index, path, "version")
        if isinstance(operation, Set):
            stat = replace(node.stat, version=node.stat.version + 1, mzxid=self.zxid, mtime=self.now)
            self.nodes[path] = Node(operation.data, stat)
        elif isinstance(operation, Delete):
            if any(parent(other) == path for other in self.nodes):
                raise Conflict(index, path, "not empty")
            del self.nodes[path]

    def _node(self, data: bytes, owner: int) -> Node:
        return Node(data, Stat(self.zxid, self.zxid, self.now, self.now, 0, 0, 0, owner, len(data), 0, self.zxid))
