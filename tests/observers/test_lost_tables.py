"""A file that was removed or replaced, and tables that were dropped, are noticed, made again, and named in the log."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from anyio import create_task_group
from sqlalchemy import text

from aioelasticjob.observers.sql import EventStore, EventStoreUnreachable, open_store
from aioelasticjob.observers.sql.rows import Batch
from tests.observers.sample_events import NOON, Clock, batch, end


def play(url: str, scene: Callable[[EventStore], Awaitable[None]]) -> None:
    async def main() -> None:
        async with open_store(url, clock=Clock()) as store:
            await scene(store)

    asyncio.run(main())


async def write(store: EventStore, rows: Batch) -> None:
    """Write as the application does: what was not written, but not refused either, is tried again."""
    try:
        await store.write(rows)
    except EventStoreUnreachable as error:
        if error.refused:
            raise
        await store.write(rows)


async def drop(store: EventStore, *tables: str) -> None:
    async with store._writing() as connection:
        for table in tables:
            await connection.execute(text(f"DROP TABLE {table}"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "events.db"


@pytest.mark.parametrize("beside", [(), ("-wal", "-shm")], ids=["the file alone", "with the files beside it"])
def test_rows_go_into_a_new_file_when_the_old_one_was_removed(
    file: Path, beside: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(store: EventStore) -> None:
        async with store._connected(), store._connected():  # two connections are open and idle afterwards
            pass
        await store.write(batch(end(item=0)))
        for suffix in ("", *beside):
            Path(f"{file}{suffix}").unlink()
        await write(store, batch(end(item=1)))
        await write(store, batch(end(item=2)))
        async with open_store(f"sqlite:///{file}", clock=Clock()) as reader:
            assert sorted(run.item for run in (await reader.history()).rows) == [1, 2]
        assert sorted(run.item for run in (await store.history()).rows) == [1, 2]

    play(f"sqlite:///{file}", scene)
    assert f"the file {file} of the event store was removed or replaced while it was in use" in caplog.messages[0]


def test_rows_go_into_the_file_that_has_taken_the_place_of_the_old_one(
    file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = tmp_path / "backup.db"

    async def scene(store: EventStore) -> None:
        async with open_store(f"sqlite:///{other}", clock=Clock()) as backup:
            await backup.write(batch(end(item=7)))
        await store.write(batch(end(item=0)))
        for suffix in ("-wal", "-shm"):
            Path(f"{file}{suffix}").unlink()
        other.replace(file)
        await store.write(batch(end(item=1)))  # at the first attempt: the tables are there
        assert sorted(run.item for run in (await store.history()).rows) == [1, 7]

    play(f"sqlite:///{file}", scene)
    assert len(caplog.messages) == 1


def test_a_reader_sees_the_file_that_is_there_and_not_the_one_that_was(file: Path, tmp_path: Path) -> None:
    async def scene(store: EventStore) -> None:
        async with open_store(f"sqlite:///{file}", clock=Clock()) as reader:
            await store.write(batch(end(item=0)))
            assert await reader.counts() == {"completed": 1}
            shutil.rmtree(tmp_path)
            tmp_path.mkdir()
            await write(store, batch(*(end(item=item) for item in range(3))))
            assert await reader.counts() == {"completed": 3}

    play(f"sqlite:///{file}", scene)


def test_a_query_that_goes_on_in_the_old_file_ends_before_the_new_one_is_opened(file: Path) -> None:
    """SQLite would truncate a file beside the database that the query still uses, which ends the process."""

    async def scene(store: EventStore) -> None:
        await store.write(batch(*(end(NOON + 1000 * n) for n in range(300))))
        async with store._connected() as connection:
            await connection.exec_driver_sql("SELECT count(*) FROM job_execution_log")
            file.unlink()
            await write(store, batch(end(item=1)))
            with pytest.raises(Exception, match="no active connection"):
                await connection.exec_driver_sql("SELECT count(*) FROM job_execution_log")
        assert await store.counts() == {"completed": 1}

    play(f"sqlite:///{file}", scene)


def test_stores_that_notice_the_loss_at_the_same_moment_write_all_rows(file: Path) -> None:
    async def scene(store: EventStore) -> None:
        await store.write(batch(end(item=100)))
        async with store._connected(), store._connected(), store._connected():
            pass
        file.unlink()
        async with create_task_group() as tasks:
            for item in range(5):
                tasks.start_soon(write_until_done, store, item)
        assert sorted(run.item for run in (await store.history()).rows) == list(range(5))

    async def write_until_done(store: EventStore, item: int) -> None:
        for _ in range(20):
            try:
                return await store.write(batch(end(item=item)))
            except EventStoreUnreachable as error:
                if error.refused:
                    raise
        raise AssertionError("it is never written")

    play(f"sqlite:///{file}", scene)


TABLES = ("job_execution_log", "job_status_trace_log")


@pytest.mark.parametrize("dropped", [TABLES[:1], TABLES[1:], TABLES, (*TABLES, "aioelasticjob_schema")])
def test_tables_that_were_dropped_are_made_again_while_the_application_runs(
    url: str, dropped: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(store: EventStore) -> None:
        await store.write(batch(end(item=0)))
        await drop(store, *dropped)
        await write(store, batch(end(item=1)))
        assert 1 in {run.item for run in (await store.history()).rows}
        assert len((await store.states()).rows) == (1 if "job_status_trace_log" in dropped else 2)

    play(url, scene)
    lost = ", ".join(table for table in TABLES if table in dropped)
    (line,) = caplog.messages
    assert line.endswith(f" had lost tables, which were made again and are empty: {lost}")


@pytest.mark.parametrize("dropped", [TABLES[:1], TABLES[1:], TABLES])
def test_tables_that_were_dropped_are_made_again_at_the_start(
    url: str, dropped: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    async def leave(store: EventStore) -> None:
        await store.write(batch(end(item=0)))
        await drop(store, *dropped)

    async def begin(store: EventStore) -> None:
        await store.write(batch(end(item=1)))
        assert 1 in {run.item for run in (await store.history()).rows}

    play(url, leave)
    assert not caplog.messages
    play(url, begin)
    assert caplog.messages[0].endswith(f"which were made again and are empty: {', '.join(dropped)}")


def test_a_column_that_was_dropped_is_added_again(postgres_url: str) -> None:
    async def scene(store: EventStore) -> None:
        await store.write(batch(end(item=0)))
        async with store._writing() as connection:
            await connection.execute(text("ALTER TABLE job_execution_log DROP COLUMN seconds"))
        await write(store, batch(end(item=1)))
        assert [run.seconds for run in (await store.history()).rows if run.item == 1] == [2.0]
        assert len((await store.history()).rows) == 2

    play(postgres_url, scene)


def test_the_tables_of_a_new_database_are_no_loss(url: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(store: EventStore) -> None:
        await store.write(batch(end()))

    play(url, scene)
    assert not caplog.messages
