"""Tree: a part of the registry as an immutable value, a mapping of paths to nodes.  It knows nothing of jobs."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from struct import Struct
from sys import intern
from typing import Any, Final, TypeVar

from aioelasticjob.ground.values import value

T = TypeVar("T")
MAX_CHANGES: Final = 1000
"""After so many more changes than the tree has nodes, what was derived from it is derived anew."""
_LONG = Struct("!q").unpack_from
_INT = Struct("!i").unpack_from
_STAT = Struct("!qqqqi8xq4xi8x")


class Stat(bytes):
    """What the registry knows about a node besides its data, as the registry spells it; times in seconds.

    A process may mirror a hundred thousand nodes, and looks at few of these numbers.  So they are read when they are
    asked for: as objects they would cost memory, and each garbage collection would visit them.
    """

    __slots__ = ()
    SIZE: Final = _STAT.size

    @classmethod
    def of(
        cls, zxids: tuple[int, int], times: tuple[float, float], version: int, owner: int = 0, num_children: int = 0
    ) -> Stat:
        """Return the stat of a node that was made and last set by two transactions at two times."""
        made, last_set = (round(time * 1000) for time in times)
        return cls(_STAT.pack(*zxids, made, last_set, version, owner, num_children))

    @property
    def czxid(self) -> int:
        """The transaction that made the node."""
        return int(_LONG(self)[0])

    @property
    def mzxid(self) -> int:
        """The transaction that last set the node's data."""
        return int(_LONG(self, 8)[0])

    @property
    def ctime(self) -> float:
        """When the node was made, in seconds since the epoch."""
        return float(_LONG(self, 16)[0] / 1000)

    @property
    def mtime(self) -> float:
        """When the node's data was last set, in seconds since the epoch."""
        return float(_LONG(self, 24)[0] / 1000)

    @property
    def version(self) -> int:
        """How often the node's data was set."""
        return int(_INT(self, 32)[0])

    @property
    def ephemeral_owner(self) -> int:
        """The session that the node lives as long as; 0 if it outlives sessions."""
        return int(_LONG(self, 44)[0])

    @property
    def num_children(self) -> int:
        """How many nodes are directly below the node."""
        return int(_INT(self, 56)[0])


@value
class Node:
    """One node as it was read."""

    spelled: bytes
    """The node's data, and after it its stat.  A tree keeps only this, which the garbage collector need not visit."""

    @classmethod
    def of(cls, data: bytes, stat: bytes) -> Node:
        """Return the node with these data and this stat."""
        return cls(data + stat)

    @property
    def data(self) -> bytes:
        """The node's data."""
        return self.spelled[: -Stat.SIZE]

    @property
    def text(self) -> str:
        """The data as text.  Bytes that are not UTF-8, which somebody may have written by hand, are replaced."""
        return self.data.decode("utf-8", "replace")

    @property
    def stat(self) -> Stat:
        """What else the registry knows about the node."""
        return Stat(self.spelled[-Stat.SIZE :])


UNREAD_NODE: Final = Node.of(b"", Stat.of((0, 0), (0.0, 0.0), -1))
"""A node that is known to exist and has not been read; its version -1 matches any version in a condition."""


class Tree:
    """Nodes by path.  Two trees with the same nodes are equal, even if they were read at different times (``zxid``)."""

    __slots__ = ("_derived", "_names", "_nodes", "_touch", "zxid")

    def __init__(self, nodes: Mapping[str, Node] | None = None, zxid: int = 0) -> None:
        self._nodes = {path: node.spelled for path, node in (nodes or {}).items()}
        self._names: dict[str, tuple[str, ...]] | None = None  # children by parent, built at the first use
        self._derived: tuple[Any, tuple[str, ...]] | None = None  # of an older tree, and the paths changed since then
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
        spelled = self._nodes.get(path)
        return None if spelled is None else Node(spelled)

    def missing(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Return those of some paths at which there is no node."""
        return tuple(path for path in paths if path not in self._nodes)

    def children(self, path: str) -> tuple[str, ...]:
        """Return the sorted names directly below ``path``, which itself need not be in the tree."""
        if self._names is None:
            self._names = _index(self._nodes)
        return self._names.get(path, ())

    def below(self, path: str) -> Tree:
        """Return the tree of ``path`` and everything below it, under the same full paths."""
        return Tree(dict(self.walk(path)), self.zxid)

    def walk(self, path: str) -> Iterator[tuple[str, Node]]:
        """Yield the node at ``path`` and everything below it, each after those above it."""
        waiting = [path]
        while waiting:
            here = waiting.pop()
            if (node := self.get(here)) is not None:
                yield here, node
            prefix = prefix_below(here)
            waiting.extend(prefix + name for name in self.children(here))

    def replace(self, changes: Mapping[str, Node | None], zxid: int) -> Tree:
        """Return the tree with ``changes`` made to it; None removes a node."""
        tree = Tree(zxid=zxid)
        tree._nodes = self._nodes.copy()
        tree._touch = self._touch
        reshaped = list[str]()
        for path, node in changes.items():
            if (node is None) is (path in tree._nodes):
                reshaped.append(path)
            if node is None:
                tree._nodes.pop(path, None)
            else:
                tree._nodes[path] = node.spelled
        if self._names is None or not reshaped:  # in most cases only data has changed: then both trees share the index
            tree._names = self._names
        else:
            tree._names = _reindexed(self._names, reshaped, tree._nodes)
        if self._derived is not None:
            before, changed = self._derived
            if len(changed) + len(changes) <= MAX_CHANGES + len(tree._nodes):
                tree._derived = before, (*changed, *changes)
        return tree

    def derive(self, made: Callable[[Tree, T, Collection[str]], T], nothing: T) -> T:
        """Return what a pure function makes of this tree.  All calls for one tree and those after it name the same one.

        Besides the tree, the function gets what it has made of an older tree, and the paths that may have changed since
        then.  If there is no older one, it gets ``nothing``, which it makes of an empty tree, and all paths.  So its
        work depends on how much has changed, not on how much there is.
        """
        before, changed = self._derived or (nothing, tuple(self._nodes))
        now: T = before
        if changed:
            now = made(self, before, changed)
        self._derived = now, ()
        return now

    def __contains__(self, path: object) -> bool:
        return path in self._nodes

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._nodes))

    def __len__(self) -> int:
        return len(self._nodes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tree):
            return NotImplemented
        return self._nodes == other._nodes

    __hash__ = None  # type: ignore[assignment]  # compared by content, too large to hash

    def __repr__(self) -> str:
        return f"Tree({len(self)} nodes, zxid={self.zxid:#x})"


def parent(path: str) -> str:
    """Return the path one level up; the root is its own parent."""
    return path.rpartition("/")[0] or "/"


def prefix_below(path: str) -> str:
    """Return how all paths below a path begin; that of the root already ends with a slash."""
    return path if path.endswith("/") else path + "/"


def changed_below(path: str, changed: Iterable[str]) -> frozenset[str]:
    """Return the names of the nodes directly below a path at or below which there are paths that have changed."""
    prefix = prefix_below(path)
    return frozenset(one[len(prefix) :].partition("/")[0] for one in changed if one.startswith(prefix))


def _index(nodes: Iterable[str]) -> dict[str, tuple[str, ...]]:
    names: dict[str, list[str]] = {}
    for path in nodes:
        above, _, name = path.rpartition("/")
        if name:
            insort(names.setdefault(above or "/", []), intern(name))  # thousands of jobs have the same names
    return {above: tuple(sorted_names) for above, sorted_names in names.items()}


def _reindexed(
    names: Mapping[str, tuple[str, ...]], reshaped: Iterable[str], nodes: Collection[str]
) -> dict[str, tuple[str, ...]]:
    """Return an index after nodes were made or removed; ``nodes`` are the paths that there are now."""
    found = dict(names)
    touched = dict[str, list[str]]()
    for path in reshaped:
        above, _, name = path.rpartition("/")
        if not name:
            continue
        above = above or "/"
        if above not in touched:
            touched[above] = list(names.get(above, ()))
        beside = touched[above]
        if path in nodes:
            insort(beside, intern(name))
        else:
            del beside[bisect_left(beside, name)]
    for above, beside in touched.items():
        if beside:
            found[above] = tuple(beside)
        else:
            found.pop(above, None)
    return found
