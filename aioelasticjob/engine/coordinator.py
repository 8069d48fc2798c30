"""Applies the rules to a job's nodes: it reads a view, decides, and writes, until the rules want no more effects."""

from __future__ import annotations

import logging
from asyncio import get_running_loop
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from types import MappingProxyType
from typing import Protocol, TypeAlias

from aioelasticjob.clock import Clock
from aioelasticjob.core import reasons, records
from aioelasticjob.core.clock_skew import STEADY
from aioelasticjob.core.diagnostics import diagnose
from aioelasticjob.core.effects import (
    MAX_OPERATIONS,
    Assign,
    Effect,
    EndRun,
    LostRuns,
    MarkOrphan,
    RemoveItems,
    RemoveNodes,
    SayStrategyFailed,
    Transaction,
    UpdateRequest,
    halves,
    to_transactions,
)
from aioelasticjob.core.foreign import foreign
from aioelasticjob.core.layout import ItemPaths, Layout
from aioelasticjob.core.request_runs import losing
from aioelasticjob.core.requests import Request, after_upstream, decode, is_completed
from aioelasticjob.core.rules import RuleInput, decide, is_noted_far_ahead
from aioelasticjob.core.view import JobView, follow
from aioelasticjob.engine.commit import SentTransaction, result_of, send, write
from aioelasticjob.engine.item_reader import cut_off_runs, items_below, read_items
from aioelasticjob.engine.member import Member
from aioelasticjob.engine.membership import dismissed
from aioelasticjob.engine.operator_log import log_operator_actions
from aioelasticjob.engine.own_node import renewed
from aioelasticjob.engine.pacing import Due, Pacing
from aioelasticjob.engine.run_counts import RunCounts
from aioelasticjob.errors import Conflict, RegistryError, SessionEnded, Suspended
from aioelasticjob.ground.encoding import json_object
from aioelasticjob.ground.latest import Latest
from aioelasticjob.ground.times import moment
from aioelasticjob.logging import logger
from aioelasticjob.model import Record, VersionedRecord
from aioelasticjob.registry.session import SessionState
from aioelasticjob.registry.transaction import Delete, Op, Set, put
from aioelasticjob.registry.tree import Node, Tree

REMOVED_AT_ONCE = 200
"""How many surplus items are removed in one transaction, with up to five nodes each."""
MIRROR_TIMEOUT = 5.0
"""Seconds to wait until the mirror shows this instance's own write, before deciding without it."""
RETRY_PAUSE = 2.0
"""Seconds after which a write that the registry has refused is tried again."""
READ_PURPOSE = "to read what the rules ask for"
"""The purpose of the coordinator's reads, for the log line if the registry refuses them."""

log = logger(__name__)

Work: TypeAlias = Callable[[], Awaitable[float]]
"""Performs the part of a turn that has to wait, and returns the seconds until the next turn."""
UnwantedRecords: TypeAlias = Mapping[int, tuple[Delete, Record | None]]
"""By item, the removal of its record, and what the record says, of a job that keeps no records any more."""


class CoordinatedJob(Protocol):
    """The job that is coordinated, in one session."""

    @property
    def takes_part(self) -> bool:
        """Whether this instance still coordinates: it has not been dismissed, and the job has not ended here."""

    def view_changed(self) -> None:
        """Note that there is a newer view."""

    def conclude(self, written: EndRun | UpdateRequest | LostRuns) -> None:
        """Note that an effect was written that ends what others wait for: a run that was cut off, or a request."""

    def dismissed(self, why: str) -> None:
        """Note that this instance has to leave, and why."""

    def end_soon(self) -> None:
        """End what the job does in this session, because the session has ended."""

    def fail(self, error: Exception) -> None:
        """End what the job does in this session, because of an error, and try to join again."""


class Coordinator:
    """Writes the effects that the rules want, and sets ``views`` to the newest view, in turns.

    A turn decides and does not wait.  If something has to be written or read, the turn returns it as work.
    ``common`` are the nodes that all jobs have in common.
    """

    def __init__(
        self,
        member: Member,
        trees: Latest[Tree],
        common: Latest[Tree],
        views: Latest[JobView],
        counts: RunCounts,
        clock: Clock,
        job: CoordinatedJob,
    ) -> None:
        self._member = member
        self._trees = trees
        self._common = common
        self._views = views
        self._run_counts = counts
        self._clock = clock
        self._job = job
        self._pacing = Pacing(member.id)
        self._findings: Mapping[str, str] = {}
        """The mistakes in the job's nodes that were logged last."""
        self._logged: JobView | None = None
        """The view whose mistakes and changes were logged last."""
        self._ahead_since: float | None = None
        """Since when the schedule's date lies far in the future, by the loop's clock; None if it does not."""
        self._written = 0
        self._written_at = 0.0
        """The last transaction that the tree does not show yet, and when it was written, by the loop's clock."""

    def turn(self) -> float | Work:
        """Read the newest tree and decide; return the seconds until the next turn, or work that has to wait."""
        missing = self._written_at + MIRROR_TIMEOUT - get_running_loop().time()
        if self._trees.value.zxid < self._written and missing > 0:
            return missing
        self._written = 0
        view = self._read_view()
        member = self._member
        if not self._job.takes_part:
            return inf
        may_be_dismissed = member.id not in view.instances or member.layout.shutdown(member.id) in view.tree
        found: float | Work
        if may_be_dismissed:
            found = partial(self._look_whether_dismissed, view)
        else:
            found = self._decide(view)
        return found if isinstance(found, float) else partial(self._attempt, found)

    def _read_view(self) -> JobView:
        tree = self._trees.value
        common = self._common.value
        before = self._views.value
        time = self._time
        if before.tree is tree and before.common is common and time < before.pause_ends_at:
            return before
        view = follow(before, tree, common, time)
        self._pacing.see(before, view)
        self._views.set(view)
        self._job.view_changed()
        return view

    def _decide(self, view: JobView) -> float | Work:
        pacing = self._pacing
        member = self._member
        if pacing.is_held:
            return self._pause(view, quiet=False)
        if view is not self._logged:
            if (error := foreign(view.tree, member.layout)) is not None:
                self._job.fail(error)
                return inf
            known = self._findings
            self._findings = diagnose(view, member.id)
            log_findings(member, known, self._findings)
            self._log_operator_actions(view)
        due = pacing.look(view)
        if due.waits:
            return partial(self._look_up, view, due)
        member.refusals.accepted(READ_PURPOSE)
        is_steady = self._is_steady(view)
        rule_input = RuleInput(view, member.id, due.quiet, False, self._time, is_steady=is_steady, host=member.host)
        if effects := decide(rule_input):
            return partial(self._write, rule_input, effects)
        return self._pause(view, due.quiet)

    async def _look_whether_dismissed(self, view: JobView) -> float:
        known = 0 if self._logged is None else self._logged.tree.zxid
        if why := await dismissed(self._member, view, known):
            self._log_operator_actions(view)
            self._job.dismissed(why)
            return inf
        found = self._decide(view)
        return found if isinstance(found, float) else await found()

    def _log_operator_actions(self, view: JobView) -> None:
        """Log what operators have changed since the view that was logged last."""
        before = self._logged
        self._logged = view
        if before is not None:
            log_operator_actions(self._member, before, view)

    async def _look_up(self, view: JobView, due: Due) -> float:
        """Publish counts if they are due; read the records that the rules need, which are not mirrored; then decide."""
        member = self._member
        pacing = self._pacing
        time = self._time
        if due.tick:
            await _renew_own_node(member, view, moment(time).year)
        if due.counts:
            await self._run_counts.publish(member, view, time)
        cut_off = dict[int, VersionedRecord]()
        runners = set[str]()
        unwanted: UnwantedRecords = {}
        if due.records:
            if view.config.failover:
                cut_off, runners = await cut_off_runs(member, sorted(view.items))
            else:
                unwanted = await _unwanted_records(member)
            pacing.lingering = not runners <= view.instances.keys()  # no mirrored node will show the end of such a run
            if cut_off or pacing.lingering:  # until they have been rescued
                pacing.look_again()
        gone = await _gone_followers(member, view) if due.tick else ()
        member.refusals.accepted(READ_PURPOSE)
        removal = [removed for removed, _ in unwanted.values()]
        is_steady = self._is_steady(view)
        rule_input = RuleInput(
            view, member.id, due.quiet, due.tick, time, removal, cut_off, is_steady, gone, host=member.host
        )
        return await self._write(rule_input, decide(rule_input), unwanted)

    async def _write(
        self, rule_input: RuleInput, effects: Sequence[Effect], unwanted: UnwantedRecords = MappingProxyType({})
    ) -> float:
        """Write effects, if there are any; the next turn waits until the tree shows them."""
        self._written, in_part = await _commit(self._member, rule_input.view, effects, self._job, unwanted)
        self._written_at = get_running_loop().time()
        if in_part:  # what was written is news, so it would be begun again at once, over and over
            self._pacing.hold(RETRY_PAUSE)
        return 0.0 if self._written else self._pause(rule_input.view, rule_input.quiet)

    async def _attempt(self, work: Work) -> float:
        """Do some work.  If the registry refuses it, the next turn tries again."""
        member = self._member
        try:
            return await work()
        except Suspended:
            self._pacing.look_again()
            return 0.0 if member.session.status.value.state is SessionState.CONNECTED else inf  # a connection wakes it
        except SessionEnded:
            self._job.end_soon()
            return inf
        except RegistryError as error:  # try to read it again later; the job runs meanwhile
            member.refusals.refused(READ_PURPOSE, error)
            self._pacing.look_again()
            return self._pause(self._views.value, quiet=False)

    def _pause(self, view: JobView, quiet: bool) -> float:
        pause = min(self._pacing.pause(view, quiet), max(0.0, view.pause_ends_at - self._time))
        if self._ahead_since is not None:
            steady_in = self._ahead_since + STEADY - get_running_loop().time()
            if steady_in > 0:
                pause = min(pause, steady_in)
        return min(pause, RETRY_PAUSE) if self._member.refusals.present else pause

    def _is_steady(self, view: JobView) -> bool:
        """Whether the schedule's date has been far in the future for as long as it takes to correct a clock."""
        if not is_noted_far_ahead(view, self._time):
            self._ahead_since = None
            return True
        now = get_running_loop().time()
        if self._ahead_since is None:
            self._ahead_since = now
        return now >= self._ahead_since + STEADY

    @property
    def _time(self) -> float:
        """The registry's time in seconds since the epoch."""
        return self._clock.now() - (self._member.session.clock_skew or 0.0)


async def _renew_own_node(member: Member, view: JobView, year: int) -> None:
    """Bring the notes in the instance's node up to date.  If the registry refuses that, the next tick tries again."""
    try:
        if (renewal := renewed(member, view, year)) is not None:
            await member.session.commit([renewal], incarnation=member.incarnation)
    except (Suspended, SessionEnded):
        raise
    except RegistryError:
        return


async def _unwanted_records(member: Member) -> dict[int, tuple[Delete, Record | None]]:
    """Return the removal of the records of a job, by item, with what each says; empty as long as any item runs."""
    items = await items_below(member.session, member.layout.execution)
    removal = dict[int, tuple[Delete, Record | None]]()
    for item, paths, node, running in await read_items(member, items):
        if running is not None:
            return {}
        for removed in _removal(paths, node):
            removal[item] = (removed, None if node is None else records.decode(node.data))
    return removal


def _lost_with(effect: RemoveNodes, unwanted: UnwantedRecords) -> dict[int, Record]:
    """Return the runs that were cut off, and whose records an effect removes because the job keeps none."""
    removed = set(effect.operations) if unwanted else set()
    return {
        item: record
        for item, (removal, record) in unwanted.items()
        if removal in removed and record is not None and records.is_cut_off(record)
    }


def _removal(paths: ItemPaths, record: Node | None) -> list[Delete]:
    """Return the removal of an item's record, if there is one and nobody has made nodes below it by hand."""
    if record is None or record.stat.num_children:
        return []
    return [Delete(paths.execution, record.stat.version)]


async def _commit(
    member: Member,
    view: JobView,
    effects: Sequence[Effect],
    job: CoordinatedJob,
    unwanted: UnwantedRecords = MappingProxyType({}),
) -> tuple[int, bool]:
    """Write effects; return the zxid of the last one, 0 if none was written, and whether one was written in part."""
    written = 0
    in_part = False
    name = member.layout.job
    marks = _send_marks(member, view, effects)
    for effect in effects:
        transactions, lost = await _transactions(member, view, effect, unwanted)
        for number, transaction in enumerate(transactions):
            try:
                if isinstance(effect, MarkOrphan):
                    committed = await result_of(member, marks[effect.item])
                else:
                    what = f"to coordinate the job ({type(effect).__name__})"
                    has_parts = _has_parts(member, effect, transaction)
                    committed = await write(member, transaction, what, has_parts=has_parts)
            except (Suspended, SessionEnded):
                raise
            except RegistryError as error:  # the view was outdated, or the effect is tried again
                text = "%s: %s was not written: %s"
                fields = {"job": name, "effect": effect, "news": str(error)}
                log.debug(text, name, type(effect).__name__, error, extra=fields)
                in_part = in_part or number > 0
                with suppress(RegistryError):
                    await member.session.sync()
                if isinstance(error, Conflict) and error.path == view.layout.epoch:
                    return written, in_part  # another instance leads now, so all that follows would be refused, too
                break
            if _is_mirrored(effect, view):  # otherwise the next turn would wait in vain until the tree shows it
                written = committed.zxid
        else:
            _say_written(member, view, effect, job)
            if lost is not None:
                job.conclude(lost)
    return written, in_part


def _has_parts(member: Member, effect: Effect, transaction: Transaction) -> bool:
    """Whether the next turn makes smaller transactions if the servers turn out not to take one of this size."""
    return isinstance(effect, Assign | RemoveItems) and member.session.is_small_enough(transaction)


def _is_mirrored(effect: Effect, view: JobView) -> bool:
    """Whether the tree will show what an effect has written: it never shows records."""
    if isinstance(effect, EndRun):
        return False
    removed = [one.path for one in effect.operations] if isinstance(effect, RemoveNodes) else []
    return not any(path.startswith(f"{view.layout.execution}/") for path in removed)


def _send_marks(member: Member, view: JobView, effects: Sequence[Effect]) -> dict[int, SentTransaction]:
    """Send the marks of all orphans together: an instance that saw only the first one would rescue only that one."""
    what = "to coordinate the job (MarkOrphan)"
    orphans = [one for one in effects if isinstance(one, MarkOrphan)]
    marks = dict[int, SentTransaction]()
    for orphan in orphans:
        transaction = to_transactions(orphan, view)[0]
        marks[orphan.item] = send(member, transaction, what)
    for mark in marks.values():  # if one fails, nobody awaits the others; asyncio need not warn of their errors
        mark.answer.add_done_callback(lambda answer: answer.cancelled() or answer.exception())
    return marks


def _say_written(member: Member, view: JobView, effect: Effect, job: CoordinatedJob) -> None:
    """Log an effect that was written, or tell it to the job, if others have to know it."""
    match effect:
        case Assign(assignment):
            items = len(assignment)
            instances = len(set(assignment.values()))
            text = f"as the leader, this instance has assigned the items (items: {items}, instances: {instances})"
            member.log_limited(log, "leaders assign items", text, logging.INFO, items=items)
        case SayStrategyFailed(why):
            log_strategy_failure(member, view.config.sharding_strategy, why)
        case EndRun() | UpdateRequest():
            job.conclude(effect)


async def _going_on(member: Member, request: Request, data: bytes) -> list[Op]:
    """Return the operations that let the requests of followers go on, if ``data`` says that a request is over."""
    if not json_object(data).get("closed"):
        return []
    paths = [Layout(follower).request(request.id) for follower in request.then]
    completed = is_completed(data)
    operations = list[Op]()
    for path, node in zip(paths, await member.session.get_many(paths), strict=True):
        if node is not None and decode(request.id, node) is not None:
            changed = after_upstream(node.data, member.layout.job, completed=completed)
            operations.append(Set(path, changed, node.stat.version))
    return operations


async def _gone_followers(member: Member, view: JobView) -> Sequence[str]:
    """Return the jobs that have a mark as followers of this one, and are not there any more."""
    names = view.tree.children(view.layout.followers)
    nodes = await member.session.get_many([Layout(name).config for name in names]) if names else ()
    return [name for name, node in zip(names, nodes, strict=True) if node is None]


async def _transactions(
    member: Member, view: JobView, effect: Effect, unwanted: UnwantedRecords
) -> tuple[list[Transaction], LostRuns | None]:
    """Return an effect's transactions, and the runs that were cut off and whose records they remove, if there are any.

    If a transaction would be larger than the registry takes, it is made smaller.
    """
    match effect:
        case RemoveItems(items):
            transactions, lost = await _removal_of_items(member, view, sorted(items)[:REMOVED_AT_ONCE])
            return transactions, LostRuns(lost, reasons.REMOVED) if lost else None
        case RemoveNodes():
            (transaction,) = to_transactions(effect, view)
            if unrecorded := _lost_with(effect, unwanted):
                writer = await _naming_the_writer(member)
                return [[*transaction, writer]], LostRuns(unrecorded, reasons.NOT_RECORDED)
            return [transaction], None
        case UpdateRequest(request, data) if request.then:
            (transaction,) = to_transactions(effect, view)
            return [[*transaction, *await _going_on(member, request, data)]], None
        case Assign():
            found = to_transactions(effect, view)
            most = MAX_OPERATIONS
            while most > 1 and not all(map(member.session.is_small_enough, found)):
                most //= 2
                found = to_transactions(effect, view, most)
            return found, None
        case _:
            return to_transactions(effect, view), None


async def _naming_the_writer(member: Member) -> Op:
    """Return the operation that names the writer of a transaction which removes the records of lost runs.

    A removed node does not tell who has removed it.  So after a lost reply, a leader and its successor, who both have
    wanted the same removal, would both report the runs.
    """
    path = member.layout.execution
    (parent,) = await member.session.get_many([path])
    return put(path, member.id.encode(), parent)


async def _removal_of_items(
    member: Member, view: JobView, items: Sequence[int]
) -> tuple[list[Transaction], dict[int, Record]]:
    """Return a transaction that removes surplus items, and the records that it removes of runs that were cut off.

    Items that still run stay, and so do those below whose records somebody has made nodes by hand.  If all together
    are too many for one transaction, a later turn removes the others.
    """
    removal = dict[int, list[Delete]]()
    lost = dict[int, Record]()
    for item, paths, record, running in await read_items(member, items):
        nodes = _removal(paths, record)
        keeps_record = record is not None and Delete(paths.execution, record.stat.version) not in nodes
        if running is not None or keeps_record:
            continue
        removal[item] = nodes
        if record and (run := records.decode(record.data)) is not None and not run.completed:
            lost[item] = run
    writer = await _naming_the_writer(member) if lost else None
    while removal:
        below = [node for nodes in removal.values() for node in nodes]
        transaction = [
            *to_transactions(RemoveItems(frozenset(removal)), view)[0],
            *below,
            *losing(view, lost, member.id),
        ]
        if writer is not None:
            transaction.append(writer)
        if len(removal) == 1 or member.session.is_small_enough(transaction):
            return [transaction], lost
        kept, _ = halves(sorted(removal))
        removal = {item: removal[item] for item in kept}
        lost = {item: run for item, run in lost.items() if item in removal}
    return [], {}


def log_findings(member: Member, known: Mapping[str, str], found: Mapping[str, str]) -> None:
    """Log the findings that are new, and those ``known`` before that have been corrected."""
    for path, why in found.items():
        if known.get(path) != why:
            _log_finding(member, "nodes of jobs are wrong", path, why)
    for path in known:
        if path not in found:
            _log_finding(member, "nodes of jobs are correct now", path, "is correct now")


def _log_finding(member: Member, kind: str, path: str, why: str) -> None:
    if member.admits(log, kind):
        log.warning("%s: %s", path, why, extra={"job": member.layout.job})


def log_strategy_failure(member: Member, strategy: str, why: str) -> None:
    """Log why the job's sharding strategy failed, once a minute while it fails."""
    job = member.layout.job
    if member.limited_log.admits(log, job, "sharding strategies failed"):
        text = "%s: the sharding strategy %s failed, so items stay with their instances, or are spread evenly: %s"
        log.error(text, job, strategy, why, extra={"job": job, "strategy": strategy})
