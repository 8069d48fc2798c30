"""Accepts connections, and waits a while if the machine has no resources for another one."""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager

from aioelasticjob.zookeeper.repeated_warning import RepeatedWarning

BACKLOG = 100
RETRY_PAUSE = 1.0
"""Seconds until the next attempt after one that failed: descriptors come back when connections end."""
_ABSENT = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
"""Errors of an address that this machine does not have, as ``::1`` of ``localhost`` where IPv6 is off."""

Protocols = Callable[[], asyncio.Protocol]


@asynccontextmanager
async def listening(protocols: Protocols, host: str, port: int) -> AsyncIterator[int]:
    """Accept connections until the block ends; yield the port, which is a free one where 0 was asked for.

    asyncio's own server tries again a hundred times at once when no descriptor is left, and logs a traceback each
    time.  So we accept ourselves on its loop and on uvloop's.  Other loops, as a simulation's, do it their own way.

    Raises: OSError if the address cannot be had.
    """
    loop = asyncio.get_running_loop()
    if not isinstance(loop, asyncio.SelectorEventLoop) and type(loop).__module__ != "uvloop":
        listener = await loop.create_server(protocols, host, port)
        try:
            yield listener.sockets[0].getsockname()[1] if listener.sockets else port
        finally:
            listener.close()
        return
    with ExitStack() as stack:
        sockets = await _bound(stack, host, port)
        trouble = RepeatedWarning("connections are accepted again")
        accepting = [loop.create_task(_accept(protocols, each, trouble)) for each in sockets]
        try:
            yield sockets[0].getsockname()[1]
        finally:
            trouble.stop()
            for each in sockets:  # at once: the next server may want the port already
                loop.remove_reader(each)
                each.close()
            for task in accepting:
                task.cancel()
            # not ``gather``: it would raise a cancellation of its own, which no scope of anyio knows
            await asyncio.wait(accepting)


async def _bound(stack: ExitStack, host: str, port: int) -> list[socket.socket]:
    """Return a listening socket for each address of the host that this machine has; ``stack`` closes them."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets = list[socket.socket]()
    absent = None
    for family, _, _, _, address in dict.fromkeys(found):
        try:
            made = stack.enter_context(socket.create_server(address[:2], family=family, backlog=BACKLOG))
        except OSError as error:
            if error.errno not in _ABSENT:
                raise
            absent = error
        else:
            made.setblocking(False)
            sockets.append(made)
    if absent is not None and not sockets:
        raise absent
    return sockets


async def _accept(protocols: Protocols, listener: socket.socket, trouble: RepeatedWarning) -> None:
    """Hand every connection to a protocol of its own.

    After every OSError there is another attempt: a server that accepts no more would look alive.
    """
    loop = asyncio.get_running_loop()
    while True:
        try:
            connection, _ = listener.accept()
            connection.setblocking(False)
            await loop.connect_accepted_socket(protocols, connection)
        except (BlockingIOError, InterruptedError):
            await _readable(loop, listener)
        except ConnectionError:
            continue  # the client had gone before it was accepted
        except OSError as error:
            reason = error.strerror or str(error)
            trouble.happened(f"cannot accept connections: {reason}; clients wait and are tried every {RETRY_PAUSE:g} s")
            await asyncio.sleep(RETRY_PAUSE)


async def _readable(loop: asyncio.AbstractEventLoop, listener: socket.socket) -> None:
    """Return when a client wants to connect.  Unlike ``sock_accept``, it loses no connection if it is cancelled."""
    ready = loop.create_future()

    def tell() -> None:
        loop.remove_reader(listener)
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(listener, tell)
    try:
        await ready
    finally:
        if listener.fileno() >= 0:
            loop.remove_reader(listener)
