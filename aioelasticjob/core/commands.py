"""The commands and reports of ``JobState`` and ``Choice``: values without I/O, performed in their order.

A report has no answer.  The answer to a command is sent in, or the error of the registry is thrown in.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from aioelasticjob.core.reasons import Newest
from aioelasticjob.core.timeline import Passed
from aioelasticjob.core.view import JobView
from aioelasticjob.errors import ElasticJobError, RegistryError
from aioelasticjob.ground.values import value
from aioelasticjob.model import NONE, Claim, EndedItem, Fire, Record, VersionedRecord


@value
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


@value
class SayAhead:
    """Log that items count as accounted for up to a time that has yet to come: a clock was ahead."""

    items: tuple[int, ...]
    until: int


@value
class SayLowered:
    """Log that an item is not accounted for any more up to a time far in the future, but up to now."""

    item: int
    until: int
    now: int


@value
class SayRefused:
    """Report that this instance refuses a fire."""

    why: ElasticJobError
    again: bool
    """Whether it has refused the one before as well, so that this one needs no line in the log."""


@value
class NoteAnswer:
    """Note that the registry has accepted requests with this purpose, or has refused one."""

    purpose: str
    error: RegistryError | None = None


@value
class ReadItems:
    """Read the records and locks of items, and which of them have offsets.

    The answer is what was ``Found`` of each item; nothing if the items have no records.
    """

    items: frozenset[int]
    are_recorded: bool = True


@value
class WriteAccounts:
    """Write up to where items are accounted for: for each item the record that it has, and the new one.

    The answer is the records that were written, by item, or None if the view is outdated.
    """

    view: JobView
    records: dict[int, tuple[VersionedRecord, Record]]


@value
class ReadOffsets:
    """Read the offsets of items.

    The answer is the offset of each item that has one.
    """

    items: frozenset[int]


@value
class ReadRequested:
    """Read the requests for which the runs of items were made that have these records.

    The answer is a ``Requested`` for each item whose request goes on.
    """

    records: dict[int, Record]


@value
class RemoveOrphanMark:
    """Remove the mark of an orphan whose run turns out to have ended.  It has no answer."""

    item: int
    version: int | None
    """The version of the item's record; None if it has none."""


@value
class JoinRun:
    """Note, before a run that somebody has asked for is claimed, that items take part in it.

    The answer is False if its request has changed.
    """

    fire: Fire
    items: frozenset[int]


@dataclass(slots=True)
class ClaimResult:
    """The result of a claim."""

    claim: Claim | None = None
    stale: bool = False
    """Whether the view was outdated, so that the remaining items wait for the next view."""
    obstructed: frozenset[int] = NONE
    """Items that cannot be claimed because nodes that somebody has made by hand prevent it."""
    renewed: frozenset[int] = NONE
    """Items that were not claimed because records or locks have changed since they were read."""


@value
class ClaimItems:
    """Claim items for a fire, whose moment may still be to come.

    The answer is a ``ClaimResult``.
    """

    view: JobView
    fire: Fire
    before: dict[int, VersionedRecord]
    """The records that the items have."""
    wanted: dict[int, Record]
    """The records that the claim writes."""
    settling: Mapping[int, EndedItem] = field(default_factory=dict)
    """Items whose runs have ended: their settlement is written together with the claim, or nothing is."""


@value
class FollowReleases:
    """Begin to follow the runs of these items on another instance, without waiting for their end.  It has no answer."""

    items: frozenset[int]


@value
class AwaitMoment:
    """Wait until the moment of a claim comes, if it is still to come.

    The answer is False if the claim is not to be run: the view or the time has changed meanwhile, the session may be
    over, or this instance leaves.
    """

    view: JobView
    """The view on which the claim was decided."""
    claim: Claim


@value
class GiveBack:
    """Give the items of the claim that waits for its moment back without a run.  It has no answer."""


@value
class NewestView:
    """Ask for the newest view; after an outage, wait for a short time until it was read anew.

    The answer is the view.
    """


@value
class RunItems:
    """Begin to run claimed items; the run goes on by itself until it is settled.  It has no answer."""

    view: JobView
    claim: Claim
    offsets: dict[int, str]


@value
class SettleEnded:
    """Begin to settle items whose runs have ended, apart from others of their claim; that goes on by itself.

    When it is done, ``Choice.ended`` is called, as for a run.  It has no answer.
    """

    claim: Claim
    """Their claim, without its other items."""
    records: dict[int, VersionedRecord]
    """The records to write, by item."""


@value
class AwaitRescueEnd:
    """Wait for a short time until the view shows that the rescue of this instance's own items has ended.

    It has no answer.
    """

    items: frozenset[int]


AnyReport: TypeAlias = Report | SayAhead | SayLowered | SayRefused | NoteAnswer
NodeCommand: TypeAlias = ReadItems | WriteAccounts | ReadOffsets | ReadRequested
"""What ``StateDriver`` performs.  ``JobScheduler`` performs the others, and passes these on."""
Command: TypeAlias = (
    NodeCommand
    | RemoveOrphanMark
    | JoinRun
    | ClaimItems
    | AwaitMoment
    | GiveBack
    | FollowReleases
    | RunItems
    | SettleEnded
    | AwaitRescueEnd
    | NewestView
)
T = TypeVar("T")
Steps: TypeAlias = Generator[Command, Any, T]
"""Work that needs answers: it yields a command and is sent the answer, until it returns its result."""
