"""A SQLite file that cannot be written is read, and nothing is made beside it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from aioelasticjob.console.language.messages import messages
from aioelasticjob.observers.sql import EventStoreUnreachable, open_store
from aioelasticjob.observers.sql import sqlite as module
from tests.observers.sample_events import Clock, batch, end


def _fill(url: str) -> None:
    async def main() -> None:
        async with open_store(url, clock=Clock()) as store:
            await store.write(batch(end()))

    asyncio.run(main())


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let it look as if nothing could be written: root may write everywhere."""
    return lambda: monkeypatch.setattr(module, "access", lambda path, how: False)


@pytest.mark.parametrize("name", ["events.db", "what is this#%20.db"])
def test_a_file_at_rest_is_read_without_files_beside_it(tmp_path: Path, locked: Callable[[], None], name: str) -> None:
    url = f"sqlite:///{tmp_path}/{name}"
    _fill(url)
    locked()

    async def main() -> None:
        async with open_store(url, clock=Clock()) as store:
            before = sorted(tmp_path.iterdir())
            assert await store.counts() == {"completed": 1}
            assert sorted(tmp_path.iterdir()) == before
            with pytest.raises(EventStoreUnreachable, match="readonly"):
                await store.write(batch(end(item=1)))
            assert await store.counts() == {"completed": 1}

    asyncio.run(main())


def test_a_file_that_somebody_else_writes_is_read_with_what_is_new(sqlite_url: str, locked: Callable[[], None]) -> None:
    async def main() -> None:
        async with open_store(sqlite_url, clock=Clock()) as writer:
            await writer.write(batch(end()))
            locked()
            async with open_store(sqlite_url, clock=Clock()) as reader:
                assert await reader.counts() == {"completed": 1}
                await writer.write(batch(end(item=1)))  # its connection is from before
                assert await reader.counts() == {"completed": 2}

    asyncio.run(main())


def test_a_file_without_wal_that_cannot_be_written_is_left_as_it_is(
    sqlite_url: str, locked: Callable[[], None]
) -> None:
    _fill(sqlite_url)
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as db:
        db.execute("pragma journal_mode = delete")
    locked()

    async def main() -> None:
        async with open_store(sqlite_url, clock=Clock()) as store:
            assert await store.counts() == {"completed": 1}

    asyncio.run(main())


def test_the_message_says_what_to_do_where_it_cannot_be_opened(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("unable to open database file")

    async def main() -> None:
        async with open_store(sqlite_url, clock=Clock()) as store:
            monkeypatch.setattr(sqlite3, "connect", refuse)
            with pytest.raises(EventStoreUnreachable, match="copy the file with the -wal beside it") as found:
                await store.counts()
            assert "请使其目录可写" in messages("zh")(found.value.reason)

    asyncio.run(main())
