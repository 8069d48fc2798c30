"""What an instance knows of its items: their records as it read or wrote them, and the marks of refused fires.

Known once per assignment, not once per fire: a claim is refused where it is out of date, and then it is read again.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf

from aioelasticjob.coordination import records
from aioelasticjob.coordination.member import Member
from aioelasticjob.model import Record, VersionedRecord
from aioelasticjob.registry.tree import Node, Stat

MAX_FUTURE = 60_000
"""Milliseconds of the future that a record may claim; what claims more is lowered, for it would silence its item."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MissedMark:
    """What has been reported of an item's missed moments, in milliseconds since the epoch."""

    until: int = 0
    """The last moment reported."""
    since: int | None = None
    """Every moment later than this one and up to ``until`` was run or reported, also those before the item was made."""

    def covers(self, other: MissedMark) -> bool:
        """Whether all that the other mark says is known from this one."""
        if self.until < other.until:
            return False
        return other.since is None or (self.since is not None and self.since <= other.since)

    def joined(self, other: MissedMark) -> MissedMark:
        """Return what both say: the stretches that they speak of follow each other."""
        known = [since for since in (self.since, other.since) if since is not None]
        return MissedMark(max(self.until, other.until), min(known, default=None))

    def encode(self) -> bytes:
        """Return the data of the node."""
        return (f"{self.until}" if self.since is None else f"{self.until} {self.since}").encode()


NO_MARK = MissedMark()


@dataclass(slots=True)
class Entry:
    """What is known of one item from the registry, as it was read or written here last."""

    seen: VersionedRecord | None = None
    """The record and its version; None until it has been read."""
    stat: Stat | None = None
    """When the record had been written when it was read, and by which transaction."""
    lowered: Record | None = None
    """The record that is taken in place of one that claims too much of the future."""
    mark: MissedMark = NO_MARK
    """What the item's mark says has been reported."""
    mark_version: int | None = None
    """The mark's version, if there is one."""
    marked: bool = False
    """Whether the item bears a mark of what it missed, which the next claim removes."""
    stuck: bool = False
    """Whether the mark cannot be removed, because something was made beneath it by hand."""
    locked: bool = False
    """Whether our own session held the item's lock when its record was read."""
    withdrawn: int = 0
    """The moment that another instance had claimed, and has given back without a run; 0 if there is none."""
    executing: bool = False
    """Whether the item is claimed here and not settled yet: its lock is wanted."""
    rescuing: bool = False
    """Whether the run is a rescue, whose mark the settlement removes."""

    @property
    def record(self) -> Record:
        """What is known of the item's newest run; only if it has been read."""
        assert self.seen is not None
        return self.seen.record

    def forget(self) -> None:
        """Drop what was read: another instance writes the record now."""
        self.seen = self.stat = self.lowered = self.mark_version = None
        self.mark, self.withdrawn, self.marked, self.locked = NO_MARK, 0, False, False

    def lower(self, slot: int) -> None:
        """Take the item for claimed up to an earlier moment, whenever its present record is read, until the next claim.

        The moment that the record claims was run, early: it is not to be run again.
        """
        assert self.seen is not None
        self.lowered = replace(self.record, slot=slot, ahead=self.record.slot)
        self.seen = VersionedRecord(self.lowered, self.seen.version)

    def assume(self, slot: int) -> VersionedRecord:
        """Take the item for claimed up to a moment without asking the registry: the job keeps no records."""
        self.seen = VersionedRecord(Record(slot=slot), None)
        return self.seen

    def written_after(self, zxid: int) -> float:
        """Return when the record was written, in ms, as it was read, if that was after a transaction; else infinity."""
        return inf if self.stat is None or self.stat.mzxid <= zxid else self.stat.mtime * 1000


class RecordCache:
    """The items' records as far as they are known; it reads the registry, and writes nothing there."""

    def __init__(
        self,
        member: Member,
        believable: Callable[[], float] = lambda: 0,
        items: Mapping[int, Entry] | None = None,
    ) -> None:
        self._member, self._believable = member, believable
        self.items: Mapping[int, Entry] = defaultdict(Entry) if items is None else items
        """What is known of each item; whoever asks for one that is not there makes its entry."""
        self._told: dict[str, int] = {}

    def known(self) -> frozenset[int]:
        """Return the items whose records have been read."""
        return frozenset(item for item, entry in self.items.items() if entry.seen is not None)

    def forget(self, items: Iterable[int]) -> None:
        """Drop items that are no longer held here: another instance writes their records now."""
        for item in items:
            self.items[item].forget()

    def slot(self, item: int) -> int:
        """Return the last moment known to be claimed, in milliseconds since the epoch."""
        return self.items[item].record.slot

    def record(self, item: int) -> Record:
        """Return what is known of an item's newest run."""
        return self.items[item].record

    def version(self, item: int) -> int | None:
        """Return the version of the record known; None where there was none."""
        seen = self.items[item].seen
        assert seen is not None
        return seen.version

    def unmark(self, items: Iterable[int]) -> None:
        """Take note that a claim of ours has removed the marks of items; what they said is still known here."""
        for entry in map(self.items.__getitem__, items):
            entry.marked = False
            if not entry.stuck:
                entry.mark_version = None

    def note(self, written: Mapping[int, VersionedRecord]) -> None:
        """Take note of records as a transaction of ours wrote them."""
        for item, seen in written.items():
            self.items[item].seen = seen

    def moment(self, item: int) -> int:
        """Return what an item's newest run is for, in milliseconds since the epoch, also if its record was lowered."""
        record, lowered = self.record(item), self.items[item].lowered
        as_lowered = lowered is not None and (record.slot, record.ahead) == (lowered.slot, lowered.ahead)
        return record.ahead if as_lowered and not record.asked else record.moment

    def assume(self, items: Collection[int], slot: int) -> dict[int, VersionedRecord]:
        """Take note of a moment without asking the registry, for a job whose execution is not monitored."""
        return {item: self.items[item].assume(slot) for item in items}

    async def learn(self, items: Collection[int]) -> dict[int, Node]:
        """Read records and marks; return the ``running`` nodes found."""
        if not items:
            return {}  # which needs no connection
        chosen = sorted(items)
        paths = [self._member.layout.item(item) for item in chosen]
        nodes = iter(
            await self._member.session.get_many(
                [path for one in paths for path in (one.execution, one.misfire, one.running)]
            )
        )
        running = {}
        for item, path in zip(chosen, paths, strict=True):
            record, mark, runner = next(nodes), next(nodes), next(nodes)
            entry = self.items[item]
            before = Record() if entry.seen is None else entry.record
            entry.seen = VersionedRecord(Record(), None) if record is None else self._understood(item, record)
            if record is not None and is_cut_off(before) and entry.record.slot < before.slot:
                entry.withdrawn = before.slot
            entry.mark, entry.mark_version, entry.marked, entry.stuck = NO_MARK, None, mark is not None, False
            if mark is not None:
                entry.mark, entry.mark_version = _decoded(mark.data), mark.stat.version
                entry.stuck = mark.stat.num_children > 0
            entry.locked = runner is not None and runner.stat.ephemeral_owner == self._member.incarnation
            if runner is not None:
                running[item] = runner
                if not runner.stat.ephemeral_owner:
                    self.tell(path.running, runner.stat.mzxid, "is not ephemeral: the item waits until it is removed")
        return running

    def tell(self, path: str, mzxid: int, why: str) -> None:
        """Log what is wrong with a node, once for each time it is written."""
        if self._told.get(path) != mzxid:
            self._told[path] = mzxid
            log.warning("%s: %s", path, why, extra={"job": self._member.layout.job})

    def _understood(self, item: int, node: Node) -> VersionedRecord:
        """Return what a record says; of what was written by hand, that whatever was due until then was claimed."""
        record, written = records.decode(node.data), int(node.stat.mtime * 1000)
        self.items[item].stat, lowered = node.stat, self.items[item].lowered
        if record is not None and lowered is not None and record.slot == lowered.ahead:
            record = replace(record, slot=lowered.slot, ahead=lowered.ahead)
        if record is None or record.slot > max(written, self._believable()) + MAX_FUTURE:  # clocks may be set back, too
            path = self._member.layout.item(item).execution
            self.tell(path, node.stat.mzxid, "is no record of a run; the next one replaces it")
            record = Record(slot=written, unknown="" if record is None else record.unknown)
        return VersionedRecord(record, node.stat.version)


def _decoded(data: bytes) -> MissedMark:
    """Return what a mark says; nothing if somebody wrote something else."""
    words = data.split(b" ")
    if len(words) > 2 or not all(word.isdigit() and len(word) < 16 for word in words):
        return NO_MARK
    return MissedMark(int(words[0]), int(words[1]) if len(words) == 2 else None)


def is_cut_off(record: Record) -> bool:
    """Whether a run was begun that never came to an end, provided that it does not go on."""
    return record.begun > 0 and not record.completed
