"""What survives the process: znodes, sessions and the last zxid in one SQLite file, one commit per batch.

The file holds the state, not a log: a batch writes the newest row of every znode it touched.  Write-ahead log with
synchronous=FULL, so a commit that returned is on the disk.
"""

import errno
import secrets
import sqlite3
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile

from aioelasticjob.zookeeper.acl import Acl, AclList, intern
from aioelasticjob.zookeeper.datatree import DataTree
from aioelasticjob.zookeeper.jute import Reader
from aioelasticjob.zookeeper.lock import LOCK, LOG
from aioelasticjob.zookeeper.messages import read_acl
from aioelasticjob.zookeeper.replies import acls
from aioelasticjob.zookeeper.znode import Znode

FILE = "zookeeper.sqlite3"
_OURS = {FILE, f"{FILE}-wal", f"{FILE}-shm", f"{FILE}-journal", LOCK, LOG}
_APPLICATION = 0x5A4B6169  # "ZKai"
_SCHEMA_VERSION = 1
ROOM = 1024 * 1024
"""Bytes that have to be free when a server starts."""
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The errors after which there is no room: a full disk, a quota, or a limit of the size of files."""
_SCHEMA = """
CREATE TABLE znode (
    path TEXT PRIMARY KEY, data BLOB, acl BLOB NOT NULL, owner INTEGER NOT NULL,
    czxid INTEGER NOT NULL, mzxid INTEGER NOT NULL, pzxid INTEGER NOT NULL,
    ctime INTEGER NOT NULL, mtime INTEGER NOT NULL,
    version INTEGER NOT NULL, cversion INTEGER NOT NULL, aversion INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE session (id INTEGER PRIMARY KEY, timeout INTEGER NOT NULL);
CREATE TABLE server (only INTEGER PRIMARY KEY CHECK (only = 1), zxid INTEGER NOT NULL, secret BLOB NOT NULL);
"""
_REPLACE_ZNODE = f"REPLACE INTO znode VALUES ({', '.join('?' * 12)})"
_DELETE_ZNODE = "DELETE FROM znode WHERE path = ?"

Row = tuple[str, bytes | None, bytes, int, int, int, int, int, int, int, int, int]


class StoreError(Exception):
    """A data directory that cannot be used; the message says why and what to do."""


@dataclass(slots=True)
class Changes:
    """The changes that one commit writes; a later change of the same node or session replaces an earlier one."""

    zxid: int
    znodes: dict[str, Row | None] = field(default_factory=dict)
    sessions: dict[int, int | None] = field(default_factory=dict)

    def add(self, other: "Changes") -> None:
        """Add changes that came after these."""
        self.zxid = other.zxid
        self.znodes |= other.znodes
        self.sessions |= other.sessions


@dataclass(slots=True)
class Stored:
    """The content of a store when it was opened."""

    zxid: int
    secret: bytes
    sessions: dict[int, int]
    tree: DataTree


class Store:
    """One open data directory.  Used by one thread at a time."""

    def __init__(self, connection: sqlite3.Connection, directory: Path) -> None:
        self._connection = connection
        self._directory = directory

    def load(self, *, extended_types: bool = True) -> Stored:
        """Read everything.

        Raises: StoreError if the file is damaged.
        """
        try:
            return self._read(extended_types=extended_types)
        except sqlite3.Error as error:
            raise StoreError(_explain(error, self._directory)) from error

    def _read(self, *, extended_types: bool) -> Stored:
        zxid, secret = self._connection.execute("SELECT zxid, secret FROM server").fetchone()
        sessions = dict(self._connection.execute("SELECT id, timeout FROM session").fetchall())
        tree = DataTree(extended_types=extended_types)
        # In order of creation, which is the order of children; by path within a transaction: parents first.
        for row in self._connection.execute("SELECT * FROM znode ORDER BY czxid, path"):
            tree.restore(row[0], _znode(row))
        tree.zxid = zxid
        tree.take_dirty()
        return Stored(zxid, secret, sessions, tree)

    def commit(self, changes: Changes) -> None:
        """Write a batch; when this returns, it is on the disk.

        Raises: StoreError if it cannot be written, for instance because the disk is full or the file is damaged.
        """
        try:
            self._write(changes)
        except sqlite3.Error as error:
            raise StoreError(f"cannot write {self._directory / FILE}: {error}") from error

    def _write(self, changes: Changes) -> None:
        connection = self._connection
        znodes = changes.znodes.items()
        present_znodes = [row for _, row in znodes if row is not None]
        gone_znodes = [(path,) for path, row in znodes if row is None]
        sessions = changes.sessions.items()
        living_sessions = [(session, timeout) for session, timeout in sessions if timeout is not None]
        ended_sessions = [(session,) for session, timeout in sessions if timeout is None]
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.executemany(_REPLACE_ZNODE, present_znodes)
            connection.executemany(_DELETE_ZNODE, gone_znodes)
            connection.executemany("REPLACE INTO session VALUES (?, ?)", living_sessions)
            connection.executemany("DELETE FROM session WHERE id = ?", ended_sessions)
            connection.execute("UPDATE server SET zxid = ?", (changes.zxid,))
            connection.execute("COMMIT")
        except BaseException:
            connection.rollback()
            raise

    def close(self) -> None:
        """Let go of the directory."""
        self._connection.close()


def prepare(directory: Path) -> None:
    """Make the directory if it is absent.

    Raises: StoreError if it belongs to another program or cannot be used.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        foreign = sorted(entry.name for entry in directory.iterdir() if entry.name not in _OURS)
    except OSError as error:
        raise StoreError(f"cannot use {directory} as data directory: {error.strerror or error}") from error
    if foreign:
        raise StoreError(f"{directory} holds files of another program ({foreign[0]}): choose an empty directory")


def check_room(directory: Path) -> None:
    """Check that something can be written: otherwise a server would start, and end at its first write.

    Raises: StoreError if the disk is full.
    """
    try:
        with TemporaryFile(dir=directory, buffering=0) as file:
            left = memoryview(bytes(ROOM))
            while left:  # as long as there is some room, a part is written without an error
                left = left[file.write(left) :]
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise StoreError(f"cannot write in {directory}: {error.strerror or error}") from error
        why = f"{ROOM // 1024:,} KiB cannot be written in {directory} ({error.strerror})"
        raise StoreError(f"the disk is full: {why}; make room, or choose another directory") from error


def open_store(directory: Path) -> Store:
    """Open a data directory for this process alone; one that is absent or empty is prepared.

    Raises: StoreError if it belongs to another program or is in use, or if the disk is full.
    """
    prepare(directory)
    check_room(directory)
    try:
        # One that is there is not opened: closing it would end this process's locks on it.
        with suppress(FileExistsError):
            (directory / FILE).touch(0o600, exist_ok=False)  # SQLite itself would let others read it
        # Whichever thread uses it, only one does so at a time.
        connection = sqlite3.connect(directory / FILE, isolation_level=None, check_same_thread=False, timeout=0)
        try:
            _prepare(connection, directory)
        except BaseException:
            connection.close()
            raise
    except OSError as error:
        raise StoreError(f"cannot open {directory / FILE}: {error.strerror or error}") from error
    except sqlite3.Error as error:
        raise StoreError(_explain(error, directory)) from error
    return Store(connection, directory)


def rows(tree: DataTree, paths: Iterable[str]) -> dict[str, Row | None]:
    """Write out the present state of some znodes; one that is gone has no row."""
    found = dict[str, Row | None]()
    for path in paths:
        node = tree.nodes.get(path)
        found[path] = None if node is None else _row(path, node)
    return found


def _prepare(connection: sqlite3.Connection, directory: Path) -> None:
    # Held from the first read until the process ends, however it ends: one server per directory.
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("BEGIN EXCLUSIVE")
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    fresh = application == 0 and tables == 0
    if not fresh and application != _APPLICATION:
        raise StoreError(f"{directory / FILE} is the database of another program: choose an empty data directory")
    if not fresh and version != _SCHEMA_VERSION:
        raise StoreError(f"{directory / FILE} was written by another version of this server (format {version})")
    if fresh:
        for statement in _SCHEMA.split(";\n"):
            connection.execute(statement)
        connection.execute("INSERT INTO server VALUES (1, 0, ?)", (secrets.token_bytes(32),))
        connection.execute(f"PRAGMA application_id = {_APPLICATION}")
        connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
    connection.execute("COMMIT")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")


def _explain(error: sqlite3.Error, directory: Path) -> str:
    if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
        return f"{directory} is in use by another server: stop it or choose another data directory"
    if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
        return f"{directory / FILE} is not a database of this server: choose an empty data directory"
    if error.sqlite_errorcode == sqlite3.SQLITE_CORRUPT:
        return f"{directory / FILE} is damaged ({error}): put a copy of it back, or choose an empty data directory"
    return f"cannot open {directory / FILE}: {error}"


def _row(path: str, node: Znode) -> Row:
    return (
        path,
        node.data,
        acls(node.acl),
        node.owner,
        node.czxid,
        node.mzxid,
        node.pzxid,
        node.ctime,
        node.mtime,
        node.version,
        node.cversion,
        node.aversion,
    )


def _znode(row: Row) -> Znode:
    _, data, acl, owner, czxid, mzxid, pzxid, ctime, mtime, version, cversion, aversion = row
    node = Znode(data, _acl(acl), owner, czxid, ctime)
    node.mzxid = mzxid
    node.pzxid = pzxid
    node.mtime = mtime
    node.version = version
    node.cversion = cversion
    node.aversion = aversion
    return node


def _acl(encoded: bytes) -> AclList:
    entries: list[Acl] = read_acl(Reader(encoded)) or []
    return intern(tuple(entries))
