"""Ports for servers that must be told theirs, unique among all test processes of this machine."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
from collections.abc import Iterator

_GUARD_ADDRESS = "127.77.0.1"
_RANGE = range(20_000, 30_000)  # below what kernels give to clients, so only a guard's holder takes one


@contextlib.contextmanager
def reserved_ports(count: int) -> Iterator[list[int]]:
    """Yield ports nobody else gets: each is guarded by a socket bound to it on another loopback address."""
    with contextlib.ExitStack() as guards:
        start = os.getpid() * 97 % len(_RANGE)
        candidates = itertools.islice(itertools.cycle(_RANGE), start, start + len(_RANGE))
        free = (port for port in candidates if _guard(port, guards))
        ports = list(itertools.islice(free, count))
        assert len(ports) == count, "no free ports"
        yield ports


def _guard(port: int, guards: contextlib.ExitStack) -> bool:
    guard = socket.socket()
    try:
        guard.bind((_GUARD_ADDRESS, port))
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
    except OSError:
        guard.close()
        return False
    guards.callback(guard.close)
    return True
