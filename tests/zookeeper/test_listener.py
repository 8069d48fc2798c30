from __future__ import annotations

import asyncio
import socket

import anyio

from aioelasticjob.zookeeper.listener import listening


def test_the_port_is_free_as_soon_as_the_server_leaves_it() -> None:
    async def main() -> None:
        listener = listening(asyncio.Protocol, "127.0.0.1", 0)
        port = await listener.__aenter__()
        await asyncio.sleep(0)  # it waits for connections
        leaving = asyncio.create_task(listener.__aexit__(None, None, None))
        await asyncio.sleep(0)
        socket.create_server(("127.0.0.1", port)).close()
        await leaving

    asyncio.run(main())


def test_a_cancellation_by_a_scope_of_anyio_stays_its_own() -> None:
    async def main() -> None:
        with anyio.CancelScope() as scope:
            async with listening(asyncio.Protocol, "127.0.0.1", 0):
                await asyncio.sleep(0)
                scope.cancel()
        assert scope.cancelled_caught

    asyncio.run(main())
