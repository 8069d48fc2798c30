"""What a transaction is made of, and what comes of it.  ``Session.commit`` sends one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Create:
    """Make a node; refused if it exists."""

    path: str
    data: bytes = b""
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """Replace a node's data; refused unless ``version`` is the present one (-1: any)."""

    path: str
    data: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a node without children; refused unless ``version`` is the present one (-1: any)."""

    path: str
    version: int = -1


@dataclass(frozen=True, slots=True)
class Check:
    """Demand that a node exists with this ``version`` (-1: any)."""

    path: str
    version: int = -1


Op: TypeAlias = Create | Set | Delete | Check


@dataclass(frozen=True, slots=True, eq=False)
class Hold:
    """Keep a transaction, ready, until a moment of the loop's clock, and drop it if ``stands`` no longer says yes.

    A hold is for one transaction at a time; ``Session.withdraw`` drops that before its moment.
    """

    until: float
    stands: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Committed:
    """A transaction that happened: its zxid, and the data version it gave each operation's node.

    Create gives 0, Set the new version, Delete and Check -1.  ``zxid`` is the czxid of every node it created.
    """

    zxid: int
    versions: tuple[int, ...]
    time: float = 0.0
    """The registry's, in seconds since the epoch; 0 if it did not say."""
