"""A shop's job: each working day at seven it reminds the customers of unpaid invoices, city by city."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import anyio

from aioelasticjob import Depends, ElasticJob, ItemContext

jobs = ElasticJob("zk://127.0.0.1:2181/shop")


@dataclass(frozen=True)
class Invoice:
    """What a customer owes."""

    number: int
    customer: str


class Books:
    """The shop's database; this one is a sketch, and empty."""

    async def unpaid(self, city: str, after: int) -> list[Invoice]:
        """Return a city's unpaid invoices with numbers above ``after``, by number."""
        return []


class Post:
    """The shop's way to its customers; this one is a sketch that takes its time."""

    async def remind(self, invoice: Invoice) -> None:
        """Send a reminder."""
        await anyio.sleep(1)


def books() -> Books:
    """Open the database."""
    return Books()


def post() -> Post:
    """Open the way to the customers."""
    return Post()


@jobs.job(
    cron="0 0 7 ? * MON-FRI",
    time_zone="Europe/Berlin",
    sharding_total_count=3,
    sharding_item_parameters={0: "Beijing", 1: "Shanghai", 2: "Guangzhou"},
    failover=True,
)
async def remind(
    context: ItemContext, books: Annotated[Books, Depends(books)], post: Annotated[Post, Depends(post)]
) -> None:
    """Remind a city's customers, from where a run that was cut off had come to."""
    assert context.parameter is not None
    for invoice in await books.unpaid(context.parameter, after=int(context.offset or 0)):
        await post.remind(invoice)
        await context.save_offset(str(invoice.number))
    await context.save_offset("0")
