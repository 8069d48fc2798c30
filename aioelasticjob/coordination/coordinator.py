"""The loop that makes the registry what the rules want: view, decide, commit, until nothing is wanted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias

from anyio import current_time, move_on_after

from aioelasticjob.clock import Clock, moment
from aioelasticjob.coordination import records
from aioelasticjob.coordination.attendance import NOBODY_YET, Accounted, note_accounted
from aioelasticjob.coordination.commit import Applied, Refused, SessionOver, catch_up, write
from aioelasticjob.coordination.effects import Assign, ClearRecords, Effect, GiveUp, Prune, Transaction, to_transactions
from aioelasticjob.coordination.faults import Grumbler, faults
from aioelasticjob.coordination.member import Member
from aioelasticjob.coordination.progress import Tally
from aioelasticjob.coordination.rules import Situation, decide
from aioelasticjob.coordination.view import JobView, is_item, read
from aioelasticjob.errors import NodeMissing, RegistryError, SessionEnded, Suspended
from aioelasticjob.latest import Latest
from aioelasticjob.layout import Layout
from aioelasticjob.model import Record
from aioelasticjob.registry.session import SessionState
from aioelasticjob.registry.tree import Tree
from aioelasticjob.registry.txn import Delete

HESITATION = 0.3
"""Seconds without a write after something was removed that no rule removes.

Whoever removes a whole job removes node after node: what we made again in between would stand in his way."""
PATIENCE = 1.0
"""Seconds between two looks at what is run by instances that are registered no more."""
CAUGHT_UP_WITHIN = 5.0
"""Seconds to wait for one's own write to come back through the mirror before looking again all the same."""

AGAIN_AFTER = 2.0
"""Seconds after which it is tried again what the registry has refused."""

READ = "to read what the rules ask for"
"""What the registry may refuse, in the words of the log."""

log = logging.getLogger(__name__)

Report: TypeAlias = Callable[[int, Record], None]
"""Takes an item and its run that was given up."""


@dataclass(slots=True)
class _Rest:
    """When membership last changed and when the next tick is due, by the loop's clock."""

    members: frozenset[str] = frozenset()
    since: float = field(default_factory=current_time)
    tick_at: float = 0.0
    torn_at: float = float("-inf")
    mourned: tuple[frozenset[str], int, frozenset[int]] | None = None
    lingering: bool = False
    unmonitored: bool = False
    accounted: Accounted = NOBODY_YET

    def see(self, before: JobView, view: JobView) -> None:
        """Compare two views: has somebody removed what no rule removes?"""
        if _is_torn(before, view):
            self.torn_at = current_time()

    @property
    def hesitates(self) -> bool:
        """Whether something was removed by hand just now."""
        return current_time() < self.torn_at + HESITATION

    def look(self, view: JobView) -> tuple[bool, bool]:
        """Return whether membership is quiet and whether this is a tick."""
        now = current_time()
        if (members := frozenset(view.eligible)) != self.members:
            self.members, self.since = members, now
        self.tick_at = min(self.tick_at, now + view.config.reconcile_interval)  # it may have been made shorter
        tick = now >= self.tick_at
        if tick:
            self.tick_at = now + view.config.reconcile_interval
        return now >= self.since + view.config.sharding_quiet, tick  # as ``pause`` reckons: floats round

    def mourns(self, member: Member, view: JobView, tick: bool) -> bool:
        """Return whether to look for items cut off: I lead, and who is there or what is orphaned is new, or on a tick.

        One that waits may have been rescued too often already: then nobody takes it, and it is to be given up.
        """
        if view.leader != member.id or not view.config.failover:
            self.mourned, self.lingering = None, False
            return False
        seen = (frozenset(view.instances), view.config.sharding_total_count, view.orphans)
        due = tick or seen != self.mourned
        self.mourned = seen
        return due

    def clears(self, member: Member, view: JobView, tick: bool) -> bool:
        """Return whether to look for records nobody wants: I lead, and monitoring was switched off, or it is a tick."""
        unmonitored = view.leader == member.id and not view.config.monitor_execution
        due = unmonitored and (tick or not self.unmonitored)
        self.unmonitored = unmonitored
        return due

    def look_again(self) -> None:
        """Forget what was looked up: the connection broke before anything came of it."""
        self.mourned, self.unmonitored = None, False

    def pause(self, view: JobView, quiet: bool) -> float:
        """Return the seconds until something changes by time alone."""
        if self.hesitates:
            return self.torn_at + HESITATION - current_time()
        until = self.tick_at if quiet else min(self.tick_at, self.since + view.config.sharding_quiet)
        if self.lingering:
            until = min(until, current_time() + PATIENCE)
        return max(0.0, until - current_time())


def _unheard(item: int, run: Record) -> None:
    """Tell nobody of a run that was given up."""


async def coordinate(
    member: Member, trees: Latest[Tree], views: Latest[JobView], tally: Tally, clock: Clock, report: Report = _unheard
) -> bool:
    """Keep the registry as the rules want it, and ``views`` as the registry is; ``report`` the runs given up.

    Return True when this instance is asked to leave, False when its session is over.
    """
    rest, grumbler, kind = _Rest(), Grumbler(member.layout.job), views.value.config.job_type
    rest.tick_at = current_time() + views.value.config.reconcile_interval
    while member.session.incarnation == member.incarnation:
        tree, view = trees.value, views.value
        if view.tree is not tree:
            before, view = view, read(tree, member.layout, view.config, kind)
            rest.see(before, view)
            views.set(view)
        if await dismissed(member, view):
            return True
        written, quiet = 0, False
        try:
            if not rest.hesitates:
                grumbler.hear(faults(view, member.id))
                now = await _situation(member, view, rest, tally, clock)
                written, quiet = await _commit(member, view, decide(now), report), now.quiet
        except Suspended:
            rest.look_again()
            await _news_of_the_connection(member)
            continue
        except SessionEnded:
            return False
        except RegistryError as error:  # it cannot be read now; the runner goes on meanwhile
            member.refusals.refused(READ, error)
            rest.look_again()
        if written:
            with move_on_after(CAUGHT_UP_WITHIN):
                await trees.until(lambda newer, at=written: newer.zxid >= at)  # type: ignore[misc]
            continue
        pause = rest.pause(view, quiet)
        with move_on_after(min(pause, AGAIN_AFTER) if member.refusals.present else pause):
            await trees.until(lambda newer, old=tree: newer is not old)  # type: ignore[misc]
    return False


async def follow(trees: Latest[Tree], views: Latest[JobView]) -> None:
    """Keep ``views`` as the registry is, for an instance that leaves and has no more say in it."""
    kind = views.value.config.job_type
    async for tree in trees:
        views.set(read(tree, views.value.layout, views.value.config, kind))


async def _situation(member: Member, view: JobView, rest: _Rest, tally: Tally, clock: Clock) -> Situation:
    """Return all that the rules may look at, the busy nodes only when there is a reason to look them up."""
    quiet, tick = rest.look(view)
    time = clock.now() - (member.session.clock_skew or 0.0)
    if tick:
        await tally.publish(member, view, time)
        if member.id == (view.leader or min(view.instances, default="")):  # while all are switched off, nobody leads
            rest.accounted = await note_accounted(member, view, time, rest.accounted)
    unwanted = await _unwanted_records(member) if rest.clears(member, view, tick) else {}
    runs, cut_off = _Runs(), dict[int, int]()
    if rest.mourns(member, view, tick):
        cut_off = await _cut_off(member, view, runs)
        rest.lingering = runs.lingering
    member.refusals.accepted(READ)
    if cut_off or runs.lingering:  # look again until somebody has taken them
        rest.mourned = None
    return Situation(view, member.id, quiet, tick, time, unwanted, cut_off, runs.cut_off, member.host)


async def _news_of_the_connection(member: Member) -> None:
    """Wait for a connection, or for the end of the session."""
    over = (SessionState.CONNECTED, SessionState.CLOSED)
    await member.session.status.until(lambda now: now.state in over or now.incarnation != member.incarnation)


def _is_torn(before: JobView, now: JobView) -> bool:
    """Whether something has gone that nobody but a hand removes."""
    layout = now.layout
    lasting = (layout.config, layout.epoch, *layout.mirrored_parents)
    parents = any(path in before.tree and path not in now.tree for path in lasting)
    seat = before.leader in now.staying and now.leader is None  # a leader that leaves, or may not lead, gives it up
    same = before.sharding_version == now.sharding_version  # every assignment raises it, and nothing else takes items
    return parents or seat or (same and bool(before.assignment.keys() - now.assignment.keys()))


async def dismissed(member: Member, view: JobView) -> bool:
    """Whether an operator asked this instance to leave, or removed its node by hand."""
    if member.id not in view.instances:
        if not await _is_removed(member):
            return False
        removed = member.layout.config not in view.tree
        what = "the job was removed from the registry" if removed else "the instance's node was removed by hand"
        log.warning("leaving: %s", what, extra={"job": member.layout.job})
        return True
    asked = member.layout.shutdown(member.id)
    if asked not in view.tree:
        return False
    await write(member, [Delete(asked)], "to take a request")  # if it stays, the leader's tick removes it
    return True


async def _is_removed(member: Member) -> bool:
    """Whether the node is gone by somebody's hand: what we see may be older than we are, or our session may be over."""
    try:
        mine = await member.session.exists(member.layout.instance(member.id))
    except RegistryError:
        return False
    if member.session.incarnation != member.incarnation:  # the next life joins anew
        return False
    return mine is None or mine.ephemeral_owner != member.incarnation


@dataclass(slots=True)
class _Runs:
    """What was looked up of the items' runs."""

    cut_off: dict[int, Record] = field(default_factory=dict)
    lingering: bool = False
    """Whether something is run by an instance that is registered no more: its end will change nothing we hear of."""


async def _cut_off(member: Member, view: JobView, runs: _Runs) -> dict[int, int]:
    """Return the versions of records of items begun, not completed and running nowhere; ``runs`` takes the rest."""
    items = sorted(view.items)
    paths = [path for item in items for path in (member.layout.item(item).execution, member.layout.item(item).running)]
    nodes = iter(await member.session.get_many(paths))
    found = {}
    for item in items:
        node, running = next(nodes), next(nodes)
        record = None if node is None else records.decode(node.data)
        if node is not None and running is None and record is not None and not record.completed:
            found[item] = node.stat.version
            runs.cut_off[item] = record
        if running is not None and running.data.decode("utf-8", "replace") not in view.instances:
            runs.lingering = True
    return found


async def _unwanted_records(member: Member) -> dict[str, int]:
    """Return what monitoring has left, with versions, marks before records; nothing as long as anything runs."""
    layout, session = member.layout, member.session
    try:
        items = [int(name) for name in await session.children(layout.execution) if is_item(name)]
    except NodeMissing:
        return {}
    paths = [path for item in items for path in _execution(layout, item)]
    nodes = iter(await session.get_many(paths))
    found = dict[str, int]()
    for item in items:
        record, _, mark = _execution(layout, item)
        noted, runs, misfired = next(nodes), next(nodes), next(nodes)
        if runs is not None:
            return {}
        if misfired is not None and not misfired.stat.num_children:
            found[mark] = misfired.stat.version
        if noted is not None and noted.stat.num_children == (mark in found):
            found[record] = noted.stat.version
    return found


async def _commit(member: Member, view: JobView, effects: Sequence[Effect], report: Report = _unheard) -> int:
    """Write the effects; return the zxid of the last that took, 0 if there was none."""
    written = 0
    for effect in effects:
        lost = dict[int, Record]()
        for transaction in await _transactions(member, view, effect, lost):
            match await write(member, transaction, f"to coordinate the job ({type(effect).__name__})"):
                case Applied(committed):
                    if not isinstance(effect, GiveUp | ClearRecords):  # records are not mirrored: none comes back
                        written = committed.zxid
                case Refused(Suspended() as error) | SessionOver(error):
                    raise error
                case Refused(error):  # the view had aged, and the next one knows better; or it is tried again
                    log.debug("not written", extra={"job": member.layout.job, "effect": effect, "news": str(error)})
                    with suppress(RegistryError):
                        await catch_up(member)
                    break
        else:
            if isinstance(effect, Assign):
                log.info("items assigned", extra={"job": member.layout.job, "items": len(effect.assignment)})
            for item, record in lost.items():
                _tell_lost(member.layout.job, item, record)
            if isinstance(effect, GiveUp):
                report(effect.item, effect.run)
    return written


def _tell_lost(job: str, item: int, record: Record) -> None:
    when = moment(record.moment / 1000).isoformat(timespec="seconds")
    log.warning(
        "item %d is gone with the lower count, and its run of %s, cut off on %s, is not made up for",
        *(item, when, record.instance),
        extra={"job": job, "item": item, "slot": record.moment, "instance": record.instance},
    )


async def _transactions(member: Member, view: JobView, effect: Effect, lost: dict[int, Record]) -> list[Transaction]:
    """Return an effect's transactions; into ``lost`` go the runs cut off whose records they remove."""
    if not isinstance(effect, Prune):
        return to_transactions(effect, view)
    idle, removal = await _idle(member, effect.items, lost)
    return [[*to_transactions(Prune(idle), view)[0], *removal]] if idle else []


async def _idle(member: Member, items: frozenset[int], lost: dict[int, Record]) -> tuple[frozenset[int], Transaction]:
    """Return the surplus items that nobody runs any more, and the removal of their records."""
    layout = member.layout
    chosen = sorted(items)[:200]
    paths = [_execution(layout, item) for item in chosen]
    nodes = iter(await member.session.get_many([path for three in paths for path in three]))
    idle, removal = set(), Transaction()
    for item, (record, _, mark) in zip(chosen, paths, strict=True):
        found, running, misfired = next(nodes), next(nodes), next(nodes)
        marks = misfired is not None and not misfired.stat.num_children
        if running is not None or (found is not None and found.stat.num_children > marks):
            continue  # it still runs, or holds what is not ours
        idle.add(item)
        removal += [Delete(mark)] if misfired else []
        removal += [Delete(record, found.stat.version)] if found else []
        if found and (run := records.decode(found.data)) is not None and not run.completed:
            lost[item] = run
    return frozenset(idle), removal


def _execution(layout: Layout, item: int) -> tuple[str, str, str]:
    """Return the nodes of an item's runs: record, lock and mark."""
    paths = layout.item(item)
    return paths.execution, paths.running, paths.misfire
