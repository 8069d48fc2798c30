"""What a monitored fire costs: requests, packets, watch events, and processor time on both sides."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack

from aioelasticjob import ElasticJob, ItemContext
from benchmarks.load import run_worker
from benchmarks.report import Figure
from benchmarks.servers import HOST, Server, measured_server
from benchmarks.traffic import Traffic, counted
from benchmarks.worker import Load

NAME = "cost of a monitored fire"
JAVA_PACKETS = {1: "18", 10: "171.5 (with failover)"}
JAVA_OWN = {1: "8.9", 10: "17.2 (with failover)"}
JAVA_SERVER = {1: "5.9", 10: "14.0 (with failover)"}


def measure(*, quick: bool) -> Iterator[Figure]:
    """Yield the figures."""
    seconds = 1 if quick else 10
    with measured_server(quick=quick) as server:
        for items in (10,) if quick else (1, 10, 100):
            yield from _requests(server, items, seconds)
        yield from _events(server, seconds)
    for items in (10,) if quick else (1, 10, 100):
        yield from _processor_time(items, seconds, quick=quick)


def _requests(server: Server, items: int, seconds: int) -> Iterator[Figure]:
    traffic, packets, fires = asyncio.run(_count(server, items, 1, seconds))
    case = f"1 job × {items} items"
    yield Figure(NAME, case, "write transactions per fire", traffic.writes / fires, "", "2")
    yield Figure(NAME, case, "reads per fire", traffic.reads / fires, "", "0")
    yield Figure(NAME, case, "packets per fire, server's count", packets / fires, "", java=JAVA_PACKETS.get(items, ""))


def _events(server: Server, seconds: int) -> Iterator[Figure]:
    instances = 3
    traffic, _, fires = asyncio.run(_count(server, 12, instances, seconds))
    per = traffic.events * instances / fires / instances
    yield Figure(NAME, f"1 job × 12 items, {instances} instances", "watch events per instance per fire", per, "", "0")


def _processor_time(items: int, seconds: int, *, quick: bool) -> Iterator[Figure]:
    jobs = 10
    with measured_server(quick=quick) as server:
        found = run_worker(Load(jobs, seconds, f"zk://{server.address}/cost", items, server_pid=server.pid))
    fires = max(1, len(found.late) / items)
    case = f"{jobs} jobs × {items} items"
    yield Figure(
        NAME, case, "own processor time per fire", 1000 * found.own_cpu / fires, "ms", java=JAVA_OWN.get(items, "")
    )
    server_time = 1000 * found.server_cpu / fires
    yield Figure(NAME, case, "ZooKeeper's processor time per fire", server_time, "ms", java=JAVA_SERVER.get(items, ""))


async def _count(server: Server, items: int, instances: int, seconds: int) -> tuple[Traffic, int, int]:
    """Return the frames and packets of ``seconds`` fires of one job, and how many fires the instances had in all."""
    fired: set[tuple[str, int]] = set()

    async def handler(context: ItemContext) -> None:
        fired.add((context.instance, context.fire.slot))

    async with counted(HOST, server.port) as traffic, AsyncExitStack() as stack:
        for _ in range(instances):
            app = ElasticJob(f"zk://{HOST}:{traffic.port}/cost-{items}-{instances}")
            app.add(handler, name="job", cron="* * * * * ?", sharding_total_count=items)
            await stack.enter_async_context(app.running())
        while len({instance for instance, _ in fired}) < instances:
            await asyncio.sleep(0.05)
        await asyncio.sleep(1.5 - time.time() % 1)  # between two moments, when nothing is under way
        before, packets = traffic.copy(), server.packets()
        fired.clear()
        await asyncio.sleep(seconds)
        return traffic.since(before), server.packets() - packets, max(1, len(fired))
