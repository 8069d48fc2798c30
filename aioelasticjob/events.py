"""What a job tells about itself: a closed set of events, put and never awaited."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol, TypeAlias

from anyio import Event

from aioelasticjob.door import Door
from aioelasticjob.errors import in_words
from aioelasticjob.model import FireSource, Outcome
from aioelasticjob.rates import Flowed, Rates

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger(__name__)

BACKLOG = 10_000
"""Events a listener may lag behind before the oldest are dropped for it, unless it asks for more."""


@dataclass(frozen=True, slots=True)
class Began:
    """Items were claimed and their moment has come: listeners and handlers are about to begin."""

    job: str
    instance: str
    slot: int
    source: FireSource
    items: tuple[int, ...]
    late: float
    """Seconds between the scheduled moment and now."""
    task_ids: tuple[str, ...] = field(default=(), repr=False)
    """The names of the runs, in the order of the items; those of one handler's items are the same."""

    @property
    def at(self) -> float:
        """When that was, in seconds since the epoch."""
        return self.slot / 1000 + self.late


@dataclass(frozen=True, slots=True)
class Started:
    """A handler was called."""

    job: str
    instance: str
    slot: int
    source: FireSource
    items: tuple[int, ...]
    task_id: str
    at: float


@dataclass(frozen=True, slots=True)
class Ended:
    """The run of an item is over."""

    job: str
    instance: str
    slot: int
    source: FireSource
    item: int
    outcome: Outcome
    seconds: float
    """Since its handler was called; where none was, since the items were to begin."""
    task_id: str = ""
    at: float = 0.0
    failure: BaseException | None = field(default=None, compare=False)
    """What the handler raised, with its stack; let go of it soon, for it keeps alive what the handler held."""


@dataclass(frozen=True, slots=True)
class Rescued:
    """An item whose run was cut off elsewhere has been taken to be run again here; follows its ``Began``."""

    job: str
    instance: str
    slot: int
    item: int
    cut_off: str
    """The instance whose run it was."""
    task_id: str
    at: float


@dataclass(frozen=True, slots=True)
class HandedOver:
    """A run that was cancelled has been put up for others to run again; follows its ``Ended``."""

    job: str
    instance: str
    slot: int
    source: FireSource
    item: int
    task_id: str
    at: float


@dataclass(frozen=True, slots=True)
class Misfired:
    """Scheduled moments passed without a run of these items on time; the newest may still be run once, as a rerun."""

    job: str
    instance: str
    first: int
    """The oldest of the moments, in milliseconds since the epoch."""
    slot: int
    """The newest of them: all that the schedule had from ``first`` to here are meant."""
    items: tuple[int, ...]
    moments: int
    """How many they are; counted up to 16, which may stand for more."""
    why: str
    cut_off: str = ""
    """The instance whose run of the item was cut off, if that is why."""
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing is claimed at the moment."""

    job: str
    instance: str
    why: str


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """The newest moment that nobody was up for is being run after all."""

    job: str
    instance: str
    slot: int
    items: tuple[int, ...]


JobEvent: TypeAlias = Began | Started | Ended | Rescued | HandedOver | Misfired | CaughtUp | Refused | Flowed


class Sink(Protocol):
    """Whatever takes events: at once, without waiting and without raising."""

    def put(self, event: JobEvent) -> None:
        """Take an event."""
        ...


@dataclass(slots=True)
class Counts:
    """What has happened to a job in this process since it started."""

    fires: Counter[FireSource] = field(default_factory=Counter)
    """Claims, by source: reruns are those of ``MISFIRE``, rescues those of ``FAILOVER``."""
    runs: Counter[Outcome] = field(default_factory=Counter)
    """Items' runs that ended, by outcome."""
    misfired: int = 0
    """Scheduled moments that passed without a run, added up over the items concerned."""
    caught_up: int = 0
    """Fires for a moment that nobody was up for."""
    alerts: Counter[str] = field(default_factory=Counter)
    """Failures for error handlers that tell somebody, by what became of them: ``told``, ``failed``, ``dropped``."""


@dataclass(eq=False, slots=True)
class Listener:
    """One reader's share of the events, as an async iterator."""

    backlog: int = BACKLOG
    """Events that may wait; beyond that the oldest are dropped."""
    dropped: int = 0
    """Events lost because this reader lagged too far behind."""
    _waiting: deque[JobEvent] = field(default_factory=deque)
    _news: Event = field(default_factory=Event)

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, event: JobEvent) -> None:
        """Take an event, dropping the oldest one when the backlog is full."""
        waiting = self._waiting
        if waiting:
            if len(waiting) >= self.backlog:
                waiting.popleft()
                self.dropped += 1
        else:
            self._news.set()
        waiting.append(event)

    def take(self, most: int) -> list[JobEvent]:
        """Return what waits, the oldest first."""
        waiting = self._waiting
        return [waiting.popleft() for _ in range(min(most, len(waiting)))]

    async def news(self) -> None:
        """Wait until there is something to take."""
        while not self._waiting:
            self._news = Event()
            await self._news.wait()

    async def __aiter__(self) -> AsyncIterator[JobEvent]:
        while True:
            await self.news()
            while self._waiting:
                yield self._waiting.popleft()


class Events:
    """Hands every event to every listener; without listeners it costs next to nothing."""

    def __init__(self) -> None:
        self._sinks: list[Sink] = []
        self.counts: defaultdict[str, Counts] = defaultdict(Counts)
        """By job; kept whether or not anybody listens."""
        self.rates = Rates()
        """The flow of dataflow jobs' records."""

    @property
    def heard(self) -> bool:
        """Whether anybody listens: if not, an event need not be made."""
        return bool(self._sinks)

    def put(self, event: JobEvent) -> None:
        """Tell every listener; what one of them raises is its own, and the log has it once."""
        for sink in self._sinks:
            try:
                sink.put(event)
            except BaseException as error:
                _complain(type(sink).__name__, in_words(Door("it").judged(error)))

    def attach(self, sink: Sink) -> None:
        """Tell this one too, from now on."""
        self._sinks.append(sink)

    def detach(self, sink: Sink) -> None:
        """Tell this one no more."""
        self._sinks.remove(sink)

    @contextmanager
    def listen(self, backlog: int = BACKLOG) -> Iterator[Listener]:
        """Listen until the block is left."""
        listener = Listener(backlog)
        self.attach(listener)
        try:
            yield listener
        finally:
            self.detach(listener)


@lru_cache(maxsize=1024)
def _complain(listener: str, why: str) -> None:
    extra = {"handler": listener, "reason": why}
    log.error("the listener %s did not take an event, which is lost to it: %s", listener, why, extra=extra)
