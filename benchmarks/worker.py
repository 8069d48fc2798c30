"""One process full of one-second jobs, measured from inside: ``python -m benchmarks.worker LOAD`` prints JSON."""

from __future__ import annotations

import asyncio
import json
import math
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import uvloop

from aioelasticjob import ElasticJob, ItemContext
from aioelasticjob.layout import Layout
from aioelasticjob.process import spare_the_collector
from aioelasticjob.registry.session import Session
from benchmarks.servers import cpu_of

LOOK_EVERY = 0.05
"""Seconds between two looks at which items have been assigned."""
BEFORE = 0.3
"""Seconds that the window begins before a whole second, so that it holds as many moments as it is long."""


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


@dataclass(slots=True)
class Measured:
    """What came of it; times in seconds."""

    late: list[float] = field(default_factory=list)
    """Of every handler that began within the window: how long after its scheduled moment."""
    own_cpu: float = 0.0
    server_cpu: float = 0.0
    joined_after: float = 0.0
    assigned_after: float = 0.0
    start_cpu: float = 0.0
    """Own processor time until all items were assigned."""
    resident: int = 0
    """Bytes of memory at the end of the window."""
    threads: int = 0


async def measure(load: Load) -> Measured:
    """Run the jobs and return what a window of whole seconds showed."""
    found = Measured()
    open_window = False

    def began(moment: float) -> None:
        if open_window:
            found.late.append(time.time() - moment)

    async with _jobs(load, began, found) if load.address else _timers(load, began):
        now = time.time()
        await asyncio.sleep(math.ceil(now + load.warm_up) + 1 - BEFORE - now)
        own, other = time.process_time(), _cpu(load.server_pid)
        open_window = True
        await asyncio.sleep(load.seconds)
        open_window = False
        found.own_cpu, found.server_cpu = time.process_time() - own, _cpu(load.server_pid) - other
        found.resident, found.threads = _footprint()
    return found


@asynccontextmanager
async def _jobs(load: Load, began: Callable[[float], None], found: Measured) -> AsyncIterator[None]:
    app = ElasticJob(load.address)

    async def handler(context: ItemContext) -> None:
        began(context.fire.slot / 1000)

    for number in range(load.jobs):
        app.add(handler, name=f"job-{number}", cron="* * * * * ?", sharding_total_count=load.items)
    started, cpu = time.perf_counter(), time.process_time()
    async with app.running() as session:
        found.joined_after = time.perf_counter() - started
        spare_the_collector()  # as app.run() does
        await _assigned(session, load)
        found.assigned_after = time.perf_counter() - started
        found.start_cpu = time.process_time() - cpu
        yield


async def _assigned(session: Session, load: Load) -> None:
    """Return when every item of every job has a holder."""
    layouts = [Layout(f"job-{number}") for number in range(load.jobs)]
    waiting = [layout.item(item).instance for layout in layouts for item in range(load.items)]
    while waiting:
        nodes = await session.get_many(waiting)
        waiting = [path for path, node in zip(waiting, nodes, strict=True) if node is None]
        await asyncio.sleep(LOOK_EVERY if waiting else 0)


@asynccontextmanager
async def _timers(load: Load, began: Callable[[float], None]) -> AsyncIterator[None]:
    """The floor: nothing but the loop's heap of timers, each of which starts a task every second."""
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()
    timers: dict[int, asyncio.TimerHandle] = {}

    async def handler(moment: float) -> None:
        began(moment)

    def fire(number: int, moment: float) -> None:
        task = loop.create_task(handler(moment))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        arm(number, moment + 1)

    def arm(number: int, moment: float) -> None:
        timers[number] = loop.call_at(loop.time() + moment - time.time(), fire, number, moment)

    for number in range(load.jobs):
        arm(number, math.ceil(time.time()))
    yield
    for timer in timers.values():
        timer.cancel()


def _cpu(pid: int) -> float:
    return cpu_of(pid) if pid else 0.0


def _footprint() -> tuple[int, int]:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmRSS"].split()[0]) * 1024, int(status["Threads"])


def main() -> None:
    """Measure what the first argument, a ``Load`` as JSON, asks for."""
    load = Load(**json.loads(sys.argv[1]))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        json.dump(asdict(runner.run(measure(load))), sys.stdout)


if __name__ == "__main__":
    main()
