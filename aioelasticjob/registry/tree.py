"""Tree: a part of the registry as an immutable value, a mapping of paths to nodes.  It knows nothing of jobs."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from sys import intern
from typing import Final


@dataclass(frozen=True, slots=True)
class Stat:
    """What the registry knows about a node besides its data; times in seconds since the epoch."""

    czxid: int
    mzxid: int
    ctime: float
    mtime: float
    version: int
    ephemeral_owner: int
    num_children: int


@dataclass(frozen=True, slots=True)
class Node:
    """One node as it was read."""

    data: bytes
    stat: Stat


UNREAD_NODE: Final = Node(b"", Stat(0, 0, 0.0, 0.0, -1, 0, 0))
"""A node that is known to exist and has not been read; its version -1 matches any version in a condition."""


class Tree:
    """Nodes by path.  Two trees with the same nodes are equal, even if they were read at different times (``zxid``)."""

    __slots__ = ("_names", "_nodes", "_touch", "zxid")

    def __init__(self, nodes: Mapping[str, Node] | None = None, zxid: int = 0) -> None:
        self._nodes: dict[str, Node] = dict(nodes or {})
        self._names: dict[str, tuple[str, ...]] | None = None  # children by parent, built at the first use
        self.zxid = zxid  # the tree has every change up to this transaction
        self._touch = [True]  # shared by all trees that were read one after another over the same connection

    @property
    def outdated(self) -> bool:
        """Whether the reader of this tree has lost its connection since, and will read everything again."""
        return not self._touch[0]

    def accept_as_newest(self) -> None:
        """Mark this tree, and those that were read one after another up to it, as not outdated."""
        self._touch[0] = True

    def mark_outdated(self) -> None:
        """Mark this tree, and those that were read one after another up to it, as outdated."""
        self._touch[0] = False

    def get(self, path: str) -> Node | None:
        """Return the node at ``path``, or None."""
        return self._nodes.get(path)

    def children(self, path: str) -> tuple[str, ...]:
        """Return the sorted names directly below ``path``, which itself need not be in the tree."""
        if self._names is None:
            self._names = _index(self._nodes)
        return self._names.get(path, ())

    def below(self, path: str) -> Tree:
        """Return the tree of ``path`` and everything below it, under the same full paths."""
        found: dict[str, Node] = {}
        waiting = [path]
        while waiting:
            here = waiting.pop()
            if (node := self._nodes.get(here)) is not None:
                found[here] = node
            prefix = here if here.endswith("/") else here + "/"
            waiting.extend(prefix + name for name in self.children(here))
        return Tree(found, self.zxid)

    def replace(self, changes: Mapping[str, Node | None], zxid: int) -> Tree:
        """Return the tree with ``changes`` made to it; None removes a node."""
        tree = Tree(self._nodes, zxid)
        tree._touch = self._touch
        reshaped = False
        for path, node in changes.items():
            reshaped |= (node is None) is (path in tree._nodes)
            if node is None:
                tree._nodes.pop(path, None)
            else:
                tree._nodes[path] = node
        if not reshaped:  # in most cases only data has changed: then both trees share the index
            tree._names = self._names
        return tree

    def __contains__(self, path: object) -> bool:
        return path in self._nodes

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._nodes))

    def __len__(self) -> int:
        return len(self._nodes)

    def __eq__(self, other: object) -> bool:
        return self._nodes == other._nodes if isinstance(other, Tree) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # compared by content, too large to hash

    def __repr__(self) -> str:
        return f"Tree({len(self)} nodes, zxid={self.zxid:#x})"


def parent(path: str) -> str:
    """Return the path one level up; the root is its own parent."""
    return path.rpartition("/")[0] or "/"


def _index(nodes: Mapping[str, Node]) -> dict[str, tuple[str, ...]]:
    names: dict[str, list[str]] = {}
    for path in nodes:
        above, _, name = path.rpartition("/")
        if name:
            insort(names.setdefault(above or "/", []), intern(name))  # thousands of jobs have the same names
    return {above: tuple(sorted_names) for above, sorted_names in names.items()}
