"""The closed set of what rules may want written, and each one's transactions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from aioelasticjob.coordination import records
from aioelasticjob.coordination.view import JobView
from aioelasticjob.model import GIVEN_UP, Record
from aioelasticjob.registry.transaction import Check, Create, Delete, Op, Set

MAX_OPERATIONS = 1000
"""Operations that one transaction may carry: far below jute.maxbuffer, and short enough not to hold up the loop."""


@dataclass(frozen=True, slots=True)
class BecomeLeader:
    """Become the leader."""

    me: str


@dataclass(frozen=True, slots=True)
class StepDown:
    """Stop leading."""

    me: str


@dataclass(frozen=True, slots=True)
class RequireAssignment:
    """Ask for an assignment."""

    why: str


@dataclass(frozen=True, slots=True)
class Assign:
    """Write an assignment, whole."""

    assignment: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class RemoveItems:
    """Remove items beyond the count that nobody holds any more."""

    items: frozenset[int]


@dataclass(frozen=True, slots=True)
class MarkOrphan:
    """Put an item whose run was cut off up for rescue."""

    item: int
    version: int
    """The version of the record that says so."""
    run: Record | None = None
    """What the record says."""


@dataclass(frozen=True, slots=True)
class GiveUpRun:
    """Settle a run that was cut off, and whose rescues were cut off in a row, as failed."""

    item: int
    version: int
    """The version of the record that says so."""
    run: Record
    """What the record says."""
    at: int
    """Now, in milliseconds since the epoch."""
    marked: bool
    """Whether the item is up for rescue, because an instance that left has handed it over."""


@dataclass(frozen=True, slots=True)
class RemoveMarks:
    """Remove a request that has been heard, or that is meant for somebody who is gone."""

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RestoreNodes:
    """Make again what was removed by hand and everything else stands upon."""

    me: str
    nodes: Mapping[str, bytes]
    """Data by path, outermost first."""


@dataclass(frozen=True, slots=True)
class RefreshServer:
    """Keep a server's node young: its age is how long the server has not been used."""

    ip: str
    version: int


@dataclass(frozen=True, slots=True)
class RemoveServer:
    """Remove a server that has not been used for long."""

    ip: str
    version: int


@dataclass(frozen=True, slots=True)
class ClearRecords:
    """Remove the records of a job whose execution is no longer monitored."""

    versions: Mapping[str, int]
    """Versions by path, a record's mark before the record."""


@dataclass(frozen=True, slots=True)
class NoteSchedule:
    """Note which schedule is in force, and since when."""

    data: bytes
    config_version: int
    """The version of the configuration that it was read from."""


Effect = (
    BecomeLeader
    | StepDown
    | RequireAssignment
    | Assign
    | RemoveItems
    | MarkOrphan
    | GiveUpRun
    | RemoveMarks
    | RestoreNodes
    | RefreshServer
    | RemoveServer
    | ClearRecords
    | NoteSchedule
)
Transaction = list[Op]


def to_transactions(effect: Effect, view: JobView) -> list[Transaction]:
    """Return the transactions that bring an effect about, each conditional on what the view shows."""
    layout = view.layout
    match effect:
        case BecomeLeader(me):
            epoch = Create(layout.epoch) if view.epoch is None else Set(layout.epoch, b"", view.epoch)
            vacate: Transaction = [] if view.leader is None else [Delete(layout.host)]
            return [[*vacate, Create(layout.host, me.encode(), ephemeral=True), epoch, *mark_necessary(view)]]
        case StepDown():
            return [[*_leading(view), Delete(layout.host)]]
        case RequireAssignment():
            return [[*_leading(view), *mark_necessary(view)]]
        case Assign(assignment):
            return _assign(view, assignment)
        case RemoveItems(items):
            return [_remove_items(view, items)]
        case MarkOrphan():
            return [_mark_orphan(view, effect)]
        case GiveUpRun():
            return [_give_up_run(view, effect)]
        case RemoveMarks(paths):
            return [[*_leading(view), Delete(path)] for path in paths]
        case RestoreNodes(me, nodes):
            return [[Check(layout.instance(me)), *(Create(path, data) for path, data in nodes.items())]]
        case RefreshServer(ip, version):
            return [[Set(layout.server(ip), _data(view, layout.server(ip)), version)]]
        case RemoveServer(ip, version):
            counts = [path for path in (layout.success_count(ip), layout.failure_count(ip)) if path in view.tree]
            return [[*_leading(view), *map(Delete, counts), Delete(layout.server(ip), version)]]
        case ClearRecords(versions):
            return _clear_records(view, versions)
        case NoteSchedule(data, config_version):
            return [[*_leading(view), Check(layout.config, config_version), _written(view, layout.schedule, data)]]
    assert_never(effect)


def mark_necessary(view: JobView) -> Transaction:
    """Return the mark's operation: a mark that stands is touched, so that an assignment under way is decided anew."""
    if view.layout.necessary not in view.tree:
        return [Create(view.layout.necessary)]
    return [Set(view.layout.necessary, b"", -1)]


def _leading(view: JobView) -> Transaction:
    """Return the fence of every leader's write: the epoch outlives the seat, so a deposed leader is refused."""
    return [Check(view.layout.epoch, -1 if view.epoch is None else view.epoch)]


def _assign(view: JobView, assignment: Mapping[int, str]) -> list[Transaction]:
    layout = view.layout
    moves = list(_moves(view, assignment))
    begin: Transaction = [Set(layout.sharding, b"", view.sharding_version)]
    end: Transaction = []
    if not view.obstructed(layout.processing):
        if view.processing:  # left by an assignment that was cut short; its author is fenced by the epoch
            begin.append(Delete(layout.processing))
        begin.append(Create(layout.processing, ephemeral=True))
        end.append(Delete(layout.processing))
    if view.necessary is not None:
        answer = Check if view.obstructed(layout.necessary) else Delete
        end.append(answer(layout.necessary, view.necessary))
    if len(moves) + len(begin) + len(end) <= MAX_OPERATIONS:
        return [[*_leading(view), *begin, *moves, *end]]
    outdated = Set(layout.sharding, b"", -1)  # for claims decided before the chunk, should ``processing`` go by hand
    chunks = [[outdated, *moves[n : n + MAX_OPERATIONS]] for n in range(0, len(moves), MAX_OPERATIONS)]
    return [[*_leading(view), *part] for part in (begin, *chunks, end)]


def _moves(view: JobView, assignment: Mapping[int, str]) -> Iterable[Op]:
    layout = view.layout
    for item in sorted(view.items | assignment.keys()):
        paths, holder = layout.item(item), assignment.get(item)
        if holder is None:
            if item in view.assignment:
                yield Delete(paths.instance)
            continue
        if item not in view.items:
            yield Create(paths.sharding)
        node = view.tree.get(paths.instance)
        if node is None:
            yield Create(paths.instance, holder.encode())
        elif view.assignment.get(item) != holder:
            yield Set(paths.instance, holder.encode(), node.stat.version)


def _mark_orphan(view: JobView, lost: MarkOrphan) -> Transaction:
    paths, mark = view.layout.item(lost.item), b"" if lost.run is None else records.mark(lost.run)
    return [*_leading(view), Check(paths.execution, lost.version), *_absent(paths.running), Create(paths.orphan, mark)]


def _give_up_run(view: JobView, given: GiveUpRun) -> Transaction:
    paths = view.layout.item(given.item)
    record = replace(given.run, completed=True, completed_at=given.at, outcome=GIVEN_UP)
    settle = Set(paths.execution, records.encode(record), given.version)
    unmark = [Delete(paths.orphan)] if given.marked else []
    return [*_leading(view), settle, *_absent(paths.running), *unmark]


def _absent(path: str) -> Transaction:
    """Return ZooKeeper's way to check that a node does not exist."""
    return [Create(path, ephemeral=True), Delete(path)]


def _remove_items(view: JobView, items: frozenset[int]) -> Transaction:
    operations: Transaction = _leading(view)
    for item in sorted(items)[: MAX_OPERATIONS // 4]:
        paths = view.layout.item(item)
        operations += [Delete(flag) for flag in (paths.failover, paths.instance) if flag in view.tree]
        operations.append(Delete(paths.sharding))
    return operations


def _clear_records(view: JobView, versions: Mapping[str, int]) -> list[Transaction]:
    config = view.tree.get(view.layout.config)
    still_off = [] if config is None else [Check(view.layout.config, config.stat.version)]
    removal = [Delete(path, version) for path, version in versions.items()]
    parts = [removal[n : n + MAX_OPERATIONS] for n in range(0, len(removal), MAX_OPERATIONS)]
    return [[*_leading(view), *still_off, *part] for part in parts]


def _written(view: JobView, path: str, data: bytes) -> Op:
    node = view.tree.get(path)
    return Create(path, data) if node is None else Set(path, data, node.stat.version)


def _data(view: JobView, path: str) -> bytes:
    node = view.tree.get(path)
    return b"" if node is None else node.data
