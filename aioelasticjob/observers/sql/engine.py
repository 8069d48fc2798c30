"""SQLAlchemy's engine, set up for each kind of database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, inspect
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from aioelasticjob.ground.limited_log import LimitedLog
from aioelasticjob.observers.settings import EventStoreSettings, database, masked
from aioelasticjob.observers.sql.schema import RUNS, STATES
from aioelasticjob.observers.url_options import connect_options

RECYCLE_AFTER = 1800
"""Seconds after which a connection is replaced: MySQL and network devices end connections that were idle for long."""


def engine_for(settings: EventStoreSettings, limited_log: LimitedLog) -> AsyncEngine:
    """Return the engine; it connects when it is first used.  ``limited_log`` limits the lines that can repeat."""
    url = database(settings.url)
    timeout = settings.write_timeout
    given = connect_options(url, masked(settings.url))
    match url.get_backend_name():
        case "sqlite":
            from aioelasticjob.observers.sql.sqlite import sqlite_engine

            return sqlite_engine(url, {"timeout": timeout, **given}, limited_log)
        case "postgresql":
            options: dict[str, Any] = {"timeout": timeout, **given}
            ways: dict[str, Any] = {}
        case _:
            zone = "SET time_zone = '+00:00'"
            options = {"connect_timeout": max(1, int(timeout)), **given, "init_command": zone, "charset": "utf8mb4"}
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
            name = column["name"].lower()
            width = getattr(column["type"], "length", None)
            if isinstance(width, int):
                found[name] = min(width, found.get(name, width))
    return found
