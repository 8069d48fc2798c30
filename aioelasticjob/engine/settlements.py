"""The second transaction of a fire: the settlement ends the runs of a claim, and unlocks its items.

A settlement writes the record of each item, if its version is still the one that the claim has written, and removes
the item's lock.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

from aioelasticjob.core import records
from aioelasticjob.core.effects import MAX_OPERATIONS, ends_for_followers, halves, parts
from aioelasticjob.core.items import Lock
from aioelasticjob.core.layout import Layout
from aioelasticjob.core.request_runs import settling
from aioelasticjob.engine.claims import OwnLocks, items_per_transaction
from aioelasticjob.engine.commit import SentTransaction, answer_to, result_of, send, until_answered
from aioelasticjob.engine.item_reader import ItemReader, items_below
from aioelasticjob.engine.member import Member
from aioelasticjob.engine.refusals import GIVE_BACK, SETTLE
from aioelasticjob.errors import Conflict, NodeTooLarge, RegistryError, SessionEnded
from aioelasticjob.logging import logger
from aioelasticjob.model import LEFT_OPEN, NONE, Claim, EndedItem, Fire, Outcome, VersionedRecord
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
    """The nodes of requests that somebody has removed, and what else the registry has refused for good."""
    remade: frozenset[str] = frozenset()
    """The nodes for followers that somebody has removed: they are made again."""
    written: dict[int, VersionedRecord] = field(default_factory=dict)
    """The records that were written."""


class Settlements:
    """Settles the items of claims, and removes locks that were left."""

    def __init__(self, member: Member, reader: ItemReader, locks: OwnLocks) -> None:
        self._member = member
        self._reader = reader
        self._locks = locks

    def settle(
        self,
        claim: Claim,
        outcomes: Mapping[int, Outcome],
        now: int,
        *,
        hand_over: bool,
        removed: bool = False,
        unfinished: frozenset[int] = NONE,
        errors: Mapping[int, str] | None = None,
    ) -> Settlement:
        """Begin to end the runs of a claim; ``settled`` or ``finish`` gives the result.

        ``now`` is in milliseconds since the epoch.  With ``hand_over``, items whose run was cut off are marked as
        orphans.  ``removed`` says that this instance's node is gone.  Then the job may have been removed and made
        again: other instances may hold the locks, and the versions of nodes have begun again at 0.  So the items are
        read first.  ``unfinished`` are the items of streams that have given way, and ``errors`` says why items have
        failed.
        """
        ended = dict[int, VersionedRecord]()
        for item, seen in claim.items.items():
            ended[item] = ended_record(seen, item, outcomes, errors or {}, now)
        settlement = Settlement([], SETTLE, claim.fire, read_first=removed, unfinished=unfinished)
        return self._begin(settlement, ended, hand_over=hand_over)

    def settle_ended(self, fire: Fire, ended: Ended, *, removed: bool) -> Settlement:
        """Begin to settle items whose runs have ended, apart from others of their claim, as ``settle`` does."""
        return self._begin(Settlement([], SETTLE, fire, read_first=removed), ended)

    def settling_with_claim(self, ended: Mapping[int, EndedItem]) -> list[Op]:
        """Return the operations that settle ended items, for a transaction that claims items as well."""
        operations = list[Op]()
        for item, one in ended.items():
            operations += self._operations(one.claim.fire, {item: one.record})
        return operations

    def settled_with_claim(self, ended: Collection[int], claimed: Collection[int]) -> None:
        """Note that items were settled in the transaction that has claimed some of them again."""
        self._locks.release(ended)
        self._locks.executing.update(claimed)

    def settled(self, settlement: Settlement) -> bool:
        """Whether a settlement was accepted whole; if not, ``finish`` has to be awaited."""
        sent = settlement.transaction if len(settlement.parts) == 1 else None
        answer = None if sent is None else answer_to(self._member, sent)
        if not isinstance(answer, Committed):
            return False
        self._note_settled(settlement, answer)
        self._locks.release(settlement.parts[0])
        return True

    async def finish(self, settlement: Settlement) -> bool:
        """Wait until the items of a settlement are settled; False if the session and its locks were lost.

        If the registry refuses the settlement, for whatever reason, it is tried again as long as the session lives,
        because the items stay locked until they are settled.  A transaction that is too large is sent in two halves.
        """
        items = list[int]()
        for part in settlement.parts:
            items.extend(part)
        conflicts = 0
        before = ""
        while settlement.parts:
            try:
                if sent := settlement.transaction or await self._read_and_send(settlement):
                    has_parts = len(settlement.parts[0]) > 1
                    committed = await result_of(self._member, sent, insist=True, has_parts=has_parts)
                    self._note_settled(settlement, committed)
                del settlement.parts[0]
                self._begin_part(settlement)
            except SessionEnded:
                return False
            except NodeTooLarge:
                settlement.transaction = None
                too_large = list(settlement.parts[0].items())
                settlement.parts[:1] = [dict(half) for half in halves(too_large)]
            except Conflict as conflict:
                settlement.transaction = None
                _leave_out_refused(self._member.layout, settlement, conflict)
                if str(conflict) == before:  # after a new conflict, the items are read and tried again at once
                    await self._member.session.back_off(conflicts)
                    conflicts += 1
                before = str(conflict)
        self._locks.release(items)
        return True

    def begin_unmonitored(self, fire: Fire, outcomes: Mapping[int, str]) -> list[SentTransaction]:
        """Begin to note how runs for a request have ended, of a job whose execution is not monitored.

        ``finish_unmonitored`` gives the result.  If that is cancelled, the transactions are on their way all the same.
        """
        noted = settling(self._member.layout, fire, outcomes)
        return [send(self._member, part, SETTLE) for part in parts(noted, MAX_OPERATIONS)]

    async def finish_unmonitored(self, sent: Sequence[SentTransaction]) -> dict[int, int]:
        """Wait until it is noted how runs have ended, as long as the session lives; return the transactions by item.

        A node that somebody has removed is left out: with it, its request is gone.
        """
        noted = dict[int, int]()
        for transaction in sent:
            waiting = transaction
            while True:
                try:
                    committed = await result_of(self._member, waiting, insist=True)
                    for op in waiting.ops:
                        item = int(op.path.rpartition("/")[2])
                        noted[item] = committed.zxid
                    break
                except SessionEnded:
                    return noted
                except Conflict as conflict:
                    left = [op for op in waiting.ops if op.path != conflict.path]
                    if not left:
                        break
                    waiting = send(self._member, left, SETTLE)
        return noted

    async def give_back(self, claim: Claim) -> bool:
        """Give back items whose run has not begun: their moment is owed again; False if the session was lost."""
        former = Ended()
        for item, seen in claim.items.items():
            record = records.given_back(claim.before[item], seen.record)
            former[item] = VersionedRecord(record, seen.version)
        settlement = self._begin(Settlement([], GIVE_BACK), former)
        return await self.finish(settlement)

    async def release(self, item: int, *, hand_over: bool) -> None:
        """Remove a lock of this session that no execution needs any more, because its run was cut off.

        Such a lock is left if the job ended with an error and joined again under the same session.  Without this method
        the item would wait for its own instance for ever.  With ``hand_over`` the item is marked as an orphan.

        Raises:
            RegistryError: the registry cannot be read.
        """
        by_item = await self._reader.read([item])
        found = by_item[item]
        executing = self._locks.executing
        if found.lock is not Lock.OURS or item in executing:
            return
        executing.add(item)  # or a second call would remove the lock of a rescue that begins when this one ends
        try:
            path = self._member.layout.item(item).failover
            (rescue,) = await self._member.session.get_many([path])
        except BaseException:
            executing.discard(item)
            raise
        if self._member.owns(rescue):
            self._locks.rescuing.add(item)
        settlement = self._begin(Settlement([], SETTLE), {item: found.seen}, hand_over=hand_over)
        if await self.finish(settlement):
            why = "was still locked by this instance, though its run had been cut off"
            text = f"item {item} {why}; the lock was removed"
            self._member.log_limited(log, "locks of runs that were cut off were removed", text, item=item)

    async def release_all(self, *, hand_over: bool) -> None:
        """Remove all such locks of the job, also those of items that other instances hold by now.

        Raises:
            RegistryError: the registry cannot be read.
        """
        layout = self._member.layout
        session = self._member.session
        items = await items_below(session, layout.execution)
        paths = [layout.item(item).running for item in items]
        nodes = await session.get_many(paths)
        for item, lock in zip(items, nodes, strict=True):
            if self._member.owns(lock):
                await self.release(item, hand_over=hand_over)

    def _begin(self, settlement: Settlement, ended: Ended, *, hand_over: bool = False) -> Settlement:
        """Begin to write these records, and to remove the locks of their items."""
        texts = list[str | None]()
        for seen in ended.values():
            texts += [seen.record.parameter, seen.record.unknown, seen.record.error]
        at_once = items_per_transaction(texts)
        if hand_over:
            cut_off = [item for item, seen in ended.items() if not seen.record.completed]
            settlement.handed_over = frozenset(cut_off)
        given = list(ended.items())
        settlement.parts = []
        for first in range(0, len(given), at_once):
            part = given[first : first + at_once]
            settlement.parts.append(dict(part))
        self._begin_part(settlement)
        return settlement

    def _begin_part(self, settlement: Settlement) -> None:
        """Send the transaction of the first part that is left, unless its items are to be read first."""
        settlement.transaction = None
        if settlement.parts and not settlement.read_first:
            self._send_part(settlement)

    async def _read_and_send(self, settlement: Settlement) -> SentTransaction | None:
        """Read the items of the first part, and send it; None if this instance locks none of them any more."""
        read = partial(self._read_part, settlement)
        if settlement.read_first:
            # The job may have been made anew.  Then a part that was not read could be accepted, because versions may
            # have begun again at 0.
            await until_answered(self._member, settlement.what, read)
        else:
            with suppress(RegistryError):  # then the part is sent as it is, and is refused again
                await read()
        return self._send_part(settlement) if settlement.parts[0] else None

    async def _read_part(self, settlement: Settlement) -> None:
        """Read the items of the first part, and leave out those that this instance does not lock any more.

        Somebody may have edited records by hand, so the versions that are read now are used.
        """
        part = settlement.parts[0]
        rescuing = self._locks.rescuing
        found = await self._reader.read(part)
        mine = Ended()
        for item, seen in part.items():
            if found[item].lock is Lock.OURS:
                mine[item] = replace(seen, version=found[item].seen.version)
        rescued = sorted(rescuing.intersection(mine))
        paths = [self._member.layout.item(item).failover for item in rescued]
        marks = await self._member.session.get_many(paths)
        for item, mark in zip(rescued, marks, strict=True):
            if not self._member.owns(mark):  # a foreign mark was made by hand, so leave it alone
                rescuing.discard(item)
        settlement.parts[0] = mine
        settlement.handed_over -= part.keys() - mine.keys()

    def _send_part(self, settlement: Settlement) -> SentTransaction:
        """Send the transaction of the first part."""
        layout = self._member.layout
        ended = settlement.parts[0]
        operations = self._operations(settlement.fire, ended, settlement.unfinished, settlement.gone, settlement.remade)
        for item in settlement.handed_over.intersection(ended):
            seen = ended[item]
            mark = records.encode_mark(seen.record, seen.zxid)
            operations.append(Create(layout.item(item).orphan, mark))
        settlement.transaction = send(self._member, operations, settlement.what)
        return settlement.transaction

    def _operations(
        self,
        fire: Fire | None,
        ended: Ended,
        unfinished: frozenset[int] = NONE,
        gone: frozenset[str] = NONE,
        remade: frozenset[str] = NONE,
    ) -> list[Op]:
        """Return the operations that write records, remove the locks of their items, and note the ends of requests.

        They also write, for followers, how items have ended.
        """
        layout = self._member.layout
        operations = list[Op]()
        for item, seen in ended.items():
            paths = layout.item(item)
            assert seen.version is not None  # a claim has written it
            record = records.encode(seen.record)
            operations.append(Set(paths.execution, record, seen.version))
            operations.append(Delete(paths.running))
        rescuing = self._locks.rescuing
        for item, seen in ended.items():
            for one in ends_for_followers(layout, item, seen.record):
                if one.path in remade:
                    operations.append(Create(one.path, one.data))
                elif one.path not in gone:
                    operations.append(one)
        operations += [Delete(layout.item(item).failover) for item in ended if item in rescuing]
        if fire is not None and fire.requested is not None:
            outcomes = dict[int, str]()
            for item, seen in ended.items():
                if seen.record.completed:
                    outcomes[item] = LEFT_OPEN if item in unfinished else seen.record.outcome
            noted = settling(layout, fire, outcomes)
            operations += [one for one in noted if one.path not in gone]
        return operations

    def _note_settled(self, settlement: Settlement, committed: Committed) -> None:
        """Note the records that the transaction of the first part has written."""
        for (item, seen), version in zip(settlement.parts[0].items(), committed.versions[::2], strict=False):
            settlement.written[item] = VersionedRecord(seen.record, version, committed.zxid)


def ended_record(
    seen: VersionedRecord, item: int, outcomes: Mapping[int, Outcome], errors: Mapping[int, str], now: int
) -> VersionedRecord:
    """Return the record of an item whose run has ended, given the one that its claim has written."""
    outcome = outcomes.get(item)
    error = errors.get(item, "") if outcome in (Outcome.FAILED, Outcome.TIMED_OUT) else ""
    return records.ended(seen, outcome, now, error)


def _leave_out_refused(layout: Layout, settlement: Settlement, conflict: Conflict) -> None:
    """Leave out what the registry has refused: an orphan's mark that exists, or another node that is gone.

    If no mark can be made, this part is written without any.  The leader makes the missing ones later.
    """
    marked = settlement.handed_over.intersection(settlement.parts[0])
    refused = {item for item in marked if layout.item(item).orphan == conflict.path}
    if refused:
        settlement.handed_over -= refused if conflict.reason == "exists" else marked
    for_followers = {layout.item(item).followed for item in settlement.parts[0]}
    if conflict.path in for_followers - settlement.remade:
        settlement.remade |= {conflict.path}
        return
    settlement.remade -= {conflict.path}
    settlement.gone |= {conflict.path}  # the path of any other node changes nothing
