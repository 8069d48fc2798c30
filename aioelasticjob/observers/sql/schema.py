"""The two tables that Elastic-Job's users know, and the upgrade of older tables to their present shape.

The tables have the names and columns of Elastic-Job 3; our own columns come after them and may be empty.  So tables
that Elastic-Job has made can be used together with their rows, and it can go on writing them.  Times are in UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    DateTime,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    func,
    insert,
    inspect,
    select,
    text,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.exc import NoSuchTableError
from sqlalchemy.schema import CreateColumn, CreateIndex, CreateTable

from aioelasticjob.clock import Clock
from aioelasticjob.ground.times import moment

Moment = DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
_Exact = Text().with_variant(mysql.TEXT(collation="utf8mb4_bin"), "mysql", "mariadb")
"""Text in which upper and lower case differ, also in MySQL."""
METADATA = MetaData()


def _log_of_elastic_job() -> list[Column[Any]]:
    return [
        Column("id", String(40), primary_key=True),
        Column("job_name", String(255), nullable=False),
        Column("task_id", String(255), nullable=False),
        Column("hostname", String(255), nullable=False),
        Column("ip", String(50), nullable=False),
        Column("sharding_item", Integer, nullable=False),
        Column("execution_source", String(20), nullable=False),
        Column("failure_cause", String(4000)),
        Column("is_success", Integer, nullable=False),
        Column("start_time", Moment),
        Column("complete_time", Moment),
    ]


def _trace_of_elastic_job() -> list[Column[Any]]:
    return [
        Column("id", String(40), primary_key=True),
        Column("job_name", String(255), nullable=False),
        Column("original_task_id", String(255), nullable=False),
        Column("task_id", String(255), nullable=False),
        Column("slave_id", String(50), nullable=False),
        Column("execution_type", String(20), nullable=False),
        Column("sharding_item", String(100), nullable=False),
        Column("state", String(20), nullable=False),
        Column("message", String(4000)),
        Column("creation_time", Moment),
    ]


RUNS = Table(
    "job_execution_log",
    METADATA,
    *_log_of_elastic_job(),
    Column("instance", String(255)),
    Column("fire_time", Moment),
    Column("outcome", String(20)),
    Column("seconds", Float(53)),
    Column("failure_stack", Text),
    Column("attempts", Integer),
    Column("namespace", _Exact),
)
STATES = Table(
    "job_status_trace_log",
    METADATA,
    *_trace_of_elastic_job(),
    Column("instance", String(255)),
    Column("fire_time", Moment),
    Column("execution_source", String(20)),
    Column("namespace", _Exact),
    Index("task_id_state_index", "task_id", "state", mysql_length={"task_id": 128}),
)
VERSIONS = Table(
    "aioelasticjob_schema", METADATA, Column("version", Integer, primary_key=True), Column("since", Moment)
)

for _index in (
    Index("job_execution_log_job_start", RUNS.c.job_name, RUNS.c.start_time),
    Index("job_execution_log_start", RUNS.c.start_time),
    Index("job_status_trace_log_job_time", STATES.c.job_name, STATES.c.creation_time),
    Index("job_status_trace_log_time", STATES.c.creation_time),
):
    pass  # an index joins its table when it is made

LOCK_NUMBER = 4_711_202
"""The number of the lock that a server gives to one upgrading process at a time; SQLite has one writer anyway."""
LOCK_TIMEOUT = 60
"""Seconds to wait for another process that upgrades already."""


def upgrade(connection: Connection, clock: Clock) -> None:
    """Bring the tables to the newest version, step by step; rows are never touched.

    MySQL cannot roll back changes of tables, so a step that was interrupted is done again from its beginning; every
    step therefore looks first what is already done.  If somebody has dropped a table, all steps are done again.  A
    database that is newer than this program is left as it is: columns are only ever added.
    """
    if is_fit(connection):
        return
    with _alone(connection):
        is_whole = not _missing(connection)
        for number, step in enumerate(STEPS, 1):
            is_noted = number <= version(connection)
            if not (is_noted and is_whole):
                step(connection)
            if not is_noted:
                connection.execute(insert(VERSIONS).values(version=number, since=naive(clock.now())))


def is_fit(connection: Connection) -> bool:
    """Whether the tables have the shape that this program needs, or a newer one.

    The tables themselves are looked at, too: somebody may have dropped one after its version was noted.
    """
    return version(connection) >= len(STEPS) and not _missing(connection)


def is_readable(connection: Connection) -> bool:
    """Whether the tables can be read although they have no namespaces yet."""
    return version(connection) >= READABLE and _missing(connection) <= {"namespace"}


def missing_tables(connection: Connection) -> tuple[str, ...]:
    """Return the names of the tables of history that are not there."""
    return tuple(table.name for table in (RUNS, STATES) if not inspect(connection).has_table(table.name))


def version(connection: Connection) -> int:
    """Return the version that is noted in the database; 0 stands for none."""
    if not inspect(connection).has_table(VERSIONS.name):
        return 0
    return connection.scalar(select(func.max(VERSIONS.c.version))) or 0


def naive(seconds: float) -> datetime:
    """Return seconds since the epoch as the tables hold them: a naive datetime in UTC."""
    return moment(seconds).replace(tzinfo=None)


def _missing(connection: Connection) -> set[str]:
    """Return the names of the columns that a table lacks; a table that is not there lacks all of them."""
    found = set[str]()
    for table in (RUNS, STATES):
        found |= {*table.columns.keys()} - _columns(connection, table)
    return found


def _columns(connection: Connection, table: Table) -> set[str]:
    try:
        return {column["name"].lower() for column in inspect(connection).get_columns(table.name)}
    except NoSuchTableError:
        return set()


def _create(connection: Connection) -> None:
    """Make the tables of Elastic-Job 3, unless they exist."""
    runs = Table(RUNS.name, MetaData(), *_log_of_elastic_job(), mysql_charset="utf8mb4")
    states = Table(STATES.name, MetaData(), *_trace_of_elastic_job(), mysql_charset="utf8mb4")
    for table in (VERSIONS, runs, states):
        if not inspect(connection).has_table(table.name):  # PostgreSQL demands the right to make tables in any case
            connection.execute(CreateTable(table, if_not_exists=True))


def _add_ours(connection: Connection) -> None:
    """Add our own columns, and the indexes that pages of history need."""
    for table in (RUNS, STATES):
        there = _columns(connection, table)
        for column in table.columns:
            if column.name not in there:
                added = CreateColumn(column).compile(dialect=connection.dialect)
                connection.execute(text(f"ALTER TABLE {table.name} ADD COLUMN {added}"))
        indexed = {str(index["name"]).lower() for index in inspect(connection).get_indexes(table.name)}
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            if index.name not in indexed:
                connection.execute(CreateIndex(index))


STEPS: tuple[Callable[[Connection], None], ...] = (_create, _add_ours, _add_ours, _add_ours)
"""The upgrade steps, in order.  A newer shape gets a further step: ``attempts`` the third, ``namespace`` the fourth."""
READABLE = 3
"""The oldest version that can be read as it is, by those who may not change the tables: it lacks the namespaces."""


@contextmanager
def _alone(connection: Connection) -> Iterator[None]:
    """Let one process at a time upgrade: of several that start together, the first does it for all."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(LOCK_NUMBER)))  # until the transaction ends
        yield
    elif connection.dialect.name in ("mysql", "mariadb"):
        connection.scalar(select(func.get_lock(str(LOCK_NUMBER), LOCK_TIMEOUT)))
        try:
            yield
        finally:
            connection.scalar(select(func.release_lock(str(LOCK_NUMBER))))
    else:
        yield
