"""The records and marks of an instance's items, as the instance has read or written them last.

They are read once for each assignment and not for each fire.  If one is outdated, the claim meets a conflict, and then
it is read again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from aioelasticjob.core import records
from aioelasticjob.core.effects import parts
from aioelasticjob.core.entries import MAX_FUTURE, NO_MARK, Entry, MissedMark
from aioelasticjob.core.instances import is_made_by_hand
from aioelasticjob.core.layout import ItemPaths
from aioelasticjob.core.nodes import items_named
from aioelasticjob.engine.member import Member
from aioelasticjob.logging import logger
from aioelasticjob.model import Record, VersionedRecord
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.tree import Node, Stat

ITEMS_PER_READ = 2_000
"""How many items are looked up together.  The event loop goes on between two reads of a job with more items."""

ItemRead: TypeAlias = tuple[int, ItemPaths, Node | None, Node | None, Node | None]
"""An item, its paths, and the nodes of its record, its mark and its lock."""

log = logger(__name__)


class RecordCache:
    """Reads and keeps the records of items.  It writes nothing to the registry."""

    def __init__(
        self,
        member: Member,
        believable: Callable[[], float] = lambda: 0,
        items: Mapping[int, Entry] | None = None,
    ) -> None:
        self._member, self._believable = member, believable
        self.items: Mapping[int, Entry] = defaultdict(Entry) if items is None else items
        """The entry of each item.  Reading the entry of a new item makes it."""
        self._warned: dict[str, int] = {}

    async def learn(self, items: Collection[int]) -> frozenset[int]:
        """Read the records, marks and locks of items; return those that an instance runs at present."""
        running = set[int]()
        for part in parts(sorted(items), ITEMS_PER_READ):
            running |= await self._learn_some(part)
        return frozenset(running)

    async def _learn_some(self, chosen: Sequence[int]) -> set[int]:
        running = set[int]()
        for item, paths, record, mark, runner in await read_items(self._member, chosen):
            entry = self.items[item]
            entry.learn(VersionedRecord(Record(), None) if record is None else self._understood(item, record))
            entry.mark = NO_MARK if mark is None else _decoded(mark)
            entry.locked = self._member.owns(runner)
            entry.blocked = runner is not None and is_made_by_hand(runner)
            if runner is not None:
                running.add(item)
                if entry.blocked:
                    why = "was made by hand, so the item does not run until this node is removed"
                    self.warn(paths.running, runner.stat.mzxid, why)
        return running

    def warn(self, path: str, mzxid: int, why: str) -> None:
        """Log what is wrong with a node, once for each write of the node."""
        if self._warned.get(path) != mzxid:
            self._warned[path] = mzxid
            if self._member.admits(log, "nodes of items are wrong"):
                log.warning("%s: %s", path, why, extra={"job": self._member.layout.job})

    def _understood(self, item: int, node: Node) -> VersionedRecord:
        """Return the record in a node.

        If somebody wrote nonsense there, and this instance knows the record that the nonsense has replaced, that record
        holds.  Otherwise a claim at the time of that write is assumed, because nobody knows which moments were claimed.
        A run that was begun while a clock was far ahead, and was cut off, keeps its moment: the leader has it rescued.
        """
        entry, record, written = self.items[item], records.decode(node.data), int(node.stat.mtime * 1000)
        entry.stat, lowered, replaced = node.stat, entry.lowered, entry.seen
        if record is not None and lowered is not None and record.slot == lowered.ahead:
            record = replace(record, slot=lowered.slot, ahead=lowered.ahead)
        if record is None or record.slot > max(written, self._believable()) + MAX_FUTURE:  # or a clock was set back
            path = self._member.layout.item(item).execution
            self.warn(path, node.stat.mzxid, "is not the record of a run, so the next run replaces it")
            if record is None and replaced is not None and _follows(node.stat, replaced):
                record = replaced.record
            elif record is not None and records.is_cut_off(record):
                record = entry.lowered = replace(record, slot=written, ahead=record.slot)
            else:
                record = Record(slot=written, unknown="" if record is None else record.unknown)
        return VersionedRecord(record, node.stat.version, node.stat.mzxid)


async def items_below(session: Session, parent: str) -> list[int]:
    """Return the items that have a node below ``parent``; none if that is missing."""
    (names,) = await session.children_many([parent])
    return sorted(items_named(names or ()))


async def read_items(member: Member, items: Sequence[int]) -> Iterator[ItemRead]:
    """Read the record, the mark and the lock of items."""
    paths = [member.layout.item(item) for item in items]
    nodes = await member.session.get_many([path for one in paths for path in (one.execution, one.misfire, one.running)])
    return zip(items, paths, nodes[::3], nodes[1::3], nodes[2::3], strict=True)


async def cut_off_runs(member: Member, items: Sequence[int]) -> tuple[dict[int, VersionedRecord], set[str]]:
    """Read which runs of items were cut off; return them by item, and the instances that run other items."""
    paths = [path for item in map(member.layout.item, items) for path in (item.execution, item.running)]
    nodes = await member.session.get_many(paths)
    found, runners = dict[int, VersionedRecord](), set[str]()
    for item, node, lock in zip(items, nodes[::2], nodes[1::2], strict=True):
        record = None if node is None else records.decode(node.data)
        if lock is not None:
            runners.add(lock.text)
        elif node is not None and record is not None and records.is_cut_off(record):
            found[item] = VersionedRecord(record, node.stat.version, node.stat.mzxid)
    return found, runners


def _follows(stat: Stat, before: VersionedRecord) -> bool:
    """Whether a record's node was written at most once since then, and not removed and made again meanwhile."""
    same = before.version is not None and stat.czxid <= before.zxid
    return same and before.version in (stat.version, stat.version - 1)


def _decoded(node: Node) -> MissedMark:
    """Return the mark in a node; it says nothing if somebody has written something else there."""
    words, known = node.data.split(b" "), (node.stat.version, not node.stat.num_children, node.stat.mzxid)
    if len(words) > 2 or not all(word.isdigit() and len(word) < 16 for word in words):
        return MissedMark(0, None, *known)
    return MissedMark(int(words[0]), int(words[1]) if len(words) == 2 else None, *known)
