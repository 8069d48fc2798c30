"""Values that packages hand to each other: frozen, and with the same meaning everywhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from aioelasticjob.ground.times import moment
from aioelasticjob.ground.values import value


class FireSource(StrEnum):
    """Why a fire happens."""

    SCHEDULE = "SCHEDULE"
    TRIGGER = "TRIGGER"
    MISFIRE = "MISFIRE"
    FAILOVER = "FAILOVER"
    BACKFILL = "BACKFILL"


NONE: Final[frozenset[Any]] = frozenset()
"""No items, no instances: thousands of jobs share it, since Python makes a new object for each empty set."""

SCHEDULED = frozenset({FireSource.SCHEDULE, FireSource.MISFIRE})
"""Why a run is made if its schedule asks for it."""
ASKED = frozenset({FireSource.TRIGGER, FireSource.BACKFILL})
"""Why a run is made if somebody has asked for it."""


class Outcome(StrEnum):
    """How the run of an item ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    CANCELLED = "cancelled"
    STOPPED = "stopped"


RUNNING = "running"
"""Stands for the outcome of a run that has not ended."""
HANDED_OVER = "handed over"
"""The outcome of a run that was handed over, which becomes known only after its end."""
CUT_OFF = "cut off"
"""Stands for the outcome of a run that nobody could end: its instance died."""
GIVEN_UP = "given up"
"""The outcome of a run that was cut off too often in a row, so that it is not rescued any more.  No handler ends so."""
LEFT_OPEN = "left open"
"""Stands for the outcome of a stream that has given way: the item's next holder goes on with the same run."""
NO_FAILURE: Final = frozenset({"", RUNNING, Outcome.COMPLETED.value, Outcome.STOPPED.value, HANDED_OVER})
"""Outcomes that are no failure: somebody has stopped what is stopped, and what was handed over is run elsewhere."""


def is_failure(outcome: str) -> bool:
    """Whether a run with this outcome has failed."""
    return outcome not in NO_FAILURE


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an item has come with a request, as ``requests/{id}/{item}`` holds it."""

    moment: int
    """The moment of the newest run that was claimed, in milliseconds since the epoch."""
    runs: int = 1
    """How many runs of the item were claimed for the request."""
    failed: int = 0
    """How many of these runs, without the newest one, did not complete."""
    outcome: str = ""
    """How the newest run ended; empty while it goes on, or if it was cut off and nobody has rescued it.

    It is ``LEFT_OPEN`` if the run is a stream that has given way, and goes on.
    """
    otherwise: Mapping[str, int] = field(default_factory=dict)
    """By outcome, how many of those that did not complete ended in another way than ``failed``."""
    instance: str = ""
    """The instance that runs the item now, if the job keeps no records; empty otherwise.

    Nothing else shows then that a run was cut off.
    """

    def outcomes(self, newest: str = "") -> Counter[str]:
        """Return how many runs have ended in which way; ``newest`` stands for the outcome of one that has none."""
        found = Counter(self.otherwise)
        found[Outcome.FAILED.value] += self.failed - sum(self.otherwise.values())
        found[Outcome.COMPLETED.value] += self.runs - 1 - self.failed
        if last := self.outcome or newest:
            found[last] += 1
        return +found


@dataclass(frozen=True, slots=True)
class Requested:
    """The request that a run is made for, as the view showed it on which the run was decided."""

    id: str
    version: int
    """The version of the request's node: a request that was changed since refuses the claim."""
    progress: Mapping[int, tuple[Progress, int]]
    """For each item that has begun the request, its progress and the version of its node."""


@dataclass(frozen=True, slots=True)
class Fire:
    """One scheduled moment of a job."""

    slot: int
    """The scheduled moment in milliseconds since the epoch; of a run that was asked for, the moment it is for."""
    source: FireSource
    parameter: str | None = None
    """Replaces the job's parameter for this fire; only a request brings one."""
    request_id: int = 0
    """The zxid of the transaction that made the request; 0 if nobody has asked for the run."""
    requested: Requested | None = None
    """The request that the run is made for: the claim notes there that its items were run."""
    delay: int = 0
    """How many milliseconds after a scheduled moment its runs begin, because the job has jitter."""

    @property
    def start(self) -> int:
        """When the run is to begin, in milliseconds since the epoch."""
        return self.slot + self.delay

    @property
    def run(self) -> str:
        """The name of the run among the job's runs: the same for all items and instances, and for their rescues."""
        return run_name(self.slot, "" if self.requested is None else self.requested.id)

    @property
    def weight(self) -> int:
        """How many times as many operations the claim of an item has as that of a scheduled moment, rounded up."""
        return 1 if self.requested is None else 2

    @property
    def at(self) -> datetime:
        """The scheduled moment, in UTC."""
        return moment(self.slot / 1000)


@value
class Owing:
    """A report of missed moments that the writer of a record has promised.

    The writer makes it when the registry has accepted the record, and leaves it out of the next record that it writes.
    If the writer is gone before that, the next one who writes the record makes the report.
    """

    by: str
    """The instance that has promised it."""
    at: int
    """When it was promised, in milliseconds since the epoch."""
    first: int
    last: int
    count: int
    """The number of moments.  It is counted up to ``MOMENTS_COUNTED``."""
    why: str
    cut_off: str = ""
    """The instance whose run was cut off, if that is why."""


@value
class End:
    """Consecutive moments that an item has ended in the same way, of a job that others follow."""

    first: int
    last: int
    outcome: str
    """An ``Outcome``, or what stands for one (``core/ends.py``)."""
    at: int
    """When the last of them ended.  Times are in milliseconds since the epoch."""


@value
class Record:
    """What is known of an item's newest run, as ``execution/{item}`` holds it."""

    slot: int = 0
    """The last scheduled moment claimed, milliseconds since the epoch; 0 before the first."""
    source: str = ""
    instance: str = ""
    begun: int = 0
    completed_at: int = 0
    next_fire: int = 0
    completed: bool = True
    outcome: str = ""
    asked: int = 0
    """When somebody asked for the run by hand, milliseconds since the epoch; 0 if nobody did."""
    parameter: str | None = None
    """The parameter that came with that request, in place of the job's parameter."""
    request: str = ""
    """The id of that request."""
    rescues: int = 0
    """How many times in a row the run was cut off and claimed again as ``FAILOVER``."""
    unknown: str = ""
    """The fields that this release does not know, as JSON text, each after a comma: they are written back."""
    accounted: int = 0
    """Every moment of the schedule up to this time was run, reported as missed, or excused.  In milliseconds."""
    owing: tuple[Owing, ...] = ()
    """The reports that writers of the record still had to make when they wrote it."""
    error: str = ""
    """Why the newest run failed that has ended: the class and the first line of the error; empty if it did not."""
    ends: tuple[End, ...] = ()
    """How the item has ended its newest moments; empty while no job follows this one."""

    @property
    def moment(self) -> int:
        """The moment that the run is for: when it was scheduled or asked for, in milliseconds since the epoch."""
        return self.asked or self.slot

    @property
    def run(self) -> str:
        """The name of the run among the job's runs."""
        return run_name(self.moment, self.request)


@value
class VersionedRecord:
    """An item's record, as it was read or written."""

    record: Record
    version: int | None
    """The version of its node; None where there was no node."""
    zxid: int = 0
    """The newest transaction that had written the node; 0 if that is not known."""


@value
class Claim:
    """Items that one committed transaction has claimed, and what is needed to settle them."""

    fire: Fire
    instance: str
    incarnation: int
    items: Mapping[int, VersionedRecord]
    """The record of each item as the claim wrote it."""
    before: Mapping[int, Record]
    """The record of each item as the claim found it."""
    is_recorded: bool = True
    """Whether the claim was written; it is not if the job is not monitored."""
    upstream: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    """How each item of each followed job has ended the moment; empty if the run is not one of the schedule."""

    @property
    def fences(self) -> dict[int, int]:
        """The zxid of the transaction that took each item, which grows with every claim of it; none if none did."""
        return {item: seen.zxid for item, seen in self.items.items()} if self.is_recorded else {}


@value
class EndedItem:
    """An item whose run has ended, and is not settled yet."""

    claim: Claim
    record: VersionedRecord
    """The record that its settlement writes, with the version that the claim has written."""

    def written(self, zxid: int = 0) -> VersionedRecord:
        """Return the item's record once it is settled."""
        version = self.record.version
        return VersionedRecord(self.record.record, None if version is None else version + 1, zxid)


@dataclass(frozen=True, slots=True)
class ZoneRules:
    """The rules of a time zone as a process has them."""

    zone: str
    year: int
    """The first of the years whose rules are compared."""
    digest: str
    """Two processes have the same rules for these years if this is the same."""
    database: str
    """In words, which database of zones the process uses, with its version."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One running copy of a job in one process."""

    id: str
    ip: str
    host: str = ""
    pid: int = 0
    incarnation: int = 0
    started: float = 0.0
    """When it joined, by the registry's clock, seconds since the epoch."""
    up_since: float = 0.0
    """Since when there has always been an instance, as known when this one joined; ``started`` without others."""
    leaving: bool = False
    """Whether it only finishes its running items: it is given no more items, and does not lead."""
    features: frozenset[str] = frozenset()
    """The features of the registry's format that its node says it knows."""
    cannot_use: int = field(default=0, compare=False)
    """The transaction that wrote the configuration which its process cannot use; 0 if it can use the present one."""
    zone_rules: ZoneRules | None = field(default=None, compare=False)
    """The rules of the job's time zone that its process has; None if it has not said so."""


def run_name(slot: int, request: str = "") -> str:
    """Return the name of the run for a moment in milliseconds since the epoch, or for a request's moment."""
    fraction = f".{slot % 1000:03}" if slot % 1000 else ""
    name = f"{moment(slot // 1000):%Y%m%dT%H%M%S}{fraction}Z"
    return f"{request}-{name}" if request else name


def instance_id(ip: str, pid: int, suffix: str) -> str:
    """Return the name of an instance: the suffix keeps containers that share address and pid apart."""
    return f"{ip}@-@{pid}-{suffix}"


@value
class ClockReading:
    """What the clocks show at one point in time, in seconds."""

    host: float
    """This host's time since the epoch."""
    steady: float
    """The time of a clock that nobody sets."""
    skew: float = 0.0
    """How far this host's clock is ahead of the registry's; 0 if no answer has said it yet."""
    gap: float = 0.0
    """How long ago the last answer but one gave the registry's time.  If a clock jumped, it jumped after that."""
    outages: tuple[tuple[float, float], ...] = ()
    """How long ago each outage began and ended, oldest first.  The end is 0 if the outage goes on.

    The time before the first connection is no outage.
    """
    zxid: int = 0
    """The newest transaction that a reply of the registry has shown."""
    unheard: float = 0.0
    """For how long changes in the registry may have been made that are not known here; 0 while heartbeats are answered.

    It is more after this process stood still: what happened meanwhile is yet to be read.
    """
