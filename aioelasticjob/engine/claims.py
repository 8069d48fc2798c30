"""The first transaction of a fire: the claim takes items.  The second one is in ``settlements.py``.

A claim is written only if four conditions hold.  The assignment and the schedules are still those on which the claim
was decided.  The items' records have not changed since they were read, so nobody has claimed this moment or a later
one.  And no item runs anywhere: the claim creates the ephemeral node ``running``, which must not exist yet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain

from aioelasticjob.core import records
from aioelasticjob.core.commands import ClaimItems, ClaimResult
from aioelasticjob.core.effects import MAX_OPERATIONS, halves, parts
from aioelasticjob.core.request_runs import claiming
from aioelasticjob.core.view import JobView
from aioelasticjob.engine.commit import SentTransaction, answer_to, result_of, send, write
from aioelasticjob.engine.member import Member
from aioelasticjob.engine.membership import restore_parent
from aioelasticjob.engine.refusals import CLAIM
from aioelasticjob.errors import Conflict, NodeTooLarge, RegistryError, SessionEnded
from aioelasticjob.ground.values import value
from aioelasticjob.logging import logger
from aioelasticjob.model import Claim, Fire, FireSource, Record, VersionedRecord
from aioelasticjob.registry.transaction import Check, Committed, Create, Delete, Op, Set

ITEMS_AT_ONCE = MAX_OPERATIONS // 3
"""How many items one transaction claims or settles.

Each usually has two operations.  It has four or five if it is rescued, or if the end of a run for a request is noted:
then the transaction has up to two thirds more than ``MAX_OPERATIONS``.
"""
MAX_TEXT = 512 * 1024
"""Bytes of requests' parameters in one transaction: half of the largest transaction that a registry accepts."""

log = logger(__name__)


@dataclass(slots=True)
class OwnLocks:
    """The locks of items that this instance has made, or is about to make."""

    executing: set[int] = field(default_factory=set)
    """The items that it has claimed and not settled yet, so that their locks are needed."""
    rescuing: set[int] = field(default_factory=set)
    """The items of which it rescues a run.  Their settlement removes the mark of the rescue as well."""

    def release(self, items: Iterable[int]) -> None:
        """Note that items are not locked any more."""
        self.executing.difference_update(items)
        self.rescuing.difference_update(items)


@value
class SentClaim:
    """A transaction of a claim that was sent, and the items of the transactions that follow it."""

    command: ClaimItems
    items: tuple[int, ...]
    """The items of this transaction."""
    first: int
    """How many operations precede those of the items."""
    transaction: SentTransaction
    settles: bool = False
    """Whether this transaction also settles runs that have ended."""
    later: tuple[Sequence[int], ...] = ()
    """The items of each transaction that is sent later."""

    @property
    def new_items(self) -> set[int]:
        """The items of this transaction and of later ones that this instance has not locked yet."""
        return {*self.items, *chain.from_iterable(self.later)} - self.command.settling.keys()


class Claims:
    """Claims items.  Nothing but this and ``Settlements`` makes or removes their locks in this process."""

    def __init__(self, member: Member, locks: OwnLocks) -> None:
        self._member = member
        self._locks = locks
        self._met: tuple[Fire, str] | None = None
        """The fire of the last claim and the conflict that it met; None if it was accepted."""
        self._warned = set[str]()
        """The nodes made by hand that were logged because they prevent claims."""

    def send(self, command: ClaimItems, settling: Sequence[Op] = ()) -> SentClaim:
        """Send a claim of items; ``claimed`` or ``finish`` gives its result.

        ``settling`` are the operations that settle runs that have ended: they are written in the same transaction.
        """
        chosen = sorted(command.wanted)
        self._locks.executing.update(chosen)  # before it is sent: otherwise ``release`` would remove the new locks
        texts = [command.fire.parameter]
        for record in command.wanted.values():
            texts += [record.unknown, record.error]
        at_once = max(1, items_per_transaction(texts) // command.fire.weight)
        later = tuple(parts(chosen[at_once:], at_once))
        return self._send(command, chosen[:at_once], later, settling)

    def claimed(self, sent: SentClaim) -> ClaimResult | None:
        """Return the result of a claim that was accepted whole or outdated; None if ``finish`` is needed."""
        answer = answer_to(self._member, sent.transaction)
        if isinstance(answer, Conflict) and (answer.index < sent.first or sent.settles):
            self._locks.executing.difference_update(sent.new_items)
            return ClaimResult(stale=True)
        if sent.later or not isinstance(answer, Committed):
            return None
        taken = ClaimResult()
        self._note_claimed(sent, answer, taken)
        return taken

    async def finish(self, sent: SentClaim) -> ClaimResult:
        """Wait for the result of a claim, and claim the items of the transactions that follow.

        Raises:
            Suspended: there is no connection.
            SessionEnded: the session was lost.
            RegistryError: the registry refuses the claim, and no item was claimed.
        """
        taken = ClaimResult()
        try:
            await self._take(sent, taken)
            for part in sent.later:
                if taken.stale:
                    break
                await self._take(self._send(sent.command, part), taken)
        except RegistryError as error:
            if taken.claim is None or isinstance(error, SessionEnded):
                raise  # otherwise the items claimed before are run and settled; the others are still due
        finally:
            got = () if taken.claim is None else taken.claim.items.keys()
            self._locks.executing.difference_update(sent.new_items.difference(got))
        return taken

    def unmonitored(self, command: ClaimItems) -> Claim:
        """Return a claim without any request to the registry, for a job whose execution is not monitored."""
        assumed = {item: VersionedRecord(record, None) for item, record in command.wanted.items()}
        return self._claim_of(command, assumed, is_recorded=False)

    async def begin_unmonitored(self, command: ClaimItems) -> ClaimResult:
        """Note for a request which items begin to run, of a job whose execution is not monitored.

        Nothing else is written, and each item has a node below the request: so no second instance runs it.

        Raises:
            Suspended: there is no connection.
            SessionEnded: the session was lost.
            RegistryError: the registry refuses it, and no item begins.
        """
        member = self._member
        view = command.view
        fire = command.fire
        begun = dict[int, VersionedRecord]()
        taken = ClaimResult()
        for part in parts(sorted(command.wanted), MAX_OPERATIONS):
            operations: list[Op] = [Check(member.layout.sharding, view.sharding_version)]
            operations += claiming(member.layout, fire, part, member.id)
            try:
                committed = await write(member, operations, CLAIM)
            except Conflict:
                taken.stale = True
                break
            except RegistryError as error:
                if not begun or isinstance(error, SessionEnded):
                    raise
                break  # the items that have begun are run; the others are still asked for
            for item in part:
                begun[item] = VersionedRecord(command.wanted[item], None, committed.zxid)
        if begun:
            taken.claim = self._claim_of(command, begun, is_recorded=False)
        return taken

    def _claim_of(
        self, command: ClaimItems, written: Mapping[int, VersionedRecord], *, is_recorded: bool = True
    ) -> Claim:
        before = {item: command.before[item].record for item in written}
        upstream = command.view.outcomes_upstream(command.fire)
        return Claim(command.fire, self._member.id, self._member.incarnation, written, before, is_recorded, upstream)

    def _send(
        self,
        command: ClaimItems,
        items: Sequence[int],
        later: tuple[Sequence[int], ...] = (),
        settling: Sequence[Op] = (),
    ) -> SentClaim:
        """Send a transaction that claims items."""
        member = self._member
        operations = [*settling, *_entitled(member, command.view, command.fire, items)]
        first = len(operations)
        for item in items:
            operations += _claiming(member, item, command.wanted[item], command.before[item].version)
        return SentClaim(command, tuple(items), first, send(member, operations, CLAIM), bool(settling), later)

    async def _take(self, sent: SentClaim, taken: ClaimResult) -> None:
        """Wait for the answer to a transaction, and note the result in ``taken``.

        If an item's record or lock has changed, all items of the transaction are to be read again.  If the view may be
        outdated, the result is stale.  A transaction that is too large is sent in two halves.

        Raises:
            Conflict: the claim before has met the same conflict, although everything was read again.
            NodeTooLarge: the claim of one item is too large.
        """
        has_parts = len(sent.items) > 1
        try:
            may_be_split = has_parts or sent.settles
            committed = await result_of(self._member, sent.transaction, has_parts=may_be_split)
            self._note_claimed(sent, committed, taken)
        except NodeTooLarge:
            if sent.settles:
                taken.stale = True  # the next claim is made once what has ended is settled alone
                return
            if not has_parts:
                raise
            for half in halves(sent.items):
                if not taken.stale:
                    await self._take(self._send(sent.command, half), taken)
        except Conflict as conflict:
            if conflict.index < sent.first or sent.settles:
                taken.stale = True
                return
            met = (sent.command.fire, str(conflict))
            if met == self._met:
                self._met = None
                raise
            self._met = met
            if await self._cleared(conflict, sent, taken):
                taken.renewed = taken.renewed.union(sent.items)
            else:
                taken.stale = True

    def _note_claimed(self, sent: SentClaim, committed: Committed, taken: ClaimResult) -> None:
        """Note the records that a transaction has written."""
        self._met = None
        command = sent.command
        written = dict[int, VersionedRecord]() if taken.claim is None else dict(taken.claim.items)
        for number, item in enumerate(sent.items):
            version = committed.versions[sent.first + 2 * number]
            written[item] = VersionedRecord(command.wanted[item], version, committed.zxid)
        if command.fire.source is FireSource.FAILOVER:
            self._locks.rescuing.update(sent.items)
        taken.claim = self._claim_of(command, written)

    async def _cleared(self, conflict: Conflict, sent: SentClaim, taken: ClaimResult) -> bool:
        """Prepare another attempt after a conflict; False if none is possible, say because the job was removed."""
        for item in sent.items:
            paths = self._member.layout.item(item)
            if conflict.reason == "no ephemeral children" and conflict.path in (paths.execution, paths.running):
                self._warn(
                    conflict.path, "its parent is ephemeral, so the item does not run until that node is removed"
                )
                taken.obstructed |= {item}
            is_missing = (conflict.path, conflict.reason) == (paths.execution, "missing")
            if is_missing and sent.command.before[item].version is None:
                return await restore_parent(self._member, self._member.layout.execution)
        return True

    def _warn(self, path: str, why: str) -> None:
        """Log once what is wrong with a node."""
        if path in self._warned:
            return
        self._warned.add(path)
        if self._member.admits(log, "nodes of items are wrong"):
            log.warning("%s: %s", path, why, extra={"job": self._member.layout.job})


async def remove_orphan_mark(member: Member, item: int, version: int | None) -> None:
    """Remove the mark of an orphan whose run is completed.  Another instance may have removed it already."""
    paths = member.layout.item(item)
    unchanged: list[Op] = [] if version is None else [Check(paths.execution, version)]
    with suppress(RegistryError):
        await write(member, [*unchanged, Delete(paths.orphan)], "to remove the mark of an item that has ended")


def items_per_transaction(texts: Collection[str | None]) -> int:
    """Return how many items fit into one transaction if their records hold these texts."""
    longest = max([len(text) for text in texts if text], default=0)
    if not longest:
        return ITEMS_AT_ONCE
    fitting = MAX_TEXT // (6 * longest)  # six: "\u0000"
    return min(ITEMS_AT_ONCE, max(1, fitting))


def in_force(member: Member, view: JobView) -> list[Op]:
    """Return the checks of each write that accounts for moments: the assignment and the schedules are those of a view.

    Otherwise a former holder could account for moments of an item, or a moment of a former schedule could hide those
    of the present one.
    """
    checks: list[Op] = [Check(member.layout.sharding, view.sharding_version)]
    if view.schedule_version is not None:
        checks.append(Check(member.layout.schedule, view.schedule_version))
    return checks


def _entitled(member: Member, view: JobView, fire: Fire, items: Iterable[int]) -> list[Op]:
    """Return the operations that allow a claim: checks of what is in force, or the removal of orphans' marks."""
    layout = member.layout
    if fire.source is not FireSource.FAILOVER:
        return [*in_force(member, view), *claiming(layout, fire, items)]
    me = member.id.encode()
    operations = list[Op]()
    for item in items:
        paths = layout.item(item)
        operations += [Delete(paths.orphan), Create(paths.failover, me, ephemeral=True)]
    return operations


def _claiming(member: Member, item: int, record: Record, version: int | None) -> list[Op]:
    paths = member.layout.item(item)
    data = records.encode(record)
    begin: Op = Create(paths.execution, data) if version is None else Set(paths.execution, data, version)
    return [begin, Create(paths.running, member.id.encode(), ephemeral=True)]
