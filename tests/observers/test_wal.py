"""The WAL of a SQLite file becomes small again: a slow reader makes it long, and it would stay so for ever."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

from aioelasticjob.model import Outcome
from aioelasticjob.observers.sql import open_store
from aioelasticjob.observers.sql.sqlite import WAL_SIZE
from tests.observers.sample_events import NOON, Clock, batch, end, raised


def test_a_wal_that_a_slow_reader_has_made_long_is_shortened_when_the_reader_has_ended(tmp_path: Path) -> None:
    file, failure = tmp_path / "events.db", raised("x" * 4000)
    log = Path(f"{file}-wal")

    async def main() -> None:
        async with open_store(f"sqlite:///{file}", clock=Clock()) as store:

            async def write(first: int) -> None:
                slots = range(NOON + 1000 * first, NOON + 1000 * (first + 300), 1000)
                await store.write(batch(*(end(slot, 0, Outcome.FAILED, failure=failure) for slot in slots)))

            await write(0)
            with closing(sqlite3.connect(file, isolation_level=None)) as reader:
                reader.execute("begin")
                reader.execute("select count(*) from job_execution_log").fetchone()
                written = 300
                while log.stat().st_size < 1.5 * WAL_SIZE:
                    await write(written)
                    written += 300
                reader.execute("rollback")
            for _ in range(2):  # what is in the WAL goes into the file after the first, so the second begins it anew
                await write(written)
                written += 300
            assert log.stat().st_size <= WAL_SIZE
            assert await store.counts() == {"failed": written}

    asyncio.run(main())
