"""What a process full of jobs asks of ZooKeeper while none of them is due: heartbeats and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from aioelasticjob import ElasticJob, ItemContext
from benchmarks.report import Figure
from benchmarks.servers import HOST, Server, measured_server
from benchmarks.traffic import HEARTBEATS, Traffic, counted
from benchmarks.worker import assigned

NAME: Final = "ZooKeeper requests at rest"
NEVER: Final = "0 0 0 1 1 ? 2099"
SETTLED: Final = 3.0


def measure(*, quick: bool) -> Iterator[Figure]:
    """Yield the figures."""
    jobs, seconds = (20, 1) if quick else (1000, 70)
    with measured_server(quick=quick) as server:
        traffic = asyncio.run(_count(server, jobs, seconds))
    case = f"{jobs:,} jobs in one process, {seconds} s"
    heartbeats = sum(count for opcode, count in traffic.requests.items() if opcode in HEARTBEATS)
    yield Figure(NAME, case, "requests per second", traffic.requests.total() / seconds, "/s")
    yield Figure(NAME, case, "heartbeats per second", heartbeats / seconds, "/s")
    yield Figure(NAME, case, "reads", traffic.reads, "", "0")
    yield Figure(NAME, case, "write transactions", traffic.writes, "", "0")
    yield Figure(NAME, case, "watch events", traffic.events, "", "0")


async def _count(server: Server, jobs: int, seconds: int) -> Traffic:
    async def handler(context: ItemContext) -> None:
        raise AssertionError("nothing is due")

    async with counted(HOST, server.port) as traffic:
        app = ElasticJob(f"zk://{HOST}:{traffic.port}/at-rest")
        for number in range(jobs):
            app.add(handler, name=f"job-{number}", cron=NEVER)
        async with app.running() as session:
            await assigned(session, {job.job_name: job.sharding_total_count for job in app.jobs})
            await asyncio.sleep(SETTLED)
            before = traffic.copy()
            await asyncio.sleep(seconds)
            return traffic.since(before)
