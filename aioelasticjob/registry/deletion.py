"""DeletionWatcher: notes that a node may have been deleted, for a task that waits for that."""

from __future__ import annotations

import asyncio

from aioelasticjob.registry.codec import DELETED


class DeletionWatcher:
    """A watcher that waits until one node may have been deleted."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.deleted = False
        self.news = asyncio.Event()

    def changed(self, kind: int, path: str) -> None:
        """Note whether the node was deleted."""
        if kind == DELETED and path == self.path:
            self.deleted = True
            self.news.set()

    def reset(self) -> None:
        """Note that the node may have been deleted while there was no connection."""
        self.news.set()
