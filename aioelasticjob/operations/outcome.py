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
