"""From the end of an upstream's last run to the start of its follower, in another session beside ZooKeeper."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from statistics import median, quantiles
from typing import Final

from aioelasticjob import ElasticJob, ItemContext
from benchmarks.report import Figure
from benchmarks.servers import measured_server

NAME: Final = "jobs that follow jobs"
UPSTREAM_ITEMS, FOLLOWER_ITEMS = 4, 2
WARM_UP: Final = 5
"""Moments that are not counted: the two sessions have just begun."""


def measure(*, quick: bool) -> Iterator[Figure]:
    """Yield the figures."""
    moments = 10 if quick else 120
    with measured_server(quick=quick) as server:
        delays = asyncio.run(_delays(f"zk://{server.address}/followers", moments))
    case = f"every second, {UPSTREAM_ITEMS} items upstream, {FOLLOWER_ITEMS} items"
    what = "from the end of the last handler upstream to the follower's start"
    yield Figure(NAME, case, f"{what}, median", 1000 * median(delays), "ms")
    yield Figure(NAME, case, f"{what}, p99", 1000 * quantiles(delays, n=100)[98], "ms", "≤ 50")


async def _delays(address: str, moments: int) -> list[float]:
    """Return, for each moment, the seconds from the last end upstream to the first start of the follower."""
    ended = dict[float, float]()
    started = dict[float, float]()
    enough = asyncio.Event()

    async def extract(context: ItemContext) -> None:
        ended[context.fire_time.timestamp()] = time.perf_counter()

    async def load(context: ItemContext) -> None:
        started.setdefault(context.fire_time.timestamp(), time.perf_counter())
        if len(started) == moments + WARM_UP:
            enough.set()

    upstream, follower = ElasticJob(address), ElasticJob(address)
    upstream.add(extract, every=1, sharding_total_count=UPSTREAM_ITEMS)
    follower.add(load, after="extract", sharding_total_count=FOLLOWER_ITEMS)
    async with upstream.running(), follower.running():
        await enough.wait()
    return [started[moment] - ended[moment] for moment in sorted(started)[WARM_UP:]]
