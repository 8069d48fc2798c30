"""The two transactions of a fire: claim takes items, settle gives them back.

A claim holds only if the assignment is the one it was decided on, no item's record has moved since it was read (so
nobody has claimed this or a later moment), and no item runs anywhere (``running`` is ephemeral and created here).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from aioelasticjob.coordination import records
from aioelasticjob.coordination.commit import SessionOver, WriteApplied, WriteRefused, write
from aioelasticjob.coordination.effects import MAX_OPERATIONS
from aioelasticjob.coordination.member import Member
from aioelasticjob.coordination.membership import restore_parent
from aioelasticjob.coordination.record_cache import RecordCache, is_cut_off
from aioelasticjob.coordination.view import JobView, is_item
from aioelasticjob.errors import Conflict, RegistryError, SessionEnded
from aioelasticjob.layout import Layout
from aioelasticjob.model import SCHEDULED, Claim, Fire, FireSource, Outcome, Record, VersionedRecord
from aioelasticjob.registry.transaction import Check, Committed, Create, Delay, Delete, Op, Set

ITEMS_AT_ONCE = MAX_OPERATIONS // 3
"""Items that one transaction claims or settles."""
MAX_TEXT = 512 * 1024
"""Bytes of triggers' parameters in one transaction: half of what a registry takes."""

Ended: TypeAlias = dict[int, VersionedRecord]
"""The records of items whose runs have ended, to be written."""

log = logging.getLogger(__name__)


@dataclass(slots=True)  # one for every fire: a frozen one costs three times as much to make
class ClaimResult:
    """What a claim came to."""

    claim: Claim | None = None
    elsewhere: set[int] = field(default_factory=set)
    """Items refused because another instance still runs them."""
    stale: bool = False
    """Whether the assignment changed under the claim, so that the rest waits for the next view."""
    refused: set[int] = field(default_factory=set)
    """Items that cannot be claimed at all, for what somebody made by hand stands in the way."""
    cut_off: dict[int, Record] = field(default_factory=dict)
    """Records written over though their runs had never come to an end."""
    renewed: set[int] = field(default_factory=set)
    """Items whose records had moved since they were read, and with them perhaps what else was read."""


class Claims:
    """Takes items for a fire and gives them back: the only writer of their records here."""

    def __init__(self, member: Member, cache: RecordCache) -> None:
        self._member, self._cache = member, cache

    async def claim(
        self, view: JobView, fire: Fire, items: Collection[int], now: int, next_fire: int, delay: Delay | None = None
    ) -> ClaimResult:
        """Take the items that can be taken.  ``now`` and ``next_fire`` are milliseconds since the epoch.

        A claim on ``delay`` that is withdrawn counts as stale.

        Raises:
            Suspended: there is no connection.
            SessionEnded: the session was lost.
            RegistryError: the registry refuses it, and nothing was taken.
        """
        taken = ClaimResult()
        for item in items:  # before anything is sent: ``release`` must not take the locks for leftovers
            self._cache.items[item].executing = True
        try:
            await self._claim(view, fire, sorted(items), (now, next_fire), delay, taken)
        finally:
            for item in items if taken.claim is None else set(items) - taken.claim.items.keys():
                self._cache.items[item].executing = False
        return taken

    async def _claim(
        self,
        view: JobView,
        fire: Fire,
        rest: list[int],
        times: tuple[int, int],
        delay: Delay | None,
        taken: ClaimResult,
    ) -> None:
        """Take the items in parts that one transaction has room for, and note in ``taken`` what came of it."""
        member, cache = self._member, self._cache
        written, found, fences = dict[int, VersionedRecord](), dict[int, Record](), dict[int, int]()
        at_once = _at_once([fire.parameter, *(cache.record(item).unknown for item in rest)])
        while rest and not taken.stale:
            part, rest = rest[:at_once], rest[at_once:]
            before = {item: cache.record(item) for item in part}
            wanted = {item: records.begun(record, fire, member.id, *times) for item, record in before.items()}
            try:
                committed = await self._take(view, fire, wanted, delay, before, taken)
            except SessionEnded:
                raise
            except RegistryError:
                if not written:
                    raise
                break  # what was taken before is run and settled; the rest is still owed
            if committed is not None:
                if fire.source is FireSource.FAILOVER:
                    for item in wanted:
                        cache.items[item].rescuing = True
                else:
                    taken.cut_off |= {item: before[item] for item in wanted if is_cut_off(before[item])}
                found |= before
                written |= _as_written(fire, wanted, committed.versions)
                fences |= dict.fromkeys(wanted, committed.zxid)
                fire = replace(fire, request=None) if fire.request else fire  # the rest needs none
        cache.note(written)
        taken.claim = Claim(fire, member.id, member.incarnation, fences, written, found) if written else None

    def unmonitored(self, fire: Fire, items: Collection[int]) -> Claim:
        """Return a claim that asks and writes nothing, for a job whose execution is not monitored."""
        if fire.source in SCHEDULED:
            assumed = self._cache.assume(items, fire.slot)
        else:  # which says nothing of the moments scheduled
            assumed = {item: VersionedRecord(self._cache.record(item), None) for item in items}
        return Claim(fire, self._member.id, self._member.incarnation, {}, assumed, {})

    async def settle(
        self, claim: Claim, outcomes: Mapping[int, Outcome], now: int, *, hand_over: bool, removed: bool = False
    ) -> frozenset[int] | None:
        """End the run of items; None if the session was lost, and ``running`` with it.

        ``hand_over`` puts items that were cut off up for rescue; return which.  ``removed`` says that this instance's
        node is gone.  If the job was removed and made anew, others may hold the locks, at versions that begin again.
        """
        rest, handed_over = list(claim.items), frozenset[int]()
        at_once = _at_once([claim.fire.parameter, *(seen.record.unknown for seen in claim.items.values())])
        while rest:
            part, rest = rest[:at_once], rest[at_once:]
            ended = {item: records.ended(claim.items[item], outcomes.get(item), now) for item in part}
            if (given := await self._give_back(ended, hand_over, removed=removed)) is None:
                return None
            handed_over |= given
        return handed_over

    async def withdraw(self, claim: Claim) -> bool:
        """Give items back as they were found, for their run has not begun; False if the session was lost."""
        rest = [(item, VersionedRecord(claim.before[item], seen.version)) for item, seen in claim.items.items()]
        at_once = _at_once(text for record in claim.before.values() for text in (record.parameter, record.unknown))
        while rest:
            part, rest = rest[:at_once], rest[at_once:]
            if await self._give_back(dict(part), False, "to give items back") is None:
                return False
        return True

    async def release(self, item: int, *, hand_over: bool) -> None:
        """Remove a lock of our own session that no execution of ours needs: the run that took it was cut off.

        It is left when the job ended here with an error and joined again under the same session; without this the item
        would wait for its own instance for ever.  ``hand_over`` puts the run up for rescue.

        Raises:
            RegistryError: the registry cannot be read.
        """
        await self._cache.learn([item])
        entry = self._cache.items[item]
        if not entry.locked or entry.executing:
            return
        (rescue,) = await self._member.session.get_many([self._member.layout.item(item).failover])
        if rescue is not None and rescue.stat.ephemeral_owner == self._member.incarnation:
            entry.rescuing = True
        if (
            await self._give_back({item: VersionedRecord(entry.record, self._cache.version(item))}, hand_over)
            is not None
        ):
            log.warning(
                "%s: item %d was still locked here though its run had been cut off; it is free again",
                *(self._member.layout.job, item),
                extra={"job": self._member.layout.job, "item": item},
            )

    async def release_all(self, *, hand_over: bool) -> None:
        """Remove all such locks of the job, also those of items that others hold by now.

        Raises:
            RegistryError: the registry cannot be read.
        """
        layout, session = self._member.layout, self._member.session
        (names,) = await session.children_many([layout.execution])
        items = [int(name) for name in names or () if is_item(name)]
        nodes = await session.get_many([layout.item(item).running for item in items])
        for item, lock in zip(items, nodes, strict=True):
            if lock is not None and lock.stat.ephemeral_owner == self._member.incarnation:
                await self.release(item, hand_over=hand_over)

    async def remove_orphan_mark(self, item: int) -> None:
        """Remove the mark of an orphan whose run turns out to be completed; if somebody else has, that will do."""
        paths, version = self._member.layout.item(item), self._cache.version(item)
        condition = [] if version is None else [Check(paths.execution, version)]
        await write(self._member, [*condition, Delete(paths.orphan)], "to remove the mark of an item that has ended")

    async def mark_misfired(self, view: JobView, item: int, slot: int) -> None:
        """Leave a mark on an item whose fire was refused, for operators to see; the next claim removes it.

        It is left under the assignment it was decided on, or the next holder would have read too early to see it.
        """
        entitled = Check(self._member.layout.sharding, view.sharding_version)
        mark = Create(self._member.layout.item(item).misfire, str(slot).encode())
        await write(self._member, [entitled, mark], "to mark an item whose run was missed")  # perhaps it is there
        self._cache.items[item].marked = True

    async def _take(
        self,
        view: JobView,
        fire: Fire,
        wanted: dict[int, Record],
        delay: Delay | None,
        before: dict[int, Record],
        taken: ClaimResult,
    ) -> Committed | None:
        """Commit the claim of ``wanted``, leaving out what cannot be had; what is left in it has been taken.

        ``before`` are the records that it takes the place of.  What else comes of it is noted in ``taken``.  What is
        refused again for the same reason, though all was read again, is refused: the view may be old by then.
        """
        member, cache, met = self._member, self._cache, ""
        while wanted:
            first, operations = self._taking(view, fire, wanted)
            match await write(member, operations, "to claim items", delay=delay):
                case WriteApplied(committed):
                    cache.unmark(wanted)
                    return committed
                case WriteRefused(Conflict() as conflict) if str(conflict) != met:
                    met = str(conflict)
                    if conflict.index < first or not await self._cleared(conflict, wanted, taken.refused):
                        taken.stale = True
                        return None
                    taken.elsewhere |= await self._reconsider(fire, wanted)
                case WriteRefused(error) | SessionOver(error):
                    raise error
            before |= {item: cache.record(item) for item in wanted}
            taken.renewed |= wanted.keys()
        return None

    def _taking(self, view: JobView, fire: Fire, wanted: Mapping[int, Record]) -> tuple[int, list[Op]]:
        """Return the operations of a claim, and how many of them come before those of the items."""
        member, cache = self._member, self._cache
        operations = _entitled(member, view, fire, wanted)
        first = len(operations)
        for item, record in wanted.items():
            operations += _claiming(member, item, record, cache.version(item))
        marked = [item for item in wanted if cache.items[item].marked and not cache.items[item].stuck]
        operations += [Delete(member.layout.item(item).misfire) for item in marked]
        return first, operations

    async def _cleared(self, conflict: Conflict, wanted: dict[int, Record], refused: set[int]) -> bool:
        """Get out of the way what trying again would meet again; False if there is no way, not even a job."""
        cache = self._cache
        for item in list(wanted):
            paths = self._member.layout.item(item)
            if conflict.path == paths.misfire and conflict.reason == "not empty":
                cache.items[item].stuck = True
            elif conflict.reason == "no ephemeral children" and conflict.path in (paths.execution, paths.running):
                cache.tell(conflict.path, 0, "its parent is ephemeral, so the item cannot run")
                refused.add(item)
                del wanted[item]
            elif conflict.path == paths.execution and conflict.reason == "missing" and cache.version(item) is None:
                return await restore_parent(self._member, self._member.layout.execution)
        return True

    async def _reconsider(self, fire: Fire, wanted: dict[int, Record]) -> set[int]:
        """Read what refused the claim; drop what is running or done, renew the rest; return what is locked."""
        running = await self._cache.learn(list(wanted))
        for item in list(wanted):
            record = self._cache.record(item)
            if item in running or (
                record.completed if fire.source is FireSource.FAILOVER else records.is_taken(record, fire)
            ):
                del wanted[item]
            else:
                last = wanted[item]
                wanted[item] = records.begun(record, fire, self._member.id, last.begun, last.next_fire)
        return set(running)

    async def _give_back(
        self, ended: Ended, hand_over: bool, what: str = "to settle items", *, removed: bool = False
    ) -> frozenset[int] | None:
        """Write the ends of items' runs; return those put up for rescue, None if the session was lost.

        Whatever it is refused for, it is tried again while the session lives: the items are locked until then.
        """
        member, refused, before = self._member, 0, ""
        items = frozenset(ended)
        if removed:
            with suppress(RegistryError):
                ended = await self._still_mine(ended)
        cut_off = frozenset(item for item, seen in ended.items() if hand_over and not seen.record.completed)
        while ended:
            rescued = [item for item in ended if self._cache.items[item].rescuing]
            operations = _settling(member.layout, ended, rescued, cut_off)
            match await write(member, operations, what, wait=True):
                case WriteApplied(committed):
                    settled = zip(ended.items(), committed.versions[::2], strict=False)
                    self._cache.note({item: VersionedRecord(seen.record, version) for (item, seen), version in settled})
                    break
                case SessionOver():
                    return None
                case WriteRefused(error):
                    if isinstance(error, Conflict):
                        cut_off = _without_mark(member.layout, cut_off, error)
                    if str(error) == before:  # else what stood in the way may be gone once it has been read again
                        await member.session.back_off(refused)
                        refused += 1
                    before = str(error)
            with suppress(RegistryError):  # then the next attempt is refused again
                ended = await self._still_mine(ended)
                cut_off = cut_off.intersection(ended)
        for entry in map(self._cache.items.__getitem__, items):
            entry.rescuing = entry.executing = entry.locked = False
        return cut_off

    async def _still_mine(self, ended: Ended) -> Ended:
        """Return what is yet to be settled, at the records' present versions: somebody touched them by hand."""
        await self._cache.learn(list(ended))
        entries, version = self._cache.items, self._cache.version
        mine = {item: replace(seen, version=version(item)) for item, seen in ended.items() if entries[item].locked}
        rescued = [item for item in sorted(mine) if entries[item].rescuing]
        marks = await self._member.session.get_many([self._member.layout.item(item).failover for item in rescued])
        for item, mark in zip(rescued, marks, strict=True):  # what is not ours was removed and made again by hand
            entries[item].rescuing = mark is not None and mark.stat.ephemeral_owner == self._member.incarnation
        return mine


def _at_once(texts: Iterable[str | None]) -> int:
    """Return how many items one transaction may carry whose records hold such texts."""
    longest = max((len(text) for text in texts if text), default=0)
    return min(ITEMS_AT_ONCE, max(1, MAX_TEXT // (6 * longest))) if longest else ITEMS_AT_ONCE  # six: "\u0000"


def _entitled(member: Member, view: JobView, fire: Fire, wanted: Collection[int]) -> list[Op]:
    """Return what entitles to the items: the assignment decided on, or the orphans' marks, which it takes."""
    if fire.source is not FireSource.FAILOVER:
        asked = [] if fire.request is None else [Delete(*fire.request)]
        return [Check(member.layout.sharding, view.sharding_version), *asked]
    me, operations = member.id.encode(), list[Op]()
    for item in wanted:
        paths = member.layout.item(item)
        operations += [Delete(paths.orphan), Create(paths.failover, me, ephemeral=True)]
    return operations


def _claiming(member: Member, item: int, record: Record, version: int | None) -> list[Op]:
    paths, data = member.layout.item(item), records.encode(record)
    begin: Op = Create(paths.execution, data) if version is None else Set(paths.execution, data, version)
    return [begin, Create(paths.running, member.id.encode(), ephemeral=True)]


def _settling(
    layout: Layout, ended: Mapping[int, VersionedRecord], rescued: Collection[int], cut_off: Iterable[int]
) -> list[Op]:
    operations: list[Op] = []
    for item, seen in ended.items():
        paths = layout.item(item)
        assert seen.version is not None  # a claim has written it
        operations += [Set(paths.execution, records.encode(seen.record), seen.version), Delete(paths.running)]
    operations += [Delete(layout.item(item).failover) for item in rescued]
    operations += [Create(layout.item(item).orphan, records.mark(ended[item].record)) for item in cut_off]
    return operations


def _before_items(fire: Fire, items: int) -> int:
    """Return how many operations of a claim come before those of the items."""
    return 2 * items if fire.source is FireSource.FAILOVER else 1 + (fire.request is not None)


def _without_mark(layout: Layout, cut_off: frozenset[int], conflict: Conflict) -> frozenset[int]:
    """Leave out whose mark is there already, or all if there is no place for any: the leader will find them."""
    refused = frozenset(item for item in cut_off if layout.item(item).orphan == conflict.path)
    return cut_off - refused if not refused or conflict.reason == "exists" else frozenset()


def _as_written(fire: Fire, wanted: Mapping[int, Record], versions: Sequence[int]) -> dict[int, VersionedRecord]:
    """Return the records as a claim wrote them, at the versions it gave them."""
    first = _before_items(fire, len(wanted))
    return {item: VersionedRecord(record, versions[first + 2 * n]) for n, (item, record) in enumerate(wanted.items())}
