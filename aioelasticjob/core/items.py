"""What a process knows of an item, and the few functions that replace this knowledge.

An ``Item`` is what was last read or written of one item: it is never changed, but replaced.  Its record says up to
where the item is accounted for (``Record.accounted``), so nothing else about earlier moments has to be remembered.

Times are in milliseconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum, auto

from aioelasticjob.core.records import is_cut_off
from aioelasticjob.ground.values import value
from aioelasticjob.model import Owing, Record, VersionedRecord

MADE_WITHIN = 60_000
"""An instance that lives so many milliseconds after it has promised a report has made it.

It makes the report when the registry answers; without an answer for so long, its session would have ended.
"""


class Lock(Enum):
    """Who holds an item's lock, as it was read or written last."""

    FREE = auto()
    """Nobody: the item runs nowhere."""
    OURS = auto()
    """This instance's session."""
    OTHERS = auto()
    """Another instance: its run goes on, or its session has yet to end."""
    BY_HAND = auto()
    """Nobody, but somebody has made the lock's node by hand."""


@value
class Found:
    """What was read of an item."""

    seen: VersionedRecord
    lock: Lock


@value
class Item:
    """An item that this instance holds."""

    given: int
    """The transaction that gave the item to this instance.  If it differs, the item has moved away and come back."""
    seen: VersionedRecord
    lock: Lock
    accounted: int
    """Every moment up to this one was run, reported as missed, or excused."""

    @property
    def record(self) -> Record:
        """The record of the item's newest run."""
        return self.seen.record

    @property
    def is_free(self) -> bool:
        """Whether the item runs nowhere, and no run of it was cut off."""
        return self.lock is Lock.FREE and not is_cut_off(self.seen.record)

    @property
    def is_cut_off(self) -> bool:
        """Whether the newest run was begun, is not completed, and runs nowhere."""
        return self.lock is Lock.FREE and is_cut_off(self.seen.record)

    @property
    def open_moment(self) -> int:
        """The moment that a stream has run and left open; 0 if there is none."""
        slot = self.seen.record.slot
        return slot if self.seen.record.completed and slot > self.accounted else 0


def learned(found: Found, given: int, made: int, made_by: int, known: int = 0) -> Item:
    """Return an item as it was read.

    ``known`` is up to where this process knows it to be accounted for, though no record says so.

    ``made`` is when the item was made, or taken from a paused instance, and ``made_by`` the transaction that did it.
    Moments before that are not the item's.  A record that was written later has taken it into account.
    """
    record = found.seen.record
    is_older = found.seen.zxid < made_by
    accounted = max(record.accounted, made) if is_older else record.accounted
    return Item(given, found.seen, found.lock, max(accounted, known))


def claimed(item: Item, seen: VersionedRecord) -> Item:
    """Return an item of which this instance has written the claim ``seen``."""
    accounted = max(item.accounted, seen.record.accounted)
    return Item(item.given, seen, Lock.OURS, accounted)


def settled(item: Item, seen: VersionedRecord) -> Item:
    """Return an item whose run this instance has settled with ``seen``: a stream may have left its moment open."""
    accounted = seen.record.accounted or item.accounted
    return Item(item.given, seen, Lock.FREE, accounted)


def reported(item: Item, seen: VersionedRecord) -> Item:
    """Return an item of which this instance has written up to where it is accounted for."""
    return Item(item.given, seen, item.lock, seen.record.accounted)


def assumed(given: int, accounted: int) -> Item:
    """Return an item of a job that keeps no records: only this process knows what it has run."""
    return Item(given, VersionedRecord(Record(accounted=accounted), None), Lock.FREE, accounted)


def left_by_the_gone(
    record: Record, me: str, present: Collection[str], seen_until: Mapping[str, int]
) -> tuple[Owing, ...]:
    """Return the reports that instances have promised which are gone, if it is not known that they have made them.

    ``seen_until`` says up to when this process has seen an instance that is gone.
    """
    if not record.owing:
        return ()
    return tuple(
        one
        for one in record.owing
        if one.by != me and one.by not in present and seen_until.get(one.by, 0) - one.at <= MADE_WITHIN
    )


def promised_by_others(record: Record, me: str, present: Collection[str], now: int) -> list[Owing]:
    """Return the reports that others have promised so recently that they may still have to make them."""
    if not record.owing:
        return []
    return [one for one in record.owing if one.by != me and one.by in present and now - one.at <= MADE_WITHIN]
