"""The records and marks of an instance's items, as the instance has read or written them last.

They are read once for each assignment and not for each fire.  If one is outdated, the claim meets a conflict, and then
it is read again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import TypeAlias

from aioelasticjob.core import records
from aioelasticjob.core.effects import parts
from aioelasticjob.core.layout import ItemPaths
from aioelasticjob.core.nodes import items_named
from aioelasticjob.engine.member import Member, is_made_by_hand
from aioelasticjob.logging import logger
from aioelasticjob.model import Record, VersionedRecord
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.tree import Node, Stat

MAX_FUTURE = 60_000
"""How far in the future a record's moment may lie, in milliseconds.  A later one would keep its item from running."""
ITEMS_PER_READ = 2_000
"""How many items are looked up together.  The event loop goes on between two reads of a job with more items."""

ItemRead: TypeAlias = tuple[int, ItemPaths, Node | None, Node | None, Node | None]
"""An item, its paths, and the nodes of its record, its mark and its lock."""

log = logger(__name__)


@dataclass(frozen=True, slots=True)
class MissedMark:
    """Which missed moments of an item have been reported, in ms since the epoch, and the state of the mark's node."""

    until: int = 0
    """The last moment reported."""
    since: int | None = None
    """All moments later than this one and up to ``until`` were run or reported, also those before the item was made."""
    version: int | None = field(default=None, compare=False)
    """The version of the mark's node; None if there is none, or if it was made for operators and not read since."""
    removable: bool = field(default=False, compare=False)
    """Whether there is a node that the next claim removes: not one below which somebody has made nodes by hand."""
    zxid: int = field(default=0, compare=False)
    """The transaction that has written the node; 0 if the node was not read."""

    def covers(self, other: MissedMark) -> bool:
        """Whether this mark includes all moments of the other one."""
        if self.until < other.until:
            return False
        return other.since is None or (self.since is not None and self.since <= other.since)

    def joined(self, other: MissedMark) -> MissedMark:
        """Return a mark that includes the moments of both, and has the node of the other one.

        The caller knows that the spans of the two follow each other without a gap.
        """
        known = [since for since in (self.since, other.since) if since is not None]
        return replace(other, until=max(self.until, other.until), since=min(known, default=None))

    def encode(self) -> bytes:
        """Return the data of the mark's node."""
        return (f"{self.until}" if self.since is None else f"{self.until} {self.since}").encode()


NO_MARK = MissedMark()


@dataclass(slots=True)
class Entry:
    """The nodes of one item, as this instance has read or written them last."""

    seen: VersionedRecord | None = None
    """The record and its version; None until it has been read."""
    stat: Stat | None = None
    """The metadata of the record's node: when it was written, and by which transaction."""
    lowered: Record | None = None
    """The record that is used in place of one whose moment lies too far in the future."""
    mark: MissedMark = NO_MARK
    """The item's mark of reported missed moments; a claim removes its node, but what it said is kept here."""
    locked: bool = False
    """Whether this instance's own session held the item's lock when the record was read."""
    blocked: bool = False
    """Whether somebody had made the item's lock by hand when the record was read."""
    given_back: int = 0
    """The moment that another instance has claimed and given back without a run; 0 if there is none."""
    given_away: VersionedRecord | None = None
    """The record when the item was given away; None if the item is here, or its run had ended then."""
    executing: bool = False
    """Whether this instance has claimed the item and not settled it yet, so that its lock is needed."""
    rescuing: bool = False
    """Whether the run is a rescue.  Then the settlement removes its mark as well."""
    has_offset: bool = False
    """Whether the item had an offset when that was read or written last."""
    may_have_offset: bool = False
    """Whether the item has an offset, or may have one because its run was cut off while its handler saved one."""

    @property
    def record(self) -> Record:
        """The record of the item's newest run.  It must have been read before."""
        assert self.seen is not None
        return self.seen.record

    @property
    def version(self) -> int | None:
        """The version of the item's record, which must have been read before; None if the item had no record."""
        assert self.seen is not None
        return self.seen.version

    @property
    def fence(self) -> int:
        """The fence of the item's newest run, unless the run has ended: then a later transaction."""
        return 0 if self.seen is None else self.seen.zxid

    def learn(self, seen: VersionedRecord) -> None:
        """Note the record as it was read; if a claim has been given back since it was read before, note its moment."""
        before, self.given_away = self.given_away if self.seen is None else self.seen, None
        self.seen = seen
        if before is not None and records.is_cut_off(before.record) and seen.record.slot < before.record.slot:
            is_same_node = self.stat is not None and seen.version is not None and self.stat.czxid <= before.zxid
            if is_same_node and not records.open_moment(seen.record):
                self.given_back = before.record.slot

    @property
    def moment(self) -> int:
        """The moment of the item's newest run, in ms since the epoch, also if its record was lowered."""
        return self.moment_of(self.record)

    def moment_of(self, record: Record) -> int:
        """Return the moment of a run of the item, in ms since the epoch, also if the run's record was lowered."""
        lowered = self.lowered
        as_lowered = lowered is not None and (record.slot, record.ahead) == (lowered.slot, lowered.ahead)
        return record.ahead if as_lowered and not record.asked else record.moment

    def forget(self) -> None:
        """Forget the nodes, because another instance writes the record now."""
        if self.seen is not None:
            self.given_away = self.seen if records.is_cut_off(self.record) else None
        self.seen = self.stat = self.lowered = None
        self.mark, self.given_back, self.locked, self.blocked = NO_MARK, 0, False, False

    def lower(self, slot: int) -> None:
        """Treat the item as claimed up to an earlier moment than its record says, until the next claim.

        The moment that the record claims is remembered (``ahead``): it was run early, and is not run again.
        """
        assert self.seen is not None
        self.lowered = replace(self.record, slot=slot, ahead=self.record.slot)
        self.seen = replace(self.seen, record=self.lowered)

    def assume(self, slot: int) -> VersionedRecord:
        """Treat the item as claimed up to a moment, without a request to the registry: the job keeps no records."""
        self.seen = VersionedRecord(Record(slot=slot), None)
        return self.seen

    def claimed(self, *, rescue: bool) -> None:
        """Note that this instance has claimed the item, and so has removed its mark if that can be removed."""
        self.rescuing = self.rescuing or rescue
        if self.mark.removable:
            self.mark = replace(self.mark, version=None, removable=False)

    def written_after(self, zxid: int) -> float:
        """Return when the record was written, in milliseconds, if that was after a transaction; otherwise infinity.

        The registry's clock may have been ahead then.  If the record's node was also made after the transaction, the
        claim in it was made after it, too.  The instance that claimed has dated that claim by its own clock, so the
        earlier of the two dates counts.
        """
        if self.stat is None or self.stat.mzxid <= zxid:
            return inf
        claimed = self.record.begun if self.stat.czxid > zxid else 0
        return min(self.stat.mtime * 1000, claimed or inf)


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
