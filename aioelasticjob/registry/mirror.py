"""Mirror: a part of the registry as a stream of trees, each newer than the one before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from aioelasticjob.errors import Suspended
from aioelasticjob.latest import Latest
from aioelasticjob.registry.codec import CHANGED
from aioelasticjob.registry.session import Session, beside
from aioelasticjob.registry.tree import Tree, parent

MOST_ROUNDS: Final = 50  # of reading without showing anything, when ever more nodes change


@asynccontextmanager
async def mirror(session: Session, roots: Sequence[str]) -> AsyncIterator[Latest[Tree]]:
    """Follow everything at and below ``roots``, which need not exist; the first tree is whole.

    A tree shows a transaction entirely or not at all, and ``zxid`` says up to where it shows all of them.

    Raises: NotPermitted, SessionEnded when the session is closed first.
    """
    follower = _Follower(session, roots)
    with session.watching(follower.roots, follower):  # before the first read, or changes between the two would be lost
        await follower.catch_up()
        async with beside(follower.follow):
            yield follower.trees


class _Follower:
    """Notes what has changed, and reads it again.

    Events are hints: they say where to look, never what is there.  All that came in one breath are read in one request.
    """

    def __init__(self, session: Session, roots: Sequence[str]) -> None:
        self.roots = tuple(root for root in dict.fromkeys(roots) if not any(_below(root, other) for other in roots))
        self.trees = Latest(Tree())
        self._session = session
        self._dirty: dict[str, None] = {}
        self._stale = True  # all of it
        self._news = asyncio.Event()

    def changed(self, kind: int, path: str) -> None:
        """Note that ``path`` has to be read again, and its parent when that has gained or lost a child."""
        self._dirty[path] = None
        if kind != CHANGED and path not in self.roots:
            self._dirty[parent(path)] = None
        self._news.set()

    def reset(self) -> None:
        """Note that everything has to be read again: a new connection does not replay what was missed."""
        self._stale = True
        self._news.set()

    async def follow(self) -> None:
        """Keep up until cancelled."""
        while True:
            await self._news.wait()
            await self.catch_up()

    async def catch_up(self) -> None:
        """Read until the tree is one that was true at one moment, then show it.

        An event comes before any reply that is newer.  So a reply tells everything up to its own zxid about the nodes
        it is about, and all others are as they were unless noted since.  What has been noted is therefore read
        together with all that was read before, until the notes that came meanwhile are about these nodes alone: they
        are newer than the tree, and wait for the next one.
        """
        self._news.clear()
        tree, complete, rounds, read = self.trees.value, 0, 0, dict[str, None]()
        while (self._stale or not self._dirty.keys() <= read.keys()) and rounds < MOST_ROUNDS:
            complete = self._session.zxid
            try:
                if self._stale:
                    self._stale, self._dirty, read = False, {}, {}
                    tree = await self._session.subtree(self.roots)
                else:
                    read |= self._dirty
                    self._dirty = {}
                    tree = tree.replace(dict(zip(read, await self._session.get_many(tuple(read)), strict=True)), 0)
            except Suspended:
                self._stale = True
                await self._session.connected()
            else:
                rounds += 1
        if not self._stale and not self._dirty:  # everything seen so far is in the tree
            complete = self._session.zxid
        self.trees.set(tree.replace({}, complete))


def _below(path: str, root: str) -> bool:
    return path != root and path.startswith(root if root.endswith("/") else root + "/")
