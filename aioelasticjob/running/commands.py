"""What ``JobState`` wants from its driver, ``StateDriver``: values without I/O, performed in their order.

Reports have no answer.  ``JobState.see`` yields each command, and the driver sends the answer in.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from aioelasticjob.coordination.record_cache import MissedMark
from aioelasticjob.coordination.view import JobView
from aioelasticjob.running.schedule import Passed
from aioelasticjob.running.state import Newest


@dataclass(frozen=True, slots=True)
class Report:
    """Report that items missed moments."""

    items: tuple[int, ...]
    passed: Passed
    why: str
    cut_off: str = ""
    """The instance whose run was cut off, if that is why."""
    handled: bool = False
    """Whether the error handler was called for it already, as for a run that was given up."""
    newest: Newest = Newest.MISSED
    """What happens to the newest moment that has come, which these moments may or may not include."""


@dataclass(frozen=True, slots=True)
class SayLowered:
    """Log that an item's record claims a moment too far in the future, and that it is treated as an earlier one."""

    item: int
    slot: int
    """The moment that the record claims."""
    since: int
    """Up to which moment the item now counts as claimed."""


@dataclass(frozen=True, slots=True)
class ReadItems:
    """Read the records and marks of items, and which items have offsets.

    The answer is the set of those items that an instance runs at present.
    """

    records: frozenset[int]
    offsets: frozenset[int]


@dataclass(frozen=True, slots=True)
class MarkMissed:
    """Mark the moments that items missed.

    The answer is the set of items that this instance has marked, or None if the view is outdated.
    """

    view: JobView
    said: Mapping[int, MissedMark]


@dataclass(frozen=True, slots=True)
class ReadAccounted:
    """Read up to which moment an instance was up for a job that keeps no records.

    The answer is an ``AccountedMoment``, or None if the node is missing.
    """


@dataclass(frozen=True, slots=True)
class WriteAccounted:
    """Write up to which moment an instance was up for a job that keeps no records.

    The answer is whether that was written, or None if the registry refuses it.
    """

    view: JobView
    until: int
    version: int


AnyReport: TypeAlias = Report | SayLowered
Command: TypeAlias = ReadItems | MarkMissed | ReadAccounted | WriteAccounted
T = TypeVar("T")
Steps: TypeAlias = Generator[Command, Any, T]
"""Work that needs answers: it yields a command and is sent the answer, until it returns its result."""
