"""Mirror: a part of the registry as a stream of trees, each newer than the one before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence, Set
from contextlib import asynccontextmanager, closing
from typing import Final

from aioelasticjob.errors import Suspended
from aioelasticjob.latest import Latest
from aioelasticjob.registry.codec import CREATED, DELETED, chunked
from aioelasticjob.registry.session import Session, beside
from aioelasticjob.registry.tree import UNREAD_NODE, Node, Tree, parent

MAX_READ_ROUNDS: Final = 50  # of reading without showing anything, when ever more nodes change


@asynccontextmanager
async def mirror(
    session: Session, roots: Collection[str], *, shallow: Collection[str] = ()
) -> AsyncIterator[Latest[Tree]]:
    """Follow everything at and below ``roots``, which need not exist; the first tree is whole.

    Of a ``shallow`` root the tree holds children, and of what is below these no more than that it is there (NAMED): no
    data that changes down there costs anything.

    A tree shows a transaction entirely or not at all, and ``zxid`` says up to where it shows all of them.

    Raises: NotPermitted, SessionEnded when the session is closed first.
    """
    news = asyncio.Event()
    with closing(Follower(session, roots, shallow, news.set)) as follower:

        async def follow() -> None:
            while True:
                await news.wait()
                news.clear()
                await follower.catch_up()

        await follower.catch_up()
        async with beside(follow):
            yield follower.trees


class Follower:
    """Notes what has changed, calls ``news``, and reads it again when told to catch up.

    Events are hints: they say where to look, never what is there.  All that came in one breath are read in one request.
    """

    def __init__(
        self, session: Session, roots: Collection[str], shallow: Collection[str], news: Callable[[], None]
    ) -> None:
        deep = [root for root in dict.fromkeys(roots) if root not in shallow]
        self._roots = tuple(root for root in deep if not any(_below(root, other) for other in deep))
        self._shallow = tuple(root for root in dict.fromkeys(shallow) if not self._is_below(root))
        self.trees = Latest(Tree())
        self._session = session
        self._watched = set[str]()
        self._dirty: dict[str, None] = {}
        self._stale = True  # all of it
        self._news = news
        for root in (*self._roots, *self._shallow):  # before the first read, or changes between the two would be lost
            self._watch(root)

    def close(self) -> None:
        """Watch no more."""
        for path in tuple(self._watched):
            self._unwatch(path)

    def changed(self, kind: int, path: str) -> None:
        """Note that ``path`` has to be read again, and its parent when that has gained or lost a child."""
        touched = (path, parent(path)) if kind in (CREATED, DELETED) else (path,)
        if noted := [one for one in touched if self._is_read(one)]:
            self._dirty |= dict.fromkeys(noted)
            self._news()

    def reset(self) -> None:
        """Note that everything has to be read again: a new connection does not replay what was missed."""
        self._stale = True
        self.trees.value.mark_outdated()
        self._news()

    @property
    def is_behind(self) -> bool:
        """Whether something has changed that has not been read."""
        return self._stale or bool(self._dirty)

    async def catch_up(self) -> None:
        """Read until the tree is one that was true at one moment, then show it.

        An event comes before any reply that is newer.  So a reply tells everything up to its own zxid about the nodes
        it is about, and all others are as they were unless noted since.  What has been noted is therefore read
        together with all that was read before, until the notes that came meanwhile are about these nodes alone: they
        are newer than the tree, and wait for the next one.  (Several replies are of several moments: then until there
        are no notes.)
        """
        tree, complete, rounds, read = self.trees.value, 0, 0, dict[str, None]()
        while (self._stale or not self._dirty.keys() <= _at_once(read)) and rounds < MAX_READ_ROUNDS:
            complete = self._session.zxid
            try:
                if self._stale:
                    self._stale, self._dirty, read = False, dict.fromkeys(self._shallow), {}
                    tree = await self._session.subtree(self._roots)
                else:
                    read |= self._dirty
                    self._dirty = {}
                    tree = tree.replace(await self._read(tree, [path for path in read if self._is_read(path)]), 0)
            except Suspended:
                self._stale = True
                await self._session.connected()
            else:
                rounds += 1
        if not self._stale and not self._dirty:  # everything seen so far is in the tree
            complete = self._session.zxid
        self.trees.set(tree.replace({}, complete))

    async def _read(self, tree: Tree, paths: Sequence[str]) -> dict[str, Node | None]:
        """Read nodes, and return what that changes in a tree; children that shallow roots have gained are noted."""
        if not any(map(self._is_shallow, paths)):
            return dict(zip(paths, await self._session.get_many(paths), strict=True))
        changes: dict[str, Node | None] = {}
        for path, (node, names) in (await self._session.list_many(sorted(paths))).items():
            if path in changes:  # its parent, which comes before it, says that it has gone
                continue
            changes[path] = node
            if self._is_shallow(path):
                children = {f"{path}/{name}" for name in names}
                gone = {f"{path}/{name}" for name in tree.children(path)} - children
                changes |= dict.fromkeys((below for child in gone for below in tree.below(child)), None)
                if path in self._shallow:
                    self._watch_children(path, children, tree)
                else:
                    changes |= dict.fromkeys(children, UNREAD_NODE)
        return changes

    def _watch_children(self, root: str, children: set[str], tree: Tree) -> None:
        """Watch the present children of a shallow root and no others; what is new has to be read under its watch."""
        for path in sorted(path for path in self._watched if parent(path) == root and path not in children):
            self._unwatch(path)
        for path in sorted(children - self._watched):
            self._watch(path)
        self._dirty |= dict.fromkeys(path for path in sorted(children) if path not in tree)

    def _watch(self, path: str) -> None:
        self._watched.add(path)
        self._session.watch(path, self, shallow=self._is_shallow(path))

    def _unwatch(self, path: str) -> None:
        self._watched.discard(path)
        self._session.unwatch(path, self)

    def _is_read(self, path: str) -> bool:
        return path in self._watched or self._is_below(path)

    def _is_below(self, path: str) -> bool:
        return any(path == root or _below(path, root) for root in self._roots)

    def _is_shallow(self, path: str) -> bool:
        return path in self._shallow or parent(path) in self._shallow


def _at_once(read: dict[str, None]) -> Set[str]:
    """Return the paths if they are read in one request."""
    return read.keys() if len(chunked(tuple(read))) < 2 else set()


def _below(path: str, root: str) -> bool:
    return path != root and path.startswith(root if root.endswith("/") else root + "/")
