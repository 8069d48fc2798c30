"""Ships orders: each item streams its share of them from the database, and goes on after a crash where it was."""

from __future__ import annotations

import os
import time

from anyio import to_thread
from shop import Order, orders_after, ship

from aioelasticjob import ElasticJob, ItemContext, Retry

REGISTRY = os.environ.get("AIOELASTICJOB_REGISTRY", "embedded://127.0.0.1:2181/orders?data_dir=registry")
SESSION_TIMEOUT = float(os.environ.get("ORDERS_SESSION_TIMEOUT", "10"))
PACKING = float(os.environ.get("ORDERS_PACKING", "0.02"))
"""Seconds that packing 25 orders takes."""

app = ElasticJob(REGISTRY, session_timeout=SESSION_TIMEOUT)


@app.dataflow(
    cron="0/2 * * * * ?",
    sharding_total_count=4,
    streaming=True,  # until no order is left; the schedule says how soon somebody looks again
    failover=True,
    concurrency=8,
    batch_size=25,  # one transaction for 25 orders
    retry=Retry(attempts=3, backoff=0.1, on=OSError),
)
async def orders(context: ItemContext) -> list[Order]:
    """Fetch the orders after those that were fetched last."""
    last = int(context.offset or 0)
    found = await to_thread.run_sync(orders_after, context.item, context.sharding_total_count, last, 200)
    if found:  # holds once all of these have become parcels
        await context.save_offset(str(found[-1].number))
    return found


@orders.process
def pack(context: ItemContext, found: list[Order]) -> None:
    """Pack some orders; a plain function, so it runs in a thread."""
    time.sleep(PACKING)
    ship(context.item, context.fence, found, context.instance)


@orders.dead
async def complain(context: ItemContext, found: list[Order], error: Exception) -> None:
    """Name the orders that could not be packed, for people to look at."""
    context.log.error("not packed: %s", error, extra={"orders": [one.number for one in found]})


if __name__ == "__main__":
    app.run()
