"""What a job tells about itself: a closed set of events, put and never awaited."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from anyio import Event

from aioelasticjob.model import FireSource, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

BACKLOG = 10_000
"""Events a listener may lag behind before the oldest are dropped for it."""


@dataclass(frozen=True, slots=True)
class Began:
    """Items were claimed and their handlers start."""

    job: str
    instance: str
    slot: int
    source: FireSource
    items: tuple[int, ...]
    late: float
    """Seconds between the scheduled moment and now."""


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


@dataclass(frozen=True, slots=True)
class Misfired:
    """Scheduled moments passed without a run of these items; the newest of them may still be run once."""

    job: str
    instance: str
    slot: int
    items: tuple[int, ...]
    moments: int
    why: str


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


JobEvent: TypeAlias = Began | Ended | Misfired | CaughtUp | Refused


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


@dataclass(eq=False, slots=True)
class Listener:
    """One reader's share of the events, as an async iterator."""

    dropped: int = 0
    """Events lost because this reader lagged too far behind."""
    _waiting: deque[JobEvent] = field(default_factory=deque)
    _news: Event = field(default_factory=Event)

    def put(self, event: JobEvent) -> None:
        """Take an event, dropping the oldest one when the backlog is full."""
        if len(self._waiting) >= BACKLOG:
            self._waiting.popleft()
            self.dropped += 1
        self._waiting.append(event)
        self._news.set()

    async def __aiter__(self) -> AsyncIterator[JobEvent]:
        while True:
            while self._waiting:
                yield self._waiting.popleft()
            self._news = Event()
            await self._news.wait()


class Events:
    """Hands every event to every listener; without listeners it costs next to nothing."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self.counts: defaultdict[str, Counts] = defaultdict(Counts)
        """By job; kept whether or not anybody listens."""

    @property
    def heard(self) -> bool:
        """Whether anybody listens: if not, an event need not be made."""
        return bool(self._listeners)

    def put(self, event: JobEvent) -> None:
        """Tell every listener."""
        for listener in self._listeners:
            listener.put(event)

    @contextmanager
    def listen(self) -> Iterator[Listener]:
        """Listen until the block is left."""
        listener = Listener()
        self._listeners.append(listener)
        try:
            yield listener
        finally:
            self._listeners.remove(listener)
