"""The index: one SQLite database that many processes write to, each file in it once."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager

from aioelasticjob.demo.files import Facts
from aioelasticjob.errors import ElasticJobError, ForeignData

APPLICATION = 0x456A4958
"""What marks a database as ours (PRAGMA application_id): "EjIX"."""
LOCK_TIMEOUT = 30
"""Seconds to wait for another writer."""

_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS files (
    path      TEXT PRIMARY KEY,  -- relative to the directory; a BLOB where the name is no UTF-8
    size      INTEGER NOT NULL,
    changed   INTEGER NOT NULL,  -- ctime in nanoseconds
    lines     INTEGER,
    functions INTEGER,
    sha256    TEXT,
    problem   TEXT
);
CREATE TABLE IF NOT EXISTS fences (
    item  INTEGER PRIMARY KEY,
    fence INTEGER NOT NULL       -- the largest one seen: whoever comes with a smaller one has lost the item
);
PRAGMA application_id = {APPLICATION};
"""
_STORE = """
INSERT INTO files VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (path) DO UPDATE SET size = excluded.size, changed = excluded.changed, lines = excluded.lines,
    functions = excluded.functions, sha256 = excluded.sha256, problem = excluded.problem
"""


class Superseded(ElasticJobError):
    """A later holder of the item has written to the database, so this run was cut off and must not write."""

    def __init__(self, item: int, fence: int, newest: int) -> None:
        super().__init__(
            f"item {item} was taken over (fence {fence}, the database has seen {newest}): this run is void;"
            " if the registry was set up anew, remove the database"
        )
        self.item = item
        self.fence = fence
        self.newest = newest


class Index:
    """An open database; belongs to the thread that opened it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def files(self) -> Mapping[str, Facts]:
        """Return everything indexed."""
        rows = self._connection.execute("SELECT * FROM files")
        return {_name(path): Facts(*facts) for path, *facts in rows}

    def paths(self) -> list[str]:
        """Return the path of every row."""
        return [_name(path) for (path,) in self._connection.execute("SELECT path FROM files")]

    def newer(self, row: int) -> list[tuple[int, str]]:
        """Return the rows that were added after row number ``row``, as number and path."""
        rows = self._connection.execute("SELECT rowid, path FROM files WHERE rowid > ? ORDER BY rowid", (row,))
        return [(number, _name(path)) for number, path in rows]

    def store(self, item: int, fence: int, found: Mapping[str, Facts], gone: Iterable[str] = ()) -> None:
        """Write some files and forget others, all or nothing.

        Raises:
            Superseded: a run with a larger fence has been here.
        """
        rows = [
            (_key(path), one.size, one.changed, one.lines, one.functions, one.sha256, one.problem)
            for path, one in found.items()
        ]
        forgotten = [(_key(path),) for path in gone]
        with _transaction(self._connection):
            self._pass_fence(item, fence)
            self._connection.executemany(_STORE, rows)
            self._connection.executemany("DELETE FROM files WHERE path = ?", forgotten)

    def clear(self) -> None:
        """Remove all files and fences."""
        with _transaction(self._connection):
            self._connection.execute("DELETE FROM files")
            self._connection.execute("DELETE FROM fences")

    def _pass_fence(self, item: int, fence: int) -> None:
        seen = self._connection.execute("SELECT fence FROM fences WHERE item = ?", (item,)).fetchone()
        if seen is not None and seen[0] > fence:
            raise Superseded(item, fence, seen[0])
        self._connection.execute("INSERT OR REPLACE INTO fences VALUES (?, ?)", (item, fence))


@contextmanager
def open_index(path: str) -> Iterator[Index]:
    """Open the database, making it if there is none.

    Raises:
        ForeignData: the file is not one of ours; it is left as it is.
    """
    try:
        connection = sqlite3.connect(path, timeout=LOCK_TIMEOUT, isolation_level=None)
    except sqlite3.Error as error:
        raise ForeignData("database", path, f"cannot be opened: {error}") from None
    with closing(connection):
        _prepare_patiently(connection, path)
        yield Index(connection)


def _prepare_patiently(connection: sqlite3.Connection, path: str) -> None:
    """Prepare again for as long as the database is locked.

    SQLite waits for writers by itself, but not while another process switches to write-ahead logging, repairs the log
    of one that was killed, or is the last to close (sqlite.org/wal.html#busy).
    """
    deadline = time.monotonic() + LOCK_TIMEOUT
    while True:
        try:
            return _prepare(connection, path)
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        except sqlite3.DatabaseError:
            raise ForeignData("database", path, "is no SQLite database: name another file") from None


def _prepare(connection: sqlite3.Connection, path: str) -> None:
    # In this order: whoever makes the database meanwhile commits its tables and its mark at once.
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION and (application or tables):
        raise ForeignData("database", path, "is the database of another program: name another file")
    connection.execute("PRAGMA journal_mode = WAL")  # readers and a writer work side by side
    if application != APPLICATION:
        with _transaction(connection):
            for statement in filter(None, _SCHEMA.split(";\n")):
                connection.execute(statement)
    connection.execute("PRAGMA synchronous = NORMAL")


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")  # wait for other writers now, not in the middle of the transaction
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _key(path: str) -> str | bytes:
    try:
        path.encode()
    except UnicodeEncodeError:
        return os.fsencode(path)
    return path


def _name(key: str | bytes) -> str:
    return os.fsdecode(key) if isinstance(key, bytes) else key
