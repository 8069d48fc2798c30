"""Watches: which watcher is told of changes below which path."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias

Roots: TypeAlias = Mapping[str, bool]
"""Paths to watch, and whether a shallow watch is enough."""


class Watcher(Protocol):
    """An object that is told of changes.  Its methods are called between two rounds of the event loop, so they may
    only take notes.

    A shallow watcher of a root is told of CHILDREN there, and needs nothing from below.  The registry keeps one watch
    for each path and connection, so a shallow watcher may be told of more when another watcher watches the same root,
    and that other one of CHILDREN.
    """

    def changed(self, kind: int, path: str) -> None:
        """Note that something happened at ``path``: CREATED, DELETED, CHANGED, or CHILDREN (some have come or gone)."""

    def reset(self) -> None:
        """Note that anything may have changed: there is a new connection, or the session was closed."""


class Watches:
    """Watchers by root.  An event finds its watchers by one look-up for each level of its path."""

    def __init__(self) -> None:
        self._watchers: dict[str, Mapping[Watcher, bool]] = {}  # by root, and whether shallowly; roots share mappings

    @property
    def roots(self) -> Sequence[str]:
        """All watched roots."""
        return tuple(self._watchers)

    def shallow(self, root: str) -> bool | None:
        """Return whether a shallow watch of ``root`` is enough for all its watchers; None if it has no watchers."""
        watchers = self._watchers.get(root)
        if watchers is None:
            return None
        return all(watchers.values())

    def add(self, roots: Roots, watcher: Watcher) -> list[str]:
        """Add a watcher; return the roots for which the registry has to be asked for another watch than before."""
        alone = {True: {watcher: True}, False: {watcher: False}}
        changed = []
        for root, shallow in roots.items():
            before = self.shallow(root)
            if root in self._watchers:
                self._watchers[root] = {**self._watchers[root], watcher: shallow}
            else:
                self._watchers[root] = alone[shallow]  # one mapping for thousands of roots
            if self.shallow(root) is not before:
                changed.append(root)
        return changed

    def remove(self, roots: Iterable[str], watcher: Watcher) -> list[str]:
        """Remove a watcher; return the roots for which the registry has to be asked for another watch, or for none."""
        changed = []
        for root in roots:
            before = self.shallow(root)
            left = {**self._watchers.pop(root, {})}
            left.pop(watcher, None)
            if left:
                self._watchers[root] = left
            if self.shallow(root) is not before:
                changed.append(root)
        return changed

    def dispatch(self, kind: int, path: str) -> None:
        """Tell the watchers whose root is ``path`` or an ancestor of it."""
        root = path
        while True:
            for watcher in self._watchers.get(root, ()):
                watcher.changed(kind, path)
            if root == "/":
                return
            root = root.rpartition("/")[0] or "/"

    def reset(self) -> None:
        """Tell all watchers that anything may have changed."""
        told = dict[Watcher, None]()  # a set that keeps its order, so simulations repeat
        for watchers in self._watchers.values():
            told |= dict.fromkeys(watchers)
        for watcher in told:
            watcher.reset()
