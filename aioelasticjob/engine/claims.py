"""The first transaction of a fire: the claim takes items.  The second one is in ``settlements.py``.

A claim is written only if three conditions hold.  The assignment is still the one on which the claim was decided.  The
items' records have not changed since they were read, so nobody has claimed this moment or a later one.  And no item
runs anywhere: the claim creates the ephemeral node ``running``, which must not exist yet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain

from aioelasticjob.core import records
from aioelasticjob.core.commands import ClaimResult
from aioelasticjob.core.effects import MAX_OPERATIONS, halves
from aioelasticjob.core.request_runs import claiming, losing
from aioelasticjob.core.view import JobView
from aioelasticjob.engine.commit import SentTransaction, answer_to, result_of, send, write
from aioelasticjob.engine.member import Member
from aioelasticjob.engine.membership import restore_parent
from aioelasticjob.engine.record_cache import RecordCache
from aioelasticjob.engine.refusals import CLAIM
from aioelasticjob.errors import Conflict, NodeTooLarge, RegistryError, SessionEnded
from aioelasticjob.ground.values import value
from aioelasticjob.logging import logger
from aioelasticjob.model import SCHEDULED, Claim, Fire, FireSource, Record, VersionedRecord
from aioelasticjob.registry.transaction import Check, Committed, Create, Delete, Op, Set

ITEMS_AT_ONCE = MAX_OPERATIONS // 3
"""How many items one transaction claims or settles.

Each usually has three operations at most.  It has four or five if it is rescued, or if the end of a run for a request
is noted: then the transaction has up to two thirds more than ``MAX_OPERATIONS``.
"""
MAX_TEXT = 512 * 1024
"""Bytes of triggers' parameters in one transaction: half of the largest transaction that a registry accepts."""

log = logger(__name__)


@value
class SentClaim:
    """A transaction of a claim that was sent, and the items of the transactions that follow it."""

    view: JobView
    fire: Fire
    begins: int
    """When the run begins, in milliseconds since the epoch."""
    next_fire: int
    before: dict[int, Record]
    """The records that the transaction replaces."""
    wanted: dict[int, Record]
    """The records that it writes."""
    first: int
    """How many operations precede those of the items."""
    transaction: SentTransaction
    later: tuple[Sequence[int], ...] = ()
    """The items of each transaction that is sent later."""

    @property
    def items(self) -> set[int]:
        """The items of this transaction and of later ones."""
        return {*self.wanted, *chain.from_iterable(self.later)}


class Claims:
    """Claims items.  Nothing but this and ``Settlements`` writes their records in this process."""

    def __init__(self, member: Member, cache: RecordCache) -> None:
        self._member, self._cache = member, cache

    def send(self, view: JobView, fire: Fire, items: Collection[int], begins: int, next_fire: int) -> SentClaim:
        """Send a claim of items; ``claimed`` or ``finish`` gives its result.

        ``begins`` is when the run begins: now, or at its moment if that is still to come.  ``next_fire`` is the moment
        that follows.  Both are in milliseconds since the epoch.
        """
        chosen, texts = sorted(items), [fire.parameter]
        for entry in map(self._cache.items.__getitem__, chosen):
            entry.executing = True  # before the claim is sent: otherwise ``release`` would remove the new locks
            texts.append(entry.record.unknown)
        at_once = max(1, items_per_transaction(texts) // fire.weight)
        later = tuple(chosen[n : n + at_once] for n in range(at_once, len(chosen), at_once))
        return self._send(view, fire, begins, next_fire, chosen[:at_once], later)

    def claimed(self, sent: SentClaim) -> ClaimResult | None:
        """Return the result of a claim that was accepted whole or outdated; None if ``finish`` is needed."""
        answer = answer_to(self._member, sent.transaction)
        if isinstance(answer, Conflict) and answer.index < sent.first:
            self._drop(sent.items)
            return ClaimResult(stale=True)
        if sent.later or not isinstance(answer, Committed):
            return None
        taken = ClaimResult()
        self._note_claimed(sent, answer, taken)
        return taken

    async def finish(self, sent: SentClaim) -> ClaimResult:
        """Wait for the result of a claim; if items were refused, claim the others, and claim the items that follow.

        Raises:
            Suspended: there is no connection.
            SessionEnded: the session was lost.
            RegistryError: the registry refuses the claim, and no item was claimed.
        """
        taken, items = ClaimResult(), sent.items
        try:
            await self._take(sent, taken)
            for part in sent.later:
                if taken.stale:
                    break
                await self._take(self._send_more(sent, part, taken), taken)
        except RegistryError as error:
            if taken.claim is None or isinstance(error, SessionEnded):
                raise  # otherwise the items claimed before are run and settled; the others are still due
        finally:
            self._drop(items if taken.claim is None else items - taken.claim.items.keys())
        return taken

    def _drop(self, items: Iterable[int]) -> None:
        """Note that a claim did not get these items."""
        for item in items:
            self._cache.items[item].executing = False

    def unmonitored(self, fire: Fire, items: Collection[int]) -> Claim:
        """Return a claim without any request to the registry, for a job whose execution is not monitored."""
        if fire.source in SCHEDULED:
            assumed = {item: self._cache.items[item].assume(fire.slot) for item in items}
        else:  # a trigger claims no scheduled moment
            assumed = {item: VersionedRecord(self._cache.items[item].record, None) for item in items}
        return Claim(fire, self._member.id, self._member.incarnation, assumed, {}, is_recorded=False)

    def _send(
        self,
        view: JobView,
        fire: Fire,
        begins: int,
        next_fire: int,
        items: Iterable[int],
        later: tuple[Sequence[int], ...] = (),
    ) -> SentClaim:
        """Send a transaction that claims items, with their records as they are known now."""
        member, entries, me = self._member, self._cache.items, self._member.id
        before = {item: entries[item].record for item in items}
        wanted = {item: records.begun(last, fire, me, begins, next_fire) for item, last in before.items()}
        operations = _entitled(member, view, fire, before)
        first = len(operations)
        for item, record in wanted.items():
            operations += _claiming(member, item, record, entries[item].version)
        for item in wanted:
            if entries[item].mark.removable:
                operations.append(Delete(member.layout.item(item).misfire))
        transaction = send(member, operations, CLAIM)
        return SentClaim(view, fire, begins, next_fire, before, wanted, first, transaction, later)

    def _send_more(self, sent: SentClaim, items: Iterable[int], taken: ClaimResult) -> SentClaim:
        """Send a further transaction of a claim.  It need not remove the trigger if an earlier one has removed it."""
        fire = sent.fire if taken.claim is None else taken.claim.fire
        return self._send(sent.view, fire, sent.begins, sent.next_fire, items)

    async def _take(self, sent: SentClaim, taken: ClaimResult) -> None:
        """Wait for the answer to a transaction, and note the result in ``taken``.

        Items that cannot be claimed are left out.  If the view may be outdated, the result is stale.  A transaction
        that is too large is sent in two halves.

        Raises:
            Conflict: the claim has met the same conflict again, although everything was read again.
            NodeTooLarge: the claim of one item is too large.
        """
        met = ""
        while True:
            has_parts = len(sent.wanted) > 1
            try:
                committed = await result_of(self._member, sent.transaction, has_parts=has_parts)
                return self._note_claimed(sent, committed, taken)
            except NodeTooLarge:
                if not has_parts:
                    raise
                return await self._take_halves(sent, taken)
            except Conflict as conflict:
                if str(conflict) == met:
                    raise
                met = str(conflict)
                if conflict.index < sent.first or not await self._cleared(conflict, sent.wanted, taken):
                    taken.stale = True
                    return None
                left = await self._reconsider(sent, taken)
            taken.renewed = taken.renewed.union(left)
            if not left:
                return None
            sent = self._send_more(sent, left, taken)

    async def _take_halves(self, sent: SentClaim, taken: ClaimResult) -> None:
        """Claim the items of a transaction that was too large in two transactions."""
        for half in halves(sorted(sent.wanted)):
            if not taken.stale:
                await self._take(self._send_more(sent, half, taken), taken)

    def _note_claimed(self, sent: SentClaim, committed: Committed, taken: ClaimResult) -> None:
        """Note records that a claim has written, and those that it has replaced."""
        member, fire, zxid = self._member, sent.fire, committed.zxid
        former, written = taken.claim, dict[int, VersionedRecord]()
        for n, (item, record) in enumerate(sent.wanted.items()):
            entry, last = self._cache.items[item], sent.before[item]
            entry.seen = written[item] = VersionedRecord(record, committed.versions[sent.first + 2 * n], zxid)
            entry.claimed(rescue=fire.source is FireSource.FAILOVER)
            if fire.source is not FireSource.FAILOVER and records.is_cut_off(last):
                taken.cut_off[item] = last
        found = sent.before
        if former is not None:
            written, found = {**former.items, **written}, {**former.before, **found}
        fire = fire if fire.request is None else replace(fire, request=None)  # the trigger is removed now
        taken.claim = Claim(fire, member.id, member.incarnation, written, found)

    async def _cleared(self, conflict: Conflict, wanted: Iterable[int], taken: ClaimResult) -> bool:
        """Prepare another attempt after a conflict; False if none is possible, say because the job was removed."""
        met = conflict.path, conflict.reason
        for item in wanted:
            paths = self._member.layout.item(item)
            if conflict.reason == "no ephemeral children" and conflict.path in (paths.execution, paths.running):
                why = "its parent is ephemeral, so the item does not run until that node is removed"
                self._cache.warn(conflict.path, 0, why)
                taken.obstructed |= {item}
            elif met == (paths.execution, "missing") and self._cache.items[item].version is None:
                return await restore_parent(self._member, self._member.layout.execution)
        return True

    async def _reconsider(self, sent: SentClaim, taken: ClaimResult) -> list[int]:
        """Read the items again; return those that can still be claimed, and note those that run elsewhere.

        A rescue is decided on the record of one run, so it does not take an item of which another run was cut off.
        """
        fire, left = sent.fire, list[int]()
        running = await self._cache.learn(sent.wanted.keys() - taken.obstructed)
        taken.elsewhere |= running
        for item in sorted(sent.wanted.keys() - taken.obstructed - running):
            record = self._cache.items[item].record
            rescued = record.completed or record.begun != sent.before[item].begun
            if not (rescued if fire.source is FireSource.FAILOVER else records.is_taken(record, fire)):
                left.append(item)
        return left


async def remove_orphan_mark(member: Member, cache: RecordCache, item: int) -> None:
    """Remove the mark of an orphan whose run is completed.  Another instance may have removed it already."""
    paths, version = member.layout.item(item), cache.items[item].version
    removal: list[Op] = [*([] if version is None else [Check(paths.execution, version)]), Delete(paths.orphan)]
    with suppress(RegistryError):
        await write(member, removal, "to remove the mark of an item that has ended")


def items_per_transaction(texts: Collection[str | None]) -> int:
    """Return how many items fit into one transaction if their records hold these texts."""
    longest = max([len(text) for text in texts if text], default=0)
    return min(ITEMS_AT_ONCE, max(1, MAX_TEXT // (6 * longest))) if longest else ITEMS_AT_ONCE  # six: "\u0000"


def _entitled(member: Member, view: JobView, fire: Fire, before: Mapping[int, Record]) -> list[Op]:
    """Return the operations that allow a claim: a check of the assignment, or the removal of orphans' marks."""
    layout = member.layout
    if fire.source is not FireSource.FAILOVER:
        entitled: list[Op] = [Check(layout.sharding, view.sharding_version)]
        if fire.request is not None:
            entitled.append(Delete(*fire.request))
        if fire.requested is not None:
            entitled += claiming(layout, fire, before)
        if view.requested:
            claimed = "" if fire.requested is None else fire.requested.id
            entitled += losing(view, before, claimed)
        return entitled
    me, operations = member.id.encode(), list[Op]()
    for item in before:
        paths = layout.item(item)
        operations += [Delete(paths.orphan), Create(paths.failover, me, ephemeral=True)]
    return operations


def _claiming(member: Member, item: int, record: Record, version: int | None) -> list[Op]:
    paths, data = member.layout.item(item), records.encode(record)
    begin: Op = Create(paths.execution, data) if version is None else Set(paths.execution, data, version)
    return [begin, Create(paths.running, member.id.encode(), ephemeral=True)]
