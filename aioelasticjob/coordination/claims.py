"""The two transactions of a fire: claim takes items, settle gives them back.

A claim holds only if the assignment is the one it was decided on, no item's record has moved since it was read (so
nobody has claimed this or a later moment), and no item runs anywhere (``running`` is ephemeral and created here).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from aioelasticjob.coordination import records
from aioelasticjob.coordination.effects import PER_TRANSACTION
from aioelasticjob.coordination.ledger import Ledger, is_cut_off
from aioelasticjob.coordination.membership import Member, connected, make
from aioelasticjob.coordination.view import JobView
from aioelasticjob.errors import Conflict, OutcomeUnknown, RegistryError, SessionEnded, Suspended
from aioelasticjob.layout import Layout
from aioelasticjob.model import Claim, Fire, FireSource, Outcome, Record, Seen
from aioelasticjob.registry.tree import Node
from aioelasticjob.registry.txn import Check, Committed, Create, Delete, Hold, Op, Set

AT_ONCE = PER_TRANSACTION // 3
"""Items that one transaction claims or settles."""
ROOM = 512 * 1024
"""Bytes of triggers' parameters in one transaction: half of what a registry takes."""
SCHEDULED = frozenset({FireSource.CRON, FireSource.MISFIRE})


@dataclass(slots=True)  # one for every fire: a frozen one costs three times as much to make
class Taken:
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

    def __init__(self, member: Member, ledger: Ledger) -> None:
        self._member, self._ledger = member, ledger
        self._rescuing: set[int] = set()

    async def claim(
        self, view: JobView, fire: Fire, items: Collection[int], now: int, next_fire: int, hold: Hold | None = None
    ) -> Taken:
        """Take the items that can be taken.  ``now`` and ``next_fire`` are milliseconds since the epoch.

        A claim on ``hold`` that is withdrawn counts as stale.

        Raises:
            Suspended: there is no connection.
            SessionEnded: the session was lost.
        """
        member, ledger, taken = self._member, self._ledger, Taken()
        written: dict[int, Seen] = {}
        found: dict[int, Record] = {}
        fences: dict[int, int] = {}
        rest, at_once = sorted(items), _at_once([fire.parameter])
        while rest and not taken.stale:
            part, rest = rest[:at_once], rest[at_once:]
            before = {item: ledger.record(item) for item in part}
            wanted = {item: _begun(record, fire, member.id, now, next_fire) for item, record in before.items()}
            try:
                committed = await self._take(view, fire, wanted, hold, before, taken)
            except Suspended:
                if not written:
                    raise
                break  # what was taken before is run and settled; the rest is still owed
            if committed is not None:
                if fire.source is FireSource.FAILOVER:
                    self._rescuing |= wanted.keys()
                else:
                    taken.cut_off |= {item: before[item] for item in wanted if is_cut_off(before[item])}
                found |= before
                written |= _as_written(fire, wanted, committed.versions)
                fences |= dict.fromkeys(wanted, committed.zxid)
                fire = replace(fire, request=None) if fire.request else fire  # the rest needs none
        ledger.note(written)
        taken.claim = Claim(fire, member.id, member.incarnation, fences, written, found) if written else None
        return taken

    def unmonitored(self, fire: Fire, items: Collection[int]) -> Claim:
        """Return a claim that asks and writes nothing, for a job whose execution is not monitored."""
        if fire.source in SCHEDULED:
            assumed = self._ledger.assume(items, fire.slot)
        else:  # which says nothing of the moments scheduled
            assumed = {item: Seen(self._ledger.record(item), None) for item in items}
        return Claim(fire, self._member.id, self._member.incarnation, {}, assumed, {})

    async def settle(
        self, claim: Claim, outcomes: Mapping[int, Outcome], now: int, *, hand_over: bool
    ) -> frozenset[int] | None:
        """End the run of items; None if the session was lost, and ``running`` with it.

        ``hand_over`` puts items that were cut off up for rescue; return which.
        """
        rest, handed_over = list(claim.items), frozenset[int]()
        at_once = _at_once([claim.fire.parameter])
        while rest:
            part, rest = rest[:at_once], rest[at_once:]
            ended = {item: _ended(claim.items[item], outcomes.get(item), now) for item in part}
            if (given := await self._give_back(ended, hand_over)) is None:
                return None
            handed_over |= given
        return handed_over

    async def withdraw(self, claim: Claim) -> bool:
        """Give items back as they were found, for their run has not begun; False if the session was lost."""
        rest = [(item, Seen(claim.before[item], seen.version)) for item, seen in claim.items.items()]
        at_once = _at_once(record.parameter for record in claim.before.values())
        while rest:
            part, rest = rest[:at_once], rest[at_once:]
            if await self._give_back(dict(part), hand_over=False) is None:
                return False
        return True

    async def dismiss(self, item: int) -> None:
        """Remove the mark of an orphan whose run turns out to be completed."""
        paths, version = self._member.layout.item(item), self._ledger.version(item)
        condition = [] if version is None else [Check(paths.execution, version)]
        with suppress(Conflict, OutcomeUnknown):  # somebody else has seen to it
            await self._member.session.commit([*condition, Delete(paths.orphan)], incarnation=self._member.incarnation)

    async def mark_misfired(self, view: JobView, items: Iterable[int], slot: int) -> None:
        """Leave a mark on items whose fire was refused, for operators to see; the next claim removes it.

        It is left under the assignment it was decided on, or the next holder would have read too early to see it.
        """
        entitled = Check(self._member.layout.sharding, view.sharding_version)
        for item in items:
            mark = Create(self._member.layout.item(item).misfire, str(slot).encode())
            with suppress(RegistryError):  # it is there already, or nobody sees it: what was claimed beside it goes on
                await self._member.session.commit([entitled, mark], incarnation=self._member.incarnation)
            self._ledger.marked.add(item)

    async def _take(
        self,
        view: JobView,
        fire: Fire,
        wanted: dict[int, Record],
        hold: Hold | None,
        before: dict[int, Record],
        taken: Taken,
    ) -> Committed | None:
        """Commit the claim of ``wanted``, leaving out what cannot be had; what is left in it has been taken.

        ``before`` are the records that it takes the place of.  What else comes of it is noted in ``taken``.
        """
        member, ledger = self._member, self._ledger
        while wanted:
            first, operations = self._taking(view, fire, wanted)
            try:
                committed = await member.session.commit(operations, incarnation=member.incarnation, hold=hold)
            except Conflict as conflict:
                if conflict.index < first or not await self._cleared(conflict, wanted, taken.refused):
                    taken.stale = True
                    return None
                taken.elsewhere |= await self._reconsider(fire, wanted, {})
            except OutcomeUnknown:
                asked, mine = dict(wanted), dict[int, Node]()
                taken.elsewhere |= await self._look_up(fire, wanted, mine)
                if mine:  # all or nothing: the transaction did happen
                    wanted.clear()
                    wanted.update({item: asked[item] for item in mine})
                    return _as_committed(fire, mine, ledger)
            else:
                ledger.marked -= wanted.keys()
                return committed
            before |= {item: ledger.record(item) for item in wanted}
            taken.renewed |= wanted.keys()
        return None

    def _taking(self, view: JobView, fire: Fire, wanted: Mapping[int, Record]) -> tuple[int, list[Op]]:
        """Return the operations of a claim, and how many of them come before those of the items."""
        member, ledger = self._member, self._ledger
        operations = _entitled(member, view, fire, wanted)
        first = len(operations)
        for item, record in wanted.items():
            operations += _claiming(member, item, record, ledger.version(item))
        marked = ledger.marked - ledger.stuck
        operations += [Delete(member.layout.item(item).misfire) for item in wanted if item in marked]
        return first, operations

    async def _cleared(self, conflict: Conflict, wanted: dict[int, Record], refused: set[int]) -> bool:
        """Get out of the way what trying again would meet again; False if there is no way, not even a job."""
        ledger = self._ledger
        for item in list(wanted):
            paths = self._member.layout.item(item)
            if conflict.path == paths.misfire and conflict.reason == "not empty":
                ledger.stuck.add(item)
            elif conflict.reason == "no ephemeral children" and conflict.path in (paths.execution, paths.running):
                ledger.tell(conflict.path, 0, "its parent is ephemeral, so the item cannot run")
                refused.add(item)
                del wanted[item]
            elif conflict.path == paths.execution and conflict.reason == "missing" and ledger.version(item) is None:
                return await make(self._member, self._member.layout.execution)
        return True

    async def _look_up(self, fire: Fire, wanted: dict[int, Record], mine: dict[int, Node]) -> set[int]:
        """Find out what came of a claim whose reply was lost, however often that fails: nobody else would settle it.

        The server that is asked now may lag behind the one that was told.
        """
        session = self._member.session
        while await connected(session, self._member.incarnation):
            with suppress(Suspended):
                await session.sync(self._member.layout.root)
                return await self._reconsider(fire, wanted, mine)
        raise SessionEnded("the session was lost while claiming, and what was claimed with it")

    async def _reconsider(self, fire: Fire, wanted: dict[int, Record], mine: dict[int, Node]) -> set[int]:
        """Read what refused the claim; drop what is running or done, renew the rest; return what runs elsewhere."""
        running = await self._ledger.learn(list(wanted))
        elsewhere = set()
        for item in list(wanted):
            record, runner = self._ledger.record(item), running.get(item)
            if (
                runner is not None
                and runner.stat.ephemeral_owner == self._member.incarnation
                and _same(record, wanted[item])
            ):
                mine[item] = runner
            elif runner is not None:
                elsewhere.add(item)
                del wanted[item]
            elif record.completed if fire.source is FireSource.FAILOVER else _is_taken(record, fire):
                del wanted[item]
            else:
                wanted[item] = _begun(record, fire, self._member.id, wanted[item].begun, wanted[item].next_fire)
        return elsewhere

    async def _give_back(self, ended: dict[int, Seen], hand_over: bool) -> frozenset[int] | None:
        """Write the ends of items' runs; return those put up for rescue, None if the session was lost."""
        member, unknown = self._member, frozenset[int]()
        cut_off = frozenset(item for item, seen in ended.items() if hand_over and not seen.record.completed)
        while ended:
            try:
                operations = _settling(member.layout, ended, self._rescuing, cut_off)
                committed = await member.session.commit(operations, incarnation=member.incarnation)
            except (Suspended, OutcomeUnknown, Conflict) as error:
                if not await connected(member.session, member.incarnation):
                    return None
                if isinstance(error, OutcomeUnknown):
                    unknown = cut_off
                elif isinstance(error, Conflict):
                    cut_off = _without_mark(member.layout, cut_off, error)
                with suppress(Suspended, OutcomeUnknown):  # then the next attempt is refused, or does it
                    ended = await self._still_mine(ended)
                    cut_off = cut_off.intersection(ended)
            except SessionEnded:
                return None
            else:
                settled = zip(ended.items(), committed.versions[::2], strict=False)
                self._ledger.note({item: Seen(seen.record, version) for (item, seen), version in settled})
                self._rescuing -= ended.keys()
                return cut_off
        return unknown  # what has gone without an answer did happen

    async def _still_mine(self, ended: dict[int, Seen]) -> dict[int, Seen]:
        """Return what is yet to be settled, at the records' present versions: somebody touched them by hand."""
        running = await self._ledger.learn(list(ended))
        mine = {}
        for item, seen in ended.items():
            runner = running.get(item)
            if runner is not None and runner.stat.ephemeral_owner == self._member.incarnation:
                mine[item] = replace(seen, version=self._ledger.version(item))
        rescued = sorted(self._rescuing & mine.keys())
        marks = await self._member.session.get_many([self._member.layout.item(item).failover for item in rescued])
        ours = self._member.incarnation  # what is not ours was removed and made again by hand
        self._rescuing -= {
            item for item, mark in zip(rescued, marks, strict=True) if not mark or mark.stat.ephemeral_owner != ours
        }
        return mine


def _at_once(parameters: Iterable[str | None]) -> int:
    """Return how many items one transaction may carry whose records hold such parameters."""
    longest = max((len(parameter) for parameter in parameters if parameter), default=0)
    return min(AT_ONCE, max(1, ROOM // (6 * longest))) if longest else AT_ONCE  # six: "\u0000"


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


def _settling(layout: Layout, ended: Mapping[int, Seen], rescued: Collection[int], cut_off: Iterable[int]) -> list[Op]:
    operations: list[Op] = []
    for item, seen in ended.items():
        paths = layout.item(item)
        assert seen.version is not None  # a claim has written it
        operations += [Set(paths.execution, records.encode(seen.record), seen.version), Delete(paths.running)]
    operations += [Delete(layout.item(item).failover) for item in ended if item in rescued]
    operations += [Create(layout.item(item).orphan, records.mark(ended[item].record)) for item in cut_off]
    return operations


def _before_items(fire: Fire, items: int) -> int:
    """Return how many operations of a claim come before those of the items."""
    return 2 * items if fire.source is FireSource.FAILOVER else 1 + (fire.request is not None)


def _without_mark(layout: Layout, cut_off: frozenset[int], conflict: Conflict) -> frozenset[int]:
    """Leave out whose mark is there already, or all if there is no place for any: the leader will find them."""
    refused = frozenset(item for item in cut_off if layout.item(item).orphan == conflict.path)
    return cut_off - refused if not refused or conflict.reason == "exists" else frozenset()


def _as_written(fire: Fire, wanted: Mapping[int, Record], versions: Sequence[int]) -> dict[int, Seen]:
    """Return the records as a claim wrote them, at the versions it gave them."""
    first = _before_items(fire, len(wanted))
    return {item: Seen(record, versions[first + 2 * n]) for n, (item, record) in enumerate(wanted.items())}


def _as_committed(fire: Fire, mine: Mapping[int, Node], ledger: Ledger) -> Committed:
    """Return what a claim's lost reply would have said, from the nodes found."""
    versions = [-1] * _before_items(fire, len(mine))
    for item in mine:
        versions += [ledger.version(item) or 0, 0]
    return Committed(next(iter(mine.values())).stat.czxid, tuple(versions))


def _begun(last: Record, fire: Fire, me: str, now: int, next_fire: int) -> Record:
    slot, asked, parameter = last.slot, 0, None
    if fire.source in SCHEDULED:
        slot = fire.slot
    elif fire.source is FireSource.TRIGGER:
        asked, parameter = fire.slot, fire.parameter
    else:  # whoever rescues the rescue has to know as well
        asked, parameter = last.asked, last.parameter
    rescues = last.rescues + 1 if fire.source is FireSource.FAILOVER else 0
    begun = Record(slot, fire.source.value, me, now, last.completed_at, next_fire, completed=False, rescues=rescues)
    return replace(begun, asked=asked, parameter=parameter) if asked else begun


def _is_taken(record: Record, fire: Fire) -> bool:
    return fire.source in SCHEDULED and record.slot >= fire.slot


def _same(record: Record, wanted: Record) -> bool:
    return (record.slot, record.instance, record.begun) == (wanted.slot, wanted.instance, wanted.begun)


def _ended(seen: Seen, outcome: Outcome | None, now: int) -> Seen:
    outcome = outcome or Outcome.CANCELLED
    done = outcome is not Outcome.CANCELLED
    rescues = 0 if done else seen.record.rescues
    ended = replace(seen.record, completed=done, completed_at=now, outcome=outcome.value, rescues=rescues)
    return Seen(ended, seen.version)
