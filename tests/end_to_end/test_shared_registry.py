"""Five workers and no registry: they start one, share the work, and lose no fire and no session when it is killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from aioelasticjob.registry.shared import ensure_server
from tests.support import shared
from tests.support.local_applications import registry_observer
from tests.support.processes import Workers
from tests.support.shared import SharedRegistry
from tests.support.worker_processes import WorkerProcesses

pytestmark = pytest.mark.process


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[SharedRegistry]:
    with shared.shared_registry(tmp_path) as found:
        yield found


def test_five_workers_need_nothing_but_an_address(
    registry: SharedRegistry, worker_processes: Workers, tmp_path: Path
) -> None:
    async def main() -> None:
        start_processes = WorkerProcesses(worker_processes, registry.address, tmp_path / "journal", session_timeout=6)
        start_processes.job = {"sharding_total_count": 5, "failover": True}
        for _ in range(5):
            start_processes.start()  # at the same instant, as a web server starts its workers
        await ensure_server(registry.server)
        async with registry_observer(f"zk://127.0.0.1:{registry.port}/test") as watched:
            before = await watched.spread_over(5)
            await start_processes.every_item_ends(1, 5)
            assert registry.starts == 1
            registry.kill()
            await start_processes.every_item_ends(2, 5)
            assert registry.starts == 2
            after = await watched.spread_over(5)
            assert after.instances == before.instances  # the same sessions, not new ones
            start_processes.kill(start_processes.alive[0])
            await watched.spread_over(4)
            await start_processes.every_item_ends(1, 5)
        await start_processes.end()

    anyio.run(main)
