"""An ensemble of three whose members are killed and stopped while jobs run: the schedule goes on."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import anyio
import pytest

from tests.support.local_applications import TIMEOUT, RegistryObserver, registry_observer
from tests.support.loops import run_async
from tests.support.processes import Workers
from tests.support.real_zookeeper import Ensemble, RealServer
from tests.support.worker_processes import WorkerProcesses

pytestmark = [pytest.mark.process, pytest.mark.zookeeper, pytest.mark.timeout(240)]
ITEMS = 4
SESSION_TIMEOUT = 8.0
"""Seconds: an ensemble of this machine elects a leader in less, so that sessions outlive that."""


@pytest.fixture
def crew_before(worker_processes: Workers, real_ensemble: Ensemble, tmp_path: Path) -> WorkerProcesses:
    """Worker processes that know all members of the ensemble."""
    address = f"zk://{real_ensemble.addresses}/test-{uuid4().hex}"
    start_processes = WorkerProcesses(worker_processes, address, tmp_path / "journal", session_timeout=SESSION_TIMEOUT)
    start_processes.job = {"sharding_total_count": ITEMS}
    return start_processes


def busiest_follower(ensemble: Ensemble) -> RealServer:
    followers = [member for member in ensemble.members if member.mode() == "follower"]
    return max(followers, key=lambda member: member.ask("cons").count("sid="))


async def at_work(start_processes: WorkerProcesses, registry: RegistryObserver) -> set[str]:
    """Start three workers, wait until they work, and return their instances."""
    for _ in range(3):
        start_processes.start(work=0.2)
    view = await registry.spread_over(3)
    await start_processes.every_item_ends(1, ITEMS)
    return set(view.instances)


def test_the_ensembles_leader_is_killed_and_comes_back(crew_before: WorkerProcesses, real_ensemble: Ensemble) -> None:
    async def main() -> None:
        start_processes = crew_before
        async with registry_observer(start_processes.address) as registry:
            names = await at_work(start_processes, registry)
            leader = real_ensemble.leader()
            leader.kill()
            await start_processes.every_item_ends(3, ITEMS)
            assert set(registry.view.instances) == names  # same names are same sessions
            await anyio.to_thread.run_sync(real_ensemble.leader)
            leader.start()
            await anyio.to_thread.run_sync(leader.wait_until_serving)
            await start_processes.every_item_ends(2, ITEMS)
            assert set(registry.view.instances) == names
        await start_processes.end()

    run_async("asyncio", main)


def test_a_follower_is_frozen_and_thaws(crew_before: WorkerProcesses, real_ensemble: Ensemble) -> None:
    async def main() -> None:
        start_processes = crew_before
        async with registry_observer(start_processes.address) as registry:
            names = await at_work(start_processes, registry)
            frozen = busiest_follower(real_ensemble)
            frozen.process.pause()
            try:
                await start_processes.every_item_ends(4, ITEMS)
                with anyio.fail_after(TIMEOUT):  # those that it served have found another one within their sessions
                    await registry.session.sync()
                assert set(registry.view.instances) == names
            finally:
                frozen.process.resume()
            await start_processes.every_item_ends(2, ITEMS)
            assert set(registry.view.instances) == names
        await start_processes.end()

    run_async("asyncio", main)


def test_without_a_majority_nothing_is_claimed_and_with_it_everything_goes_on(
    crew_before: WorkerProcesses, real_ensemble: Ensemble
) -> None:
    async def main() -> None:
        start_processes = crew_before
        async with registry_observer(start_processes.address) as registry:
            await at_work(start_processes, registry)
            for member in real_ensemble.members[1:]:
                member.kill()
            survivor = real_ensemble.members[0]
            with anyio.fail_after(TIMEOUT):
                while survivor.mode():
                    await anyio.sleep(0.05)
            quiet = len(start_processes.lines())
            await anyio.sleep(2)  # two slots in which nobody may claim
            late = [line for line in start_processes.lines()[quiet:] if line.what == "begin"]
            assert not late
            await anyio.to_thread.run_sync(real_ensemble.repair)
            await start_processes.every_item_ends(2, ITEMS)
            await registry.spread_over(3)
        await start_processes.end()

    run_async("asyncio", main)
