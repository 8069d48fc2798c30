"""What an instance knows of its items: their records as it read or wrote them, and the marks of refused fires.

Known once per assignment, not once per fire: a claim is refused where it is out of date, and then it is read again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf

from aioelasticjob.coordination import records
from aioelasticjob.coordination.member import Member
from aioelasticjob.model import Record, Seen
from aioelasticjob.registry.tree import Node, Stat

TOLERATED = 60_000
"""Milliseconds of the future that a record may claim; what claims more is lowered, for it would silence its item."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Mark:
    """What has been reported of an item's missed moments, in milliseconds since the epoch."""

    until: int = 0
    """The last moment reported."""
    since: int | None = None
    """Every moment later than this one and up to ``until`` was run or reported, also those before the item was made."""

    def covers(self, other: Mark) -> bool:
        """Whether all that the other mark says is known from this one."""
        if self.until < other.until:
            return False
        return other.since is None or (self.since is not None and self.since <= other.since)

    def joined(self, other: Mark) -> Mark:
        """Return what both say: the stretches that they speak of follow each other."""
        known = [since for since in (self.since, other.since) if since is not None]
        return Mark(max(self.until, other.until), min(known, default=None))

    def encode(self) -> bytes:
        """Return the data of the node."""
        return (f"{self.until}" if self.since is None else f"{self.until} {self.since}").encode()


NO_MARK = Mark()


class Ledger:
    """The items' records as far as they are known; it reads the registry, and writes nothing there."""

    def __init__(self, member: Member, believable: Callable[[], float] = lambda: 0) -> None:
        self._member, self._believable = member, believable
        self._seen: dict[int, Seen] = {}
        self._stats: dict[int, Stat] = {}
        """When each record had been written when it was read, and by which transaction."""
        self._told: dict[str, int] = {}
        self._lowered: dict[int, Record] = {}
        """The records that claimed too much of the future, as they were read."""
        self.marked: set[int] = set()
        """Items that bear the mark of what they missed, which the next claim removes."""
        self._missed: dict[int, tuple[Mark, int | None]] = {}
        """What each mark says, and its version."""
        self.locked: set[int] = set()
        """Items that were locked by our own session when their records were read."""
        self.stuck: set[int] = set()
        """Items whose mark cannot be removed, for something was made beneath it by hand."""
        self.withdrawn: dict[int, int] = {}
        """The moment of each item that another instance had claimed, and has given back without a run."""

    def known(self) -> frozenset[int]:
        """Return the items whose records have been read."""
        return frozenset(self._seen)

    def forget(self, items: Iterable[int]) -> None:
        """Drop items that are no longer held here: another instance writes their records now."""
        for item in items:
            self._seen.pop(item, None)
            self._stats.pop(item, None)
            self._missed.pop(item, None)
            self._lowered.pop(item, None)
            self.withdrawn.pop(item, None)
            self.marked.discard(item)
            self.locked.discard(item)

    def slot(self, item: int) -> int:
        """Return the last moment known to be claimed, in milliseconds since the epoch."""
        return self._seen[item].record.slot

    def record(self, item: int) -> Record:
        """Return what is known of an item's newest run."""
        return self._seen[item].record

    def written_after(self, item: int, zxid: int) -> float:
        """Return when a record was written, in ms, as it was read, if that was after a transaction; else infinity."""
        stat = self._stats.get(item)
        return inf if stat is None or stat.mzxid <= zxid else stat.mtime * 1000

    def version(self, item: int) -> int | None:
        """Return the version of the record known; None where there was none."""
        return self._seen[item].version

    def missed(self, item: int) -> tuple[Mark, int | None]:
        """Return what an item's mark says has been reported, and the mark's version, if there is one."""
        return self._missed.get(item, (NO_MARK, None))

    def unmark(self, items: Iterable[int]) -> None:
        """Take note that a claim of ours has removed the marks of items; what they said is still known here."""
        for item in items:
            self.marked.discard(item)
            if item in self._missed and item not in self.stuck:
                self._missed[item] = self._missed[item][0], None

    def note_missed(self, item: int, mark: Mark, version: int | None) -> None:
        """Take note of a mark as a transaction of ours wrote it; without a version it is known here only."""
        self._missed[item] = mark, version

    def note(self, written: Mapping[int, Seen]) -> None:
        """Take note of records as a transaction of ours wrote them."""
        self._seen.update(written)

    def lower(self, item: int, slot: int) -> None:
        """Take an item for claimed up to an earlier moment, whenever its present record is read, until the next claim.

        The moment that the record claims was run, early: it is not to be run again.
        """
        record, version = self._seen[item].record, self._seen[item].version
        self._lowered[item] = replace(record, slot=slot, ahead=record.slot)
        self._seen[item] = Seen(self._lowered[item], version)

    def moment(self, item: int) -> int:
        """Return what an item's newest run is for, in milliseconds since the epoch, also if its record was lowered."""
        record, lowered = self.record(item), self._lowered.get(item)
        as_lowered = lowered is not None and (record.slot, record.ahead) == (lowered.slot, lowered.ahead)
        return record.ahead if as_lowered and not record.asked else record.moment

    def assume(self, items: Collection[int], slot: int) -> dict[int, Seen]:
        """Take note of a moment without asking the registry, for a job whose execution is not monitored."""
        assumed = {item: Seen(Record(slot=slot), None) for item in items}
        self._seen.update(assumed)
        return assumed

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
            before = self.record(item) if item in self._seen else Record()
            self._seen[item] = Seen(Record(), None) if record is None else self._understood(item, record)
            if record is not None and is_cut_off(before) and self.slot(item) < before.slot:
                self.withdrawn[item] = before.slot
            (self.marked.discard if mark is None else self.marked.add)(item)
            self._missed.pop(item, None)
            if mark is not None:
                self._missed[item] = _decoded(mark.data), mark.stat.version
            (self.stuck.add if mark is not None and mark.stat.num_children else self.stuck.discard)(item)
            ours = runner is not None and runner.stat.ephemeral_owner == self._member.incarnation
            (self.locked.add if ours else self.locked.discard)(item)
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

    def _understood(self, item: int, node: Node) -> Seen:
        """Return what a record says; of what was written by hand, that whatever was due until then was claimed."""
        record, written = records.decode(node.data), int(node.stat.mtime * 1000)
        self._stats[item] = node.stat
        lowered = self._lowered.get(item)
        if record is not None and lowered is not None and record.slot == lowered.ahead:
            record = replace(record, slot=lowered.slot, ahead=lowered.ahead)
        if record is None or record.slot > max(written, self._believable()) + TOLERATED:  # clocks may be set back, too
            path = self._member.layout.item(item).execution
            self.tell(path, node.stat.mzxid, "is no record of a run; the next one replaces it")
            record = Record(slot=written, unknown="" if record is None else record.unknown)
        return Seen(record, node.stat.version)


def _decoded(data: bytes) -> Mark:
    """Return what a mark says; nothing if somebody wrote something else."""
    words = data.split(b" ")
    if len(words) > 2 or not all(word.isdigit() and len(word) < 16 for word in words):
        return NO_MARK
    return Mark(int(words[0]), int(words[1]) if len(words) == 2 else None)


def is_cut_off(record: Record) -> bool:
    """Whether a run was begun that never came to an end, provided that it does not go on."""
    return record.begun > 0 and not record.completed
