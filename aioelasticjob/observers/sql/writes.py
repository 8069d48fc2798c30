"""The writing statements, in the dialect of each database.  Each can be repeated: existing rows are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Table, and_, bindparam, update
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from aioelasticjob.model import HANDED_OVER
from aioelasticjob.observers.sql.rows import Batch, Row
from aioelasticjob.observers.sql.schema import RUNS, STATES

ROWS_PER_CALL = 100
"""Rows that are given to the driver at once: between two such portions the loop can run other tasks."""

_END = ("start_time", "is_success", "complete_time", "outcome", "seconds", "failure_cause", "failure_stack", "attempts")
"""The columns that the end of a run fills in the row of its beginning."""


class Writes:
    """The writing statements for one kind of database."""

    def __init__(self, dialect: str) -> None:
        self.begin = _insert(dialect, RUNS, ())
        self.end = _insert(dialect, RUNS, _END)
        self.state = _insert(dialect, STATES, ())
        self.hand_over = update(RUNS).where(RUNS.c.id == bindparam("key")).values(outcome=HANDED_OVER)
        the_run = and_(
            RUNS.c.job_name == bindparam("job"),
            RUNS.c.start_time >= bindparam("earliest"),
            RUNS.c.sharding_item == bindparam("item"),
            RUNS.c.fire_time == bindparam("fired"),
            RUNS.c.instance == bindparam("who"),
            RUNS.c.complete_time.is_(None),
        )
        self.cut_off = (
            update(RUNS).where(the_run).values(outcome=bindparam("ended_as"), complete_time=bindparam("over"))
        )

    async def all_of(self, batch: Batch, connection: AsyncConnection) -> None:
        """Write a batch, in the transaction that the connection is in."""
        await _each(connection, self.begin, list(batch.begun.values()))
        await _each(connection, self.end, list(batch.ended.values()))
        await _each(connection, self.state, batch.states)
        await _each(connection, self.hand_over, batch.handed_over)
        await _each(connection, self.cut_off, batch.cut_off)


async def _each(connection: AsyncConnection, statement: Any, rows: Sequence[Row]) -> None:
    for start in range(0, len(rows), ROWS_PER_CALL):
        await connection.execute(statement, rows[start : start + ROWS_PER_CALL])


def _insert(dialect: str, table: Table, replaced: Sequence[str]) -> Any:
    """Return an insert statement that replaces these columns if the row exists, and leaves its other columns."""
    if dialect in ("mysql", "mariadb"):
        rows = mysql.insert(table)
        set_again = replaced or ("id",)
        return rows.on_duplicate_key_update({name: rows.inserted[name] for name in set_again})
    insert = sqlite.insert(table) if dialect == "sqlite" else postgresql.insert(table)
    if not replaced:
        return insert.on_conflict_do_nothing(index_elements=["id"])
    values = {name: insert.excluded[name] for name in replaced}
    return insert.on_conflict_do_update(index_elements=["id"], set_=values)
