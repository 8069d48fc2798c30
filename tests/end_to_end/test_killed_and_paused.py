"""Worker processes that are killed, or stopped for longer than their session lives: the promises hold all the same."""

from __future__ import annotations

import anyio
import pytest

from tests.support.local_applications import RegistryObserver, registry_observer
from tests.support.loops import run_async
from tests.support.worker_processes import WorkerProcesses, leading, of

pytestmark = pytest.mark.process


async def taken_over(registry: RegistryObserver, victim: str) -> None:
    """Wait until the others hold all items of an instance; how long that takes is the benchmark's affair."""
    await registry.until(
        lambda view: (
            view.assignment_stands
            and victim not in view.instances
            and len(view.assignment) == view.config.sharding_total_count
            and set(view.assignment.values()) == set(view.eligible)
        )
    )


@pytest.mark.parametrize("thread", [False, True], ids=["in the loop", "in a thread"])
def test_a_killed_leader_is_replaced_and_its_items_run_on(start_processes: WorkerProcesses, thread: bool) -> None:
    async def main() -> None:
        start_processes.job = {"sharding_total_count": 6}
        for _ in range(3):
            start_processes.start(work=0.6, thread=thread)
        async with registry_observer(start_processes.address) as registry:
            await registry.spread_over(3)
            await start_processes.every_item_ends(1, 6)
            victim = leading(registry, start_processes)
            name = of(registry.view, victim)
            await start_processes.in_the_midst(name)
            start_processes.kill(victim)
            await taken_over(registry, name)
            await start_processes.every_item_ends(1, 6)
            start_processes.start(work=0.6, thread=thread)
            await registry.spread_over(3)
            await start_processes.every_item_ends(1, 6)
        await start_processes.end()

    run_async("asyncio", main)


def test_only_one_of_three_survives(start_processes: WorkerProcesses) -> None:
    async def main() -> None:
        start_processes.job = {"sharding_total_count": 4}
        first, second, last = (start_processes.start(work=0.2) for _ in range(3))
        async with registry_observer(start_processes.address) as registry:
            await registry.spread_over(3)
            await start_processes.every_item_ends(1, 4)
            survivor = of(registry.view, last)
            start_processes.kill(first)
            start_processes.kill(second)
            await registry.until(lambda view: view.assignment_stands and set(view.assignment.values()) == {survivor})
            await start_processes.every_item_ends(2, 4)
        await start_processes.end()

    run_async("asyncio", main)


@pytest.mark.parametrize("leads", [True, False], ids=["leader", "follower"])
def test_a_process_stopped_past_its_session_comes_back_as_somebody_else(
    start_processes: WorkerProcesses, leads: bool
) -> None:
    async def main() -> None:
        start_processes.job = {"sharding_total_count": 4}
        for _ in range(3):
            start_processes.start(work=0.6)
        async with registry_observer(start_processes.address) as registry:
            await registry.spread_over(3)
            await start_processes.every_item_ends(1, 4)
            leader = leading(registry, start_processes)
            victim = leader if leads else next(child for child in start_processes.alive if child is not leader)
            old = of(registry.view, victim)
            await start_processes.in_the_midst(old)
            async with start_processes.stopped(victim):
                await taken_over(registry, old)
                await start_processes.every_item_ends(2, 4)
            new = of(await registry.spread_over(3), victim)
            assert new != old
            await start_processes.in_the_midst(new)
            await start_processes.every_item_ends(1, 4)
        await start_processes.end()

    run_async("asyncio", main)


def test_a_process_stopped_for_a_moment_goes_on_under_its_session(start_processes: WorkerProcesses) -> None:
    async def main() -> None:
        start_processes.job = {"sharding_total_count": 2}
        start_processes.session_timeout = 20  # for a busy machine stops all of them for a moment more
        one, _ = start_processes.start(work=0.2), start_processes.start(work=0.2)
        async with registry_observer(start_processes.address) as registry:
            names = (await registry.spread_over(2)).instances.keys()
            await start_processes.every_item_ends(1, 2)
            one.pause()
            await anyio.sleep(1)  # a pause is made of time
            one.resume()
            await start_processes.every_item_ends(2, 2)
            assert registry.view.instances.keys() == names
        await start_processes.end()

    run_async("asyncio", main)
