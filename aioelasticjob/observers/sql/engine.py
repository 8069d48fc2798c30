"""SQLAlchemy's engine, set up for each kind of database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, event, inspect
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from aioelasticjob.observers.settings import EventStoreSettings, database
from aioelasticjob.observers.sql.schema import RUNS, STATES

RECYCLE_AFTER = 1800
"""Seconds after which a connection is replaced: MySQL and network devices end connections that were idle for long."""


def engine_for(settings: EventStoreSettings) -> AsyncEngine:
    """Return the engine; it connects when it is first used."""
    url, patience = database(settings.url), settings.write_timeout
    match url.get_backend_name():
        case "sqlite":
            engine = create_async_engine(url, hide_parameters=True, connect_args={"timeout": patience})
            event.listen(engine.sync_engine, "connect", _set_up_sqlite)
            event.listen(engine.sync_engine, "begin", _begin_sqlite)
            return engine
        case "postgresql":
            options: dict[str, Any] = {"timeout": patience}
            ways: dict[str, Any] = {}
        case _:
            zone = "SET time_zone = '+00:00'"
            options = {"connect_timeout": max(1, int(patience)), "init_command": zone, "charset": "utf8mb4"}
            # a process that has waited for another one's upgrade has to see its result
            ways = {"isolation_level": "READ COMMITTED"}
    return create_async_engine(
        url,
        hide_parameters=True,
        connect_args=options,
        pool_pre_ping=True,
        pool_recycle=RECYCLE_AFTER,
        pool_size=2,
        **ways,
    )


def widths(connection: Connection) -> Mapping[str, int]:
    """Return how many characters the text columns hold; of a column that both tables have, the narrower one counts."""
    found: dict[str, int] = {}
    for table in (RUNS, STATES):
        for column in inspect(connection).get_columns(table.name):
            name, width = column["name"].lower(), getattr(column["type"], "length", None)
            if isinstance(width, int):
                found[name] = min(width, found.get(name, width))
    return found


def _set_up_sqlite(connection: Any, record: object) -> None:
    # otherwise Python's module decides when a transaction begins, and leaves DDL out of it
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode = WAL")  # readers need not wait for writers
    # a power cut may lose the last transactions, but never damages the file
    cursor.execute("PRAGMA synchronous = NORMAL")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    """Take the write lock first: SQLite refuses a transaction that asks for it later at once, whatever its timeout."""
    connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get("writing") else "BEGIN")
