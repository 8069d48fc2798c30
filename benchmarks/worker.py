"""One process full of one-second jobs, measured from inside: ``python -m benchmarks.worker LOAD`` prints JSON."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from aioelasticjob import ElasticJob, ItemContext
from aioelasticjob.core.layout import Layout
from aioelasticjob.host.process import collect_garbage_seldom, freeze_garbage_collector
from aioelasticjob.operations import pause, set_calendar
from aioelasticjob.registry.session import Session
from aioelasticjob.schedules.calendars import Calendar
from benchmarks.child import answer
from benchmarks.gauges import LogLines, collections, logged, resident, threads
from benchmarks.servers import cpu_of

LOOK_EVERY: Final = 0.05
"""Seconds between two looks at which items have been assigned."""
AT_ONCE: Final = 500
"""Items that one look is about at most: looking at all of 10,000 would take longer than starting them."""
BEFORE: Final = 0.3
"""Seconds that the window begins before a whole second, so that it holds as many moments as it is long."""

CALENDAR: Final = Calendar.of([f"{year}-12-{day}" for year in range(2050, 2060) for day in (24, 25, 26)])
"""Thirty dates, all of them far away, so that a job of which it is a calendar has all its moments."""

Handler: TypeAlias = Callable[[int, float], None]
"""Is told which job has begun, and for which moment."""


@dataclass(frozen=True, slots=True)
class Load:
    """What a worker is asked to do; times in seconds."""

    jobs: int
    seconds: int
    address: str = ""
    """Of the registry; without one the jobs are bare timers on the loop's own heap."""
    items: int = 1
    warm_up: float = 2
    server_pid: int = 0
    """The process whose processor time is taken over the same window, 0 for none."""
    spared: bool = True
    """Whether the collector is told to pass over the jobs, as ``app.run()`` does and ``app.running()`` cannot."""
    settings: dict[str, Any] = field(default_factory=lambda: {"cron": "* * * * * ?"})
    """The settings that decide the moments of each job: one a second."""
    timers_after: bool = False
    """Whether bare timers get a window of their own in the same process, when the jobs have had theirs."""


@dataclass(slots=True)
class Measured:
    """What came of it; times in seconds."""

    late: list[float] = field(default_factory=list)
    """Of every handler that began within the window: how long after its scheduled moment; 0 before it."""
    served: list[int] = field(default_factory=list)
    """Of every job: how often its handler began within the window."""
    own_cpu: float = 0.0
    server_cpu: float = 0.0
    full_collections: list[float] = field(default_factory=list)
    """Of every full garbage collection within the window: its processor time."""
    garbage: int = 0
    """Objects that the garbage collections within the window freed."""
    log_lines: int = 0
    """Of the window."""
    joined_after: float = 0.0
    assigned_after: float = 0.0
    start_cpu: float = 0.0
    """Own processor time until all items were assigned."""
    resident: int = 0
    """Bytes of memory at the end of the window."""
    threads: int = 0
    timers: Measured | None = None
    """What bare timers in the same process showed, where they were asked for."""


@dataclass(frozen=True, slots=True)
class Started:
    """Jobs that run, and how many seconds it took to get there."""

    session: Session
    joined_after: float
    assigned_after: float
    cpu: float


async def measure(load: Load) -> Measured:
    """Run the jobs and return what a window of whole seconds showed."""
    with logged() as log:
        return await (_jobs(load, log) if load.address else _timers(load, log))


@asynccontextmanager
async def started(app: ElasticJob, *, spared: bool) -> AsyncIterator[Started]:
    """Run an application, and begin the block when every item of every job has a holder."""
    began, cpu = time.perf_counter(), time.process_time()
    if spared:
        collect_garbage_seldom()  # as app.run() does
    async with app.running() as session:
        joined_after = time.perf_counter() - began
        if spared:
            freeze_garbage_collector()
        await assigned(session, {job.job_name: job.sharding_total_count for job in app.jobs})
        yield Started(session, joined_after, time.perf_counter() - began, time.process_time() - cpu)


async def assigned(session: Session, items: dict[str, int]) -> None:
    """Return when every item has a holder; ``items`` says how many there are of each job."""
    waiting = [Layout(job).item(item).instance for job, count in items.items() for item in range(count)]
    while waiting:
        first = waiting[:AT_ONCE]
        nodes = await session.get_many(first)
        missing = [path for path, node in zip(first, nodes, strict=True) if node is None]
        waiting[:AT_ONCE] = missing
        await asyncio.sleep(LOOK_EVERY if missing else 0)


async def _jobs(load: Load, log: LogLines) -> Measured:
    app, window = ElasticJob(load.address), _Window(load, log)
    names = [f"job-{number}" for number in range(load.jobs)]
    for number, name in enumerate(names):
        app.add(_handler(number, window.began), name=name, sharding_total_count=load.items, **load.settings)
    async with started(app, spared=load.spared) as start:
        if name := load.settings.get("calendar"):
            await set_calendar(start.session, name, CALENDAR)
        found = await window.measured()
        if load.timers_after:
            await asyncio.gather(*(pause(start.session, name) for name in names))  # they stay, and have nothing to do
            found.timers = await _timers(load, log)
    return replace(found, joined_after=start.joined_after, assigned_after=start.assigned_after, start_cpu=start.cpu)


def _handler(number: int, began: Handler) -> Callable[[ItemContext], Awaitable[None]]:
    async def handler(context: ItemContext) -> None:
        began(number, context.fire.slot / 1000)

    return handler


async def _timers(load: Load, log: LogLines) -> Measured:
    window = _Window(load, log)
    with _armed(load.jobs, window.began):
        return await window.measured()


@contextmanager
def _armed(count: int, began: Handler) -> Iterator[None]:
    """The floor: nothing but the loop's heap of timers, each of which starts a task every second."""
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()
    timers: dict[int, asyncio.TimerHandle] = {}

    async def handler(number: int, moment: float) -> None:
        began(number, moment)

    def fire(number: int, moment: float) -> None:
        task = loop.create_task(handler(number, moment))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        arm(number, moment + 1)

    def arm(number: int, moment: float) -> None:
        timers[number] = loop.call_at(loop.time() + moment - time.time(), fire, number, moment)

    for number in range(count):
        arm(number, math.ceil(time.time()))
    yield
    for timer in timers.values():
        timer.cancel()


class _Window:
    """The seconds that count, of whatever tells it when it begins something."""

    def __init__(self, load: Load, log: LogLines) -> None:
        self._load, self._log = load, log
        self._open = False
        self._late = list[float]()
        self._served = [0] * load.jobs

    def began(self, number: int, moment: float) -> None:
        """Note that a handler begins."""
        if self._open:
            self._late.append(max(0.0, time.time() - moment))  # a timer's clock is a little off
            self._served[number] += 1

    async def measured(self) -> Measured:
        """Warm up, open the window, and return what it showed."""
        load, now = self._load, time.time()
        await asyncio.sleep(math.ceil(now + load.warm_up) + 1 - BEFORE - now)
        own, other, lines = time.process_time(), _cpu(load.server_pid), self._log.count
        with collections() as collected:
            self._open = True
            await asyncio.sleep(load.seconds)
            self._open = False
        return Measured(
            late=self._late,
            served=self._served,
            own_cpu=time.process_time() - own,
            server_cpu=_cpu(load.server_pid) - other,
            full_collections=collected.full,
            garbage=collected.garbage,
            log_lines=self._log.count - lines,
            resident=resident(),
            threads=threads(),
        )


def _cpu(pid: int) -> float:
    return cpu_of(pid) if pid else 0.0


if __name__ == "__main__":
    answer(Load, measure)
