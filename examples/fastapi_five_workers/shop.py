"""A shop with five tills, counted every second, however many workers serve the shop.

uvicorn --workers 5 shop:app
"""

import os
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI

from aioelasticjob import ElasticJob, ItemContext
from aioelasticjob.integrations import host
from aioelasticjob.integrations.fastapi import elastic_job, health

REGISTRY = os.environ.get(
    "SHOP_REGISTRY", "embedded://127.0.0.1:2181/shop?data_dir=registry"
)
DATABASE = os.environ.get("SHOP_DATABASE", "shop.db")

jobs = ElasticJob(REGISTRY, session_timeout=6)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
    app.state.books = sqlite3.connect(
        DATABASE, isolation_level=None, check_same_thread=False, timeout=30
    )
    app.state.books.execute("PRAGMA journal_mode = WAL")
    app.state.books.execute(
        "CREATE TABLE IF NOT EXISTS counted"
        " (moment TEXT, till INT, pid INT, source TEXT)"
    )
    yield
    app.state.books.close()


def books(app: Annotated[FastAPI, Depends(host)]) -> sqlite3.Connection:
    found: sqlite3.Connection = app.state.books
    return found


@jobs.job(cron="* * * * * ?", sharding_total_count=5, failover=True)
def count_till(
    context: ItemContext, books: Annotated[sqlite3.Connection, Depends(books)]
) -> None:
    counted = (
        context.fire_time.isoformat(),
        context.item,
        os.getpid(),
        context.source,
    )
    books.execute("INSERT INTO counted VALUES (?, ?, ?, ?)", counted)


app = FastAPI(lifespan=elastic_job(jobs, lifespan))
app.get("/health")(health(jobs))


@app.get("/tills")
def tills() -> dict[str, int]:
    """How often a till was counted at all, and how often twice for one moment."""
    again = "count(*) - count(DISTINCT moment || '/' || till)"
    select = f"SELECT count(*), {again} FROM counted"
    counted, twice = app.state.books.execute(select).fetchone()
    return {"counted": counted, "twice": twice}
