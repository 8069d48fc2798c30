"""Dialling: one attempt to connect to one address of a server, with TLS or without, and why it has failed."""

from __future__ import annotations

import asyncio
import ssl

from aioelasticjob.errors import ElasticJobError
from aioelasticjob.registry.connection import CLOSED, Connection
from aioelasticjob.registry.settings import ConnectionSettings
from aioelasticjob.registry.tls import TlsSettings, encrypted, explained, unanswered, unencrypted


async def dial(
    connection: Connection,
    settings: ConnectionSettings,
    host: tuple[str, int],
    address: str,
    tls: ssl.SSLContext | None,
) -> None:
    """Open a connection to an address of ``host``.

    Raises: OSError, of which errors of TLS are a kind.
    """
    loop = asyncio.get_running_loop()
    name = None
    if settings.tls is not None:
        name = settings.tls.server_name or host[0]
    await loop.create_connection(lambda: connection, address, host[1], ssl=tls, server_hostname=name)


def why_failed(
    error: Exception, connection: Connection, tls: TlsSettings | None, server: str, *, new: bool
) -> tuple[Exception, bool]:
    """Return why an attempt has failed, and whether that is a guess; ``new``: there was no session before.

    A server that refuses our certificate may just close the connection: then the error of TLS is a guess.
    """
    if isinstance(error, ElasticJobError):
        return error, False
    if tls is None:
        if connection.answers_with_tls:
            return encrypted(server), False
        if new and str(error) == CLOSED:
            hint = f"{CLOSED} before it answered: if this is its port for TLS, write zks://…"
            return ConnectionError(hint), False
        return error, False
    found = explained(error, tls, server) or explained(connection.error, tls, server)
    if found is not None:
        return found, False
    if not new or not isinstance(error, ConnectionError) or isinstance(error, ConnectionRefusedError):
        return error, False
    if connection.opened:
        return unanswered(tls, server), True
    return unencrypted(server), True
