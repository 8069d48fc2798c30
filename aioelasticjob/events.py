"""The events of jobs: a closed set of values.  Jobs put them and never wait for their readers."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

from anyio import Event

from aioelasticjob.errors import error_text
from aioelasticjob.ground.limited_log import LimitedLog
from aioelasticjob.ground.rates import Flowed, Rates
from aioelasticjob.host.user_code import UserCode
from aioelasticjob.logging import logger
from aioelasticjob.model import FireSource, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logger(__name__)

MOMENTS_COUNTED = 16
"""Up to how many missed moments are counted: this number stands for so many or more."""


def fence_of(task_id: str) -> int | None:
    """Return the fence in a ``task_id``; None without one."""
    try:
        return int(task_id.rpartition("@-@")[2].rpartition(".")[2], 16)
    except ValueError:
        return None


def run_id_of(job: str, task_id: str) -> str:
    """Return the ``run_id`` of a run's context, from its ``task_id``; empty without one."""
    run = task_id.rpartition("@-@")[2].rpartition(".")[0]
    return f"{job}@{run}" if run else ""


BACKLOG = 10_000
"""Events that may wait for one reader before the oldest are dropped, unless the reader asks for more."""


class _OfOneRun:
    """An event of the run of one item, or of the items of one call."""

    __slots__ = ()
    job: str
    task_id: str

    @property
    def run_id(self) -> str:
        """The name of the job's run: the same for all items and instances."""
        return run_id_of(self.job, self.task_id)


@dataclass(frozen=True, slots=True)
class Began:
    """Items were claimed and their moment has come: listeners and handlers are about to begin."""

    job: str
    instance: str
    slot: int
    source: FireSource
    items: tuple[int, ...]
    late: float
    """Seconds between the time at which the runs were to begin and now."""
    task_ids: tuple[str, ...] = field(default=(), repr=False)
    """The names of the runs, in the order of the items; items of one call of a handler have the same name."""
    delay: float = 0.0
    """Seconds after the scheduled moment at which the runs were to begin, because the job has jitter."""

    @property
    def run_id(self) -> str:
        """The name of the job's run: the same for all items and instances."""
        return run_id_of(self.job, self.task_ids[0]) if self.task_ids else ""

    @property
    def at(self) -> float:
        """When that was, in seconds since the epoch."""
        return self.slot / 1000 + self.delay + self.late


@dataclass(frozen=True, slots=True)
class Started(_OfOneRun):
    """A handler was called."""

    job: str
    instance: str
    slot: int
    source: FireSource
    items: tuple[int, ...]
    task_id: str
    at: float


@dataclass(frozen=True, slots=True)
class AttemptFailed(_OfOneRun):
    """An attempt of a run has failed, and the job has a ``retry``; the run goes on if another attempt follows."""

    job: str
    instance: str
    slot: int
    source: FireSource
    items: tuple[int, ...]
    attempt: int
    """Which attempt of the run it was, counted from 1."""
    seconds: float
    """How long the attempt took."""
    pause: float | None
    """Seconds until the next attempt; None if none follows.  A run that is cut off meanwhile has none."""
    task_id: str
    at: float
    failure: BaseException = field(compare=False)
    """What the handler raised, with its stack.  Do not keep it for long: it keeps alive the handler's variables."""


@dataclass(frozen=True, slots=True)
class Ended(_OfOneRun):
    """The run of an item is over."""

    job: str
    instance: str
    slot: int
    source: FireSource
    item: int
    outcome: Outcome
    seconds: float
    """Seconds since the handler was called; if none was called, since the items were to begin."""
    task_id: str = ""
    at: float = 0.0
    failure: BaseException | None = field(default=None, compare=False)
    """What the handler raised, with its stack.  Do not keep it for long: it keeps alive the handler's variables."""
    attempt: int = 1
    """The number of the last attempt."""


@dataclass(frozen=True, slots=True)
class Rescued(_OfOneRun):
    """This instance has claimed an item to run it again, after a run that was cut off; follows its ``Began``."""

    job: str
    instance: str
    slot: int
    item: int
    cut_off: str
    """The instance whose run was cut off."""
    task_id: str
    at: float


@dataclass(frozen=True, slots=True)
class Closed(_OfOneRun):
    """This instance has ended, as the leader, a cancelled run that was cut off on another one: nobody rescues it."""

    job: str
    instance: str
    slot: int
    source: FireSource
    item: int
    outcome: Outcome
    cut_off: str
    """The instance whose run was cut off."""
    task_id: str
    at: float


@dataclass(frozen=True, slots=True)
class HandedOver(_OfOneRun):
    """A cancelled run has been marked as an orphan, so that another instance runs it again; follows its ``Ended``."""

    job: str
    instance: str
    slot: int
    source: FireSource
    item: int
    task_id: str
    at: float


@dataclass(frozen=True, slots=True)
class Misfired:
    """Scheduled moments passed without a run of these items on time; the newest may still be run once, late."""

    job: str
    instance: str
    first: int
    """The oldest of the moments, in milliseconds since the epoch."""
    slot: int
    """The newest of the moments: all moments of the schedule from ``first`` to this one are meant."""
    items: tuple[int, ...]
    moments: int
    """The number of moments; it is counted up to ``MOMENTS_COUNTED``."""
    why: str
    cut_off: str = ""
    """The instance whose run of the item was cut off, if that is the reason."""
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Refused:
    """This instance claims nothing at present."""

    job: str
    instance: str
    why: str


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """The newest moment at which no instance was up is being run after all."""

    job: str
    instance: str
    slot: int
    items: tuple[int, ...]


JobEvent: TypeAlias = (
    Began | Started | AttemptFailed | Ended | Rescued | Closed | HandedOver | Misfired | CaughtUp | Refused | Flowed
)


class Sink(Protocol):
    """An object that takes events; it must neither wait nor raise."""

    def put(self, event: JobEvent) -> None:
        """Take an event."""
        ...


@dataclass(slots=True)
class Counts:
    """What has happened to a job in this process since it started."""

    fires: Counter[FireSource] = field(default_factory=Counter)
    """Claims, by source: late runs are those of ``MISFIRE``, rescues those of ``FAILOVER``."""
    runs: Counter[Outcome] = field(default_factory=Counter)
    """Items' runs that ended, by outcome."""
    failed_attempts: int = 0
    """Attempts that have failed of jobs that have a ``retry``; the last one of a failed run is one of them."""
    misfired: int = 0
    """Scheduled moments that passed without a run, added up over the items concerned."""
    caught_up: int = 0
    """Fires for moments at which no instance was up."""
    alerts: Counter[str] = field(default_factory=Counter)
    """Failures for error handlers that send messages, by their result: ``delivered``, ``failed``, ``dropped``."""


@dataclass(eq=False, slots=True)
class EventReader:
    """One reader's share of the events, as an async iterator."""

    backlog: int = BACKLOG
    """Events that may wait; beyond that the oldest are dropped."""
    dropped: int = 0
    """Events lost because this reader lagged too far behind."""
    _waiting: deque[JobEvent] = field(default_factory=deque)
    _news: Event = field(default_factory=Event)
    _over: bool = False
    """Whether the application has left since somebody has read to the end."""

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
        """Return all waiting events, the oldest first."""
        waiting = self._waiting
        return [waiting.popleft() for _ in range(min(most, len(waiting)))]

    async def news(self) -> None:
        """Wait until there is an event to take."""
        while not self._waiting:
            self._news = Event()
            await self._news.wait()

    def begin(self) -> None:
        """Note that the application runs: a loop that has not reached the former end goes on."""
        self._over = False

    def end(self) -> None:
        """Note that the application has left: a loop ends once it has all events that wait."""
        self._over = True
        self._news.set()

    async def __aiter__(self) -> AsyncIterator[JobEvent]:
        while True:
            while self._waiting:
                yield self._waiting.popleft()
            if self._over:
                self._over = False  # the application may run again, and its events be read by another loop
                return
            self._news = Event()
            await self._news.wait()


class Events:
    """Hands every event to every reader; without readers an event costs almost nothing."""

    def __init__(self) -> None:
        self._sinks: list[Sink] = []
        self.counts: defaultdict[str, Counts] = defaultdict(Counts)
        """By job; kept whether or not anybody listens."""
        self.rates = Rates()
        """The flow of dataflow jobs' records."""
        self.limited_log = LimitedLog()
        """Limits the lines about readers that fail.  An application that runs replaces it by its own."""

    @property
    def heard(self) -> bool:
        """Whether there is a reader: without one, an event need not be made."""
        return bool(self._sinks)

    def put(self, event: JobEvent) -> None:
        """Hand an event to every reader; an error of one reader is logged and does not reach the others."""
        for sink in self._sinks:
            try:
                sink.put(event)
            except BaseException as error:
                self._log_reader_error(type(sink).__name__, error_text(UserCode("it").as_exception(error)))

    def attach(self, sink: Sink) -> None:
        """Hand events to this reader, too, from now on."""
        self._sinks.append(sink)

    def detach(self, sink: Sink) -> None:
        """Hand no more events to this reader."""
        self._sinks.remove(sink)

    def begin(self) -> None:
        """Let the loops over events go on until the application has left again."""
        for reader in self._readers:
            reader.begin()

    def end(self) -> None:
        """Let the loops over events end, because the application has left."""
        for reader in self._readers:
            reader.end()

    @contextmanager
    def listen(self, backlog: int = BACKLOG) -> Iterator[EventReader]:
        """Read events until the block is left."""
        listener = EventReader(backlog)
        self.attach(listener)
        try:
            yield listener
        finally:
            self.detach(listener)

    @property
    def _readers(self) -> Iterator[EventReader]:
        return (sink for sink in self._sinks if isinstance(sink, EventReader))

    def _log_reader_error(self, listener: str, why: str) -> None:
        text = f"the listener {listener} failed to take an event, which it does not get again"
        if self.limited_log.admits(log, None, text):
            log.error("%s: %s", text, why, extra={"handler": listener, "reason": why})
