"""aiozk's stock client on the embedded server: on both real loops, and in virtual time with a network in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiozk import ACL, WatchEvent, ZKClient, exc

from aioelasticjob.zookeeper import Server, Settings, serve
from aioelasticjob.zookeeper.codes import OpCode
from tests.support.loops import LoopKind, run_async
from tests.zookeeper.raw_client import connected, create_body, read_body


@asynccontextmanager
async def client_of(server: Server, chroot: str | None = None) -> AsyncIterator[ZKClient]:
    client = ZKClient(server.address, chroot=chroot, session_timeout=4)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


def test_every_basic_operation(loop_kind: LoopKind) -> None:
    async def main() -> None:
        async with serve() as server, client_of(server) as client:
            assert await client.create("/a", "one") == "/a"
            await client.set_data("/a", "two", force=True)
            assert await client.get_data("/a") == b"two"
            assert await client.create("/a/b-", sequential=True) == "/a/b-0000000000"
            assert await client.get_children("/a") == ["b-0000000000"]
            assert (await client.get_acl("/a"))[0].id.scheme == "world"
            await client.ensure_path("/deep/er")
            await client.deleteall("/a")
            assert not await client.exists("/a")
            with pytest.raises(exc.NodeExists):
                await client.create("/deep")
            with pytest.raises(exc.NoNode):
                await client.get_data("/nope")

    run_async(loop_kind, main)


def test_watches_are_heard(loop_kind: LoopKind) -> None:
    async def main() -> None:
        async with serve() as server, client_of(server) as watcher, client_of(server) as writer:
            await writer.create("/w", "1")
            await watcher.get_data("/w", watch=True)
            heard = watcher.wait_for_events([WatchEvent.DATA_CHANGED], "/w")
            await writer.set_data("/w", "2", force=True)
            await asyncio.wait_for(heard, 90)

    run_async(loop_kind, main)


def test_transactions_are_whole(loop_kind: LoopKind) -> None:
    async def main() -> None:
        async with serve() as server, client_of(server) as client:
            good = client.begin_transaction()
            good.create("/t", "x")
            good.set_data("/t", "y", version=0)
            assert (await good.commit()).created == {"/t"}
            bad = client.begin_transaction()
            bad.create("/u")
            bad.check_version("/t", 0)
            await bad.commit()
            assert not await client.exists("/u")

    run_async(loop_kind, main)


def test_a_chroot_with_an_acl_of_its_own(loop_kind: LoopKind) -> None:
    async def main() -> None:
        async with serve() as server, client_of(server, "/below") as client:
            await client.create("/read-only", "x", acl=[ACL.make("world", "anyone", read=True)])
            with pytest.raises(exc.NoAuth):
                await client.set_data("/read-only", "y", force=True)

    run_async(loop_kind, main)


def test_an_ephemeral_outlives_its_silent_session_by_its_timeout_and_a_tick() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        async with (
            serve(settings=Settings(tick_time=1000)) as server,
            connected(server, 20_000) as watcher,
            connected(server, 10_000) as silent,
        ):
            await silent.ask(OpCode.CREATE, create_body("/mine", flags=1))
            began = loop.time()
            await watcher.ask(OpCode.EXISTS, read_body("/mine", True))
            await watcher.next()
            return loop.time() - began

    assert 10 <= run_async("virtual", main) <= 11.01


def test_a_virtual_day_of_containers_takes_no_time() -> None:
    async def main() -> int:
        now = asyncio.get_running_loop().time
        async with serve(clock=now, settings=Settings(tick_time=60_000)) as server, connected(server, 10**7) as client:
            await client.ask(OpCode.CREATE_CONTAINER, create_body("/c", flags=4))
            await client.ask(OpCode.CREATE, create_body("/c/x", flags=0))
            for _ in range(24 * 6):
                await asyncio.sleep(600)
                assert (await client.ask(OpCode.EXISTS, read_body("/c"))).error == 0
            await client.ask(OpCode.DELETE, b"\0\0\0\x04/c/x\xff\xff\xff\xff")
            await asyncio.sleep(120)
            return (await client.ask(OpCode.EXISTS, read_body("/c"))).error

    assert run_async("virtual", main) == -101
