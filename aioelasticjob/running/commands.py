"""What the state of a job's items asks to have done: values without I/O.  The driver performs them in their order.

A command that brings an answer names in ``then`` who takes it in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from aioelasticjob.coordination.record_cache import MissedMark
from aioelasticjob.coordination.unmonitored import AccountedMoment
from aioelasticjob.coordination.view import JobView
from aioelasticjob.running.schedule import Passed


@dataclass(frozen=True, slots=True)
class Report:
    """Say that items missed moments."""

    items: tuple[int, ...]
    passed: Passed
    why: str
    cut_off: str = ""
    """The instance whose run was cut off, if that is why."""


@dataclass(frozen=True, slots=True)
class SayLowered:
    """Say that an item's record claimed too much of the future."""

    item: int
    slot: int
    """What the record claims."""
    since: int
    """Up to when the item counts as claimed."""


@dataclass(frozen=True, slots=True)
class ReadItems:
    """Read items' records and marks, and which items have offsets; the answer is which of them somebody runs."""

    records: frozenset[int]
    offsets: frozenset[int]
    then: Callable[[frozenset[int]], None] = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class MarkMissed:
    """Mark what items missed; the answer is which marks were left here, None if the view is old."""

    view: JobView
    said: Mapping[int, MissedMark]
    then: Callable[[frozenset[int] | None], None] = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ReadAccounted:
    """Read up to which moment a job that keeps no records had somebody; None if nothing is kept of it."""

    then: Callable[[AccountedMoment | None], None] = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class WriteAccounted:
    """Write up to which moment it had; the answer is whether that was written, None if the registry refuses it."""

    view: JobView
    until: int
    version: int
    then: Callable[[bool | None], None] = field(compare=False, repr=False)


Command: TypeAlias = Report | SayLowered | ReadItems | MarkMissed | ReadAccounted | WriteAccounted
