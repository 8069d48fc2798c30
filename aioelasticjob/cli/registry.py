"""The registry that a looking command is about: its options, and a session that ends with the command."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeAlias, TypeVar

import typer

from aioelasticjob.registry.session import ConnectionSettings, Session, open_session

T = TypeVar("T")

Registry: TypeAlias = Annotated[
    str,
    typer.Option(
        "--registry", "-r", envvar="AIOELASTICJOB_REGISTRY", help="Where it is: zk://host:port,host:port/namespace."
    ),
]
Digest: TypeAlias = Annotated[
    str | None, typer.Option(envvar="AIOELASTICJOB_DIGEST", help="user:password, where the registry asks for it.")
]
Patience: TypeAlias = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds to wait for the registry.")]

DEFAULT = "zk://127.0.0.1:2181"


def look(address: str, digest: str | None, timeout: float, read: Callable[[Session], Awaitable[T]]) -> T:
    """Return what ``read`` finds in the registry.

    Raises:
        InvalidSetting: the address makes no sense.
        RegistryError: the registry did not answer, or did not let us in.
    """
    settings = ConnectionSettings.parse(address, connection_timeout=timeout, digest=digest)

    async def main() -> T:
        async with open_session(settings) as session:
            return await read(session)

    return asyncio.run(main())
