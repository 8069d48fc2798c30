"""The engine of SQLite: one file, one writer at a time, and connections that end whatever is cancelled.

A file that cannot be written is opened for reading only, since SQLite otherwise makes files beside it.  A file that is
removed or replaced while it is open is noticed before each transaction: SQLite would go on with the old one, which
nobody finds any more.
"""

from __future__ import annotations

import sqlite3
from asyncio import Future, wait
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from os import W_OK, access, stat
from pathlib import Path
from threading import Thread
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote
from weakref import WeakSet

from aiosqlite import Connection as SqliteConnection
from sqlalchemy import URL, Connection, NullPool, event
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.util import await_only

from aioelasticjob.ground.limited_log import MOST, LimitedLog
from aioelasticjob.logging import logger

ATTEMPTS = 20
"""How often a connection tries to switch a file to WAL."""
WAL_SIZE = 16 * 1024 * 1024
"""Bytes to which the WAL is shortened when SQLite begins it anew: a slow reader makes it long."""


T = TypeVar("T")
Place: TypeAlias = tuple[int, int]
"""Which file is at a path: the device, and the number that the file has there."""

log = logger(__name__)


def sqlite_engine(url: URL, options: Mapping[str, Any], limited_log: LimitedLog) -> AsyncEngine:
    """Return the engine of a file.

    Of the options, ``timeout`` is how many seconds a transaction waits for another one.
    """
    connections = _Connections(limited_log)
    # a file that cannot be written is opened anew each time: whether somebody else writes it decides how
    pool: dict[str, Any] = {} if _for_reading(url.database or "") is None else {"poolclass": NullPool}
    arguments = {**options, "async_creator_fn": connections.open}
    engine = create_async_engine(url, hide_parameters=True, connect_args=arguments, **pool)
    event.listen(engine.sync_engine, "connect", _set_up)
    event.listen(engine.sync_engine, "begin", _begin)
    event.listen(engine.sync_engine, "checkout", partial(_see_the_file, connections))
    event.listen(engine.sync_engine, "engine_disposed", lambda _: await_only(connections.end()))
    return engine


class _Connections:
    """The connections of an engine, also those that it does not know any more because their use was cancelled."""

    def __init__(self, limited_log: LimitedLog) -> None:
        self._opened: WeakSet[_Connection] = WeakSet()
        self._limited_log = limited_log

    async def open(self, database: str, **options: Any) -> SqliteConnection:
        """Open the file, after all connections to a lost file have ended.

        SQLite may truncate a file beside the database as it opens it, and the others would still use that file.
        """
        reading = _for_reading(database)
        given = options if reading is None else {**options, "uri": True}
        while True:
            connection = _Connection(lambda: sqlite3.connect(reading or database, **given), list(self._opened))
            connection.only_reads = reading is not None
            self._opened.add(connection)
            try:
                return await connection
            except _FileLost as error:
                await self._leave(error.connections)

    async def end(self) -> None:
        """Wait until all threads end."""
        await _end(self._opened)

    async def see_the_file(self, connection: _Connection) -> bool:
        """Whether a connection's file is still at its path; if not, all connections to it end."""
        if connection.is_stopped:
            return False
        lost = await connection.run(partial(_lost, list(self._opened)))
        await self._leave(lost)
        return connection not in lost

    async def _leave(self, lost: Sequence[_Connection]) -> None:
        """Wait until the connections to a lost file have ended; who notices the loss first logs it."""
        text = "of the event store was removed or replaced while it was in use"
        is_news = any(not connection.is_stopped for connection in lost)
        if is_news and self._limited_log.admits(log, None, f"the file {text}", each=MOST):
            path = lost[0].path
            cost = "what was written to it until now is not in the file that is there from now on"
            log.warning("the file %s %s: %s", path, text, cost, extra={"file": path})
        await _end(lost)


class _FileLost(Exception):
    """Other connections have opened a file that is not there any more."""

    def __init__(self, connections: Sequence[_Connection]) -> None:
        super().__init__()
        self.connections = connections


class _Connection(SqliteConnection):
    """A connection with one thread, which is asked to stop only once, and closes the file whatever happens.

    If closing a connection is cancelled, SQLAlchemy stops it a second time; who waited for that answer would wait for
    ever, as the thread has ended: https://github.com/wapiti-scanner/wapiti/issues/802.
    """

    only_reads = False
    """Whether the file was opened for reading only."""
    path = ""
    """The path of the file; empty until it was opened, and for a database in memory."""
    place: Place | None = None
    """Which file was opened."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], others: Sequence[_Connection]) -> None:
        super().__init__(self._open, iter_chunk_size=64)
        self._connect_to_file = connect
        self._others = others
        self._file: sqlite3.Connection | None = None
        self._stopped: Future[Any] | None = None
        self._answer_calls = self._thread.run
        self._thread = Thread(target=self._run, daemon=True)  # a disk that does not answer holds up no process

    def stop(self) -> Future[Any] | None:
        """Return what is done when the thread ends."""
        self._stopped = self._stopped or super().stop()
        return self._stopped

    @property
    def is_stopped(self) -> bool:
        """Whether it was asked to stop."""
        return self._stopped is not None

    @property
    def is_closed(self) -> bool:
        """Whether it has closed the file."""
        return self._stopped is not None and self._stopped.done()

    async def run(self, work: Callable[[], T]) -> T:
        """Return what ``work`` returns in the thread: a disk may be slow."""
        found: T = await self._execute(work)  # type: ignore[no-untyped-call]
        return found

    def _open(self) -> sqlite3.Connection:
        others = self._others
        self._others = ()
        lost = _lost(others)
        if lost:
            raise _FileLost(lost)
        self._file = self._connect_to_file()
        (_, _, self.path) = self._file.execute("PRAGMA database_list").fetchone()
        self.place = _place(self.path)
        return self._file

    def _run(self) -> None:
        with suppress(RuntimeError):  # the event loop was closed meanwhile: nobody waits for the answer
            self._answer_calls()
        if self._file is not None:  # if opening it was cancelled, nobody else knows it
            self._file.close()


async def _end(connections: Iterable[_Connection]) -> None:
    stopped = [stopped for connection in connections if (stopped := connection.stop()) is not None]
    if stopped:
        await wait(stopped)


def _lost(connections: Iterable[_Connection]) -> list[_Connection]:
    """Return the connections whose file was removed or replaced."""
    opened = [one for one in connections if one.path and not one.is_closed]
    return [one for one in opened if _place(one.path) != one.place]


def _place(path: str) -> Place | None:
    try:
        found = stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _see_the_file(connections: _Connections, connection: Any, record: object, proxy: object) -> None:
    """Refuse a connection whose file was removed or replaced, so that a new one is opened."""
    if not await_only(connections.see_the_file(connection.driver_connection)):
        raise DisconnectionError("the file was removed or replaced")


def _for_reading(database: str) -> str | None:
    """Return how to open a file that cannot be written; None for another one.

    If no process can be writing to it, it is opened as unchanging: then SQLite needs no file beside it.
    """
    file = Path(database)
    if not file.is_file() or (access(file, W_OK) and access(file.parent, W_OK)):
        return None
    log, index = (Path(f"{database}{suffix}") for suffix in ("-wal", "-shm"))
    at_rest = not index.exists() and not (log.exists() and log.stat().st_size)
    return f"file:{quote(str(file.absolute()))}?mode=ro{'&immutable=1' if at_rest else ''}"


def _set_up(connection: Any, record: object) -> None:
    # otherwise Python's module decides when a transaction begins, and leaves DDL out of it
    connection.isolation_level = None
    cursor = connection.cursor()
    if not connection.driver_connection.only_reads:
        _let_read_while_written(cursor)
    # a power cut may lose the last transactions, but never damages the file
    cursor.execute("PRAGMA synchronous = NORMAL")
    cursor.close()


def _let_read_while_written(cursor: Any) -> None:
    """Switch the file to WAL, so that readers need not wait for writers.

    Connections that make this switch of a new file at the same moment wait for each other until the timeout.  So nobody
    waits here.  It does no harm if the switch is left to the next connection.
    """
    cursor.execute("PRAGMA busy_timeout")
    (timeout,) = cursor.fetchone()
    cursor.execute("PRAGMA busy_timeout = 0")
    for _ in range(ATTEMPTS):
        with suppress(sqlite3.OperationalError):
            cursor.execute("PRAGMA journal_mode = WAL")
            break
    cursor.execute(f"PRAGMA busy_timeout = {timeout}")
    cursor.execute(f"PRAGMA journal_size_limit = {WAL_SIZE}")


def _begin(connection: Connection) -> None:
    """Take the write lock first: SQLite refuses a transaction that asks for it later at once, whatever its timeout."""
    connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get("writing") else "BEGIN")
