"""What an attempt to connect needs besides an address: certificates and secrets, read anew for each attempt."""

from __future__ import annotations

import secrets
import ssl
import struct
from dataclasses import dataclass, field
from typing import Final

from anyio import CapacityLimiter, to_thread

from aioelasticjob.errors import AuthenticationFailed, InvalidSetting
from aioelasticjob.registry.codec import BODY, LOST
from aioelasticjob.registry.connection import Connection
from aioelasticjob.registry.secrets import is_login, secret
from aioelasticjob.registry.settings import ConnectionSettings
from aioelasticjob.registry.tls import context

SASL: Final = 102  # the opcode
_int = struct.Struct("!i")


@dataclass(frozen=True, slots=True)
class Access:
    """The secrets and certificates of one attempt."""

    digest: str | None = field(default=None, repr=False)
    sasl: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None


async def read_access(settings: ConnectionSettings, now: float) -> Access:
    """Read the files that the settings name, in a thread of its own; ``now`` is in seconds since the epoch.

    Raises: InvalidSetting, CertificateMissing, CertificateExpired, CertificateRefused.
    """
    if settings.tls is None and settings.digest_file is None and settings.sasl_file is None:
        return Access(settings.digest, settings.sasl)
    one_at_a_time = CapacityLimiter(1)  # all common threads may be busy with handlers that wait for the registry
    return await to_thread.run_sync(_read, settings, now, limiter=one_at_a_time, abandon_on_cancel=True)


async def log_in(connection: Connection, login: str) -> None:
    """Prove to the server who we are, with SASL DIGEST-MD5, and that it knows our password too.

    Raises: AuthenticationFailed; ConnectionError if the connection ends meanwhile.
    """
    # imported at the first use: this package needs nothing else of the embedded server
    from aioelasticjob.zookeeper.digest_md5 import DigestError, answer

    user, _, password = login.partition(":")
    challenge = await _exchange(connection, b"", user)
    if not challenge:
        raise AuthenticationFailed("the registry offers no SASL DIGEST-MD5: leave sasl out, or set it up there")
    try:
        proof, expected = answer(challenge, user, password, secrets.token_urlsafe(24))
    except DigestError as error:
        raise AuthenticationFailed(f"the registry's SASL challenge cannot be answered: {error}") from None
    if await _exchange(connection, proof, user) != expected:
        raise AuthenticationFailed("the registry has not proved that it knows our SASL password: is it the right one?")


async def _exchange(connection: Connection, token: bytes, user: str) -> bytes:
    error, _, frame = await connection.call(SASL, _int.pack(len(token)) + token)
    if error == LOST:
        raise ConnectionError("the connection ended during the SASL login")
    if error:
        raise AuthenticationFailed(f"the registry refused the SASL user {user!r}: check user and password")
    (length,) = _int.unpack_from(frame, BODY)
    return frame[BODY + 4 : BODY + 4 + length] if length > 0 else b""


def _read(settings: ConnectionSettings, now: float) -> Access:
    digest = secret("digest", settings.digest, settings.digest_file)
    sasl = secret("sasl", settings.sasl, settings.sasl_file)
    if digest is not None and not is_login(digest):
        raise InvalidSetting("digest_file", settings.digest_file, "write user:password into it")
    if sasl is not None and not is_login(sasl):
        raise InvalidSetting("sasl_file", settings.sasl_file, "write user:password into it")
    tls = None if settings.tls is None else context(settings.tls, now)
    return Access(digest, sasl, tls)
