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
        yield from _beside_a_slow_item(server, seconds)
    for items in (10,) if quick else (1, 10, 100):
        yield from _processor_time(items, seconds, quick=quick)


def _requests(server: Server, items: int, seconds: int) -> Iterator[Figure]:
    traffic, packets, ran = asyncio.run(_count(server, items, 1, seconds))
    fires = _fires(ran)
    case = f"1 job × {items} items"
    yield Figure(NAME, case, "write transactions per fire", traffic.writes / fires, "", "2")
    yield Figure(NAME, case, "reads per fire", traffic.reads / fires, "", "0")
    yield Figure(NAME, case, "packets per fire, server's count", packets / fires, "", java=JAVA_PACKETS.get(items, ""))


def _events(server: Server, seconds: int) -> Iterator[Figure]:
    instances = 3
    traffic, _, ran = asyncio.run(_count(server, 12, instances, seconds))
    per = traffic.events * instances / _fires(ran) / instances
    yield Figure(NAME, f"1 job × 12 items, {instances} instances", "watch events per instance per fire", per, "", "0")


def _beside_a_slow_item(server: Server, seconds: int) -> Iterator[Figure]:
    """Yield what a moment costs if one of four independent items outlasts it, and what the other three miss."""
    fast = 3
    traffic, _, ran = asyncio.run(_count(server, fast + 1, 1, seconds, slow=4.5))
    case = f"1 job × {fast + 1} independent items, one takes 4.5 s"
    writes = traffic.writes / _fires(ran)
    yield Figure(NAME, case, "write transactions per moment", writes, "", "≤ 3")
    missed = max(0, fast * seconds - len(ran))
    yield Figure(NAME, case, "moments missed by the other items", missed, "", "0")


def _fires(ran: set[tuple[str, int, int]]) -> int:
    """Return how many fires the instances had in all; 1 if there was none."""
    return max(1, len({(instance, slot) for instance, slot, _ in ran}))


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


async def _count(
    server: Server, items: int, instances: int, seconds: int, slow: float = 0.0
) -> tuple[Traffic, int, set[tuple[str, int, int]]]:
    """Return the frames and packets of ``seconds`` fires of one job, and what ran: instance, moment and item.

    With ``slow`` the items are independent; the last one takes so many seconds, and does not count.
    """
    ran: set[tuple[str, int, int]] = set()

    async def handler(context: ItemContext) -> None:
        if slow and context.item == items - 1:
            await asyncio.sleep(slow)
        else:
            ran.add((context.instance, context.fire.slot, context.item))

    async with counted(HOST, server.port) as traffic, AsyncExitStack() as stack:
        for _ in range(instances):
            app = ElasticJob(f"zk://{HOST}:{traffic.port}/cost-{items}-{instances}")
            independent = slow > 0
            app.add(handler, name="job", cron="* * * * * ?", sharding_total_count=items, independent_items=independent)
            await stack.enter_async_context(app.running())
        while len({instance for instance, *_ in ran}) < instances:
            await asyncio.sleep(0.05)
        await asyncio.sleep(1.5 - time.time() % 1)  # between two moments, when nothing is under way
        before, packets = traffic.copy(), server.packets()
        ran.clear()
        await asyncio.sleep(seconds)
        return traffic.since(before), server.packets() - packets, ran
