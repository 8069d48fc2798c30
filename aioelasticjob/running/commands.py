"""The commands of ``JobState`` to its driver, ``StateDriver``: values without I/O, performed in their order.

If a command has an answer, the driver passes it to the function ``then``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from aioelasticjob.coordination.record_cache import MissedMark
from aioelasticjob.coordination.unmonitored import AccountedMoment
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
    then: Callable[[frozenset[int]], None] = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class MarkMissed:
    """Mark the moments that items missed.

    The answer is the set of items that this instance has marked, or None if the view is outdated.
    """

    view: JobView
    said: Mapping[int, MissedMark]
    then: Callable[[frozenset[int] | None], None] = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ReadAccounted:
    """Read up to which moment an instance was up for a job that keeps no records.

    The answer is None if the node is missing.
    """

    then: Callable[[AccountedMoment | None], None] = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class WriteAccounted:
    """Write up to which moment an instance was up for a job that keeps no records.

    The answer is whether that was written, or None if the registry refuses it.
    """

    view: JobView
    until: int
    version: int
    then: Callable[[bool | None], None] = field(compare=False, repr=False)


Command: TypeAlias = Report | SayLowered | ReadItems | MarkMissed | ReadAccounted | WriteAccounted
