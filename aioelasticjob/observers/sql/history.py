"""The filters and the results of queries to the event store, as values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from aioelasticjob.errors import InvalidSetting
from aioelasticjob.events import run_id_of
from aioelasticjob.model import FireSource

T = TypeVar("T")

SOURCES = (*(source.value for source in FireSource), "NORMAL_TRIGGER")
"""The sources of runs; rows of Elastic-Job's have the last one."""


@dataclass(frozen=True, slots=True)
class RunEntry:
    """The run of one item."""

    id: str
    job: str
    task_id: str
    item: int
    source: str
    """SCHEDULE, TRIGGER, MISFIRE, FAILOVER or BACKFILL; NORMAL_TRIGGER in rows of Elastic-Job's."""
    host: str
    ip: str
    instance: str
    fire_time: datetime | None
    began: datetime | None
    ended: datetime | None
    outcome: str
    """completed, failed, timed out, cancelled, handed over, cut off; running while there is none."""
    seconds: float | None
    """None while it runs, and if it was cut off, since nobody knows when it ended then."""
    failure: str | None
    """The failure in one line."""
    attempts: int | None = None
    """How many attempts the run has had; None while it runs, if it was cut off, and in rows of older releases."""
    namespace: str | None = None
    """The namespace of the job's registry; None in rows of older releases and of Elastic-Job's."""

    @property
    def run_id(self) -> str:
        """The name of the job's run: the same for all items and instances; empty in rows of older releases."""
        return run_id_of(self.job, self.task_id)


@dataclass(frozen=True, slots=True)
class StateEntry:
    """One entry of the status trace: what became of an item, and when."""

    id: str
    job: str
    task_id: str
    item: str
    source: str
    ip: str
    instance: str
    state: str
    """TASK_STAGING, TASK_RUNNING, TASK_FINISHED, TASK_ERROR, TASK_TIMED_OUT, TASK_KILLED, TASK_HANDED_OVER,
    TASK_RESCUED, TASK_MISFIRED, TASK_ATTEMPT_FAILED."""
    message: str | None
    at: datetime | None
    fire_time: datetime | None


@dataclass(frozen=True, slots=True)
class RunDetails:
    """One run with its stack, its states and related runs."""

    run: RunEntry
    stack: str | None
    """The failure with its stack."""
    states: tuple[StateEntry, ...]
    """Its states, the oldest first."""
    kin: tuple[RunEntry, ...]
    """Other runs of the same item for the same moment: the one that was cut off, the one that rescued it."""


@dataclass(frozen=True, slots=True)
class FailureEntry:
    """A run that has failed."""

    id: str
    job: str
    item: int
    began: datetime
    outcome: str
    failure: str | None
    """The failure in one line."""


@dataclass(frozen=True, slots=True)
class SparklineEntry:
    """A run as one bar of a sparkline."""

    id: str
    item: int
    began: datetime
    outcome: str
    seconds: float | None


@dataclass(frozen=True, slots=True)
class TimelineCount:
    """The number of runs of some items that began in one piece of time."""

    band: int
    """Which items: 0 stands for the first ones."""
    column: int
    """Which piece of time: 0 stands for the first one."""
    runs: int
    failures: int


@dataclass(frozen=True, slots=True)
class OutcomeCount:
    """The number of runs with one outcome that began in one piece of time."""

    column: int
    """Which piece of time: 0 stands for the first one."""
    outcome: str
    runs: int


@dataclass(frozen=True, slots=True)
class DurationCount:
    """How long the runs took that began in one piece of time, in seconds."""

    column: int
    """Which piece of time: 0 stands for the first one."""
    runs: int
    median: float
    p95: float
    """What 95 % of the runs did not exceed."""
    longest: float


@dataclass(frozen=True, slots=True)
class Filter:
    """Which runs, or which states; None asks for all of them.

    Raises:
        InvalidSetting: there is no such source of runs.
    """

    job: str | None = None
    item: int | None = None
    instance: str | None = None
    """The name of an instance, or the address of a server."""
    outcome: str | None = None
    source: str | None = None
    state: str | None = None
    """Only for queries of states."""
    since: datetime | None = None
    """Only runs that began at this moment or later; an aware datetime."""
    until: datetime | None = None
    """Only runs that began before this moment; an aware datetime."""
    text: str | None = None
    """Text that the failure, its stack or the message of a state contains, in upper or lower case."""
    items: tuple[int, int] | None = None
    """The first and the last of some items; only for queries of runs."""
    namespace: str | None = None
    """Only rows of jobs of this namespace; the empty text stands for a registry's root."""
    unnamed: bool = False
    """With ``namespace``: also rows of which nobody knows the namespace."""
    run: str | None = None
    """The ``run_id`` of a run of a job, as log records have it: only the runs of its items, and their rescues."""
    jobs: frozenset[str] | None = None
    """Only rows of these jobs."""

    def __post_init__(self) -> None:
        if self.source not in (None, *SOURCES):
            raise InvalidSetting("source", self.source, f"must be one of {', '.join(SOURCES)}")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some rows, the newest first, and the key after which the next page begins; None on the last page."""

    rows: tuple[T, ...]
    next: str | None
    previous: str | None = None
    """The key before which the page of newer rows ends; None on the newest page."""
