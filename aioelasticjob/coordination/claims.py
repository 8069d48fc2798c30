"""The two transactions of a fire: the claim takes items, and the settlement ends their runs.

A claim is written only if three conditions hold.  The assignment is still the one on which the claim was decided.  The
items' records have not changed since they were read, so nobody has claimed this moment or a later one.  And no item
runs anywhere: the claim creates the ephemeral node ``running``, which must not exist yet.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from aioelasticjob.coordination import records
from aioelasticjob.coordination.commit import SessionOver, WriteApplied, WriteRefused, write
from aioelasticjob.coordination.effects import MAX_OPERATIONS
from aioelasticjob.coordination.member import Member
from aioelasticjob.coordination.membership import restore_parent
from aioelasticjob.coordination.record_cache import RecordCache
from aioelasticjob.coordination.request_runs import claiming, losing, settling
from aioelasticjob.coordination.view import JobView, is_item
from aioelasticjob.errors import Conflict, RegistryError, SessionEnded
from aioelasticjob.layout import Layout
from aioelasticjob.model import SCHEDULED, Claim, Fire, FireSource, Outcome, Record, VersionedRecord
from aioelasticjob.registry.transaction import Check, Committed, Create, Delay, Delete, Op, Set

ITEMS_AT_ONCE = MAX_OPERATIONS // 3
"""How many items one transaction claims or settles."""
MAX_TEXT = 512 * 1024
"""Bytes of triggers' parameters in one transaction: half of the largest transaction that a registry accepts."""
SETTLE = "to settle items"
Records: TypeAlias = Mapping[int, Record]
Ended: TypeAlias = dict[int, VersionedRecord]
"""The records to be written for items whose runs have ended."""

log = logging.getLogger(__name__)


@dataclass(slots=True)  # not frozen: one is made for every fire, and a frozen one takes three times as long
class ClaimResult:
    """The result of a claim."""

    claim: Claim | None = None
    elsewhere: frozenset[int] = frozenset()
    """Items that were not claimed because another instance still runs them."""
    stale: bool = False
    """Whether the view was outdated, so that the remaining items wait for the next view."""
    refused: frozenset[int] = frozenset()
    """Items that cannot be claimed because nodes that somebody has made by hand prevent it."""
    cut_off: dict[int, Record] = field(default_factory=dict)
    """The former records of claimed items whose last run was cut off."""
    renewed: frozenset[int] = frozenset()
    """Items whose records had changed since they were read; their offsets may have changed as well."""


class Claims:
    """Claims and settles items.  Nothing else in this process writes their records.

    It has more than twelve methods: the steps of both transactions share what is known of the items.
    """

    def __init__(self, member: Member, cache: RecordCache) -> None:
        self._member, self._cache = member, cache

    async def claim(
        self, view: JobView, fire: Fire, items: Collection[int], now: int, next_fire: int, delay: Delay | None = None
    ) -> ClaimResult:
        """Claim those of the items that can be claimed.  ``now`` and ``next_fire`` are milliseconds since the epoch.

        If the claim is withdrawn during its ``delay``, the result is stale.

        Raises:
            Suspended: there is no connection.
            SessionEnded: the session was lost.
            RegistryError: the registry refuses the claim, and no item was claimed.
        """
        taken, rest = ClaimResult(), sorted(items)
        for item in rest:  # before the claim is sent: otherwise ``release`` would remove the new locks
            self._cache.items[item].executing = True
        at_once = max(1, _at_once([fire.parameter, *self._unknown_texts(rest)]) // fire.weight)
        try:
            while rest and not taken.stale:
                part, rest = rest[:at_once], rest[at_once:]
                await self._take(view, fire, part, (now, next_fire), delay, taken)
                if taken.claim is not None:
                    fire = taken.claim.fire
        except SessionEnded:
            raise
        except RegistryError:
            if taken.claim is None:
                raise  # otherwise the items claimed before are run and settled; the others are still due
        finally:
            for item in items if taken.claim is None else set(items) - taken.claim.items.keys():
                self._cache.items[item].executing = False
        return taken

    def unmonitored(self, fire: Fire, items: Collection[int]) -> Claim:
        """Return a claim without any request to the registry, for a job whose execution is not monitored."""
        if fire.source in SCHEDULED:
            assumed = self._cache.assume(items, fire.slot)
        else:  # a trigger claims no scheduled moment
            assumed = {item: VersionedRecord(self._cache.record(item), None) for item in items}
        return Claim(fire, self._member.id, self._member.incarnation, {}, assumed, {})

    def settle(
        self, claim: Claim, outcomes: Mapping[int, Outcome], now: int, *, hand_over: bool, removed: bool = False
    ) -> Awaitable[frozenset[int] | None]:
        """End the runs of a claim; return the items handed over, or None if the session and its locks were lost.

        ``now`` is in milliseconds since the epoch.  With ``hand_over``, items whose run was cut off are marked as
        orphans.  ``removed`` says that this instance's node is gone.  If the job was removed and made again, other
        instances may hold the locks, and the versions of nodes have begun again at 0.
        """
        ended = {item: records.ended(seen, outcomes.get(item), now) for item, seen in claim.items.items()}
        return self._give_back(ended, hand_over, removed=removed, fire=claim.fire)

    async def withdraw(self, claim: Claim) -> bool:
        """Give back items whose run has not begun, with their former records; False if the session was lost."""
        former = {item: VersionedRecord(claim.before[item], seen.version) for item, seen in claim.items.items()}
        return await self._give_back(former, False, "to give items back") is not None

    async def release(self, item: int, *, hand_over: bool) -> None:
        """Remove a lock of this session that no execution needs any more, because its run was cut off.

        Such a lock is left if the job ended with an error and joined again under the same session.  Without this method
        the item would wait for its own instance for ever.  With ``hand_over`` the item is marked as an orphan.

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
        seen = VersionedRecord(entry.record, self._cache.version(item))
        if await self._give_back({item: seen}, hand_over) is not None:
            member, lock = self._member, "was still locked by this instance, though its run had been cut off"
            if member.admits(log, "locks of runs that were cut off were removed"):
                about = {"job": member.layout.job, "item": item}
                log.warning("%s: item %d %s; the lock was removed", member.layout.job, item, lock, extra=about)

    async def release_all(self, *, hand_over: bool) -> None:
        """Remove all such locks of the job, also those of items that other instances hold by now.

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
        """Remove the mark of an orphan whose run is completed.  Another instance may have removed it already."""
        paths, version = self._member.layout.item(item), self._cache.version(item)
        condition = [] if version is None else [Check(paths.execution, version)]
        await write(self._member, [*condition, Delete(paths.orphan)], "to remove the mark of an item that has ended")

    async def mark_misfired(self, view: JobView, item: int, slot: int) -> None:
        """Mark for operators that an item has missed a moment.  The next claim of the item removes the mark.

        The mark is written only under the assignment on which it was decided.  Otherwise the next holder may have read
        the item before, and would not know the mark.
        """
        entitled = Check(self._member.layout.sharding, view.sharding_version)
        mark = Create(self._member.layout.item(item).misfire, str(slot).encode())
        await write(self._member, [entitled, mark], "to mark an item whose run was missed")  # or it exists
        self._cache.items[item].marked = True

    async def _take(
        self,
        view: JobView,
        fire: Fire,
        items: Iterable[int],
        times: tuple[int, int],
        delay: Delay | None,
        taken: ClaimResult,
    ) -> None:
        """Claim items in one transaction, and note the result in ``taken``.

        Items that cannot be claimed are left out.  If the claim meets the same conflict again although everything was
        read again, it ends: the view may be outdated.
        """
        before, met = self._records(items), ""
        wanted = self._begun(before, fire, times)
        while wanted:
            first, operations = self._taking(view, fire, wanted, before)
            match await write(self._member, operations, "to claim items", delay=delay):
                case WriteApplied(committed):
                    return self._note_claimed(first, fire, wanted, before, committed, taken)
                case WriteRefused(Conflict() as conflict) if str(conflict) != met:
                    met = str(conflict)
                    if conflict.index < first or not await self._cleared(conflict, wanted, taken):
                        taken.stale = True
                        return None
                    taken.elsewhere |= await self._reconsider(fire, wanted, before)
                case WriteRefused(error) | SessionOver(error):
                    raise error
            before |= self._records(wanted)
            taken.renewed |= wanted.keys()

    def _records(self, items: Iterable[int]) -> dict[int, Record]:
        return {item: self._cache.items[item].record for item in items}

    def _unknown_texts(self, items: Iterable[int]) -> list[str]:
        return [record.unknown for record in self._records(items).values()]

    def _begun(self, before: Records, fire: Fire, times: tuple[int, int]) -> dict[int, Record]:
        return {item: records.begun(record, fire, self._member.id, *times) for item, record in before.items()}

    def _note_claimed(
        self, first: int, fire: Fire, wanted: Records, before: Records, committed: Committed, taken: ClaimResult
    ) -> None:
        """Note records that a claim has written, and those that it has replaced."""
        member, former = self._member, taken.claim
        written = dict[int, VersionedRecord]() if former is None else dict(former.items)
        found = dict[int, Record]() if former is None else dict(former.before)
        fences = dict[int, int]() if former is None else dict(former.fences)
        for n, (item, record) in enumerate(wanted.items()):
            entry, last = self._cache.items[item], before[item]
            entry.seen = written[item] = VersionedRecord(record, committed.versions[first + 2 * n], committed.zxid)
            entry.claimed(rescue=fire.source is FireSource.FAILOVER)
            if fire.source is not FireSource.FAILOVER and records.is_cut_off(last):
                taken.cut_off[item] = last
            found[item], fences[item] = last, committed.zxid
        fire = replace(fire, request=None) if fire.request else fire  # the trigger is removed now
        taken.claim = Claim(fire, member.id, member.incarnation, fences, written, found)

    def _taking(self, view: JobView, fire: Fire, wanted: Records, before: Records) -> tuple[int, list[Op]]:
        """Return the operations of a claim, and how many of them precede the operations of the items."""
        member, cache = self._member, self._cache
        operations = _entitled(member, view, fire, wanted, before)
        first = len(operations)
        for item, record in wanted.items():
            operations += _claiming(member, item, record, cache.version(item))
        for item in wanted:
            if (entry := cache.items[item]).marked and not entry.stuck:
                operations.append(Delete(member.layout.item(item).misfire))
        return first, operations

    async def _cleared(self, conflict: Conflict, wanted: dict[int, Record], taken: ClaimResult) -> bool:
        """Prepare another attempt after a conflict; False if none is possible, say because the job was removed."""
        cache = self._cache
        for item in list(wanted):
            paths = self._member.layout.item(item)
            if conflict.path == paths.misfire and conflict.reason == "not empty":
                cache.items[item].stuck = True
            elif conflict.reason == "no ephemeral children" and conflict.path in (paths.execution, paths.running):
                why = "its parent is ephemeral, so the item does not run until that node is removed"
                cache.warn(conflict.path, 0, why)
                taken.refused |= {item}
                del wanted[item]
            elif conflict.path == paths.execution and conflict.reason == "missing" and cache.version(item) is None:
                return await restore_parent(self._member, self._member.layout.execution)
        return True

    async def _reconsider(self, fire: Fire, wanted: dict[int, Record], before: Records) -> set[int]:
        """Read the items again, and remove from ``wanted`` those that run or are done; return those that run.

        A rescue is decided on the record of one run, so it does not take an item of which another run was cut off.
        """
        running = await self._cache.learn(list(wanted))
        for item in list(wanted):
            record = self._cache.record(item)
            rescued = record.completed or record.begun != before[item].begun
            if item in running or (rescued if fire.source is FireSource.FAILOVER else records.is_taken(record, fire)):
                del wanted[item]
            else:
                last = wanted[item]
                wanted[item] = records.begun(record, fire, self._member.id, last.begun, last.next_fire)
        return set(running)

    def _give_back(
        self, ended: Ended, hand_over: bool, what: str = SETTLE, *, removed: bool = False, fire: Fire | None = None
    ) -> Awaitable[frozenset[int] | None]:
        """Settle items; return those that were marked as orphans, or None if the session was lost."""
        at_once = _at_once(text for seen in ended.values() for text in (seen.record.parameter, seen.record.unknown))
        if len(ended) <= at_once:
            return self._give_back_at_once(ended, hand_over, what, fire, removed=removed)
        return self._give_back_in_parts(ended, at_once, hand_over, what, fire, removed=removed)

    async def _give_back_in_parts(
        self, ended: Ended, at_once: int, hand_over: bool, what: str, fire: Fire | None, *, removed: bool
    ) -> frozenset[int] | None:
        rest, handed_over = list(ended), frozenset[int]()
        while rest:
            part, rest = rest[:at_once], rest[at_once:]
            some = {item: ended[item] for item in part}
            given = await self._give_back_at_once(some, hand_over, what, fire, removed=removed)
            if given is None:
                return None
            handed_over |= given
        return handed_over

    async def _give_back_at_once(
        self, ended: Ended, hand_over: bool, what: str, fire: Fire | None, *, removed: bool
    ) -> frozenset[int] | None:
        """Settle items in one transaction.

        If the registry refuses it, for whatever reason, it is tried again while the session lives, because the items
        stay locked until they are settled.
        """
        member, refused, before, gone = self._member, 0, "", set[str]()
        items = frozenset(ended)
        if removed:
            with suppress(RegistryError):
                ended = await self._still_mine(ended)
        cut_off = frozenset(item for item, seen in ended.items() if hand_over and not seen.record.completed)
        while ended:
            rescued = [item for item in ended if self._cache.items[item].rescuing]
            noted = (one for one in settling(member.layout, fire, ended) if one.path not in gone)
            operations = [*_settling(member.layout, ended, rescued, cut_off), *noted]
            match await write(member, operations, what, wait=True):
                case WriteApplied(committed):
                    for (item, seen), version in zip(ended.items(), committed.versions[::2], strict=False):
                        self._cache.items[item].seen = VersionedRecord(seen.record, version, committed.zxid)
                    break
                case SessionOver():
                    return None
                case WriteRefused(error):
                    if isinstance(error, Conflict):
                        cut_off = _without_mark(member.layout, cut_off, error)
                        gone.add(error.path)  # somebody has removed a request
                    if str(error) == before:  # another error is tried again at once, with what is read below
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
        """Return the items still to be settled, with the present versions of records that somebody edited by hand."""
        await self._cache.learn(list(ended))
        entries, version = self._cache.items, self._cache.version
        mine = {item: replace(seen, version=version(item)) for item, seen in ended.items() if entries[item].locked}
        rescued = [item for item in sorted(mine) if entries[item].rescuing]
        marks = await self._member.session.get_many([self._member.layout.item(item).failover for item in rescued])
        for item, mark in zip(rescued, marks, strict=True):  # a foreign mark was made by hand, so leave it alone
            entries[item].rescuing = mark is not None and mark.stat.ephemeral_owner == self._member.incarnation
        return mine


def _at_once(texts: Iterable[str | None]) -> int:
    """Return how many items fit into one transaction if their records hold these texts."""
    longest = max((len(text) for text in texts if text), default=0)
    return min(ITEMS_AT_ONCE, max(1, MAX_TEXT // (6 * longest))) if longest else ITEMS_AT_ONCE  # six: "\u0000"


def _entitled(member: Member, view: JobView, fire: Fire, wanted: Records, before: Records) -> list[Op]:
    """Return the operations that allow a claim: a check of the assignment, or the removal of orphans' marks."""
    if fire.source is not FireSource.FAILOVER:
        asked: list[Op] = [] if fire.request is None else [Delete(*fire.request)]
        asked += claiming(member.layout, fire, wanted)
        claimed = "" if fire.requested is None else fire.requested.id
        asked += losing(view, {item: before[item] for item in wanted}, claimed)
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
    marks = [Create(layout.item(item).orphan, records.mark(ended[item].record, ended[item].zxid)) for item in cut_off]
    return [*operations, *[Delete(layout.item(item).failover) for item in rescued], *marks]


def _without_mark(layout: Layout, cut_off: frozenset[int], conflict: Conflict) -> frozenset[int]:
    """Leave out the items that are marked already, or all items if no mark can be made: the leader marks them later."""
    refused = frozenset(item for item in cut_off if layout.item(item).orphan == conflict.path)
    return cut_off - refused if not refused or conflict.reason == "exists" else frozenset()
