"""Quotas: the two numbers kept for a subtree under /zookeeper/quota.  They are counted, not enforced."""

from collections.abc import Mapping

ROOT = "/zookeeper/quota"
LIMITS = "zookeeper_limits"
STATS = "zookeeper_stats"


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
