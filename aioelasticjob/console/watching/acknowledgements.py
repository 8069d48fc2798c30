"""Acknowledgements: what an operator has noted about a reason of a job, and until when that holds."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from aioelasticjob.clock import Clock
from aioelasticjob.console.storage.database import Database
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.nesting import read_json
from aioelasticjob.operations.attention import Reason

MAX_SECONDS: Final = 90 * 86_400.0
"""How long an acknowledgement may hold."""
MAX_NOTE_CHARACTERS: Final = 500
"""How long a note may be."""


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """What an operator has said about one reason of a job."""

    registry: str
    job: str
    subject: str
    """The reason's subject."""
    details: frozenset[str]
    """The reason's details at that time."""
    who: str
    note: str
    at: float
    """When it was acknowledged, in seconds since the epoch."""
    until: float
    """When the acknowledgement ends."""

    def covers(self, reason: Reason) -> bool:
        """Whether the reason is still the one that was acknowledged: no detail was added since."""
        if reason.subject != self.subject:
            return False
        for detail, first_seen in reason.details.items():
            if detail in self.details:
                continue
            if first_seen is None or first_seen > self.at:
                return False
        return True


class Acknowledgements:
    """The acknowledgements of one console, kept in its database and read from memory."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._known: dict[str, dict[str, dict[str, Acknowledgement]]] = {}
        """By registry, job and subject."""

    async def load(self) -> None:
        """Read what the database holds."""
        rows = await self._database.run(lambda db: db.execute("select * from acknowledgements").fetchall())
        for row in rows:
            self._keep(_read(row))

    def of(self, registry: str) -> Mapping[str, Mapping[str, Acknowledgement]]:
        """Return the acknowledgements of a registry, by job and subject."""
        return self._known.get(registry, {})

    def __iter__(self) -> Iterator[Acknowledgement]:
        found = list[Acknowledgement]()  # a copy, since those that are read may be removed
        for jobs in self._known.values():
            for by_subject in jobs.values():
                found += by_subject.values()
        return iter(found)

    async def add(self, registry: str, job: str, reason: Reason, who: str, note: str, until: float) -> Acknowledgement:
        """Acknowledge a reason, in place of an earlier acknowledgement of the same subject.

        Raises:
            InvalidSetting: the note is empty or too long, or the end is past or too far away.
        """
        now = self._clock.now()
        text = note.strip()
        if not 0 < len(text) <= MAX_NOTE_CHARACTERS:
            raise InvalidSetting("note", text[:40], f"1 to {MAX_NOTE_CHARACTERS} characters")
        if not now < until <= now + MAX_SECONDS:
            raise InvalidSetting("until", None, f"a moment within the next {MAX_SECONDS / 86_400:.0f} days")
        one = Acknowledgement(registry, job, reason.subject, frozenset(reason.details), who, text, now, until)
        row = (registry, job, one.subject, json.dumps(sorted(one.details)), who, text, now, until)
        statement = "insert or replace into acknowledgements values (?, ?, ?, ?, ?, ?, ?, ?)"
        await self._database.run(lambda db: db.execute(statement, row))
        self._keep(one)
        return one

    async def remove(self, one: Acknowledgement) -> None:
        """Forget an acknowledgement."""
        key = (one.registry, one.job, one.subject)
        statement = "delete from acknowledgements where registry = ? and job = ? and subject = ?"
        await self._database.run(lambda db: db.execute(statement, key))
        jobs = self._known.get(one.registry, {})
        jobs.get(one.job, {}).pop(one.subject, None)
        if not jobs.get(one.job):  # the job may be gone: then its name would stay
            jobs.pop(one.job, None)

    def _keep(self, one: Acknowledgement) -> None:
        jobs = self._known.setdefault(one.registry, {})
        by_subject = jobs.setdefault(one.job, {})
        by_subject[one.subject] = one


def _read(row: sqlite3.Row) -> Acknowledgement:
    details = frozenset(read_json(row["details"]))
    return Acknowledgement(
        registry=row["registry"],
        job=row["job"],
        subject=row["subject"],
        details=details,
        who=row["who"],
        note=row["note"],
        at=row["at"],
        until=row["until"],
    )
