"""The closed set of effects that rules may want, and the transactions that write each effect."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, assert_never

from aioelasticjob.core import records
from aioelasticjob.core.layout import Layout
from aioelasticjob.core.request_runs import request_of_run, settling
from aioelasticjob.core.requests import Request
from aioelasticjob.core.view import JobView
from aioelasticjob.model import Fire, FireSource, Record, VersionedRecord
from aioelasticjob.registry.transaction import Check, Create, Delete, Op, Set, put

T = TypeVar("T")
MAX_OPERATIONS = 1000
"""How many operations are put into one transaction: far below jute.maxbuffer, and too few to block the event loop.

Some have more: the checks of a part come on top, and for a claim or a settlement see ``ITEMS_AT_ONCE``.
"""


@dataclass(frozen=True, slots=True)
class BecomeLeader:
    """Become the leader."""

    me: str


@dataclass(frozen=True, slots=True)
class StepDown:
    """Stop being the leader."""


@dataclass(frozen=True, slots=True)
class RequireAssignment:
    """Require an assignment, by making the mark ``necessary``."""


@dataclass(frozen=True, slots=True)
class Assign:
    """Write a whole assignment."""

    assignment: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class SayStrategyFailed:
    """Log that the job's strategy failed, so that another assignment is used.  Nothing is written."""

    why: str


@dataclass(frozen=True, slots=True)
class RemoveItems:
    """Remove items beyond the count that no instance holds any more."""

    items: frozenset[int]


@dataclass(frozen=True, slots=True)
class MarkOrphan:
    """Mark an item whose run was cut off as an orphan."""

    item: int
    run: VersionedRecord


@dataclass(frozen=True, slots=True)
class EndRun:
    """Settle a run that was cut off and is not to be rescued."""

    item: int
    run: VersionedRecord
    at: int
    """The present time, in milliseconds since the epoch."""
    outcome: str
    """``GIVEN_UP`` after too many rescues that were cut off, ``stopped`` if somebody had cancelled the run."""


@dataclass(frozen=True, slots=True)
class LostRuns:
    """Runs that were cut off, and whose records the leader has removed, so that nobody runs them again."""

    records: Mapping[int, Record]
    why: str
    """Why nobody does."""


@dataclass(frozen=True, slots=True)
class WriteNodes:
    """Write nodes in one transaction, with the operations that the rule gives."""

    operations: tuple[Op, ...]


class RemoveNodes(WriteNodes):
    """Remove nodes that nothing needs any more: all together, and only while other nodes are as they were seen."""


class RestoreNodes(WriteNodes):
    """Make nodes again that were removed by hand and that all other nodes need."""


class RefreshServer(WriteNodes):
    """Touch a server's node: its age says how long no instance has been on the server."""


class NoteSchedule(WriteNodes):
    """Note which schedule is in force and since when."""


class MarkFollowed(WriteNodes):
    """Have the jobs that this one follows write how their items end."""


class AcceptConfiguration(WriteNodes):
    """Note that an instance can use the configuration, which another one cannot; also who does not lead may do that."""


class NoteUnusable(WriteNodes):
    """Note in the instance's own node which configuration its process cannot use, or that it can use it."""


@dataclass(frozen=True, slots=True)
class UpdateRequest:
    """Note that a request has expired or has ended."""

    request: Request
    """The request as it was."""
    data: bytes
    """The new data of its node."""
    unrun: Mapping[int, int] = field(default_factory=dict)
    """The items that will not run, because the request has expired or they were removed, each with the moment due."""


Effect = (
    BecomeLeader
    | StepDown
    | RequireAssignment
    | Assign
    | SayStrategyFailed
    | RemoveItems
    | MarkOrphan
    | EndRun
    | RemoveNodes
    | RestoreNodes
    | RefreshServer
    | NoteSchedule
    | MarkFollowed
    | AcceptConfiguration
    | NoteUnusable
    | UpdateRequest
)
Transaction = list[Op]


def to_transactions(effect: Effect, view: JobView, most: int | None = None) -> list[Transaction]:
    """Return the transactions that write an effect; each is conditional on what the view shows.

    An assignment is written in parts of at most ``most`` operations, MAX_OPERATIONS by default.
    """
    layout = view.layout
    leading = _leading(view)
    match effect:
        case BecomeLeader(me):
            return [_become_leader(view, me)]
        case StepDown():
            return [[*leading, Delete(layout.host)]]
        case RequireAssignment():
            return [[*leading, *_mark_necessary(view)]]
        case Assign(assignment):
            return _assign(view, assignment, most or MAX_OPERATIONS)
        case SayStrategyFailed():
            return []
        case RemoveItems(items):
            return [_remove_items(view, items)]
        case MarkOrphan():
            return [_mark_orphan(view, effect)]
        case EndRun():
            return [_end_run(view, effect)]
        case RemoveNodes(operations) | NoteSchedule(operations) | MarkFollowed(operations):
            return [[*leading, *operations]]
        case (
            RestoreNodes(operations)
            | RefreshServer(operations)
            | AcceptConfiguration(operations)
            | NoteUnusable(operations)
        ):
            return [[*operations]]
        case UpdateRequest(request, data):
            return [[*leading, Set(layout.request(request.id), data, request.version)]]
    assert_never(effect)


def parts(whole: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield a sequence in parts of at most ``size``."""
    for start in range(0, len(whole), size):
        yield whole[start : start + size]


def halves(whole: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield the two halves of a sequence of at least two."""
    return parts(whole, (len(whole) + 1) // 2)


def unkept_contents(view: JobView) -> list[Op]:
    """Return the operations that keep the contents of the calendars which the configuration names, if they are not."""
    unkept = dict[str, bytes]()
    for hash, calendar in view.config.contents.items():
        if hash not in view.contents:
            unkept[view.layout.contents(hash)] = calendar.text.encode()
    return [put(path, data, view.tree.get(path)) for path, data in unkept.items()]


def _mark_necessary(view: JobView) -> Transaction:
    """Return the operation that makes the mark ``necessary``.

    If the mark exists, it is touched, so that an assignment that is being decided meets a conflict and is decided anew.
    """
    if view.layout.necessary not in view.tree:
        return [Create(view.layout.necessary)]
    return [Set(view.layout.necessary, b"", -1)]


def _leading(view: JobView) -> Transaction:
    """Return the check of every leader's write: the epoch never decreases, so a former leader's write is refused."""
    return [Check(view.layout.epoch, view.epoch)]


def _become_leader(view: JobView, me: str) -> Transaction:
    layout = view.layout
    vacate: Transaction = [] if view.leader is None else [Delete(layout.host)]
    take = Create(layout.host, me.encode(), ephemeral=True)
    new_epoch = put(layout.epoch, b"", view.tree.get(layout.epoch))
    return [*vacate, take, new_epoch, *_mark_necessary(view)]


def _assign(view: JobView, assignment: Mapping[int, str], most: int) -> list[Transaction]:
    layout = view.layout
    taken = _taken_from_paused(view, assignment)
    moves = list(_moves(view, assignment, taken))
    paused = [Check(path) for path in sorted({*taken.values()})]
    begin: Transaction = [Set(layout.sharding, b"", view.sharding_version)]
    end: Transaction = []
    if not view.obstructed(layout.processing):
        if view.processing:  # left by a former leader, whose further writes the epoch refuses
            begin.append(Delete(layout.processing))
        begin.append(Create(layout.processing, ephemeral=True))
        end.append(Delete(layout.processing))
    if view.necessary is not None:
        answer = Check if view.obstructed(layout.necessary) else Delete
        end.append(answer(layout.necessary, view.necessary))
    if len(moves) + len(begin) + len(end) <= most:
        return [[*_leading(view), *begin, *paused, *moves, *end]]
    outdated = Set(layout.sharding, b"", -1)  # refuses earlier claims even if somebody removes ``processing``
    chunks = [[outdated, *paused, *part] for part in parts(moves, most)]
    return [[*_leading(view), *part] for part in (begin, *chunks, end)]


def _moves(view: JobView, assignment: Mapping[int, str], taken_from_paused: Collection[int]) -> Iterable[Op]:
    layout = view.layout
    config = view.tree.get(layout.config)
    last = view.tree.get(layout.sharding)
    # whether the count may have been raised since the last assignment
    may_be_raised = config is not None and last is not None and config.stat.mzxid > last.stat.mzxid
    for item in sorted(view.items | assignment.keys()):
        paths = layout.item(item)
        holder = assignment.get(item)
        if holder is None:
            if item in view.assignment:
                yield Delete(paths.instance)
            continue
        if item not in view.items:
            yield Create(paths.sharding)
        node = view.tree.get(paths.instance)
        if view.assignment.get(item) != holder:
            yield put(paths.instance, holder.encode(), node)
        # it was beyond the count, and is not removed yet; otherwise somebody has removed its node ``instance`` by hand
        was_surplus = may_be_raised and node is None and item in view.items
        if was_surplus or item in taken_from_paused:  # its moments count from now on
            yield Set(paths.sharding, b"", -1)


def _taken_from_paused(view: JobView, assignment: Mapping[int, str]) -> Mapping[int, str]:
    """Return the items whose former holder is paused, each with the node that pauses it.

    Such an item has missed no moment so far: its moments count from now on.  That holds only as long as the node is
    there, so the assignment is written only then.
    """
    taken = dict[int, str]()
    for item, holder in assignment.items():
        former = view.assignment.get(item)
        if former is None or former == holder:
            continue
        node = view.paused_by(former)
        if node is not None:
            taken[item] = node
    return taken


def _mark_orphan(view: JobView, lost: MarkOrphan) -> Transaction:
    paths = view.layout.item(lost.item)
    run = lost.run
    assert run.version is not None  # it was read
    unchanged = Check(paths.execution, run.version)
    mark = Create(paths.orphan, records.encode_mark(run.record))
    return [*_leading(view), unchanged, *_absent(paths.running), mark]


def _end_run(view: JobView, given: EndRun) -> Transaction:
    paths = view.layout.item(given.item)
    run = given.run
    assert run.version is not None  # it was read
    record = records.ended_by_others(run.record, given.outcome, given.at)
    settle = [
        Set(paths.execution, records.encode(record), run.version),
        *ends_for_followers(view.layout, given.item, record),
    ]
    was_handed_over = paths.orphan in view.tree and not view.obstructed(paths.orphan)
    unmark = [Delete(paths.orphan)] if was_handed_over else []  # rescuers ignore the mark of such a run
    fire = Fire(0, FireSource.FAILOVER, requested=request_of_run(view, given.item, run.record))
    noted = settling(view.layout, fire, {given.item: given.outcome})
    return [*_leading(view), *settle, *_absent(paths.running), *unmark, *noted]


def ends_for_followers(layout: Layout, item: int, record: Record) -> list[Set]:
    """Return the operation that writes how an item has ended its moments; none if nobody follows the job.

    The node exists since the record has ends.
    """
    return [Set(layout.item(item).followed, records.encode_ends(record.ends).encode(), -1)] if record.ends else []


def _absent(path: str) -> Transaction:
    """Return operations that check that a node does not exist; ZooKeeper has no single operation for it."""
    return [Create(path, ephemeral=True), Delete(path)]


def _remove_items(view: JobView, items: frozenset[int]) -> Transaction:
    operations: Transaction = _leading(view)
    for item in sorted(items):
        paths = view.layout.item(item)
        operations += [Delete(flag) for flag in (paths.failover, paths.instance) if flag in view.tree]
        operations.append(Delete(paths.sharding))
    return operations
