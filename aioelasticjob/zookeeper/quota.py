"""Quotas: the two numbers kept for a subtree under /zookeeper/quota.  They are counted, not enforced."""

from collections.abc import Mapping

from aioelasticjob.zookeeper.table import ZnodeTable
from aioelasticjob.zookeeper.znode import Contents, Znode

ROOT = "/zookeeper/quota"
LIMITS = "zookeeper_limits"
STATS = "zookeeper_stats"


class CountingTable(ZnodeTable):
    """A table that keeps the numbers of the subtrees with a quota."""

    def __init__(self, *, extended_types: bool = True) -> None:
        super().__init__(extended_types=extended_types)
        self._limited: dict[str, None] = {}

    def restore(self, path: str, node: Znode) -> None:
        """Put back a znode as it was stored, and with it the quota it may stand for."""
        super().restore(path, node)
        subject = limited_path(path)
        if subject is not None:
            self._limited[subject] = None

    def plant(self, path: str, node: Znode) -> None:
        """Add a znode and count it; a quota counts from the creation of its own znodes on."""
        super().plant(path, node)
        if path.startswith(ROOT):
            self._begin(path)
        self._count(path, 1, len(node.data or b""))

    def uproot(self, path: str, zxid: int) -> None:
        """Take a leaf away and count it off."""
        size = len(self.nodes[path].data or b"")
        super().uproot(path, zxid)
        subject = limited_path(path)
        if subject is not None and subject in self._limited:
            del self._limited[subject]
            if self.journal is not None:
                self.journal.append(lambda: self._limited.setdefault(subject))
        self._count(path, -1, -size)

    def fill(self, path: str, contents: Contents) -> None:
        """Replace the contents of a znode and count the difference."""
        before = len(self.nodes[path].data or b"")
        super().fill(path, contents)
        self._count(path, 0, len(contents.data or b"") - before)

    def _begin(self, path: str) -> None:
        limited = limited_path(path)
        measured = measured_path(path)
        if limited is not None:
            self._limited[limited] = None
            if self.journal is not None:
                self.journal.append(lambda: self._limited.pop(limited))
        if measured is not None and measured in self.nodes:
            paths = [measured, *self.below(measured)]
            size = sum(len(self.nodes[each].data or b"") for each in paths)
            self._note(path, write(len(paths), size))

    def _count(self, path: str, nodes: int, size: int) -> None:
        subject = covering(path, self._limited)
        if subject is None:
            return
        place = f"{ROOT}{subject}/{STATS}"
        if place in self.nodes:
            count, total = read(self.nodes[place].data)
            self._note(place, write(count + nodes, total + size))

    def _note(self, place: str, data: bytes) -> None:
        """Write the numbers as the reference server does: the data is other, all else stays."""
        super().fill(place, self.nodes[place].contents._replace(data=data))


def limited_path(path: str) -> str | None:
    """Name the subtree that a znode gives a quota, if it is of that kind."""
    return _subject(path, LIMITS)


def measured_path(path: str) -> str | None:
    """Name the subtree whose numbers a znode holds, if it is of that kind."""
    return _subject(path, STATS)


def _subject(path: str, name: str) -> str | None:
    parent, _, own = path.rpartition("/")
    if own != name or not parent.startswith(ROOT + "/"):
        return None
    return parent.removeprefix(ROOT)


def covering(path: str, limited: Mapping[str, None]) -> str | None:
    """Find the deepest subtree with a quota that a znode is in."""
    while limited and len(path) > 1:
        if path in limited:
            return path
        path = path[: path.rfind("/")]
    return None


def read(data: bytes | None) -> tuple[int, int]:
    """Read count and bytes from a stats znode; what is missing or broken counts -1 (StatsTrack)."""
    values = {"count": -1, "bytes": -1}
    text = (data or b"").decode("utf-8", "replace")
    for pair in text.replace(";", ",").split(","):
        key, _, value = pair.partition("=")
        if key in values:
            try:
                values[key] = int(value.strip("="))
            except ValueError:
                continue
    return values["count"], values["bytes"]


def write(count: int, size: int) -> bytes:
    """Write count and bytes as a stats znode holds them (StatsTrack)."""
    return b"count=%d,bytes=%d" % (count, size)
