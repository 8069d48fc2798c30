"""Mirror: a part of the registry as a stream of trees, each newer than the one before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager, closing
from typing import Final, TypeVar

from aioelasticjob.errors import Suspended
from aioelasticjob.ground.latest import Latest
from aioelasticjob.registry.codec import CREATED, DELETED
from aioelasticjob.registry.session import Session, beside
from aioelasticjob.registry.tree import UNREAD_NODE, Node, Tree, parent, prefix_below

T = TypeVar("T")

MAX_SMALL_ROUNDS: Final = 20
"""After so many rounds of reading, while something changed in each, requests may be as large as the servers allow."""


@asynccontextmanager
async def mirror(
    session: Session, roots: Collection[str], *, shallow: Collection[str] = ()
) -> AsyncIterator[Latest[Tree]]:
    """Follow everything at and below ``roots``, which need not exist; the first tree is whole.

    Of a ``shallow`` root the tree holds the children; of the nodes below these it only knows that they exist
    (UNREAD_NODE), so a change of their data costs nothing.

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


@asynccontextmanager
async def follow_value(session: Session, root: str, read: Callable[[Tree], T]) -> AsyncIterator[AsyncIterator[T]]:
    """Follow what ``read`` makes of everything at and below ``root``: the present value comes first, then newer ones.

    Raises: NotPermitted, SessionEnded when the session is closed first.
    """
    async with mirror(session, [root]) as trees:
        yield (read(tree) async for tree in trees)


class Follower:
    """Notes what has changed, calls ``news``, and reads it again when told to catch up.

    Events are hints: they say where to look, never what is there.  The nodes of all events that came together are read
    in one request.
    """

    def __init__(
        self,
        session: Session,
        roots: Collection[str],
        shallow: Collection[str],
        news: Callable[[], None],
        expected: Collection[str] = (),
    ) -> None:
        deep = [root for root in dict.fromkeys(roots) if root not in shallow]
        self._first_roots = _outside(deep, deep)
        self._roots = self._first_roots
        self._shallow = _outside(dict.fromkeys(shallow), deep)
        self._below_shallow = tuple(map(prefix_below, self._shallow))
        self.trees = Latest(Tree())
        self.has_read = False
        """Whether ``trees`` shows what was read, and no longer the empty tree of the beginning."""
        self._session = session
        self._expected = expected
        """The children of shallow roots that are watched all the time, and so are read together with their parent."""
        self._children = dict.fromkeys(expected)
        """The children of shallow roots that are watched."""
        self._dirty: dict[str, None] = {}
        self._stale = True  # all of it
        self._news = news
        watched = dict.fromkeys(self._roots, False) | dict.fromkeys((*self._shallow, *expected), True)
        # before the first read, or changes between the two would be lost
        session.watch(watched, self)

    def follow_besides(self, roots: Collection[str]) -> None:
        """Follow these roots, which are outside of all others, besides those that were given first."""
        wanted = (*self._first_roots, *dict.fromkeys(roots))
        if wanted == self._roots:
            return
        gone = [root for root in self._roots if root not in wanted]
        new = [root for root in wanted if root not in self._roots]
        self._session.unwatch(gone, self)
        self._session.watch(dict.fromkeys(new, False), self)
        self._roots = wanted
        self._stale = True
        self._news()

    def close(self) -> None:
        """Watch no more."""
        self._session.unwatch((*self._roots, *self._shallow, *self._children), self)

    def changed(self, kind: int, path: str) -> None:
        """Note that ``path`` has to be read again, and its parent when that has gained or lost a child."""
        is_inside = path not in self._roots and path not in self._shallow
        touched = [path]
        if kind in (CREATED, DELETED) and is_inside:
            touched.append(parent(path))
        noted = [one for one in touched if self._is_read(one)]
        if noted:
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

        An event comes before any reply that is newer.  So a reply shows its nodes as they were at its own zxid, and
        every other node is unchanged unless an event has noted it.  So the tree is true at the moment of the last reply
        if all notes that came meanwhile are about the nodes of this reply: they are newer than the tree, and wait for
        the next round.  (After several replies, which are of several moments, there must be no notes at all.)

        From the third round on, nodes that were read before are read again as long as one request can do that.
        Otherwise changes that alternate between two nodes would keep the tree from being shown.  If they still go on,
        the request may be large, so that it reads thousands of nodes at one moment.  While even more nodes than that
        change in each round, no tree is shown: it would show half of a transaction.

        Raises:
            RegistryError: the registry refuses a read, or the session is over.  The next call reads everything again,
                as it does after a cancellation.
        """
        tree = self.trees.value
        complete = 0
        rounds = 0
        read = dict[str, None]()
        while self._stale or not self._dirty.keys() <= read.keys():
            complete = self._session.zxid
            large = rounds >= MAX_SMALL_ROUNDS
            try:
                if self._stale:
                    self._stale = False
                    self._dirty = {}
                    read = {}
                    tree = await self._session.subtree(self._roots, self._shallow)
                    self._note_children(tree)
                else:
                    noted = self._dirty
                    self._dirty = {}
                    paths = noted
                    if rounds > 1 and self._session.is_one_request(read | noted, large=large):
                        paths = read | noted
                    read = paths if self._session.is_one_request(paths, large=large) else {}
                    asked = [path for path in paths if self._is_read(path)]
                    changes = await self._read(tree, asked, large=large)
                    tree = tree.replace(changes, 0)
            except BaseException as error:  # what was noted is in no tree that anybody sees, also if this is cancelled
                self._stale = True
                if not isinstance(error, Suspended):
                    raise
                await self._session.connected()
            else:
                rounds += 1
        if not self._stale and not self._dirty:  # everything seen so far is in the tree
            complete = self._session.zxid
        self.has_read = True
        self.trees.set(tree.replace({}, complete))

    async def _read(self, tree: Tree, paths: Sequence[str], *, large: bool) -> dict[str, Node | None]:
        """Read nodes, and return what that changes in a tree; children that shallow roots have gained are noted."""
        listed = set(filter(self._is_shallow, paths))
        changes = dict[str, Node | None]()
        found = await self._session.list_many(sorted(paths), listed, large=large)
        for path, (node, names) in found.items():
            if path in changes:  # its parent, which comes before it, says that it has gone
                continue
            changes[path] = node
            if path not in listed:
                continue
            children = {f"{path}/{name}" for name in names}
            before = {f"{path}/{name}" for name in tree.children(path)}
            for child in before - children:
                changes |= dict.fromkeys(tree.below(child), None)
            if path in self._shallow:
                self._watch_children(path, children)
                unread = [child for child in sorted(children.difference(paths)) if child not in tree]
                self._dirty |= dict.fromkeys(unread)  # it has to be read under its watch
            else:
                changes |= dict.fromkeys(children, UNREAD_NODE)
        return changes

    def _note_children(self, tree: Tree) -> None:
        """Watch the children of the shallow roots, and note those that have to be read under their watches."""
        for root in self._shallow:
            children = {f"{root}/{name}" for name in tree.children(root)}
            self._watch_children(root, children)
            unread = [child for child in sorted(children) if tree.get(child) == UNREAD_NODE]
            self._dirty |= dict.fromkeys(unread)

    def _watch_children(self, root: str, children: set[str]) -> None:
        """Watch the present children of a shallow root, those that are expected, and no others."""
        before = self._children.keys()
        gone = {path for path in before - children if parent(path) == root and path not in self._expected}
        self._session.unwatch(sorted(gone), self)
        new = sorted(children - before)
        self._session.watch(dict.fromkeys(new, True), self)
        self._children = dict.fromkeys(sorted((before - gone) | children))

    def _is_read(self, path: str) -> bool:
        """Whether a path at or below a root is read: below a shallow root only its watched children are."""
        return path in self._children or not path.startswith(self._below_shallow)

    def _is_shallow(self, path: str) -> bool:
        return path in self._shallow or parent(path) in self._shallow


def _outside(roots: Iterable[str], deep: Collection[str]) -> tuple[str, ...]:
    """Return the roots that are not below another root, one that is followed to its depth anyway."""
    inside = tuple(map(prefix_below, deep))
    return tuple(root for root in roots if root == "/" or not root.startswith(inside))
