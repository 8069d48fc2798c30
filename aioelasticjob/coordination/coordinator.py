"""The loop that makes the registry what the rules want: view, decide, commit, until nothing is wanted."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from anyio import current_time, move_on_after

from aioelasticjob.clock import Clock
from aioelasticjob.coordination import records
from aioelasticjob.coordination.effects import Assign, Effect, Prune, Transaction, to_transactions
from aioelasticjob.coordination.membership import Member
from aioelasticjob.coordination.progress import Tally
from aioelasticjob.coordination.rules import Situation, decide
from aioelasticjob.coordination.view import JobView, read
from aioelasticjob.errors import Conflict, OutcomeUnknown, RegistryError, SessionEnded, Suspended
from aioelasticjob.latest import Latest
from aioelasticjob.registry.session import SessionState
from aioelasticjob.registry.tree import Tree
from aioelasticjob.registry.txn import Delete

CAUGHT_UP_WITHIN = 5.0
"""Seconds to wait for one's own write to come back through the mirror before looking again all the same."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Rest:
    """When membership last changed and when the next tick is due, by the loop's clock."""

    members: frozenset[str] = frozenset()
    since: float = field(default_factory=current_time)
    tick_at: float = 0.0
    mourned: tuple[frozenset[str], int] | None = None

    def look(self, view: JobView) -> tuple[bool, bool]:
        """Return whether membership is quiet and whether this is a tick."""
        now = current_time()
        if (members := frozenset(view.eligible)) != self.members:
            self.members, self.since = members, now
        tick = now >= self.tick_at
        if tick:
            self.tick_at = now + view.config.reconcile_interval
        return now >= self.since + view.config.sharding_quiet, tick  # as ``pause`` reckons: floats round

    def mourns(self, member: Member, view: JobView, tick: bool) -> bool:
        """Return whether to look for items cut off: I lead, and somebody has come or gone, or it is a tick."""
        if view.leader != member.id or not view.config.failover:
            self.mourned = None
            return False
        seen = (frozenset(view.instances), view.config.sharding_total_count)
        due = tick or seen != self.mourned
        self.mourned = seen
        return due

    def pause(self, view: JobView, quiet: bool) -> float:
        """Return the seconds until something changes by time alone."""
        until = self.tick_at if quiet else min(self.tick_at, self.since + view.config.sharding_quiet)
        return max(0.0, until - current_time())


async def coordinate(member: Member, trees: Latest[Tree], views: Latest[JobView], tally: Tally, clock: Clock) -> bool:
    """Keep the registry as the rules want it, and ``views`` as the registry is.

    Return True when this instance is asked to leave, False when its session is over.
    """
    rest, fault = _Rest(), views.value.fault
    rest.tick_at = current_time() + views.value.config.reconcile_interval
    while member.session.incarnation == member.incarnation:
        tree = trees.value
        view = views.value
        if view.tree is not tree:
            view = read(tree, member.layout, view.config)
            views.set(view)
        if view.fault != fault:
            fault = view.fault
            log.warning("job configuration: %s", fault or "mended", extra={"job": member.layout.job})
        if await _dismissed(member, view):
            return True
        quiet, tick = rest.look(view)
        try:
            if tick:
                await tally.publish(member, view, clock.now() - (member.session.clock_skew or 0.0))
            cut_off = await _cut_off(member, view) if rest.mourns(member, view, tick) else {}
            if cut_off:  # look again until somebody has taken them
                rest.mourned = None
            written = await _commit(member, view, decide(Situation(view, member.id, quiet, tick, cut_off)))
        except Suspended:
            rest.mourned = None
            await member.session.status.until(
                lambda status: (
                    status.state in (SessionState.CONNECTED, SessionState.CLOSED)
                    or status.incarnation != member.incarnation
                )
            )
            continue
        except SessionEnded:
            return False
        if written:
            with move_on_after(CAUGHT_UP_WITHIN):
                await trees.until(lambda newer, at=written: newer.zxid >= at)  # type: ignore[misc]
            continue
        with move_on_after(rest.pause(view, quiet)):
            await trees.until(lambda newer, old=tree: newer is not old)  # type: ignore[misc]
    return False


async def _dismissed(member: Member, view: JobView) -> bool:
    """Whether an operator asked this instance to leave, or removed its node by hand."""
    if member.id not in view.instances:
        return True
    asked = member.layout.shutdown(member.id)
    if asked not in view.tree:
        return False
    with suppress(RegistryError):  # taken; if it stays, a tick removes it
        await member.session.commit([Delete(asked)], incarnation=member.incarnation)
    return True


async def _cut_off(member: Member, view: JobView) -> dict[int, int]:
    """Return the items begun, not completed and running nowhere, with the versions of their records."""
    items = sorted(view.items)
    paths = [path for item in items for path in (member.layout.item(item).execution, member.layout.item(item).running)]
    nodes = iter(await member.session.get_many(paths))
    found = {}
    for item in items:
        node, running = next(nodes), next(nodes)
        record = None if node is None else records.decode(node.data)
        if node is not None and running is None and record is not None and not record.completed:
            found[item] = node.stat.version
    return found


async def _commit(member: Member, view: JobView, effects: Sequence[Effect]) -> int:
    """Write the effects; return the zxid of the last that took, 0 if there was none."""
    written = 0
    for effect in effects:
        try:
            for transaction in await _transactions(member, view, effect):
                committed = await member.session.commit(transaction, incarnation=member.incarnation)
                written = committed.zxid
            if isinstance(effect, Assign):
                log.info("items assigned", extra={"job": member.layout.job, "items": len(effect.assignment)})
        except (Conflict, OutcomeUnknown) as news:  # the view had aged; the next one knows better
            log.debug("not written", extra={"job": member.layout.job, "effect": effect, "news": str(news)})
            with suppress(RegistryError):
                await member.session.sync(member.layout.root)
    return written


async def _transactions(member: Member, view: JobView, effect: Effect) -> list[Transaction]:
    if not isinstance(effect, Prune):
        return to_transactions(effect, view)
    idle, records = await _idle(member, effect.items)
    return [[*to_transactions(Prune(idle), view)[0], *records]] if idle else []


async def _idle(member: Member, items: frozenset[int]) -> tuple[frozenset[int], Transaction]:
    """Return the surplus items that nobody runs any more, and the removal of their records."""
    layout = member.layout
    chosen = sorted(items)[:200]
    paths = [(layout.item(item).execution, layout.item(item).running, layout.item(item).misfire) for item in chosen]
    nodes = iter(await member.session.get_many([path for three in paths for path in three]))
    idle, removal = set(), Transaction()
    for item, (record, _, mark) in zip(chosen, paths, strict=True):
        found, running, misfired = next(nodes), next(nodes), next(nodes)
        if running is not None:
            continue
        idle.add(item)
        removal += [Delete(mark)] if misfired else []
        removal += [Delete(record, found.stat.version)] if found else []
    return frozenset(idle), removal
