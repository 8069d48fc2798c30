"""Watch events that an instance receives, as the number of instances grows: a fire must not cause any."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any, Final

from aioelasticjob import ElasticJob, ItemContext
from benchmarks.report import Figure
from benchmarks.servers import HOST, Server, measured_server
from benchmarks.traffic import Traffic, counted

NAME: Final = "watch events as instances grow"
ITEMS: Final = 30
NO_TICK: Final = 86_400
SETTLED: Final = 3.0
"""Seconds from the last instance's first run until nobody joins or is assigned anything any more."""


def measure(*, quick: bool) -> Iterator[Figure]:
    """Yield the figures: what fires cost, and what the counts cost that each instance publishes once per interval."""
    with measured_server(quick=quick) as server:
        for instances in (2,) if quick else (3, 10, 30):
            case = f"1 job × {ITEMS} items, {instances} instances"
            traffic, fires = asyncio.run(_count(server, instances, 2 if quick else 20, interval=NO_TICK))
            yield Figure(NAME, case, "watch events per instance per fire", traffic.events / fires, "", "0")
            yield Figure(NAME, case, "reads per instance per fire", traffic.reads / fires, "", "0")
            yield Figure(NAME, case, "write transactions per instance per fire", traffic.writes / fires, "", "2")
            interval = 2 if quick else 20
            traffic, _ = asyncio.run(_count(server, instances, interval, interval=interval))
            unit = f"per instance per interval (here {interval} s, by default 60), with counts published"
            yield Figure(NAME, case, f"watch events {unit}", traffic.events / instances, "", "constant")
            yield Figure(NAME, case, f"reads {unit}", traffic.reads / instances, "", "constant")


async def _count(server: Server, instances: int, seconds: int, *, interval: int) -> tuple[Traffic, int]:
    """Return the frames of so many one-second moments, and how many fires the instances had in all."""
    fired: set[tuple[str, int]] = set()

    async def handler(context: ItemContext) -> None:
        fired.add((context.instance, context.fire.slot))

    async with counted(HOST, server.port) as traffic, AsyncExitStack() as stack:
        for _ in range(instances):
            app = ElasticJob(f"zk://{HOST}:{traffic.port}/watch-traffic-{instances}-{interval}")
            settings: dict[str, Any] = {"sharding_total_count": ITEMS, "statistics_interval": interval}
            app.add(handler, name="job", cron="* * * * * ?", **settings)
            await stack.enter_async_context(app.running())
        while len({instance for instance, _ in fired}) < instances:
            await asyncio.sleep(0.05)
        await asyncio.sleep(SETTLED + 0.5 - time.time() % 1)  # between two moments, when nothing is under way
        before = traffic.copy()
        fired.clear()
        await asyncio.sleep(seconds)
        return traffic.since(before), len(fired)
