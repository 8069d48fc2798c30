"""Who did what: written down before it is done and again when it is, and never rewritten."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from anyio import CancelScope

from aioelasticjob.clock import Clock
from aioelasticjob.console.database import Database
from aioelasticjob.errors import ElasticJobError

Facts = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Deed:
    """What somebody sets out to do."""

    who: str
    address: str
    action: str
    target: str = ""
    registry: str = ""
    asked: Facts = field(default_factory=dict)
    before: Facts = field(default_factory=dict)


@dataclass(slots=True)
class Result:
    """What came of it; filled in by whoever does it."""

    summary: str = ""
    after: Facts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the log; ``done`` is None where the console ended before it heard what came of it."""

    id: int
    at: float
    deed: Deed
    done: bool | None
    summary: str
    after: Facts


class Audit:
    """The log of one console."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock

    @asynccontextmanager
    async def doing(self, deed: Deed) -> AsyncIterator[Result]:
        """Write down the deed, let it be done in the block, write down what came of it, also if that is an error."""
        number, result, done = await self._database.run(lambda db: self._set_out(db, deed)), Result(), False
        try:
            yield result
            done = True
        except ElasticJobError as error:
            result.summary = str(error)
            raise
        except Exception as error:
            result.summary = f"{type(error).__name__}: {error}"
            raise
        finally:
            with CancelScope(shield=True):  # a browser that goes away must not leave a line without its end
                await self._database.run(lambda db: self._conclude(db, number, done, result))

    async def note(self, deed: Deed, summary: str = "", *, done: bool = True) -> None:
        """Write down something that has happened already."""

        def work(db: sqlite3.Connection) -> None:
            self._conclude(db, self._set_out(db, deed), done, Result(summary))

        await self._database.run(work)

    async def entries(self, *, below: int | None = None, text: str = "", most: int = 50) -> list[Entry]:
        """Return the newest entries, those under number ``below``, with ``text`` anywhere in them."""
        pattern = f"%{_escaped(text)}%"

        def work(db: sqlite3.Connection) -> list[sqlite3.Row]:
            return db.execute(
                "select audit.*, done, summary, after from audit left join audit_outcomes using (id)"
                " where id < ? and (who || ' ' || registry || ' ' || action || ' ' || target || ' ' ||"
                " coalesce(summary, '') like ? escape '\\') order by id desc limit ?",
                (below or 1 << 62, pattern, most),
            ).fetchall()

        return [_entry(row) for row in await self._database.run(work)]

    def _set_out(self, db: sqlite3.Connection, deed: Deed) -> int:
        values = (self._clock.now(), deed.who, deed.address, deed.registry, deed.action, deed.target)
        cursor = db.execute(
            "insert into audit (at, who, address, registry, action, target, asked, before)"
            " values (?, ?, ?, ?, ?, ?, ?, ?)",
            (*values, _text(deed.asked), _text(deed.before)),
        )
        return int(cursor.lastrowid or 0)

    def _conclude(self, db: sqlite3.Connection, number: int, done: bool, result: Result) -> None:
        values = (number, self._clock.now(), int(done), result.summary, _text(result.after))
        db.execute("insert into audit_outcomes (id, at, done, summary, after) values (?, ?, ?, ?, ?)", values)


def _entry(row: sqlite3.Row) -> Entry:
    deed = Deed(
        row["who"],
        row["address"],
        row["action"],
        row["target"],
        row["registry"],
        _read(row["asked"]),
        _read(row["before"]),
    )
    done = None if row["done"] is None else bool(row["done"])
    return Entry(row["id"], row["at"], deed, done, row["summary"] or "", _read(row["after"] or "{}"))


def _text(facts: Facts) -> str:
    return json.dumps(dict(facts), ensure_ascii=False, default=str)


def _read(text: str) -> Facts:
    found: Facts = json.loads(text)
    return found


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
