"""The sessions of people who are signed in.  The database keeps them, so that signing out really ends one."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import sqlite3
from contextlib import suppress
from dataclasses import dataclass

from itsdangerous import BadSignature, Signer

from aioelasticjob.clock import Clock
from aioelasticjob.console.settings import ConsoleSettings
from aioelasticjob.console.storage.database import Database, DatabaseUnwritable
from aioelasticjob.console.users.accounts import Person, grants_of
from aioelasticjob.console.users.passwords import digest

TOUCH = 60.0
"""Seconds within which a session is written down as used once at most."""


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A person's session."""

    id: str
    person: Person
    token: str
    """What every form of this session carries."""
    from_proxy: bool = False
    """Whether a trusted proxy has signed this person in; there is no cookie then."""


class Sessions:
    """The sessions of one console.  A cookie holds a signed id; the database knows only the id's hash."""

    def __init__(self, database: Database, settings: ConsoleSettings, clock: Clock, secret: bytes) -> None:
        self._database = database
        self._settings = settings
        self._clock = clock
        self._secret = secret
        self._signer = Signer(secret, salt="session", digest_method=hashlib.sha256)

    async def begin(self, person: Person, agent: str) -> str:
        """Return the cookie of a new session; expired ones are swept away."""
        key = secrets.token_urlsafe(32)
        now = self._clock.now()

        def work(db: sqlite3.Connection) -> None:
            db.execute("delete from sessions where not (seen > ? and created > ?)", self._oldest(now))
            db.execute(
                "insert into sessions values (?, ?, ?, ?, ?)", (digest(key), person.name, digest(agent), now, now)
            )

        await self._database.run(work)
        return self._signer.sign(key).decode()

    async def find(self, cookie: str | None, agent: str) -> SignedIn | None:
        """Return the session a cookie stands for; one that turns up in another browser was stolen, and ends."""
        if not cookie or len(cookie) > 200:
            return None
        try:
            key = self._signer.unsign(cookie).decode()
        except (BadSignature, UnicodeDecodeError):
            return None
        id = digest(key)
        now = self._clock.now()
        found = await self._database.run(lambda db: self._look_up(db, id, digest(agent), now))
        if found is None:
            await self._write("delete from sessions where id = ?", (id,))
            return None
        person, seen = found
        if seen < now - TOUCH:
            await self._write("update sessions set seen = ? where id = ?", (now, id))
        return SignedIn(id, person, self.form_token(key))

    def from_proxy(self, person: Person) -> SignedIn:
        """Return the session of somebody whom a trusted proxy has signed in."""
        key = f"proxy:{person.name}"
        return SignedIn(key, person, self.form_token(key), from_proxy=True)

    async def end(self, session: SignedIn, *, everywhere: bool = False) -> None:
        """Sign out, here or everywhere."""
        column, value = ("user", session.person.name) if everywhere else ("id", session.id)
        await self._database.run(lambda db: db.execute(f"delete from sessions where {column} = ?", (value,)))

    def form_token(self, key: str) -> str:
        """Return what a form has to carry to be believed to come from the page we gave to ``key``."""
        return hmac.new(self._secret, b"form:" + key.encode(), hashlib.sha256).hexdigest()

    async def _write(self, statement: str, values: tuple[object, ...]) -> None:
        """Write something without which pages can be read."""
        with suppress(DatabaseUnwritable):
            await self._database.run(lambda db: db.execute(statement, values))

    def _look_up(self, db: sqlite3.Connection, session: str, agent: str, now: float) -> tuple[Person, float] | None:
        """Return the person of a session, and when it was last written down as used."""
        row: sqlite3.Row | None = db.execute(
            "select sessions.*, users.name, users.role, users.created as user_created"
            " from sessions join users on users.name = sessions.user"
            " where id = ? and seen > ? and sessions.created > ? and not disabled",
            (session, *self._oldest(now)),
        ).fetchone()
        if row is None or not hmac.compare_digest(row["agent"], agent):
            return None
        return Person(row["name"], grants_of(db, row), row["user_created"]), row["seen"]

    def _oldest(self, now: float) -> tuple[float, float]:
        """Return when a session must have been seen, and begun, at the earliest."""
        return now - self._settings.idle, now - self._settings.lifetime


async def secret_of(database: Database) -> bytes:
    """Return the secret that this console signs with, made at its first start."""

    def work(db: sqlite3.Connection) -> bytes:
        db.execute("insert or ignore into secrets values ('signing', ?)", (secrets.token_hex(32),))
        return bytes.fromhex(db.execute("select value from secrets where name = 'signing'").fetchone()[0])

    return await database.run(work)
