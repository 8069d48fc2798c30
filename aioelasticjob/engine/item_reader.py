"""Reads the records and locks of items.  It writes nothing to the registry, and keeps nothing of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TypeAlias

from aioelasticjob.core import records
from aioelasticjob.core.effects import parts
from aioelasticjob.core.instances import is_made_by_hand
from aioelasticjob.core.items import Found, Lock
from aioelasticjob.core.layout import ItemPaths
from aioelasticjob.core.nodes import items_named
from aioelasticjob.engine.member import Member
from aioelasticjob.logging import logger
from aioelasticjob.model import Record, VersionedRecord
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.tree import Node

ITEMS_PER_READ = 2_000
"""How many items are looked up together.  The event loop goes on between two reads of a job with more items."""

ItemNodes: TypeAlias = tuple[int, ItemPaths, Node | None, Node | None]
"""An item, its paths, and the nodes of its record and its lock."""

log = logger(__name__)


class ItemReader:
    """Reads items for one instance of a job."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._warned: dict[str, int] = {}
        """For each node that was warned of, the transaction that had written it."""

    async def read(self, items: Collection[int]) -> dict[int, Found]:
        """Return the records and locks of items.

        Raises:
            Suspended: there is no connection.
            SessionEnded: the session was lost.
            RegistryError: the registry refuses it.
        """
        found = dict[int, Found]()
        for part in parts(sorted(items), ITEMS_PER_READ):
            for item, paths, record, lock in await read_items(self._member, part):
                found[item] = Found(self._understood(paths, record), self._lock(paths, lock))
        return found

    def warn(self, path: str, mzxid: int, why: str) -> None:
        """Log what is wrong with a node, once for each write of the node."""
        if self._warned.get(path) == mzxid:
            return
        self._warned[path] = mzxid
        if self._member.admits(log, "nodes of items are wrong"):
            log.warning("%s: %s", path, why, extra={"job": self._member.layout.job})

    def _lock(self, paths: ItemPaths, node: Node | None) -> Lock:
        if node is None:
            return Lock.FREE
        if self._member.owns(node):
            return Lock.OURS
        if is_made_by_hand(node):
            why = "was made by hand, so the item does not run until this node is removed"
            self.warn(paths.running, node.stat.mzxid, why)
            return Lock.BY_HAND
        return Lock.OTHERS

    def _understood(self, paths: ItemPaths, node: Node | None) -> VersionedRecord:
        """Return the record in a node.

        If somebody has written something else there, nobody knows what was claimed.  Then the item counts as accounted
        for up to the time of that write.
        """
        if node is None:
            return VersionedRecord(Record(), None)
        record = records.decode(node.data)
        if record is None:
            self.warn(paths.execution, node.stat.mzxid, "is not the record of a run, so the next run replaces it")
            record = Record(accounted=int(node.stat.mtime * 1000))
        return VersionedRecord(record, node.stat.version, node.stat.mzxid)


async def items_below(session: Session, parent: str) -> list[int]:
    """Return the items that have a node below ``parent``; none if that is missing."""
    (names,) = await session.children_many([parent])
    return sorted(items_named(names or ()))


async def read_items(member: Member, items: Sequence[int]) -> Iterator[ItemNodes]:
    """Read the nodes of items: their records and their locks."""
    paths = [member.layout.item(item) for item in items]
    wanted = list[str]()
    for one in paths:
        wanted += [one.execution, one.running]
    nodes = await member.session.get_many(wanted)
    return zip(items, paths, nodes[::2], nodes[1::2], strict=True)


async def cut_off_runs(member: Member, items: Sequence[int]) -> tuple[dict[int, VersionedRecord], set[str]]:
    """Read which runs of items were cut off; return them by item, and the instances that run other items."""
    found = dict[int, VersionedRecord]()
    runners = set[str]()
    for item, _, node, lock in await read_items(member, items):
        record = None if node is None else records.decode(node.data)
        if lock is not None:
            runners.add(lock.text)
        elif node is not None and record is not None and records.is_cut_off(record):
            found[item] = VersionedRecord(record, node.stat.version, node.stat.mzxid)
    return found, runners
