"""The record and the mark of one item, as an instance has read or written them last."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

from aioelasticjob.core import records
from aioelasticjob.model import Record, VersionedRecord
from aioelasticjob.registry.tree import Stat

MAX_FUTURE = 60_000
"""How far in the future a record's moment may lie, in milliseconds.  A later one would keep its item from running."""


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


MARKS_PER_TRANSACTION = 400
"""How many items one transaction marks."""


class AccountedMoment(NamedTuple):
    """The content of the ``execution`` node of a job that is not monitored, as an instance knows it."""

    moment: int
    """The moment in milliseconds since the epoch; 0 if none is known."""
    version: int
    """The version of the node."""
