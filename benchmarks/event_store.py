"""The event store at 5,000 events per second on SQLite, and whether any fire is later for it.

One process runs jobs that fire every second, with the store and without in turn: both see the same machine.  The
events of these runs are few, the others are told as a runner would tell them, spread over the second.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from anyio import create_task_group, sleep

from aioelasticjob import ElasticJob, ItemContext
from aioelasticjob.clock import SystemClock
from aioelasticjob.events import Began, Ended, Events, JobEvent, Started
from aioelasticjob.host.process import collect_garbage_seldom, freeze_garbage_collector, loop_factory
from aioelasticjob.model import FireSource, Outcome
from aioelasticjob.observers.settings import EventStoreSettings
from aioelasticjob.observers.sql.writer import StoreCounts, recording
from benchmarks.report import Figure
from benchmarks.servers import measured_server

NAME = "event store"
RATE = 5000
"""Events per second."""
JOBS = 100
TICK = 0.01
"""Seconds between two portions of events."""


def measure(*, quick: bool) -> Iterator[Figure]:
    """Yield the figures."""
    seconds, rounds = (1, 1) if quick else (15, 2)
    with measured_server(quick=quick) as server, TemporaryDirectory() as directory:
        url = f"sqlite:///{Path(directory) / 'events.db'}"
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            found = runner.run(_Bench(f"zk://{server.address}/events", url).run(seconds, rounds))
    case = f"{RATE} events/s, {JOBS} fires/s, SQLite"
    yield Figure(NAME, case, "events written per second", found.written / (seconds * rounds), "/s", "≥ 5000")
    yield Figure(NAME, case, "events dropped", found.dropped, "", "0")
    late = {kept: sorted(found.late[kept]) for kept in (True, False)}
    for part in (0.5, 0.99):
        without, kept = (_quantile(late[on], part) * 1000 for on in (False, True))
        name = "median" if part == 0.5 else "p99"
        yield Figure(NAME, case, f"lateness without the store, {name}", without, "ms")
        yield Figure(NAME, case, f"lateness with the store, {name}", kept, "ms")
        if name == "p99":
            yield Figure(NAME, case, "p99 later for the store by", max(0.0, kept - without), "ms", "≤ 5")
    yield Figure(NAME, case, "processor time for the store", 100 * found.processor, "% of one")


class _Bench:
    def __init__(self, address: str, url: str) -> None:
        self.late: dict[bool, list[float]] = {True: [], False: []}
        self.written = self.dropped = 0
        self.processor = 0.0
        self._settings = EventStoreSettings(url, retention_days=None)
        self._keeping: bool | None = None
        self._app = ElasticJob(address)
        for n in range(JOBS):
            self._app.add(self._handler, name=f"job-{n}", cron="* * * * * ?")

    async def run(self, seconds: int, rounds: int) -> _Bench:
        collect_garbage_seldom()
        async with self._app.running(), create_task_group() as tasks:
            freeze_garbage_collector()
            tasks.start_soon(self._tell, self._app._events)
            await sleep(3)
            spent = {True: 0.0, False: 0.0}
            for n in range(2 * rounds):
                keeping = bool(n % 2)
                async with self._store() if keeping else _nothing():
                    await sleep(1)  # what begins with it is over
                    self._keeping, began = keeping, time.process_time()
                    await sleep(seconds)
                    self._keeping = None
                    spent[keeping] += time.process_time() - began
            self.processor = (spent[True] - spent[False]) / (seconds * rounds)
            tasks.cancel_scope.cancel()
        return self

    async def _handler(self, context: ItemContext) -> None:
        if self._keeping is not None:
            self.late[self._keeping].append(time.time() - context.fire.slot / 1000)

    async def _tell(self, events: Events) -> None:
        loop, number = asyncio.get_running_loop(), 0
        others = RATE - 3 * JOBS
        began = loop.time()
        while True:
            await sleep(TICK)
            due = int((loop.time() - began) * others / 3)
            while number < due:
                for event in _life(number):
                    events.put(event)
                number += 1

    @asynccontextmanager
    async def _store(self) -> AsyncIterator[None]:
        async with recording(self._settings, self._app._events, SystemClock()) as (_, writer):
            before: StoreCounts | None = None

            async def count() -> None:
                nonlocal before
                await sleep(1)
                before = writer.counts

            async with create_task_group() as tasks:
                tasks.start_soon(count)
                yield
            after = writer.counts
            assert before is not None
            self.written += after.written - before.written
            self.dropped += after.dropped


@asynccontextmanager
async def _nothing() -> AsyncIterator[None]:
    yield


def _life(number: int) -> list[JobEvent]:
    """Return the events of a run as a runner would tell them."""
    job, me, now = f"other-{number % 1000}", "10.0.0.1@-@7-0a1b2c3d", time.time()
    slot, task = int(now * 1000), f"{job}@-@0@-@READY@-@{me}@-@{number:x}"
    return [
        Began(job, me, slot, FireSource.SCHEDULE, (0,), 0.001, (task,)),
        Started(job, me, slot, FireSource.SCHEDULE, (0,), task, now),
        Ended(job, me, slot, FireSource.SCHEDULE, 0, Outcome.COMPLETED, 0.01, task, now + 0.01),
    ]


def _quantile(values: list[float], part: float) -> float:
    return values[min(len(values) - 1, int(len(values) * part))]
