"""The second transaction of a fire: the settlement ends the runs of a claim, and unlocks its items.

A settlement writes the record of each item, if its version is still the one that the claim has written, and removes
the item's lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from typing import TypeAlias

from aioelasticjob.core import records
from aioelasticjob.core.effects import halves
from aioelasticjob.core.layout import Layout
from aioelasticjob.core.request_runs import settling
from aioelasticjob.engine.claims import items_per_transaction
from aioelasticjob.engine.commit import SentTransaction, answer_to, result_of, send
from aioelasticjob.engine.member import Member
from aioelasticjob.engine.record_cache import RecordCache, items_below
from aioelasticjob.engine.refusals import GIVE_BACK, SETTLE
from aioelasticjob.errors import Conflict, NodeTooLarge, RegistryError, SessionEnded
from aioelasticjob.logging import logger
from aioelasticjob.model import NONE, Claim, Fire, Outcome, VersionedRecord
from aioelasticjob.registry.transaction import Committed, Create, Delete, Op, Set

Ended: TypeAlias = dict[int, VersionedRecord]
"""The records to be written for items whose runs have ended."""

log = logger(__name__)


@dataclass(slots=True)
class Settlement:
    """Items whose claim ends: their runs have ended and are settled, or do not begin, so the items are given back."""

    parts: list[Ended]
    """The records that are still to be written, in one part for each transaction; the first part is next."""
    what: str
    fire: Fire | None = None
    read_first: bool = False
    """Whether the items are read before a transaction is sent for them."""
    handed_over: frozenset[int] = NONE
    """The items that the settlement marks as orphans, because their runs were cut off."""
    unfinished: frozenset[int] = NONE
    """The items whose runs are streams that have given way: their request is left open."""
    transaction: SentTransaction | None = None
    """The transaction of the first part; None if its items are to be read first."""
    gone: frozenset[str] = frozenset()
    """The nodes of requests that somebody has removed."""


class Settlements:
    """Settles the items of claims, and removes locks that were left."""

    def __init__(self, member: Member, cache: RecordCache) -> None:
        self._member, self._cache = member, cache

    def settle(
        self,
        claim: Claim,
        outcomes: Mapping[int, Outcome],
        now: int,
        *,
        hand_over: bool,
        removed: bool = False,
        unfinished: frozenset[int] = NONE,
    ) -> Settlement:
        """Begin to end the runs of a claim; ``settled`` or ``finish`` gives the result.

        ``now`` is in milliseconds since the epoch.  With ``hand_over``, items whose run was cut off are marked as
        orphans.  ``removed`` says that this instance's node is gone.  Then the job may have been removed and made
        again: other instances may hold the locks, and the versions of nodes have begun again at 0.  So the items are
        read first.  ``unfinished`` are the items of streams that have given way.
        """
        ended = {item: records.ended(seen, outcomes.get(item), now) for item, seen in claim.items.items()}
        settlement = Settlement([], SETTLE, claim.fire, read_first=removed, unfinished=unfinished)
        return self._begin(settlement, ended, hand_over=hand_over)

    def settled(self, settlement: Settlement) -> bool:
        """Whether a settlement was accepted whole; if not, ``finish`` has to be awaited."""
        sent = settlement.transaction if len(settlement.parts) == 1 else None
        answer = None if sent is None else answer_to(self._member, sent)
        if not isinstance(answer, Committed):
            return False
        self._note_settled(settlement, answer)
        self._unlock(settlement.parts[0])
        return True

    async def finish(self, settlement: Settlement) -> bool:
        """Wait until the items of a settlement are settled; False if the session and its locks were lost.

        If the registry refuses the settlement, for whatever reason, it is tried again as long as the session lives,
        because the items stay locked until they are settled.  A transaction that is too large is sent in two halves.
        """
        items, refused, before = [item for part in settlement.parts for item in part], 0, ""
        while settlement.parts:
            try:
                if sent := settlement.transaction or await self._read_and_send(settlement):
                    has_parts = len(settlement.parts[0]) > 1
                    committed = await result_of(self._member, sent, wait=True, has_parts=has_parts)
                    self._note_settled(settlement, committed)
                del settlement.parts[0]
                self._begin_part(settlement)
            except SessionEnded:
                return False
            except RegistryError as error:
                settlement.transaction = None
                if isinstance(error, NodeTooLarge) and len(settlement.parts[0]) > 1:
                    settlement.parts[:1] = [dict(half) for half in halves(list(settlement.parts[0].items()))]
                    continue
                if isinstance(error, Conflict):
                    _leave_out_refused(self._member.layout, settlement, error)
                if str(error) == before:  # after a new error, the items are read and tried again at once
                    await self._member.session.back_off(refused)
                    refused += 1
                before = str(error)
        self._unlock(items)
        return True

    async def give_back(self, claim: Claim) -> bool:
        """Give back items whose run has not begun, with their former records; False if the session was lost."""
        former = {item: VersionedRecord(claim.before[item], seen.version) for item, seen in claim.items.items()}
        return await self.finish(self._begin(Settlement([], GIVE_BACK), former))

    async def release(self, item: int, *, hand_over: bool) -> None:
        """Remove a lock of this session that no execution needs any more, because its run was cut off.

        Such a lock is left if the job ended with an error and joined again under the same session.  Without this method
        the item would wait for its own instance for ever.  With ``hand_over`` the item is marked as an orphan.

        Raises:
            RegistryError: the registry cannot be read.
        """
        await self._cache.learn([item])
        entry = self._cache.items[item]
        seen = entry.seen  # taken at once: if the item moves away, the entry is forgotten while the mark is read
        if seen is None or not entry.locked or entry.executing:
            return
        entry.executing = True  # or a second call would remove the lock of a rescue that begins when this one ends
        try:
            (rescue,) = await self._member.session.get_many([self._member.layout.item(item).failover])
        except BaseException:
            entry.executing = False
            raise
        if self._member.owns(rescue):
            entry.rescuing = True
        if await self.finish(self._begin(Settlement([], SETTLE), {item: seen}, hand_over=hand_over)):
            why = "was still locked by this instance, though its run had been cut off"
            text = f"item {item} {why}; the lock was removed"
            self._member.log_limited(log, "locks of runs that were cut off were removed", text, item=item)

    async def release_all(self, *, hand_over: bool) -> None:
        """Remove all such locks of the job, also those of items that other instances hold by now.

        Raises:
            RegistryError: the registry cannot be read.
        """
        layout, session = self._member.layout, self._member.session
        items = await items_below(session, layout.execution)
        nodes = await session.get_many([layout.item(item).running for item in items])
        for item, lock in zip(items, nodes, strict=True):
            if self._member.owns(lock):
                await self.release(item, hand_over=hand_over)

    def _begin(self, settlement: Settlement, ended: Ended, *, hand_over: bool = False) -> Settlement:
        """Begin to write these records, and to remove the locks of their items."""
        at_once = items_per_transaction(
            [text for seen in ended.values() for text in (seen.record.parameter, seen.record.unknown)]
        )
        if hand_over:
            settlement.handed_over = frozenset([item for item, seen in ended.items() if not seen.record.completed])
        given = list(ended.items())
        settlement.parts = [dict(given[n : n + at_once]) for n in range(0, len(given), at_once)]
        self._begin_part(settlement)
        return settlement

    def _begin_part(self, settlement: Settlement) -> None:
        """Send the transaction of the first part that is left, unless its items are to be read first."""
        settlement.transaction = None
        if settlement.parts and not settlement.read_first:
            self._send_part(settlement)

    async def _read_and_send(self, settlement: Settlement) -> SentTransaction | None:
        """Read the items of the first part, and send it; None if this instance locks none of them any more.

        Somebody may have edited records by hand, so the versions that are read now are used.
        """
        part, entries = settlement.parts[0], self._cache.items
        # If they cannot be read, the part is sent as it is, and is refused again.  If the job may have been made anew,
        # it could be accepted, because versions may have begun again at 0: then it is not sent.
        with nullcontext() if settlement.read_first else suppress(RegistryError):
            await self._cache.learn(part)
            mine = {n: replace(seen, version=entries[n].version) for n, seen in part.items() if entries[n].locked}
            rescued = [item for item in sorted(mine) if entries[item].rescuing]
            marks = await self._member.session.get_many([self._member.layout.item(item).failover for item in rescued])
            for item, mark in zip(rescued, marks, strict=True):  # a foreign mark was made by hand, so leave it alone
                entries[item].rescuing = self._member.owns(mark)
            settlement.parts[0] = mine
            settlement.handed_over -= part.keys() - mine.keys()
        return self._send_part(settlement) if settlement.parts[0] else None

    def _send_part(self, settlement: Settlement) -> SentTransaction:
        """Send the transaction of the first part."""
        layout, ended, operations = self._member.layout, settlement.parts[0], list[Op]()
        for item, seen in ended.items():
            paths = layout.item(item)
            assert seen.version is not None  # a claim has written it
            operations += [Set(paths.execution, records.encode(seen.record), seen.version), Delete(paths.running)]
        operations += [Delete(layout.item(item).failover) for item in ended if self._cache.items[item].rescuing]
        for item in settlement.handed_over.intersection(ended):
            seen = ended[item]
            operations.append(Create(layout.item(item).orphan, records.encode_mark(seen.record, seen.zxid)))
        if settlement.fire is not None and settlement.fire.requested is not None:
            noted = settling(layout, settlement.fire, ended, settlement.unfinished)
            operations += [one for one in noted if one.path not in settlement.gone]
        settlement.transaction = send(self._member, operations, settlement.what)
        return settlement.transaction

    def _note_settled(self, settlement: Settlement, committed: Committed) -> None:
        """Note the records that the transaction of the first part has written."""
        for (item, seen), version in zip(settlement.parts[0].items(), committed.versions[::2], strict=False):
            self._cache.items[item].seen = VersionedRecord(seen.record, version, committed.zxid)

    def _unlock(self, items: Iterable[int]) -> None:
        """Note that items are not locked any more."""
        for entry in map(self._cache.items.__getitem__, items):
            entry.rescuing = entry.executing = entry.locked = False


def _leave_out_refused(layout: Layout, settlement: Settlement, conflict: Conflict) -> None:
    """Leave out what the registry has refused: an orphan's mark that exists, or a request's node that is gone.

    If no mark can be made, this part is written without any.  The leader makes the missing ones later.
    """
    marked = settlement.handed_over.intersection(settlement.parts[0])
    if refused := {item for item in marked if layout.item(item).orphan == conflict.path}:
        settlement.handed_over -= refused if conflict.reason == "exists" else marked
    settlement.gone |= {conflict.path}  # the path of any other node changes nothing
