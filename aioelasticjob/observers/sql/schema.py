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
from sqlalchemy.schema import CreateColumn, CreateIndex, CreateTable

from aioelasticjob.clock import Clock, moment

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


def upgrade(connection: Connection, clock: Clock) -> int:
    """Bring the tables to the newest version, step by step, and return which that is; rows are never touched.

    MySQL cannot roll back changes of tables, so a step that was interrupted is done again from its beginning; every
    step therefore looks first what is already done.  A database that is newer than this program is left as it is:
    columns are only ever added.
    """
    if is_fit(connection):
        return _version(connection)
    with _alone(connection):
        for number, step in enumerate(STEPS, 1):
            if number > _version(connection):
                step(connection)
                connection.execute(insert(VERSIONS).values(version=number, since=naive(clock.now())))
        return _version(connection)


def is_fit(connection: Connection) -> bool:
    """Whether the tables have the shape that this program needs, or a newer one."""
    return _version(connection) >= len(STEPS)


def is_readable(connection: Connection) -> bool:
    """Whether the tables can be read although they have no namespaces yet."""
    return _version(connection) >= READABLE


def naive(seconds: float) -> datetime:
    """Return seconds since the epoch as the tables hold them: a naive datetime in UTC."""
    return moment(seconds).replace(tzinfo=None)


def _version(connection: Connection) -> int:
    if not inspect(connection).has_table(VERSIONS.name):
        return 0
    return connection.scalar(select(func.max(VERSIONS.c.version))) or 0


def _create(connection: Connection) -> None:
    """Make the tables of Elastic-Job 3, unless they exist."""
    connection.execute(CreateTable(VERSIONS, if_not_exists=True))
    for table, columns in ((RUNS, _log_of_elastic_job()), (STATES, _trace_of_elastic_job())):
        first = Table(table.name, MetaData(), *columns, mysql_charset="utf8mb4")
        connection.execute(CreateTable(first, if_not_exists=True))


def _add_ours(connection: Connection) -> None:
    """Add our own columns, and the indexes that pages of history need."""
    for table in (RUNS, STATES):
        there = {column["name"].lower() for column in inspect(connection).get_columns(table.name)}
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
