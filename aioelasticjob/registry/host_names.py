"""Names of servers: the addresses that a name has at the moment, since members of an ensemble may move."""

from __future__ import annotations

import asyncio
import ipaddress
import socket


async def addresses(name: str, port: int) -> list[str]:
    """Return all addresses that a name has now.

    Raises: OSError if it has none.
    """
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise OSError(f"{name} has no address: {error.strerror}") from error
    return list(dict.fromkeys(str(place[0]) for *_, place in found))


def is_ip(value: object) -> bool:
    """Return whether a value is an IPv4 or IPv6 address."""
    try:
        return isinstance(value, str) and bool(ipaddress.ip_address(value))
    except ValueError:
        return False
