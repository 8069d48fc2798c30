"""Created jobs beside declared ones: how long two processes that start together take to join them, and their memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from aioelasticjob import operations
from aioelasticjob.registry.addresses import open_registry
from benchmarks.at_rest import NEVER
from benchmarks.joining import HANDLER, Joined, Joining, join
from benchmarks.report import Figure
from benchmarks.servers import measured_server

NAME: Final = "created jobs"
PROCESSES: Final = 2


def measure(*, quick: bool) -> Iterator[Figure]:
    """Yield the figures."""
    jobs = 50 if quick else 10_000
    with measured_server(quick=quick) as server:
        none = _joined(Joining(f"zk://{server.address}/none", 0, False))
        declared = _joined(Joining(f"zk://{server.address}/declared", jobs, False))
        address = f"zk://{server.address}/created"
        asyncio.run(_create(address, jobs))
        created = _joined(Joining(address, jobs, True))
    floor = max(one.grown for one in none)
    for case, found, time_goal in (("declared", declared, ""), ("created", created, "≤ declared")):
        seconds = max(one.seconds for one in found)
        grown = max(one.grown for one in found)
        shown = f"{jobs:,} {case} jobs, {PROCESSES} processes"
        yield Figure(NAME, shown, "until joined, per job", 1000 * seconds / jobs, "ms", time_goal)
        yield Figure(NAME, shown, "memory per job", max(0, grown - floor) / jobs / 1e3, "KB", "≤ 35")


def _joined(asked: Joining) -> list[Joined]:
    """Let processes that start together join the same jobs."""
    with ThreadPoolExecutor(PROCESSES) as pool:
        return list(pool.map(join, [asked] * PROCESSES))


async def _create(address: str, jobs: int) -> None:
    listed = [{"jobName": f"job-{number}", "cron": NEVER} for number in range(jobs)]
    async with open_registry(address) as session:
        await operations.create_all(session, json.dumps({"jobs": listed}), handler=HANDLER)
