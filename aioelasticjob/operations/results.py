"""The result of an action, and the errors for what changed meanwhile and for what is not possible now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aioelasticjob.core.layout import SWITCHES, Layout
from aioelasticjob.core.view import JobView
from aioelasticjob.engine.operator_log import encode_note
from aioelasticjob.errors import Conflict, ElasticJobError
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.transaction import Check, Create, Op, Set
from aioelasticjob.registry.tree import Tree


@dataclass(frozen=True, slots=True)
class OperationResult:
    """What an action did."""

    summary: str
    """A sentence for people."""
    paths: tuple[str, ...] = ()
    """The nodes that were made, changed or removed; none if everything was as wanted already."""
    zxid: int = 0
    """The zxid of the transaction; if nothing had to be written, the newest zxid that was seen."""

    @property
    def changed(self) -> bool:
        """Whether anything was written."""
        return bool(self.paths)


class ChangedMeanwhile(ElasticJobError):
    """Another client changed a node on which the action was decided; nothing of this transaction was written."""

    def __init__(self, path: str, reason: str, already: str = "") -> None:
        done = f"{already}; nothing else was written" if already else "nothing was written"
        super().__init__(f"{path} {reason} meanwhile: {done}, look again")
        self.path = path
        self.reason = reason
        self.already = already


class NotPossible(ElasticJobError):
    """The action is not possible in the job's present state; the text says what has to be done first."""


MAX_FILLED_PART = 0.9
"""The part of a request's maximal size that is used: sizes are estimated, not measured."""
OPERATION_OVERHEAD = 100
"""Bytes of an operation besides its path and data: an upper bound."""
_REASONS = {
    "exists": "was made",
    "missing": "was removed",
    "version": "was changed",
    "not empty": "was given nodes below it",
}


def signed(view: JobView, by: str, operations: Sequence[Op]) -> list[Op]:
    """Return the operations of an action on a job, with a note of who acts, on condition that the job still exists."""
    return [Check(view.layout.config), *noted(view.layout, view.tree, by, operations), *operations]


def noted(layout: Layout, tree: Tree, by: str, operations: Sequence[Op]) -> list[Op]:
    """Return the operation that notes who acts on a job; none if nobody is named, or if the job has never run."""
    if not by or layout.leader not in tree:
        return []
    return [note(layout.operator, layout.operator in tree, by, operations)]


def noted_for_all(tree: Tree, by: str, operations: Sequence[Op]) -> list[Op]:
    """Return the operation that notes who acts on a server in all jobs, or removes a job; none if nobody is named."""
    return [note(SWITCHES, SWITCHES in tree, by, operations)] if by else []


def note(path: str, is_there: bool, by: str, operations: Sequence[Op]) -> Op:
    """Return the operation that writes a note about what other operations do."""
    data = encode_note(by, {op.path for op in operations if not isinstance(op, Check)})
    return Set(path, data, -1) if is_there else Create(path, data)


async def commit(session: Session, operations: Sequence[Op], summary: str, already: str = "") -> OperationResult:
    """Write all operations in one transaction, or nothing.

    Raises:
        ChangedMeanwhile: a condition no longer holds.
        RegistryError: the registry could not be written, or did not answer.
    """
    paths = tuple(dict.fromkeys(op.path for op in operations if not isinstance(op, Check)))
    if not paths:
        return OperationResult(summary, (), session.zxid)
    try:
        committed = await session.commit(operations, incarnation=session.incarnation)
    except Conflict as conflict:
        reason = _REASONS.get(conflict.reason, f"cannot be written ({conflict.reason})")
        raise ChangedMeanwhile(conflict.path, reason, already) from conflict
    return OperationResult(summary, paths, committed.zxid)


async def commit_groups(session: Session, groups: Sequence[Sequence[Op]], summary: str, noun: str) -> OperationResult:
    """Write groups of operations in one transaction, or in several if one would be too large; a group is never split.

    ``noun`` says in the plural what a group is, such as "jobs".

    Raises:
        ChangedMeanwhile: a condition no longer holds; it tells how many groups were written before.
        RegistryError: the registry could not be written, or did not answer.
    """
    paths = list[str]()
    zxid = session.zxid
    written = 0
    for part in _parts(groups, round(session.max_request * MAX_FILLED_PART), len(session.settings.namespace)):
        already = f"{written:,} of {len(groups):,} {noun} were done before" if written else ""
        done = await commit(session, [op for group in part for op in group], summary, already)
        paths = [*paths, *done.paths]
        zxid = done.zxid
        written += len(part)
    return OperationResult(summary, tuple(dict.fromkeys(paths)), zxid)


def _parts(groups: Sequence[Sequence[Op]], limit: int, prefix: int) -> list[list[Sequence[Op]]]:
    parts: list[list[Sequence[Op]]] = []
    size = limit
    for group in groups:
        need = sum(len(op.path.encode()) + prefix + len(getattr(op, "data", b"")) + OPERATION_OVERHEAD for op in group)
        if size + need > limit:
            parts.append([])
            size = 0
        parts[-1].append(group)
        size += need
    return parts
