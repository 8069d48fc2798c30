"""Quotas: the two numbers kept for a subtree under /zookeeper/quota.  They are counted, not enforced."""

from collections.abc import Mapping

ROOT = "/zookeeper/quota"
LIMITS = "zookeeper_limits"
STATS = "zookeeper_stats"


def limited_path(parent: str) -> str | None:
    """Name the subtree a quota node below this parent is about, or none if it is about nothing."""
    return parent.removeprefix(ROOT) or None if parent.startswith(ROOT + "/") else None


def stats_path(path: str) -> str:
    """Name the znode that holds the numbers of a subtree."""
    return f"{ROOT}{path}/{STATS}"


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
    for pair in (data or b"").decode("utf-8", "replace").replace(";", ",").split(","):
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
