"""DIGEST-MD5 (RFC 2831) as ZooKeeper uses it, for both sides: quality of protection "auth", no second login.

The server sends a challenge, the client answers it, and the server shows in ``rspauth`` that it knows the password too.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

REALM = "zk-sasl-md5"
DIGEST_URI = "zookeeper/zk-sasl-md5"
FIRST_COUNT = "00000001"
_DIRECTIVE = re.compile(
    r'[ \t\r\n]*([\w-]+)[ \t\r\n]*=[ \t\r\n]*(?:"((?:[^"\\]|\\.)*)"|([^",\s]*))[ \t\r\n]*(?:,|$)', re.S
)


class DigestError(Exception):
    """A message of the other side is malformed, or does not prove what it should."""


class Passwords(Protocol):
    """The passwords of a server's users."""

    def get(self, user: str, /) -> str | None:
        """Return a user's password; None for an unknown user."""
        ...


@dataclass(frozen=True, slots=True)
class Login:
    """What both sides hash."""

    user: bytes
    password: bytes = field(repr=False)
    realm: bytes
    nonce: bytes
    cnonce: bytes
    uri: bytes
    count: bytes = FIRST_COUNT.encode()
    authzid: bytes | None = None

    def response(self) -> bytes:
        """Return the client's proof."""
        return self._proof(b"AUTHENTICATE:" + self.uri)

    def rspauth(self) -> bytes:
        """Return the server's proof."""
        return self._proof(b":" + self.uri)

    def _proof(self, a2: bytes) -> bytes:
        login = b":".join((self.user, self.realm, self.password))
        a1 = [hashlib.md5(login, usedforsecurity=False).digest(), self.nonce, self.cnonce]
        if self.authzid is not None:
            a1.append(self.authzid)
        proof = (_hex(b":".join(a1)), self.nonce, self.count, self.cnonce, b"auth", _hex(a2))
        return _hex(b":".join(proof))


def challenge(nonce: str) -> bytes:
    """Return the server's first message."""
    return f'realm="{REALM}",nonce="{nonce}",charset=utf-8,algorithm=md5-sess'.encode("ascii")


def answer(message: bytes, user: str, password: str, cnonce: str) -> tuple[bytes, bytes]:
    """Answer a challenge; return the message, and the message with which a server answers that knows the password.

    Raises: DigestError.
    """
    asked = directives(message)
    if "nonce" not in asked or asked.get("algorithm") != "md5-sess":
        raise DigestError("the challenge has no nonce, or an unknown algorithm")
    if "auth" not in re.split(r"[,\s]+", asked.get("qop", "auth")):
        raise DigestError(f"the server asks for qop {asked['qop']}, which is not supported: only auth is")
    realm = asked.get("realm", REALM)
    login = Login(
        user=_hashed(user),
        password=_hashed(password),
        realm=_hashed(realm),
        nonce=_hashed(asked["nonce"]),
        cnonce=_hashed(cnonce),
        uri=_hashed(DIGEST_URI),
    )
    text = (
        "charset=utf-8,"
        f'username="{_quoted(user)}",'
        f'realm="{_quoted(realm)}",'
        f'nonce="{_quoted(asked["nonce"])}",'
        f"nc={FIRST_COUNT},"
        f'cnonce="{cnonce}",'
        f'digest-uri="{DIGEST_URI}",'
        "maxbuf=65536,"
        f"response={login.response().decode()},"
        "qop=auth"
    )
    return text.encode(), b"rspauth=" + login.rspauth()


def verify(message: bytes, nonce: str, passwords: Passwords) -> tuple[str, bytes]:
    """Check a client's answer; return its user name, and the message that ends the exchange.

    Raises: DigestError.
    """
    given = directives(message)
    expected = {"nonce": nonce, "realm": REALM, "qop": "auth", "charset": "utf-8"}
    if "realm" not in given or any(given.get(name, value) != value for name, value in expected.items()):
        raise DigestError("the answer belongs to another challenge")
    if given.get("digest-uri", "").lower() != DIGEST_URI or not given.get("cnonce"):
        raise DigestError("the answer has another digest-uri, or no cnonce")
    user = given.get("username", "")
    password = passwords.get(user)
    if password is None:
        raise DigestError(f"there is no user {user!r}")
    authzid = given.get("authzid")
    login = Login(
        user=_hashed(user),
        password=_hashed(password),
        realm=_hashed(REALM),
        nonce=_hashed(nonce),
        cnonce=_hashed(given["cnonce"]),
        uri=_hashed(given["digest-uri"]),
        count=_hashed(FIRST_COUNT),
        authzid=_hashed(authzid) if authzid else None,
    )
    if not hmac.compare_digest(login.response(), given.get("response", "").encode()):
        raise DigestError(f"wrong password of user {user!r}")
    return user, b"rspauth=" + login.rspauth()


def directives(message: bytes) -> Mapping[str, str]:
    """Read ``name=value`` and ``name="value"``, parted by commas.

    Raises: DigestError for anything else, and for a name that comes twice.
    """
    try:
        text = message.decode("utf-8" if b"charset=utf-8" in message else "latin-1")
    except UnicodeDecodeError as error:
        raise DigestError("the message is no UTF-8") from error
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        match = _DIRECTIVE.match(text, at)
        if match is None or match[1].lower() in found:
            raise DigestError(f"the message is malformed at character {at}")
        name, quoted, plain = match.groups()
        value = plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted, flags=re.S)
        found[name.lower()] = value
        at = match.end()
    return found


def _hashed(text: str) -> bytes:
    """Return a text as RFC 2831 hashes it: in ISO 8859-1 if that has all its characters, else in UTF-8."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode("utf-8")


def _quoted(text: str) -> str:
    return re.sub(r'(["\\])', r"\\\1", text)


def _hex(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).hexdigest().encode("ascii")
