"""The processes that run a registry's jobs, those that have gone of late, and the newest rescue."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from aioelasticjob.model import FireSource
from aioelasticjob.operations import InstanceStatus, JobStatus

MAX_DEPARTURES: Final = 100
"""Departures of one job that are remembered."""
MAX_GONE: Final = 1000
"""Processes that are remembered after they have gone."""


@dataclass(frozen=True, slots=True)
class Gone:
    """A process that is not there any more."""

    id: str
    """Its server and its number there."""
    at: float
    """When the console saw that it had gone, in seconds since the epoch."""
    cut_off: bool
    """Whether it was running something, so that a run was cut off."""
    announced: bool
    """Whether it has left gracefully, as in a restart."""


@dataclass(frozen=True, slots=True)
class Rescue:
    """A run that another instance has taken over."""

    job: str
    item: int
    at: float
    """When the rescue began, in seconds since the epoch."""


class InstanceLog:
    """What the console has seen of processes since it was started.

    A process has an instance of each of its jobs, so instances would be counted many times.
    """

    def __init__(self) -> None:
        self.since: float | None = None
        """When processes were first seen, in seconds since the epoch; what was before that is not known."""
        self.there: frozenset[str] = frozenset()
        self.gone: deque[Gone] = deque(maxlen=MAX_GONE)
        """The oldest first."""
        self.rescue: Rescue | None = None
        """The newest rescue."""
        self.departures: dict[str, deque[float]] = {}
        """By job, when instances have left it gracefully, in seconds since the epoch, the oldest first."""
        self._busy: frozenset[str] = frozenset()
        self._jobs_of: Mapping[str, set[str]] = {}
        """By process, the names of its jobs."""

    def update(self, jobs: Iterable[JobStatus], now: float) -> None:
        """Compare the processes that are there now with those that were there before."""
        if self.since is None:
            self.since = now
        busy = set[str]()
        left = set[str]()
        jobs_of = dict[str, set[str]]()
        for status in jobs:
            for instance in status.instances:
                jobs_of.setdefault(_process(instance), set()).add(status.name)
            busy |= {_process(one) for one in status.instances if one.runs}
            self._note_rescues(status)
            if self._note_departure(status):
                left.add(status.name)
        there = jobs_of.keys()
        back = [one for one in self.gone if one.id in there]  # it has only joined again
        for one in back:
            self.gone.remove(one)
        for name in sorted(self.there - there):
            announced = not left.isdisjoint(self._jobs_of[name])
            self.gone.append(Gone(name, now, name in self._busy, announced))
        self._jobs_of = jobs_of
        self.there = frozenset(there)
        self._busy = frozenset(busy)

    def _note_departure(self, status: JobStatus) -> bool:
        """Note when an instance has last left the job gracefully, and return whether that is news.

        The registry keeps only the newest departure.
        """
        if status.left_at is None:
            return False
        left = status.left_at.timestamp()
        known = self.departures.setdefault(status.name, deque(maxlen=MAX_DEPARTURES))
        if known and known[-1] == left:
            return False
        known.append(left)
        return True

    def _note_rescues(self, status: JobStatus) -> None:
        for item in status.items:
            record = item.record
            if record is None or record.source != FireSource.FAILOVER:
                continue
            begun = record.begun / 1000
            if self.rescue is None or begun > self.rescue.at:
                self.rescue = Rescue(status.name, item.item, begun)


def _process(one: InstanceStatus) -> str:
    return f"{one.ip} {one.host} {one.pid}"
