"""How fast records flow through dataflow jobs; tables and metrics may read it at any moment, from any thread."""

from __future__ import annotations

from asyncio import get_running_loop
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

WINDOW = 10.0
"""Seconds over which the records per second are computed."""


@dataclass(frozen=True, slots=True)
class Rate:
    """One item's flow of records; its counts begin at the start of the process."""

    job: str
    item: int | None
    """The item; None if one call of fetch is for all items of the instance."""
    succeeded: int
    failed: int
    dead: int
    """The failed records that the ``dead`` hook has accepted."""
    per_second: float
    """Records processed per second, over the last ten seconds of the run."""
    in_flight: int
    """Records in process."""
    waiting: int
    """Records fetched and not yet begun."""
    lag: float
    """Seconds since the oldest unfinished record was fetched; 0 without one."""


@dataclass(frozen=True, slots=True)
class Flowed:
    """An event once a second during a run, and at its end: how records flow through its items."""

    job: str
    instance: str
    rates: tuple[Rate, ...]


@dataclass(frozen=True, slots=True)
class Load:
    """The unfinished records of one item: records in process, records waiting, seconds of lag."""

    in_flight: int = 0
    waiting: int = 0
    lag: float = 0.0


IDLE = Load()


class Meter:
    """Counts one item's records."""

    def __init__(self, job: str, item: int | None) -> None:
        self._job = job
        self._item = item
        self.succeeded = 0
        self.failed = 0
        self.dead = 0
        self._load: Callable[[], Load] | None = None
        self._now: Callable[[], float] = float
        self._samples: deque[tuple[float, int]] = deque()

    def begin(self, load: Callable[[], Load]) -> None:
        """Note that a run begins in the present loop; ``load`` returns its unfinished records."""
        self._now = get_running_loop().time
        self._samples = deque([(self._now(), self.succeeded + self.failed)])
        self._load = load

    def end(self) -> None:
        """Note that the run is over."""
        self._load = None

    def sample(self) -> None:
        """Note how many records are processed by now, and forget samples that are too old."""
        now = self._now()
        samples = self._samples
        while len(samples) > 1 and now - samples[1][0] >= WINDOW:
            samples.popleft()
        samples.append((now, self.succeeded + self.failed))

    def read(self) -> Rate:
        """Return the present flow; any thread may call this."""
        load = self._load
        samples = tuple(self._samples)
        per_second = 0.0
        present = IDLE
        if load is not None:
            since, before = samples[0]
            now, through = samples[-1]
            if now > since:
                per_second = (through - before) / (now - since)
            present = load()
        return Rate(
            job=self._job,
            item=self._item,
            succeeded=self.succeeded,
            failed=self.failed,
            dead=self.dead,
            per_second=per_second,
            in_flight=present.in_flight,
            waiting=present.waiting,
            lag=present.lag,
        )


class Rates(Mapping[str, tuple[Rate, ...]]):
    """The flow of all items that this process has run, by job."""

    def __init__(self) -> None:
        self._meters: dict[str, dict[int | None, Meter]] = {}

    def meter(self, job: str, item: int | None) -> Meter:
        """Return the meter of an item; it is made at the first call."""
        return self._meters.setdefault(job, {}).setdefault(item, Meter(job, item))

    def __getitem__(self, job: str) -> tuple[Rate, ...]:
        meters = tuple(self._meters[job].items())  # at once, since another thread may add one
        by_item = sorted(meters, key=lambda one: one[0] or 0)
        return tuple(meter.read() for _, meter in by_item)

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._meters))

    def __len__(self) -> int:
        return len(self._meters)
