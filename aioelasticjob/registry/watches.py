"""Watches: who is to hear of changes below which path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Watcher(Protocol):
    """One who hears of changes.  Called from the loop between two rounds: to note down, not to work.

    Who watches a root shallowly hears of CHILDREN there, and of nothing below it.  He may hear of more, as others who
    watch there do, and they of his CHILDREN: a registry keeps one watch for each path and connection.
    """

    def changed(self, kind: int, path: str) -> None:
        """Something happened at ``path``: CREATED, DELETED, CHANGED, or CHILDREN have come or gone."""

    def reset(self) -> None:
        """Anything may have happened: the connection is a new one, or closed for good."""


class Watches:
    """Watchers by root.  An event finds its own by one look-up per level, however many there are."""

    def __init__(self) -> None:
        self._watchers: dict[str, dict[Watcher, bool]] = {}  # by root, and whether shallowly

    @property
    def roots(self) -> Sequence[str]:
        """All watched roots."""
        return tuple(self._watchers)

    def shallow(self, root: str) -> bool | None:
        """Whether a shallow watch of ``root`` will do for everybody; None if nobody needs any."""
        watchers = self._watchers.get(root)
        return None if watchers is None else all(watchers.values())

    def those(self, *, shallow: bool) -> Sequence[str]:
        """The roots for which a shallow watch will do, or will not."""
        return tuple(root for root in self._watchers if self.shallow(root) is shallow)

    def add(self, root: str, watcher: Watcher, *, shallow: bool = False) -> bool:
        """Add a watcher; say whether another watch is needed than before."""
        before = self.shallow(root)
        self._watchers.setdefault(root, {})[watcher] = shallow
        return self.shallow(root) is not before

    def remove(self, root: str, watcher: Watcher) -> bool:
        """Remove a watcher; say whether another watch is needed than before, or none."""
        before, watchers = self.shallow(root), self._watchers[root]
        watchers.pop(watcher, None)
        if not watchers:
            del self._watchers[root]
        return self.shallow(root) is not before

    def dispatch(self, kind: int, path: str) -> None:
        """Tell those whose root is ``path`` or above it."""
        root = path
        while True:
            for watcher in tuple(self._watchers.get(root, ())):
                watcher.changed(kind, path)
            if root == "/":
                return
            root = root.rpartition("/")[0] or "/"

    def reset(self) -> None:
        """Tell everybody to look anew."""
        for watcher in {watcher: None for watchers in self._watchers.values() for watcher in watchers}:
            watcher.reset()
