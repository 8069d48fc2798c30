"""Watches: who is to hear of changes below which path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Watcher(Protocol):
    """One who hears of changes.  Called from the loop between two rounds: to note down, not to work."""

    def changed(self, kind: int, path: str) -> None:
        """Something happened at ``path``: CREATED, DELETED or CHANGED."""

    def reset(self) -> None:
        """Anything may have happened: the connection is a new one, or closed for good."""


class Watches:
    """Watchers by root.  An event finds its own by one look-up per level, however many there are."""

    def __init__(self) -> None:
        self._watchers: dict[str, dict[Watcher, None]] = {}  # sets that keep their order

    @property
    def roots(self) -> Sequence[str]:
        """All watched roots."""
        return tuple(self._watchers)

    def add(self, root: str, watcher: Watcher) -> bool:
        """Add a watcher; say whether it is the first there."""
        first = root not in self._watchers
        self._watchers.setdefault(root, {})[watcher] = None
        return first

    def remove(self, root: str, watcher: Watcher) -> bool:
        """Remove a watcher; say whether it was the last there."""
        watchers = self._watchers[root]
        watchers.pop(watcher, None)
        if not watchers:
            del self._watchers[root]
        return not watchers

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
