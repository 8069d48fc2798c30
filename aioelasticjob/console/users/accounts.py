"""The accounts: people, their passwords and roles, and the one-time links that invite them."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from argon2 import PasswordHasher

from aioelasticjob.clock import Clock
from aioelasticjob.console.storage.database import Database
from aioelasticjob.console.users.passwords import Passwords, check_name, check_password, digest
from aioelasticjob.console.users.permissions import Grants, Role
from aioelasticjob.errors import ElasticJobError, InvalidSetting

INVITATION: Final = 24 * 3600.0
"""Seconds an invitation is good for."""


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who has signed in, or may."""

    name: str
    grants: Grants
    created: float
    disabled: bool = False
    invited: bool = False
    """Whether no password has been set yet."""


@dataclass(frozen=True, slots=True)
class Invitation:
    """What a one-time link is good for: a password for ``user``, or for a first user of one's own naming."""

    user: str | None
    role: Role


class InvitationSpent(ElasticJobError):
    """The link was used, has expired, or was never given out."""


class LastAdmin(ElasticJobError):
    """Nobody would be left who may let others in."""


class Accounts:
    """The people of one console."""

    def __init__(self, database: Database, clock: Clock, hasher: PasswordHasher) -> None:
        self._database = database
        self._clock = clock
        self._passwords = Passwords(hasher)

    async def check(self, name: str, password: str) -> Person | None:
        """Return the person whose name and password these are; takes as long for unknown names."""

        def work(db: sqlite3.Connection) -> tuple[Person, str | None] | None:
            row = db.execute("select * from users where name = ? and not disabled", (name,)).fetchone()
            return None if row is None else (_person(db, row), row["password"])

        found = await self._database.run(work)
        person, stored = found or (None, None)
        if not await self._passwords.fits(stored, password) or stored is None:
            return None
        if self._passwords.aged(stored):
            renewed = await self._passwords.hashed(password)
            await self._database.run(
                lambda db: db.execute("update users set password = ? where name = ?", (renewed, name))
            )
        return person

    async def from_proxy(self, name: str) -> tuple[Person | None, bool]:
        """Return the person whom a trusted proxy names, and whether it is somebody new, who becomes a viewer.

        None is somebody who is locked out, or whose name is none.
        """
        try:
            check_name(name)
        except InvalidSetting:
            return None, False

        def work(db: sqlite3.Connection) -> tuple[Person | None, bool]:
            find = "select * from users where name = ?"
            row = db.execute(find, (name,)).fetchone()
            if new := row is None:
                values = (name, Role.VIEWER.value, self._clock.now())
                db.execute("insert into users (name, role, created) values (?, ?, ?)", values)
                row = db.execute(find, (name,)).fetchone()
            return (None if row["disabled"] else _person(db, row)), new

        return await self._database.run(work)

    async def everybody(self) -> list[Person]:
        """Return all people by name."""
        return await self._database.run(
            lambda db: [_person(db, row) for row in db.execute("select * from users order by name").fetchall()]
        )

    async def find(self, name: str) -> Person | None:
        """Return the person of a name; None if there is nobody."""

        def work(db: sqlite3.Connection) -> Person | None:
            row = db.execute("select * from users where name = ?", (name,)).fetchone()
            return None if row is None else _person(db, row)

        return await self._database.run(work)

    async def nobody_there(self) -> bool:
        """Whether nobody has ever set a password."""
        return await self._database.run(
            lambda db: db.execute("select 1 from users where password is not null").fetchone() is None
        )

    async def invite_first(self) -> str:
        """Return the token of a link for the first administrator; of several workers' links one may be used."""
        return await self._database.run(lambda db: self._invitation(db, None, Role.ADMIN))

    async def invite(self, name: str, role: Role) -> str:
        """Return the token of a link with which ``name``, new or known, sets a password; the old one holds until then.

        Raises:
            InvalidSetting: that is no name.
        """
        check_name(name)

        def work(db: sqlite3.Connection) -> str:
            db.execute(
                "insert into users (name, role, created) values (?, ?, ?) on conflict (name) do nothing",
                (name, role.value, self._clock.now()),
            )
            db.execute("delete from invitations where user = ?", (name,))
            return self._invitation(db, name, role)

        return await self._database.run(work)

    async def invitation(self, token: str) -> Invitation | None:
        """Return what a token is good for, None if it is not (any more)."""
        return await self._database.run(lambda db: self._find(db, token))

    async def accept(self, token: str, name: str, password: str) -> Person:
        """Spend an invitation: set a password, end the sessions begun with the old one.

        Raises:
            InvitationSpent: it is good for nothing (any more).
            InvalidSetting: the name or the password will not do.
        """
        found = await self.invitation(token)
        if found is None:
            raise InvitationSpent("this link has been used or has expired")
        name = found.user or name
        first = found.user is None
        check_name(name)
        check_password(name, password)
        hashed = await self._passwords.hashed(password)

        def work(db: sqlite3.Connection) -> Person:
            if self._find(db, token) is None:
                raise InvitationSpent("this link has been used or has expired")
            db.execute("delete from invitations where token = ? or (? and user is null)", (digest(token), first))
            db.execute(
                "insert into users (name, role, created, password) values (?, ?, ?, ?)"
                " on conflict (name) do update set password = excluded.password",
                (name, found.role.value, self._clock.now(), hashed),
            )
            if first:  # a proxy may have named this person before, who is a viewer then
                db.execute("update users set role = ? where name = ?", (found.role.value, name))
            db.execute("delete from sessions where user = ?", (name,))
            return _person(db, db.execute("select * from users where name = ?", (name,)).fetchone())

        return await self._database.run(work)

    async def change_password(self, person: Person, old: str, new: str) -> None:
        """Set another password; sessions begun with the old one end.

        Raises:
            InvalidSetting: the old one is wrong, or the new one will not do.
        """
        check_password(person.name, new)
        if await self.check(person.name, old) is None:
            raise InvalidSetting("password", "…", "is not your present password")
        hashed = await self._passwords.hashed(new)

        def work(db: sqlite3.Connection) -> None:
            db.execute("update users set password = ? where name = ?", (hashed, person.name))
            db.execute("delete from sessions where user = ?", (person.name,))

        await self._database.run(work)

    async def change(
        self,
        name: str,
        *,
        role: Role | None = None,
        disabled: bool | None = None,
        grants: Mapping[tuple[str, str], Role | None] | None = None,
    ) -> None:
        """Give a person another role, in all or in some registries, or let them in no more (or again).

        Their sessions end.  ``grants`` are by registry and label; an empty label stands for the whole registry.  A
        grant of None takes back the one that there is.

        Raises:
            LastAdmin: nobody would be left who may let others in.
        """

        def work(db: sqlite3.Connection) -> None:
            if role is not None:
                db.execute("update users set role = ? where name = ?", (role.value, name))
            if disabled is not None:
                db.execute("update users set disabled = ? where name = ?", (int(disabled), name))
            for (registry, label), granted in (grants or {}).items():
                where = (name, registry, label)
                db.execute("delete from grants where user = ? and registry = ? and label = ?", where)
                if granted is not None:
                    db.execute("insert into grants values (?, ?, ?, ?)", (*where, granted.value))
            db.execute("delete from sessions where user = ?", (name,))
            left = db.execute("select 1 from users where role = 'admin' and not disabled and password is not null")
            if left.fetchone() is None:
                raise LastAdmin("nobody would be left who may let others in")  # and nothing is written

        await self._database.run(work)

    def _invitation(self, db: sqlite3.Connection, user: str | None, role: Role) -> str:
        token = secrets.token_urlsafe(32)
        values = (digest(token), user, role.value, self._clock.now() + INVITATION)
        db.execute("insert into invitations (token, user, role, expires) values (?, ?, ?, ?)", values)
        return token

    def _find(self, db: sqlite3.Connection, token: str) -> Invitation | None:
        row = db.execute(
            "select * from invitations where token = ? and expires > ?", (digest(token), self._clock.now())
        ).fetchone()
        return None if row is None else Invitation(row["user"], Role(row["role"]))


def grants_of(db: sqlite3.Connection, user: sqlite3.Row) -> Grants:
    """Return what a person has been granted; ``user`` has the columns ``name`` and ``role``."""
    by_registry = {}
    by_label = {}
    for row in db.execute("select registry, label, role from grants where user = ?", (user["name"],)):
        role = Role(row["role"])
        if row["label"]:
            by_label[row["registry"], row["label"]] = role
        else:
            by_registry[row["registry"]] = role
    return Grants(Role(user["role"]), by_registry, by_label)


def _person(db: sqlite3.Connection, row: sqlite3.Row) -> Person:
    return Person(row["name"], grants_of(db, row), row["created"], bool(row["disabled"]), row["password"] is None)
