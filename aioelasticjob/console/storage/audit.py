"""The audit log: who did what.  An action is written down before it is done, and again with its outcome."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from anyio import CancelScope

from aioelasticjob.clock import Clock
from aioelasticjob.console.storage.database import Database, DatabaseUnwritable
from aioelasticjob.errors import ElasticJobError, error_text
from aioelasticjob.ground.credentials import hide_in_json, hide_in_text
from aioelasticjob.ground.nesting import read_json

Facts = Mapping[str, object]

MAX_VALUE_CHARACTERS: Final = 1_000
"""Characters that the log keeps of one value: nothing is ever removed from it."""
MAX_RESULT_CHARACTERS: Final = 4_000
"""Characters that the log keeps of what came of an action."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """An action of somebody, as it is written down before it is done; credentials are left out."""

    who: str
    address: str
    action: str
    target: str = ""
    registry: str = ""
    asked: Facts = field(default_factory=dict)
    before: Facts = field(default_factory=dict)


@dataclass(slots=True)
class AuditOutcome:
    """The outcome of an action; filled in by the code that does it."""

    summary: str = ""
    after: Facts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One line of the log; ``done`` is None where the console ended before it heard what came of it, or
    could not write that down."""

    id: int
    at: float
    entry: AuditEntry
    done: bool | None
    summary: str
    after: Facts


class Audit:
    """The log of one console."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    @asynccontextmanager
    async def record(self, entry: AuditEntry) -> AsyncIterator[AuditOutcome]:
        """Write the entry down before the block does it, and its outcome afterwards, also if that is an error."""
        number = await self._database.run(lambda db: self._write_entry(db, entry))
        outcome = AuditOutcome()
        done = False
        try:
            yield outcome
            done = True
        except ElasticJobError as error:
            outcome.summary = str(error)
            raise
        except Exception as error:
            outcome.summary = error_text(error)
            raise
        finally:
            # a browser that disconnects must not leave an entry without its outcome; a disk that is full may, since
            # the action is done, so its user gets the result all the same
            with CancelScope(shield=True), suppress(DatabaseUnwritable):
                await self._database.run(lambda db: self._write_outcome(db, number, done, outcome))

    async def note(self, entry: AuditEntry, summary: str = "", *, done: bool = True) -> None:
        """Write down something that has happened already."""

        def work(db: sqlite3.Connection) -> None:
            self._write_outcome(db, self._write_entry(db, entry), done, AuditOutcome(summary))

        await self._database.run(work)

    async def entries(
        self, *, below: int | None = None, text: str = "", most: int = 50, registries: Sequence[str] | None = None
    ) -> list[AuditRecord]:
        """Return the newest entries, those under number ``below``, with ``text`` anywhere in them.

        ``registries`` leaves only entries about these.
        """
        pattern = f"%{_escaped(text)}%"
        among = "" if registries is None else f" and registry in ({', '.join('?' * len(registries))})"

        def work(db: sqlite3.Connection) -> list[sqlite3.Row]:
            return db.execute(
                "select audit.*, done, summary, after from audit left join audit_outcomes using (id)"
                " where id < ? and (who || ' ' || registry || ' ' || action || ' ' || target || ' ' ||"
                f" coalesce(summary, '') like ? escape '\\'){among} order by id desc limit ?",
                (below or 1 << 62, pattern, *(registries or ()), most),
            ).fetchall()

        return [_record(row) for row in await self._database.run(work)]

    def _write_entry(self, db: sqlite3.Connection, entry: AuditEntry) -> int:
        who = _shortened(entry.who)
        target = _shortened(entry.target)
        values = (self._clock.now(), who, entry.address, entry.registry, entry.action, target)
        cursor = db.execute(
            "insert into audit (at, who, address, registry, action, target, asked, before)"
            " values (?, ?, ?, ?, ?, ?, ?, ?)",
            (*values, _text(entry.asked), _text(entry.before)),
        )
        return int(cursor.lastrowid or 0)

    def _write_outcome(self, db: sqlite3.Connection, number: int, done: bool, outcome: AuditOutcome) -> None:
        summary = _shortened(hide_in_text(outcome.summary), MAX_RESULT_CHARACTERS)
        values = (number, self._clock.now(), int(done), summary, _text(outcome.after))
        db.execute("insert into audit_outcomes (id, at, done, summary, after) values (?, ?, ?, ?, ?)", values)


def _record(row: sqlite3.Row) -> AuditRecord:
    entry = AuditEntry(
        who=row["who"],
        address=row["address"],
        action=row["action"],
        target=row["target"],
        registry=row["registry"],
        asked=_read(row["asked"]),
        before=_read(row["before"]),
    )
    return AuditRecord(
        id=row["id"],
        at=row["at"],
        entry=entry,
        done=None if row["done"] is None else bool(row["done"]),
        summary=row["summary"] or "",
        after=_read(row["after"] or "{}"),
    )


def _text(facts: Facts) -> str:
    return json.dumps(_cut(hide_in_json(facts)), ensure_ascii=False, default=str)


def _cut(value: object) -> object:
    """Return a value of JSON whose texts are no longer than the log keeps them."""
    if isinstance(value, str):
        return _shortened(value)
    if isinstance(value, Mapping):
        return {_shortened(str(key)): _cut(part) for key, part in value.items()}
    if isinstance(value, Sequence):
        return [_cut(part) for part in value]
    return value


def _shortened(text: str, longest: int = MAX_VALUE_CHARACTERS) -> str:
    if len(text) <= longest:
        return text
    return f"{text[:longest]}… ({len(text):,} characters)"


def _read(text: str) -> Facts:
    found: Facts = read_json(text)
    return found


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
