"""The console's own database: SQLite in its data directory, used in a thread so that no page blocks the loop."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from os.path import samestat
from pathlib import Path
from typing import Final, TypeVar

import anyio
from anyio import to_thread

from aioelasticjob.errors import ElasticJobError
from aioelasticjob.ground.limited_log import MOST, LimitedLog
from aioelasticjob.logging import logger

T = TypeVar("T")

UNWRITABLE: Final = {
    *(sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR),
    *(sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_PERM),
}
"""What SQLite says if it cannot write: other errors are mistakes of ours."""
FILE_LOST: Final = "its file was removed or replaced: put it back, or start the console again"
FILE: Final = "console.db"
VERSION: Final = 5
GRANTS: Final = """
create table grants (
    user text not null collate nocase references users(name) on delete cascade, registry text not null,
    role text not null, primary key (user, registry)
);
"""
ACCESS: Final = "alter table registries add column access text;\n"
"""Credentials and certificates besides the digest, as JSON."""
ACKNOWLEDGEMENTS: Final = """
create table acknowledgements (
    registry text not null, job text not null, subject text not null, details text not null, who text not null,
    note text not null, at real not null, until real not null, primary key (registry, job, subject)
);
"""
LABELS: Final = """
alter table grants rename to former_grants;
create table grants (
    user text not null collate nocase references users(name) on delete cascade, registry text not null,
    label text not null, role text not null, primary key (user, registry, label)
);
insert into grants select user, registry, '', role from former_grants;
drop table former_grants;
"""
"""A grant with a label is about the jobs that have it; with an empty one, about the whole registry."""
UPGRADES: Final = {
    # operators of version 1 might also add registries and invite others
    1: "update users set role = 'admin' where role = 'operator';\n"
    "update invitations set role = 'admin' where role = 'operator';\n" + GRANTS,
    2: ACCESS,
    3: ACKNOWLEDGEMENTS,
    # operators of version 4 might also change what runs
    4: LABELS + "update users set role = 'developer' where role = 'operator';\n"
    "update grants set role = 'developer' where role = 'operator';\n"
    "update invitations set role = 'developer' where role = 'operator';\n",
}
"""By version, the statements that lead to the next one."""
SCHEMA: Final = """
create table users (
    name text primary key collate nocase, role text not null, password text, created real not null,
    disabled integer not null default 0
);
create table sessions (
    id text primary key, user text not null collate nocase references users(name) on delete cascade,
    agent text not null, created real not null, seen real not null
);
create table invitations (
    token text primary key, user text collate nocase, role text not null, expires real not null
);
create table registries (
    name text primary key, address text not null, digest text, event_store text
);
create table secrets (name text primary key, value text not null);
create table audit (
    id integer primary key, at real not null, who text not null, address text not null, registry text not null,
    action text not null, target text not null, asked text not null, before text not null
);
create table audit_outcomes (
    id integer primary key references audit(id), at real not null, done integer not null, summary text not null,
    after text not null
);
create trigger audit_is_not_rewritten before update on audit begin select raise(abort, 'the audit log only grows'); end;
create trigger audit_is_not_shortened before delete on audit begin select raise(abort, 'the audit log only grows'); end;
create trigger outcomes_are_not_rewritten before update on audit_outcomes
    begin select raise(abort, 'the audit log only grows'); end;
create trigger outcomes_are_not_shortened before delete on audit_outcomes
    begin select raise(abort, 'the audit log only grows'); end;
"""

log = logger(__name__)


class DataUnusable(ElasticJobError):
    """The console's data directory cannot be used."""

    def __init__(self, directory: Path, reason: str) -> None:
        super().__init__(f"{directory}: {reason}: name another one with --data-dir")
        self.directory = directory
        self.reason = reason


class DatabaseUnwritable(ElasticJobError):
    """The console's own database cannot be written."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the console's own database cannot be written ({reason}), so nothing was changed in the registry:"
            " free space on the disk of its data directory, or make the directory writable"
        )
        self.reason = reason


class _FileLost(Exception):
    """The file that the connection writes is not in the data directory any more."""


class Database:
    """One connection, used by one thread at a time.

    Raises:
        DatabaseUnwritable: by ``run``, for instance if the disk is full; nothing of the transaction was written.
    """

    def __init__(self, connection: sqlite3.Connection, file: Path) -> None:
        self._connection = connection
        self._turn = anyio.Lock()
        self._file = file
        self._opened = file.stat()
        self.problem: str | None = None
        """Why the newest transaction could not be written; None since one has been."""
        self.limited_log = LimitedLog()
        """Limits the lines that can repeat.  ``open_database`` closes it."""

    def newest_problem(self) -> str | None:
        """Return why the database cannot be used, also if its file has gone since the newest transaction."""
        return self.problem or (FILE_LOST if self._is_lost() else None)

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return what ``work`` returns, as one transaction in a thread."""
        async with self._turn:
            try:
                found, has_written = await to_thread.run_sync(self._transact, work)
            except sqlite3.OperationalError as error:
                if getattr(error, "sqlite_errorcode", 0) & 0xFF not in UNWRITABLE:
                    raise
                self._tell(str(error))
                raise DatabaseUnwritable(str(error)) from error
            except _FileLost as error:
                self._tell(FILE_LOST)
                raise DatabaseUnwritable(FILE_LOST) from error
        if has_written:
            self._tell(None)
        return found

    def _transact(self, work: Callable[[sqlite3.Connection], T]) -> tuple[T, bool]:
        before = self._connection.total_changes
        with self._connection:
            found = work(self._connection)
            has_written = self._connection.total_changes != before
            if has_written and self._is_lost():  # nobody would find what was written into the old file
                raise _FileLost
        return found, has_written

    def _is_lost(self) -> bool:
        try:
            return not samestat(self._file.stat(), self._opened)
        except OSError:
            return True

    def _tell(self, problem: str | None) -> None:
        """Note whether the database can be written, and log that if it has changed."""
        if problem == self.problem:
            return
        self.problem = problem
        text = "the console's own database can be written again"
        if problem is not None:
            text = f"the console's own database cannot be written: {problem}; nobody can sign in or change anything"
        if self.limited_log.admits(log, None, "the console's own database comes and goes", each=MOST, newest=text):
            log.warning("%s", text, extra={"reason": problem or ""})


@asynccontextmanager
async def open_database(directory: Path) -> AsyncIterator[Database]:
    """Open the database of a data directory, readable by its owner only; both are made where they are missing.

    Raises:
        DataUnusable: the directory cannot be written, or holds the data of a newer console.
    """
    connection = await to_thread.run_sync(_connect, directory)
    database = Database(connection, directory / FILE)
    try:
        yield database
    finally:
        database.limited_log.close()
        connection.close()


def _connect(directory: Path) -> sqlite3.Connection:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = directory / FILE
        os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))  # SQLite itself would let others read it
        connection = sqlite3.connect(file, timeout=10, check_same_thread=False)
    except (OSError, sqlite3.Error) as error:
        raise DataUnusable(directory, str(error)) from error
    try:
        connection.row_factory = sqlite3.Row
        connection.executescript("pragma journal_mode=wal; pragma synchronous=full; pragma foreign_keys=on;")
        _upgrade(connection, directory)
    except sqlite3.Error as error:
        connection.close()
        raise DataUnusable(directory, str(error)) from error
    except DataUnusable:
        connection.close()
        raise
    return connection


def _upgrade(connection: sqlite3.Connection, directory: Path) -> None:
    connection.execute("begin immediate")  # two consoles that start at once: the second finds everything made
    (version,) = connection.execute("pragma user_version").fetchone()
    if version > VERSION:
        connection.rollback()
        raise DataUnusable(directory, f"was written by a newer console (data version {version}, known is {VERSION})")
    scripts = [SCHEMA, GRANTS, ACCESS, ACKNOWLEDGEMENTS, LABELS]
    if version:
        scripts = [UPGRADES[old] for old in range(version, VERSION)]
    for script in scripts:
        for statement in _statements(script):
            connection.execute(statement)
    connection.execute(f"pragma user_version = {VERSION}")
    connection.commit()


def _statements(script: str) -> list[str]:
    found = list[str]()
    current = ""
    for line in script.strip().splitlines():
        current += line + "\n"
        if sqlite3.complete_statement(current):
            found.append(current)
            current = ""
    return found
