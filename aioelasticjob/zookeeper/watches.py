"""The watches: one table for data and existence, one for children, kept as the reference server keeps them."""

from collections.abc import Hashable, Iterator, Sequence
from enum import IntEnum
from typing import Generic, TypeVar

from aioelasticjob.zookeeper.codes import ErrorCode, EventType, RequestError
from aioelasticjob.zookeeper.datatree import DataTree, TreeEvent
from aioelasticjob.zookeeper.messages import SetWatches

W = TypeVar("W", bound=Hashable)


class Mode(IntEnum):
    """How long a watch lasts and how far it reaches; the first two numbers are addWatch's."""

    PERSISTENT = 0
    RECURSIVE = 1
    STANDARD = 2


class WatchTable(Generic[W]):
    """Watchers by path and paths by watcher.

    One watcher has one mode per path, the last one asked for: a read with a watch turns a persistent watch on the
    same path into a one-time watch.  That is ZooKeeper 3.8 (repaired in 3.9, ZOOKEEPER-4466).
    """

    def __init__(self) -> None:
        self.by_path: dict[str, dict[W, Mode]] = {}
        self.by_watcher: dict[W, dict[str, None]] = {}
        self._recursive = 0

    def add(self, path: str, watcher: W, mode: Mode = Mode.STANDARD) -> None:
        """Let a watcher watch a path."""
        watchers = self.by_path.setdefault(path, {})
        if watchers.get(watcher) is Mode.RECURSIVE:
            self._recursive -= 1
        if mode is Mode.RECURSIVE:
            self._recursive += 1
        watchers[watcher] = mode
        self.by_watcher.setdefault(watcher, {})[path] = None

    def remove(self, path: str, watcher: W) -> bool:
        """Forget a watch; answers whether there was one."""
        watchers = self.by_path.get(path, {})
        mode = watchers.pop(watcher, None)
        if mode is None:
            return False
        if mode is Mode.RECURSIVE:
            self._recursive -= 1
        if not watchers:
            del self.by_path[path]
        paths = self.by_watcher[watcher]
        del paths[path]
        if not paths:
            del self.by_watcher[watcher]
        return True

    def forget(self, watcher: W) -> None:
        """Forget all watches of a watcher."""
        for path in list(self.by_watcher.get(watcher, ())):
            self.remove(path, watcher)

    def trigger(self, path: str, kind: EventType) -> dict[W, None]:
        """Return the watchers of a change, and drop their one-time watches."""
        heard: dict[W, None] = {}
        for watcher, mode in list(self.by_path.get(path, {}).items()):
            if mode is not Mode.RECURSIVE or kind is not EventType.CHILDREN_CHANGED:
                heard[watcher] = None
            if mode is Mode.STANDARD:
                self.remove(path, watcher)
        if self._recursive and kind is not EventType.CHILDREN_CHANGED:
            for above in _parents(path):
                for watcher, mode in self.by_path.get(above, {}).items():
                    if mode is Mode.RECURSIVE:
                        heard[watcher] = None
        return heard

    def __len__(self) -> int:
        return sum(map(len, self.by_path.values()))


class Watches(Generic[W]):
    """Both tables, and the rules which of them a request or a change concerns."""

    def __init__(self) -> None:
        self.data: WatchTable[W] = WatchTable()
        self.child: WatchTable[W] = WatchTable()

    def add(self, path: str, watcher: W, mode: int) -> None:
        """Answer addWatch: both tables hear of it.

        Raises: RequestError for an unknown mode.
        """
        if mode not in (Mode.PERSISTENT, Mode.RECURSIVE):
            raise RequestError(ErrorCode.MARSHALLING_ERROR)
        self.data.add(path, watcher, Mode(mode))
        self.child.add(path, watcher, Mode(mode))

    def remove(self, path: str | None, watcher: W, kind: int) -> None:
        """Answer removeWatches.

        Raises: RequestError with NO_WATCHER.
        """
        tables = self._tables(kind)
        if path is None:
            raise RequestError(ErrorCode.NO_WATCHER)
        removed = [table.remove(path, watcher) for table in tables]
        if not any(removed):
            raise RequestError(ErrorCode.NO_WATCHER)

    def check(self, path: str, kind: int) -> None:
        """Answer checkWatches, which 3.8 answers with yes as soon as anybody watches the path.

        Raises: RequestError with NO_WATCHER.
        """
        tables = self._tables(kind)
        if not any(path in table.by_path for table in tables):
            raise RequestError(ErrorCode.NO_WATCHER)

    def forget(self, watcher: W) -> None:
        """Forget a connection that ended."""
        self.data.forget(watcher)
        self.child.forget(watcher)

    def heard_by(self, event: TreeEvent) -> dict[W, None]:
        """Return all watchers of a change, each once."""
        path, kind, _ = event
        if not self.data.by_path and not self.child.by_path:
            return {}
        if kind is EventType.CHILDREN_CHANGED:
            return self.child.trigger(path, kind)
        heard = self.data.trigger(path, kind)
        if kind is EventType.DELETED:
            heard.update(self.child.trigger(path, kind))
        return heard

    def restore(self, wanted: SetWatches, watcher: W, tree: DataTree) -> Iterator[tuple[EventType, str]]:
        """Set the watches of a client that has reconnected; yield the missed events in place of those watches."""
        for path in wanted.data:
            node = tree.nodes.get(path)
            if node is None:
                yield EventType.DELETED, path
            elif node.mzxid > wanted.zxid:
                yield EventType.DATA_CHANGED, path
            else:
                self.data.add(path, watcher)
        for path in wanted.exist:
            if path in tree.nodes:
                yield EventType.CREATED, path
            else:
                self.data.add(path, watcher)
        for path in wanted.child:
            node = tree.nodes.get(path)
            if node is None:
                yield EventType.DELETED, path
            elif node.pzxid > wanted.zxid:
                yield EventType.CHILDREN_CHANGED, path
            else:
                self.child.add(path, watcher)
        for path in wanted.persistent:
            self.add(path, watcher, Mode.PERSISTENT)
        for path in wanted.recursive:
            self.add(path, watcher, Mode.RECURSIVE)

    def _tables(self, kind: int) -> Sequence[WatchTable[W]]:
        """Name the tables a kind of watcher (1 children, 2 data, 3 any) is in."""
        match kind:
            case 1:
                return (self.child,)
            case 2:
                return (self.data,)
            case 3:
                return (self.child, self.data)
        raise RequestError(ErrorCode.MARSHALLING_ERROR)


def _parents(path: str) -> Iterator[str]:
    while len(path) > 1:
        path = path[: path.rfind("/")] or "/"
        yield path
