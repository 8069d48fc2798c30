"""Writes that the simulated registry answers with an error, although nothing about the write is wrong.

A registry does so when it is overloaded, when a quota is met, when its disk fails, or when somebody set it up wrongly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from aioelasticjob.zookeeper.codes import ErrorCode
from aioelasticjob.zookeeper.datatree import DataTree
from aioelasticjob.zookeeper.messages import Create, SetData, Write

CONFLICTS = (
    ErrorCode.NO_NODE,
    ErrorCode.BAD_VERSION,
    ErrorCode.NO_CHILDREN_FOR_EPHEMERALS,
    ErrorCode.NODE_EXISTS,
    ErrorCode.NOT_EMPTY,
)
"""Answers that say that a condition of the write does not hold."""
NO_ERROR = (ErrorCode.OK, ErrorCode.RUNTIME_INCONSISTENCY)
"""What stands for the parts of a transaction before and behind the one that failed."""
ERRORS = tuple(code for code in ErrorCode if code not in (*CONFLICTS, ErrorCode.OK))
"""All other errors of the protocol."""
DOUBTFUL = (
    ErrorCode.SYSTEM_ERROR,
    ErrorCode.DATA_INCONSISTENCY,
    ErrorCode.CONNECTION_LOSS,
    ErrorCode.OPERATION_TIMEOUT,
    ErrorCode.REQUEST_TIMEOUT,
)
"""Errors that a server may answer after it has carried out the write."""


@dataclass(eq=False, slots=True)
class Refusing:
    """Which writes are refused, and with what."""

    code: ErrorCode
    hosts: frozenset[str]
    part: str = ""
    """Only transactions with a path that contains it."""
    applied: bool = False
    """Carry the write out before it is answered with the error."""
    whole: bool = False
    """Answer with the error in the reply's header, rather than as the result of one part of the transaction."""
    once: bool = False
    growing: bool = False
    """Only parts that need more room than before, as a quota refuses them."""

    def refused(self, tree: DataTree, writes: Sequence[Write], host: str) -> int | None:
        """Return the place of the part of a transaction that is refused; None if it may be carried out."""
        if host not in self.hosts:
            return None
        for place, write in enumerate(writes):
            if self.part in (write.path or "") and (not self.growing or _grows(tree, write)):
                return place
        return None

    def answer(self, count: int, place: int) -> Sequence[ErrorCode]:
        """Return the results of a transaction of ``count`` parts that fails at ``place``."""
        rest = count - place - 1
        return [ErrorCode.OK] * place + [self.code] + [ErrorCode.RUNTIME_INCONSISTENCY] * rest


@dataclass(slots=True)
class Refusals:
    """What is refused at the moment."""

    active: list[Refusing] = field(default_factory=list)

    def find(self, tree: DataTree, writes: Sequence[Write], host: str) -> tuple[Refusing, int] | None:
        """Return what refuses a transaction, and at which of its parts; what refuses once is then done with."""
        for one in self.active:
            place = one.refused(tree, writes, host)
            if place is not None:
                if one.once:
                    self.active.remove(one)
                return one, place
        return None

    def end(self, one: Refusing) -> None:
        """Refuse no more, if that has not ended already."""
        if one in self.active:
            self.active.remove(one)


def _grows(tree: DataTree, write: Write) -> bool:
    if isinstance(write, Create):
        return True
    node = tree.nodes.get(write.path or "")
    return isinstance(write, SetData) and node is not None and len(write.data or b"") > len(node.data or b"")
