"""Passwords as hashes: made and compared in threads, a few at a time, and as slowly for those who do not exist."""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Final

from anyio import CapacityLimiter, to_thread
from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from aioelasticjob.errors import InvalidSetting

SHORTEST: Final = 10
"""Characters that a password has at least."""
LONGEST: Final = 1000
"""Characters that a password may have."""
_NAME: Final = re.compile(r"[\w.@+-]{1,60}")


class Passwords:
    """Hashes with argon2."""

    def __init__(self, hasher: PasswordHasher) -> None:
        self._hasher = hasher
        self._nobody = ""
        self._cores = CapacityLimiter(2)  # a hash takes 64 MB and a core: many at once are an attack

    async def hashed(self, password: str) -> str:
        """Return what may be stored of a password."""
        return await to_thread.run_sync(self._hasher.hash, password, limiter=self._cores)

    async def fits(self, stored: str | None, password: str) -> bool:
        """Whether this is the password that was stored; takes as long where none was."""
        if not self._nobody:
            self._nobody = await self.hashed(secrets.token_hex())
        right = await to_thread.run_sync(self._verify, stored or self._nobody, password[:LONGEST], limiter=self._cores)
        return right and bool(stored)

    def aged(self, stored: str) -> bool:
        """Whether it was hashed with less effort than is made today."""
        return self._hasher.check_needs_rehash(stored)

    def _verify(self, stored: str, password: str) -> bool:
        try:
            return self._hasher.verify(stored, password)
        except (VerificationError, InvalidHashError):
            return False


def check_name(name: str) -> None:
    """Refuse what is no name of a person.

    Raises: InvalidSetting
    """
    if not _NAME.fullmatch(name):
        raise InvalidSetting("name", name, "1 to 60 letters, digits or any of _ . @ + -")


def check_password(name: str, password: str) -> None:
    """Refuse a password that will not do for this person.

    Raises: InvalidSetting
    """
    if not SHORTEST <= len(password) <= LONGEST:
        raise InvalidSetting("password", "…", f"{SHORTEST} to {LONGEST} characters")
    if password.lower() == name.lower() or len(set(password)) < 4:
        raise InvalidSetting("password", "…", "must not be easy to guess")


def digest(text: str) -> str:
    """Return a hash that is made at once: of a random token, which nobody can guess, or of what is no secret."""
    return hashlib.sha256(text.encode()).hexdigest()
