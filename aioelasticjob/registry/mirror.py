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

MOST_ROUNDS: Final = 8  # of reading without showing anything, when changes never end


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
        """Read until there is nothing left to read, then show the result.

        An event comes before any reply that is newer, so everything up to ``session.zxid`` is noted by now.  If no note
        is left the tree is complete up to there; or else up to where the notes began that were read last.
        """
        self._news.clear()
        tree, rounds, complete = self.trees.value, 0, 0
        while rounds < MOST_ROUNDS and (self._stale or self._dirty):
            complete = self._session.zxid
            try:
                tree = await self._round(tree)
            except Suspended:
                self._stale = True
                await self._session.connected()
            else:
                rounds += 1
        if not self._stale and not self._dirty:
            complete = self._session.zxid
        self.trees.set(tree.replace({}, complete))

    async def _round(self, tree: Tree) -> Tree:
        dirty, self._dirty = tuple(self._dirty), {}
        if self._stale:
            self._stale = False
            return await self._session.subtree(self.roots)
        return tree.replace(dict(zip(dirty, await self._session.get_many(dirty), strict=True)), 0)


def _below(path: str, root: str) -> bool:
    return path != root and path.startswith(root if root.endswith("/") else root + "/")
