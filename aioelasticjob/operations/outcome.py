"""What comes of an action: what it did, that something changed meanwhile, or that something else has to come first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aioelasticjob.errors import Conflict, ElasticJobError
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.txn import Check, Op


@dataclass(frozen=True, slots=True)
class Done:
    """What an action did."""

    summary: str
    """A sentence for people."""
    paths: tuple[str, ...] = ()
    """The nodes that were made, changed or removed; none when all was as wanted already."""
    zxid: int = 0
    """The registry's number of the transaction, or of what was seen when nothing had to be written."""

    @property
    def changed(self) -> bool:
        """Whether anything was written."""
        return bool(self.paths)


class ChangedMeanwhile(ElasticJobError):
    """Somebody else changed what an action was decided upon; of this transaction nothing was written."""

    def __init__(self, path: str, reason: str, already: str = "") -> None:
        done = f"{already}; nothing else was written" if already else "nothing was written"
        super().__init__(f"{path} {reason} meanwhile: {done}, look again")
        self.path, self.reason, self.already = path, reason, already


class Refusal(ElasticJobError):
    """The job is in no state for what was asked; says what has to come first."""


FILLED = 0.9
"""The part of a request that may be filled: sizes are reckoned, not measured."""
OVERHEAD = 100
"""Bytes of an operation besides its path and data, more than there are."""
_REASONS = {
    "exists": "was made",
    "missing": "was removed",
    "version": "was changed",
    "not empty": "was given nodes below it",
}


async def carry_out(session: Session, operations: Sequence[Op], summary: str, already: str = "") -> Done:
    """Write all of it in one transaction, or nothing.

    Raises:
        ChangedMeanwhile: a condition no longer holds.
        RegistryError: the registry could not be written, or did not answer.
    """
    paths = tuple(dict.fromkeys(op.path for op in operations if not isinstance(op, Check)))
    if not paths:
        return Done(summary, (), session.zxid)
    try:
        committed = await session.commit(operations, incarnation=session.incarnation)
    except Conflict as conflict:
        reason = _REASONS.get(conflict.reason, f"cannot be written ({conflict.reason})")
        raise ChangedMeanwhile(conflict.path, reason, already) from conflict
    return Done(summary, paths, committed.zxid)


async def carry_out_groups(session: Session, groups: Sequence[Sequence[Op]], summary: str, noun: str) -> Done:
    """Write groups of operations in one transaction, or in several where one would be too large; a group stays whole.

    ``noun`` is what a group is about, in the plural.

    Raises:
        ChangedMeanwhile: a condition no longer holds; it tells how many groups were written before.
        RegistryError: the registry could not be written, or did not answer.
    """
    paths, zxid, written = list[str](), session.zxid, 0
    for part in _parts(groups, round(session.settings.max_request * FILLED), len(session.settings.namespace)):
        already = f"{written:,} of {len(groups):,} {noun} were done before" if written else ""
        done = await carry_out(session, [op for group in part for op in group], summary, already)
        paths, zxid, written = [*paths, *done.paths], done.zxid, written + len(part)
    return Done(summary, tuple(dict.fromkeys(paths)), zxid)


def _parts(groups: Sequence[Sequence[Op]], limit: int, prefix: int) -> list[list[Sequence[Op]]]:
    parts: list[list[Sequence[Op]]] = []
    size = limit
    for group in groups:
        need = sum(len(op.path.encode()) + prefix + len(getattr(op, "data", b"")) + OVERHEAD for op in group)
        if size + need > limit:
            parts.append([])
            size = 0
        parts[-1].append(group)
        size += need
    return parts
