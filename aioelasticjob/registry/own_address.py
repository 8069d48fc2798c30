"""Our server's own address, by which the registry tells servers apart: two of them must not have the same."""

from __future__ import annotations

import ipaddress
import os
import socket
from contextlib import suppress
from typing import Final

from aioelasticjob.errors import InvalidSetting
from aioelasticjob.registry.host_names import is_ip

VARIABLE: Final = "AIOELASTICJOB_IP"
_OUTSIDE: Final = ((socket.AF_INET, "203.0.113.1"), (socket.AF_INET6, "2001:db8::1"))  # reserved for examples
_ANY_PORT: Final = 9


def own_address(given: str | None, seen: str, *, one_machine: bool) -> str:
    """Return the address given, else the variable's, else ``seen``: ours on the connection to the registry.

    If that is loopback, other hosts may have the same one: then it is our address towards the outside, if there is one.
    With ``one_machine`` all servers of the registry are this one, and loopback will do.

    Raises: InvalidSetting.
    """
    if given is not None:
        return given
    if variable := os.environ.get(VARIABLE):
        if not is_ip(variable):
            raise InvalidSetting(VARIABLE, variable, "an address of this host, such as 10.0.0.7")
        return variable
    if one_machine or not is_ip(seen) or not ipaddress.ip_address(seen).is_loopback:
        return seen
    return outward_address() or seen


def outward_address() -> str | None:
    """Return this host's address on the way to other networks; None if there is no such way.

    Connecting a UDP socket sends nothing: it only chooses the route.
    """
    for family, destination in _OUTSIDE:
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((destination, _ANY_PORT))
            found = str(probe.getsockname()[0])
            if not ipaddress.ip_address(found).is_loopback:
                return found
    return None
