"""The registry that a looking command is about: its options, and a session that ends with the command."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeAlias, TypeVar

import typer

from aioelasticjob.addresses import Address, open_registry
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.registry.session import Session

T = TypeVar("T")

Registry: TypeAlias = Annotated[
    str,
    typer.Option(
        "--registry",
        "-r",
        envvar="AIOELASTICJOB_REGISTRY",
        help="zk://host:port,host:port/namespace or embedded://host:port/…",
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
    registry = Address.parse(address, connection_timeout=timeout, digest=digest)
    if registry.private:
        raise InvalidSetting("address", address, "a private registry lives and dies with its process: nothing to see")

    async def main() -> T:
        async with open_registry(registry) as session:
            return await read(session)

    return asyncio.run(main())
