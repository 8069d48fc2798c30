"""How fast records flow through dataflow jobs, now: to be read at any moment, by whoever shows or collects it."""

from __future__ import annotations

from asyncio import get_running_loop
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

WINDOW = 10.0
"""Seconds that records per second are reckoned over."""


@dataclass(frozen=True, slots=True)
class Rate:
    """One item's flow of records; what is counted is counted since the process started."""

    job: str
    item: int | None
    """None if one call is for all items of the instance."""
    succeeded: int
    failed: int
    dead: int
    """Those of the failed that the ``dead`` hook has taken."""
    per_second: float
    """Records that were through, over the last ten seconds of the run."""
    in_flight: int
    """Records in process."""
    waiting: int
    """Records fetched and not yet begun."""
    lag: float
    """Seconds since the oldest record that is not through was fetched; 0 without one."""


@dataclass(frozen=True, slots=True)
class Flowed:
    """What flows through the items of a run: told once a second while it goes on, and at its end."""

    job: str
    instance: str
    rates: tuple[Rate, ...]


@dataclass(frozen=True, slots=True)
class Load:
    """What is on its way through one item: records in process, records waiting, seconds of lag."""

    in_flight: int = 0
    waiting: int = 0
    lag: float = 0.0


IDLE = Load()


class Meter:
    """Counts one item's records."""

    def __init__(self, job: str, item: int | None) -> None:
        self._job, self._item = job, item
        self.succeeded = self.failed = self.dead = 0
        self._load: Callable[[], Load] | None = None
        self._now: Callable[[], float] = float
        self._samples: deque[tuple[float, int]] = deque()

    def begin(self, load: Callable[[], Load]) -> None:
        """Note that a run begins, in the present loop, and who knows what is on its way."""
        self._now = get_running_loop().time
        self._samples = deque([(self._now(), self.succeeded + self.failed)])
        self._load = load

    def end(self) -> None:
        """Note that the run is over."""
        self._load = None

    def sample(self) -> None:
        """Remember what is through by now, and forget what was long ago."""
        now, samples = self._now(), self._samples
        while len(samples) > 1 and now - samples[1][0] >= WINDOW:
            samples.popleft()
        samples.append((now, self.succeeded + self.failed))

    def read(self) -> Rate:
        """Return the flow of now; whoever asks may be another thread."""
        load, samples = self._load, tuple(self._samples)
        counted = self.succeeded, self.failed, self.dead
        if load is None:
            return Rate(self._job, self._item, *counted, per_second=0.0, in_flight=0, waiting=0, lag=0.0)
        (since, before), (now, through) = samples[0], samples[-1]
        per_second = (through - before) / (now - since) if now > since else 0.0
        present = load()
        return Rate(self._job, self._item, *counted, per_second, present.in_flight, present.waiting, present.lag)


class Rates(Mapping[str, tuple[Rate, ...]]):
    """The flow of all items that this process has run, by job."""

    def __init__(self) -> None:
        self._meters: dict[str, dict[int | None, Meter]] = {}

    def meter(self, job: str, item: int | None) -> Meter:
        """Return what counts an item's records."""
        return self._meters.setdefault(job, {}).setdefault(item, Meter(job, item))

    def __getitem__(self, job: str) -> tuple[Rate, ...]:
        meters = tuple(self._meters[job].items())
        return tuple(meter.read() for _, meter in sorted(meters, key=lambda one: one[0] or 0))

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._meters))

    def __len__(self) -> int:
        return len(self._meters)
