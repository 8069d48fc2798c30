"""The operations of a transaction, and its result.  ``Session.commit`` sends a transaction."""

from __future__ import annotations

from typing import TypeAlias

from aioelasticjob.ground.values import value
from aioelasticjob.registry.tree import Node


@value
class Create:
    """Make a node; refused if it exists."""

    path: str
    data: bytes = b""
    ephemeral: bool = False


@value
class Set:
    """Replace a node's data; refused unless ``version`` is the present one (-1: any)."""

    path: str
    data: bytes
    version: int


@value
class Delete:
    """Remove a node without children; refused unless ``version`` is the present one (-1: any)."""

    path: str
    version: int = -1


@value
class Check:
    """Demand that a node exists with this ``version`` (-1: any)."""

    path: str
    version: int = -1


Op: TypeAlias = Create | Set | Delete | Check


def put(path: str, data: bytes, before: Node | None) -> Create | Set:
    """Return the operation that makes a node, or replaces the data of the one that was there ``before``.

    It is refused if that node has changed since.
    """
    return Create(path, data) if before is None else Set(path, data, before.stat.version)


@value
class Committed:
    """A transaction that was written: its zxid, and the data version of each operation's node after it.

    The version is 0 for Create, the new version for Set, -1 for Delete and Check.  ``zxid`` is the czxid of every node
    that the transaction created.
    """

    zxid: int
    versions: tuple[int, ...]
    time: float = 0.0
    """The registry's time of the transaction, in seconds since the epoch; 0 if the answer did not tell it."""
