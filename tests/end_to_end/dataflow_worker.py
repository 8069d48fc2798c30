"""A worker of one dataflow, whose effects go into a database: ``python -m tests.end_to_end.dataflow_worker ADDRESS
FILE``."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import anyio

from aioelasticjob import ElasticJob, ItemContext

ITEMS, FETCHED = 4, 40
"""The items, and how many records of an item one fetch hands out."""
SESSION_TIMEOUT = 6.0
"""Seconds: a busy machine may hold a process up for some of them."""
SCHEMA = """
CREATE TABLE IF NOT EXISTS attempts (item, record, fence, source, instance, newest);
CREATE TABLE IF NOT EXISTS effects (item, record, PRIMARY KEY (item, record));
CREATE TABLE IF NOT EXISTS fences (item PRIMARY KEY, largest);
CREATE TABLE IF NOT EXISTS ends (last);
"""
"""Each item has records without end, until ``ends`` says which of them is the last."""
RAISE = """
INSERT INTO fences VALUES (:item, :fence) ON CONFLICT DO UPDATE SET largest = :fence WHERE largest <= :fence
"""


@contextmanager
def opened(file: Path) -> Iterator[sqlite3.Connection]:
    """Open the database for one transaction."""
    with closing(sqlite3.connect(file, timeout=30, isolation_level="IMMEDIATE")) as database:
        database.execute("PRAGMA synchronous = OFF")  # processes are killed here, not machines
        with database:
            yield database


def main(address: str, file: Path) -> None:
    app = ElasticJob(address, session_timeout=SESSION_TIMEOUT, base_sleep_time=0.2, max_sleep_time=0.5)

    @app.dataflow(
        cron="* * * * * ?", sharding_total_count=ITEMS, streaming=True, failover=True, concurrency=8, batch_size=5
    )
    async def flow(context: ItemContext) -> list[int]:
        before = int(context.offset or 0)
        with opened(file) as database:
            ((last,),) = database.execute("SELECT coalesce(max(last), :all) FROM ends", {"all": before + FETCHED})
        found = list(range(before + 1, min(before + FETCHED, last) + 1))
        if found:
            await context.save_offset(str(found[-1]))
        return found

    @flow.process
    async def ship(context: ItemContext, records: list[int]) -> None:
        await anyio.sleep(0.05 + records[0] % 7 * 0.02)
        item, fence = context.item, context.fence
        with opened(file) as database:
            newest = bool(database.execute(RAISE, {"item": item, "fence": fence}).rowcount)
            tried = [(item, record, fence, context.source.value, context.instance, newest) for record in records]
            database.executemany("INSERT INTO attempts VALUES (?, ?, ?, ?, ?, ?)", tried)
            if newest:
                had = [(item, record) for record in records]
                database.executemany("INSERT INTO effects VALUES (?, ?) ON CONFLICT DO NOTHING", had)

    app.run()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
