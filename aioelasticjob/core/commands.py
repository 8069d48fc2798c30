"""The commands and reports of ``JobState`` and ``Choice``: values without I/O, performed in their order.

A report has no answer.  The answer to a command is sent in, or the error of the registry is thrown in.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from aioelasticjob.core.entries import MissedMark
from aioelasticjob.core.state import Newest, Passed
from aioelasticjob.core.view import JobView
from aioelasticjob.errors import ElasticJobError, RegistryError
from aioelasticjob.ground.values import value
from aioelasticjob.model import Claim, Fire, Record


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
class SayLowered:
    """Log that an item's record claims a moment too far in the future, and that it is treated as an earlier one."""

    item: int
    slot: int
    since: int
    """Up to which moment the item now counts as claimed."""


@value
class SayRefused:
    """Report that this instance refuses a fire."""

    why: ElasticJobError
    again: bool
    """Whether it has refused the one before as well, so that this one needs no line in the log."""


@value
class SayNothingToRun:
    """Log that a trigger runs no item here."""

    why: str


@value
class NoteAnswer:
    """Note that the registry has accepted requests with this purpose, or has refused one."""

    purpose: str
    error: RegistryError | None = None


@value
class ReadItems:
    """Read the records and marks of items, and which items have offsets.

    The answer is the set of those items that an instance runs at present.
    """

    records: frozenset[int]
    offsets: frozenset[int]


@value
class MarkMissed:
    """Mark the moments that items missed.

    The answer is the set of items that this instance has marked, or None if the view is outdated.
    """

    view: JobView
    said: Mapping[int, MissedMark]


@value
class ReadAccounted:
    """Read up to which moment an instance was up for a job that keeps no records.

    The answer is an ``AccountedMoment``, or None if the node is missing.
    """


@value
class WriteAccounted:
    """Write up to which moment an instance was up for a job that keeps no records.

    The answer is whether that was written, or None if the registry refuses it.
    """

    view: JobView
    until: int
    version: int


@value
class ReadOffsets:
    """Read the offsets of items.

    The answer is the offset of each item that has one.
    """

    items: frozenset[int]
    claimed: bool = False
    """Whether the items are claimed.  Then this is tried until the session ends, because they must be settled."""


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


@value
class RemoveTrigger:
    """Remove a trigger that no claim removes.

    The answer is False if it has been replaced or removed meanwhile.
    """

    path: str
    version: int


@value
class JoinRun:
    """Note, before a triggered run is claimed, that items take part in it.

    The answer is False if its trigger has been removed.
    """

    fire: Fire
    items: frozenset[int]


@value
class ClaimItems:
    """Claim items for a fire, whose moment may still be to come.

    The answer is a ``ClaimResult``.
    """

    view: JobView
    fire: Fire
    items: frozenset[int]


@value
class FollowReleases:
    """Begin to follow the runs of these items on another instance, without waiting for their end.  It has no answer."""

    items: frozenset[int]
    missed: tuple[JobView, int] | None = None
    """The view and the moment of a claim that found these runs, if operators are to see that the moment was missed."""


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
    """Run and settle claimed items.  It has no answer."""

    view: JobView
    claim: Claim
    offsets: dict[int, str]


@value
class AwaitRescueEnd:
    """Wait for a short time until the view shows that the rescue of this instance's own items has ended.

    It has no answer.
    """

    items: frozenset[int]


AnyReport: TypeAlias = Report | SayLowered | SayRefused | SayNothingToRun | NoteAnswer
NodeCommand: TypeAlias = (
    ReadItems | MarkMissed | ReadAccounted | WriteAccounted | ReadOffsets | ReadRequested | RemoveTrigger
)
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
    | AwaitRescueEnd
    | NewestView
)
T = TypeVar("T")
NodeSteps: TypeAlias = Generator[NodeCommand, Any, T]
Steps: TypeAlias = Generator[Command, Any, T]
"""Work that needs answers: it yields a command and is sent the answer, until it returns its result."""


@dataclass(slots=True)
class ClaimResult:
    """The result of a claim."""

    claim: Claim | None = None
    elsewhere: frozenset[int] = frozenset()
    """Items that were not claimed because another instance still runs them."""
    stale: bool = False
    """Whether the view was outdated, so that the remaining items wait for the next view."""
    obstructed: frozenset[int] = frozenset()
    """Items that cannot be claimed because nodes that somebody has made by hand prevent it."""
    cut_off: dict[int, Record] = field(default_factory=dict)
    """The former records of claimed items whose last run was cut off."""
    renewed: frozenset[int] = frozenset()
    """Items whose records had changed since they were read; their offsets may have changed as well."""
