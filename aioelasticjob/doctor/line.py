"""A line is one connection with a session of its own.  The session ends with the block, even without a connection."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from struct import error as Malformed  # noqa: N812  # a class, whatever its name

import anyio

from aioelasticjob.errors import AuthenticationFailed, ElasticJobError
from aioelasticjob.registry.access import Access, log_in
from aioelasticjob.registry.codec import (
    AUTH,
    CLOSE,
    LOST,
    READ_ONLY,
    Reply,
    attach,
    attach_error,
    attached,
    credentials,
    is_read_only,
)
from aioelasticjob.registry.connection import Connection
from aioelasticjob.registry.dialling import dial, why_failed
from aioelasticjob.registry.lease import Lease
from aioelasticjob.registry.settings import ConnectionSettings

FAILURES = (OSError, Malformed, ElasticJobError)
"""The errors of an attempt to connect."""
CLOSE_TIMEOUT = 2.0
"""Seconds that the end of a session may take."""
NO_PASSWORD = bytes(16)


class Unanswered(OSError):
    """A server gave no session, or no answer."""


class ReadOnly(Unanswered):
    """A server has lost contact to the others, and gives no new session."""

    def __init__(self) -> None:
        super().__init__("the server is read-only, since it has lost contact to the others")


@dataclass(frozen=True, slots=True)
class Target:
    """One address of one server, and what an attempt to connect there needs."""

    settings: ConnectionSettings
    access: Access
    host: tuple[str, int]
    address: str

    @property
    def server(self) -> str:
        """The server as a person would write it, with its address if it was given by name."""
        name, port = self.host
        server = f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
        if self.address == name:
            return server
        return f"{server} ({self.address})"


@dataclass(frozen=True, slots=True)
class Line:
    """A connection that has a session."""

    connection: Connection
    timeout: float
    """The session timeout that was granted, in seconds."""
    read_only: bool
    time_limit: float

    async def call(self, opcode: int, body: bytes) -> Reply:
        """Send a request and return the answer.

        Raises: Unanswered.
        """
        with anyio.move_on_after(self.time_limit):
            return await self.connection.call(opcode, body)
        raise Unanswered(f"no answer within {self.time_limit:g} s")


@asynccontextmanager
async def line(target: Target, timeout: float) -> AsyncIterator[Line]:
    """Connect, ask for a session of ``timeout`` seconds, and end it with the block.

    Raises: Unanswered or ElasticJobError, the reason for which there is no session.
    """
    connection = Connection(Lease(), _ignore, _ignore)
    session = 0
    password = NO_PASSWORD
    time_limit = target.settings.connection_timeout
    try:
        with anyio.fail_after(time_limit):
            await dial(connection, target.settings, target.host, target.address, target.access.tls)
            answer = await connection.greet(attach(0, NO_PASSWORD, timeout, 0, read_only=True))
        error = attach_error(answer)
        if error == READ_ONLY:
            raise ReadOnly()
        if error:
            raise Unanswered(f"the server answered with the error {error}")
        session, password, granted = attached(answer)
        if not session:
            raise ConnectionError("the server gave no session")
    except FAILURES as failure:
        await _end(connection)
        raise _reason(failure, connection, target) from failure
    except BaseException:
        connection.abort("cancelled")
        raise
    try:
        yield Line(connection, granted, is_read_only(answer), time_limit)
    finally:
        with anyio.move_on_after(2 * CLOSE_TIMEOUT, shield=True):
            error, _, _ = await connection.call(CLOSE, b"")
            if error == LOST:
                await _resume_and_end(target, session, password)
        await _end(connection)


async def prove_identity(line: Line, access: Access) -> None:
    """Log in with SASL and with a digest, as far as they are set.

    Raises: AuthenticationFailed; OSError if the connection ends or the server takes too long.
    """
    if access.sasl is not None:
        with anyio.move_on_after(line.time_limit) as waiting:
            await log_in(line.connection, access.sasl)
        if waiting.cancelled_caught:
            raise Unanswered(f"no answer to the login within {line.time_limit:g} s")
    if access.digest is not None:
        error, _, _ = await line.call(AUTH, credentials(access.digest))
        if error:
            raise AuthenticationFailed("the registry refused the digest: check user and password")


async def _resume_and_end(target: Target, session: int, password: bytes) -> None:
    """End a session whose connection is lost: otherwise it would live on until its timeout."""
    connection = Connection(Lease(), _ignore, _ignore)
    with suppress(*FAILURES):
        await dial(connection, target.settings, target.host, target.address, target.access.tls)
        await connection.greet(attach(session, password, 1.0, 0, read_only=True))
        await connection.call(CLOSE, b"")
    await _end(connection)


async def _end(connection: Connection) -> None:
    connection.abort("closed by us")
    if connection.opened:
        with anyio.move_on_after(CLOSE_TIMEOUT, shield=True):
            await connection.gone.wait()


def _reason(error: Exception, connection: Connection, target: Target) -> Exception:
    found, _ = why_failed(error, connection, target.settings.tls, target.server, new=True)
    if isinstance(found, ElasticJobError | Unanswered):
        return found
    if isinstance(found, TimeoutError):
        return Unanswered(f"no answer within {target.settings.connection_timeout:g} s")
    if isinstance(found, OSError) and found.errno:
        return Unanswered(os.strerror(found.errno))
    return Unanswered(str(found) or type(found).__name__)


def _ignore(_: object) -> None:
    """Do nothing: no watch is set, and whoever waits for an answer learns of the connection's end."""
