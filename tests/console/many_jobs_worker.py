"""``python -m tests.console.many_jobs_worker ADDRESS EVENT_STORE JOBS``: an instance of so many jobs."""

from __future__ import annotations

import asyncio
import logging
import sys

from aioelasticjob import ElasticJob, ItemContext


def main(address: str, event_store: str, jobs: int) -> None:
    """Run until it is asked to end."""
    logging.basicConfig(level=logging.INFO)
    app = ElasticJob(address, event_store=event_store)

    async def work(context: ItemContext) -> None:
        await asyncio.sleep(0.05)

    for number in range(jobs):
        app.add(
            work,
            name=f"job-{number:02}",
            cron="0/20 * * * * ?",
            sharding_total_count=3,
            alert_on=("misfiring", "failing", "nobody-leads", "nobody-there"),
        )
    app.run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
