"""``python -m tests.console.showcase ADDRESS EVENT_STORE SEED``: an instance of a shop, for pictures of the console."""

from __future__ import annotations

import asyncio
import logging
import sys
from random import Random

from aioelasticjob import ElasticJob, ItemContext

CITIES = {0: "Beijing", 1: "Shanghai", 2: "Guangzhou"}


def main(address: str, store: str, seed: int) -> None:
    """Run until killed."""
    logging.disable()
    app, chance = ElasticJob(address, session_timeout=2, event_store=store), Random(seed)

    @app.job("order-sync", cron="0/5 * * * * ?", sharding_total_count=8, failover=True, sharding_quiet=0.1)
    async def orders(context: ItemContext) -> None:
        await asyncio.sleep(chance.uniform(0.2, 3.5))
        if chance.random() < 0.05:
            raise ConnectionError("warehouse: connection reset by peer")

    @app.job("price-feed", cron="0/10 * * * * ?", sharding_total_count=12, failover=True, sharding_quiet=0.1)
    async def prices(context: ItemContext) -> None:
        await asyncio.sleep(chance.uniform(0.05, 0.4))

    @app.job(
        "nightly-report",
        cron="0 0 2 * * ?",
        time_zone="Asia/Shanghai",
        sharding_total_count=3,
        sharding_item_parameters=CITIES,
        failover=True,
        sharding_quiet=0.1,
        description="Figures of the day, a file for each city",
    )
    async def report(context: ItemContext) -> None:
        await asyncio.sleep(chance.uniform(0.5, 2))

    @app.job("mail-digest", cron="0 30 7 ? * MON-FRI", time_zone="Europe/Berlin", sharding_total_count=60)
    async def mail(context: ItemContext) -> None:
        await asyncio.sleep(0.1)

    @app.job("index-rebuild", sharding_total_count=4, description="By hand, after a change of the mapping")
    async def index(context: ItemContext) -> None:
        await asyncio.sleep(chance.uniform(3, 6))

    @app.job("cart-cleanup", cron="0 * * * * ?", description="Carts that nobody came back for")
    async def carts(context: ItemContext) -> None:
        await asyncio.sleep(chance.uniform(0.5, 2))

    @app.job("card-charges", cron="0/10 * * * * ?", alert_on="failing", labels="team=billing")
    async def charges(context: ItemContext) -> None:
        raise ConnectionError("payments: connection refused")

    app.run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
