"""Browsers in which somebody has signed in before: what others get wrong does not keep their owners out."""

from __future__ import annotations

import hashlib
import secrets

from itsdangerous import BadSignature, Signer

from aioelasticjob.console.users.passwords import digest


class Devices:
    """Makes and reads the cookie by which a browser is known again; it proves no password, only an earlier sign-in."""

    def __init__(self, secret: bytes) -> None:
        self._signer = Signer(secret, salt="device", digest_method=hashlib.sha256)

    def cookie(self, name: str) -> str:
        """Return the cookie for a browser in which this person has just signed in."""
        return self._signer.sign(f"{secrets.token_urlsafe(16)}:{digest(name.casefold())}").decode()

    def of(self, cookie: str | None, name: str) -> str | None:
        """Return what stands for the browser, if this person has signed in there before."""
        if not cookie or len(cookie) > 300:
            return None
        try:
            device, _, owner = self._signer.unsign(cookie).decode().partition(":")
        except (BadSignature, UnicodeDecodeError):
            return None
        return device if owner == digest(name.casefold()) else None
