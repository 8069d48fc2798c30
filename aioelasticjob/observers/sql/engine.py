"""What each kind of database needs to be told before it is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, event, inspect
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from aioelasticjob.observers.settings import EventStoreSettings, database
from aioelasticjob.observers.sql.schema import RUNS, STATES

IDLE = 1800
"""Seconds after which a connection is made anew: MySQL and what lies between end those that were idle for long."""


def engine_for(settings: EventStoreSettings) -> AsyncEngine:
    """Return the engine; nothing is connected yet."""
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
            ways = {"isolation_level": "READ COMMITTED"}  # who has waited for an upgrade has to see it
    return create_async_engine(
        url, hide_parameters=True, connect_args=options, pool_pre_ping=True, pool_recycle=IDLE, pool_size=2, **ways
    )


def widths(connection: Connection) -> Mapping[str, int]:
    """Return how many characters the text columns hold; of columns that both tables have the narrower one."""
    found: dict[str, int] = {}
    for table in (RUNS, STATES):
        for column in inspect(connection).get_columns(table.name):
            name, width = column["name"].lower(), getattr(column["type"], "length", None)
            if isinstance(width, int):
                found[name] = min(width, found.get(name, width))
    return found


def _set_up_sqlite(connection: Any, record: object) -> None:
    connection.isolation_level = None  # or Python's module decides when a transaction begins, and leaves DDL out of it
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode = WAL")  # readers wait for nobody
    cursor.execute("PRAGMA synchronous = NORMAL")  # a power cut may cost the last moments, never the file
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    """Ask for the write lock first: a transaction that wants it later is refused at once, however patient it is."""
    connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get("writing") else "BEGIN")
