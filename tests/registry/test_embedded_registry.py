"""A private registry that stands still with its own process, and fences over restarts of an embedded server."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import anyio
import pytest

from aioelasticjob import ElasticJob, ItemContext
from aioelasticjob.events import Ended, Misfired
from aioelasticjob.registry.session import ConnectionSettings, open_session
from aioelasticjob.registry.transaction import Create
from aioelasticjob.testing import VirtualClock, simulated
from aioelasticjob.zookeeper.server import serve


@simulated
async def test_a_handler_that_blocks_for_longer_than_the_session_is_completed_once_on_a_private_registry() -> None:
    app = ElasticJob("embedded://", clock=VirtualClock(), session_timeout=6)
    ends = list[tuple[str, str]]()
    misfires = list[Misfired]()
    loop: Any = asyncio.get_running_loop()

    @app.job(cron="0 * * * * ?", failover=True)
    async def crunch(_context: ItemContext) -> None:
        loop._now += 20  # as a call that blocks the event loop, and with it the server

    async def listen() -> None:
        with app.events() as events:
            async for event in events:
                if isinstance(event, Ended):
                    ends.append((event.source.value, event.outcome.value))
                elif isinstance(event, Misfired):
                    misfires.append(event)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listen)
        async with app.running():
            await anyio.sleep(200)
        tasks.cancel_scope.cancel()
    assert ends == [("SCHEDULE", "completed")] * 3
    assert not misfires


async def fence(address: str) -> int:
    """Return the number of a write, which is what a fence is."""
    async with open_session(ConnectionSettings.parse(address)) as session:
        written = await session.commit([Create(f"/{session.zxid}")], incarnation=session.incarnation)
        return written.zxid


@pytest.mark.parametrize("kept", ["in memory", "on disk", "restored from a copy"])
def test_fences_never_go_back_over_restarts_of_an_embedded_server(tmp_path: Path, kept: str) -> None:
    data_dir = None if kept == "in memory" else tmp_path / "registry"
    copy = tmp_path / "copy"

    async def restarted(writes: int) -> list[int]:
        async with serve(data_dir=data_dir) as server:
            return [await fence(f"zk://127.0.0.1:{server.port}/fences") for _ in range(writes)]

    async def main() -> None:
        seen = await restarted(1)
        if kept == "restored from a copy":
            assert data_dir is not None
            shutil.copytree(data_dir, copy)
        seen += await restarted(5)
        if kept == "restored from a copy":
            assert data_dir is not None
            shutil.rmtree(data_dir)
            shutil.copytree(copy, data_dir)
        seen += await restarted(1)
        assert seen == sorted(set(seen))
        assert seen[-1] < 2**53, "exact also for programs whose numbers are floating point"

    anyio.run(main)


def test_a_clock_that_was_set_back_does_not_take_the_numbers_of_a_durable_server_back(tmp_path: Path) -> None:
    async def main() -> None:
        seen = list[int]()
        for wall in (2_000_000_000, 1_000_000_000):
            async with serve(data_dir=tmp_path / "registry", clock=lambda wall=wall: wall) as server:
                seen.append(await fence(f"zk://127.0.0.1:{server.port}/fences"))
        assert seen == sorted(set(seen))

    anyio.run(main)
