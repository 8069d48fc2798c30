"""``python -m tests.console.worker ADDRESS [CRON] [ITEMS]``: an instance of the job that browsers look at."""

from __future__ import annotations

import asyncio
import sys

from aioelasticjob import ElasticJob, ItemContext

CITIES = {0: "Beijing", 1: "Shanghai", 2: "Guangzhou", 3: "Shenzhen"}


def main(address: str, cron: str = "0 0 2 * * ?", items: str = "4") -> None:
    """Run until killed."""
    app = ElasticJob(address, session_timeout=6)  # long enough for a busy machine

    @app.job(
        "report",
        cron=cron,
        sharding_total_count=int(items),
        sharding_item_parameters=CITIES,
        failover=True,
        sharding_quiet=0.1,
        description="Figures of the day",
    )
    async def report(context: ItemContext) -> None:
        await asyncio.sleep(0.05)

    app.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
