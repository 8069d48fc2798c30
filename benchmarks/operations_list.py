"""What looking costs when there is much to see: a list by command, and a live view of every job."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from aioelasticjob import operations
from aioelasticjob.config.job import JobConfig
from aioelasticjob.core import records
from aioelasticjob.core.layout import Layout
from aioelasticjob.model import Record
from aioelasticjob.registry.session import ConnectionSettings, Session, open_session
from aioelasticjob.registry.transaction import Create, Delete, Op, Set
from benchmarks.report import Figure, percentile
from benchmarks.servers import HOST, Server, measured_servers
from benchmarks.traffic import counted

NAME: Final = "looking at many jobs"
ITEMS: Final = 10
SERVERS: Final = 3
EVERY: Final = 30
"""Seconds between two runs of a job in the live view."""
RUN: Final = Record(1763632800000, "SCHEDULE", "10.0.0.1@-@4711-00000000", 1763632800010, 1763632800750, 1763632830000)
BEGUN: Final = Record(1763632830000, "SCHEDULE", "10.0.0.1@-@4711-00000000", 1763632830010, completed=False)


def measure(*, quick: bool) -> Iterator[Figure]:
    """Yield the figures."""
    jobs, times, seconds = (10, 1, 1) if quick else (1000, 5, 20)
    for start in measured_servers(quick=quick):
        with start() as server:
            yield from asyncio.run(_look(server, jobs, times, seconds))


async def _look(server: Server, jobs: int, times: int, seconds: int) -> list[Figure]:
    case = f"{jobs:,} jobs × {ITEMS} items, {server.name}"
    async with filled(server, jobs) as (session, layouts):
        figures = []
        for options, goal in (((), "< 2"), (("--json",), "< 2")):
            command = " ".join(("jobs", *options))
            took = [await asyncio.to_thread(_typed, server, jobs, options) for _ in range(times)]
            figures.append(
                Figure(NAME, case, f"aioelasticjob {command}: whole command, median", median(took), "s", goal)
            )
        async with counted(HOST, server.port) as traffic:
            viewer = _Viewer(f"zk://{HOST}:{traffic.port}/operations")
            async with viewer.looking():
                before = traffic.copy()
                await asyncio.sleep(min(seconds, 5))
                rest = traffic.since(before)
                figures.append(Figure(NAME, case, "live view, at rest: reads", rest.reads, "", "0"))
                begun = viewer.cpu
                await _run(session, layouts, seconds)
                share = (viewer.cpu - begun) / seconds
        figures.append(Figure(NAME, case, f"live view, each job every {EVERY} s: of one processor", 100 * share, "%"))
        late = [1000 * (seen - float(written)) for written, seen in viewer.seen.items()]
        figures.append(Figure(NAME, case, "live view: a change is seen, median", median(late), "ms", "< 300"))
        figures.append(Figure(NAME, case, "live view: a change is seen, p99", percentile(late, 0.99), "ms", "< 300"))
        return figures


@asynccontextmanager
async def filled(server: Server, jobs: int) -> AsyncIterator[tuple[Session, list[Layout]]]:
    """Make jobs as three servers leave them between two runs; their instances live as long as the block."""
    async with open_session(ConnectionSettings.parse(f"zk://{server.address}/operations")) as session:
        layouts = [Layout(f"job-{number:04}") for number in range(jobs)]
        for layout in layouts:
            await session.commit(list(_nodes(layout)), incarnation=session.incarnation)
        yield session, layouts


def _nodes(layout: Layout) -> Iterator[Op]:
    yield from (Create(path) for path in layout.skeleton)
    config = JobConfig(job_name=layout.job, cron="0/30 * * * * ?", sharding_total_count=ITEMS, failover=True)
    yield Create(layout.config, config.to_json())
    ids = [f"10.0.0.{number}@-@4711-0000000{number}" for number in range(1, SERVERS + 1)]
    for number, one in enumerate(ids, 1):
        ip = f"10.0.0.{number}"
        yield Create(layout.server(ip), f"host-{number}".encode())
        yield Create(layout.instance(one), json.dumps({"ip": ip, "host": "x", "pid": 4711}).encode(), ephemeral=True)
    yield from (Create(layout.epoch), Create(layout.host, ids[0].encode(), ephemeral=True))
    for item in range(ITEMS):
        paths = layout.item(item)
        yield Create(paths.sharding)
        yield Create(paths.instance, ids[item % SERVERS].encode())
        yield Create(paths.execution, records.encode(RUN))


def _typed(server: Server, jobs: int, options: tuple[str, ...]) -> float:
    """Return how long the command takes, from a cold start of its process to its end."""
    words = [sys.executable, "-m", "aioelasticjob", "jobs", *options, "-r", f"zk://{server.address}/operations"]
    begun = time.perf_counter()
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    took = time.perf_counter() - begun
    if done.stdout.count("job-") != jobs:
        raise RuntimeError(f"the list is not whole: {done.stdout[:200]}")
    return took


async def _run(session: Session, layouts: list[Layout], seconds: int) -> None:
    """Let every job claim and settle its items once per interval, as many at a time as fall due."""
    begun, number = time.perf_counter(), 0
    pace = len(layouts) / EVERY
    while (now := time.perf_counter() - begun) < seconds:
        while number < now * pace:
            layout = layouts[number % len(layouts)]
            await session.commit(list(_claim(layout)), incarnation=session.incarnation)
            await session.commit(list(_settle(layout)), incarnation=session.incarnation)
            if number % 5 == 0:
                await _remark(session, layouts[-1 - number % len(layouts)])
            number += 1
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.5)  # what was written last is seen, too


async def _remark(session: Session, layout: Layout) -> None:
    """Change a setting; its text is when that was."""
    text = f"{time.perf_counter():.6f}"
    config = JobConfig(job_name=layout.job, cron="0/30 * * * * ?", sharding_total_count=ITEMS, description=text)
    await session.commit([Set(layout.config, config.to_json(), -1)], incarnation=session.incarnation)


def _claim(layout: Layout) -> Iterator[Op]:
    for item in range(ITEMS):
        yield Set(layout.item(item).execution, records.encode(BEGUN), -1)
        yield Create(layout.item(item).running, BEGUN.instance.encode(), ephemeral=True)


def _settle(layout: Layout) -> Iterator[Op]:
    for item in range(ITEMS):
        yield Set(layout.item(item).execution, records.encode(RUN), -1)
        yield Delete(layout.item(item).running)


@dataclass(slots=True)
class _Viewer:
    """Somebody who follows all jobs, in a thread of his own so that his work can be told from everybody else's."""

    address: str
    cpu: float = 0.0
    """Seconds of a processor used so far, as of his last look."""
    seen: dict[str, float] = field(default_factory=dict)
    """When a remark was first seen; its text is when it was written."""
    _ready: threading.Event = field(default_factory=threading.Event)

    @asynccontextmanager
    async def looking(self) -> AsyncIterator[None]:
        """Look while the block is open."""
        over, thread = threading.Event(), asyncio.get_running_loop().run_in_executor
        looking = thread(None, asyncio.run, self._until(over))
        await thread(None, self._ready.wait, 60)
        yield
        over.set()
        await looking

    async def _until(self, over: threading.Event) -> None:
        async with asyncio.TaskGroup() as tasks:
            looking = tasks.create_task(self._follow())
            await asyncio.to_thread(over.wait)
            looking.cancel()

    async def _follow(self) -> None:
        settings = ConnectionSettings.parse(self.address)
        async with open_session(settings) as session, operations.watch_all(session) as lists:
            async for statuses in lists:
                now = time.perf_counter()
                for status in statuses:
                    if status.config.description:
                        self.seen.setdefault(status.config.description, now)
                self.cpu = time.thread_time()
                self._ready.set()
