"""The virtual-time loop alone: time, order, and what it refuses."""

from __future__ import annotations

import asyncio
import random
import secrets
import threading
import time
import uuid

import anyio
import pytest

from aioelasticjob.clock import SystemClock
from aioelasticjob.testing import Deadlock, Livelock, OutsideWorld, UnhandledErrors, VirtualClock, run
from aioelasticjob.testing.loop import START


def test_ten_hours_of_timers_take_no_time() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        while loop.time() < 36_000:
            await asyncio.sleep(10)
        return loop.time()

    began = time.perf_counter()
    assert run(main) == 36_000
    assert time.perf_counter() - began < 60  # it takes some 50 ms


def test_scopes_timeouts_and_groups_run_on_simulated_time() -> None:
    async def main() -> list[tuple[str, float]]:
        loop, seen = asyncio.get_running_loop(), []

        async def note(name: str, after: float) -> None:
            await anyio.sleep(after)
            seen.append((name, loop.time()))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(note, "late", 5.0)
            tasks.start_soon(note, "early", 1.0)
        with anyio.move_on_after(3) as scope:
            scope.deadline += 4  # pushed forward, as heartbeats push the session's
            await anyio.sleep_forever()
        seen.append(("scope", loop.time()))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await asyncio.Event().wait()
        seen.append(("timeout", loop.time()))
        return seen

    assert run(main) == [("early", 1.0), ("late", 5.0), ("scope", 12.0), ("timeout", 12.5)]


def test_wall_clocks_follow_simulated_time() -> None:
    async def main() -> tuple[float, float, float]:
        await asyncio.sleep(3600)
        return VirtualClock().now(), SystemClock().now(), time.monotonic()

    assert run(main) == (START + 3600, START + 3600, 3600)
    assert abs(SystemClock().now() - START) > 86_400  # the real clock is back


def test_chance_is_part_of_the_seed() -> None:
    async def main() -> tuple[object, ...]:
        return (
            random.random(),
            random.Random().random(),
            uuid.uuid4(),
            secrets.token_bytes(8),
            asyncio.get_running_loop().time(),
        )

    before = random.getstate()
    assert run(main, seed=7) == run(main, seed=7) != run(main, seed=8)
    assert random.getstate() == before


def test_sets_of_tasks_are_cancelled_in_the_same_order_in_each_run() -> None:
    async def main() -> list[int]:
        ended: list[int] = []

        async def wait(number: int) -> None:
            try:
                with anyio.CancelScope():
                    await anyio.sleep_forever()
            finally:
                ended.append(number)

        async with anyio.create_task_group() as tasks:
            for number in range(50):
                tasks.start_soon(wait, number)
            await anyio.sleep(1)
            tasks.cancel_scope.cancel()
        return ended

    assert run(main) == run(main)


def test_a_deadlock_names_who_waits_and_where() -> None:
    async def wait_for_godot() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(wait_for_godot(), name="vladimir")

    with pytest.raises(Deadlock) as caught:
        run(main)
    (estragon,) = [line for line in caught.value.waiting if "vladimir" in line]
    assert "wait_for_godot" in estragon
    assert "test_loop.py" in estragon
    assert "Event.wait" in estragon


def test_an_endless_loop_without_time_is_noticed() -> None:
    async def main() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(Livelock, match="second 0"):
        run(main)


@pytest.mark.parametrize("thing", ["executor", "anyio thread", "thread", "sleep", "datagram", "tls"])
def test_what_cannot_be_simulated_is_refused(thing: str) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        match thing:
            case "executor":
                await asyncio.to_thread(time.perf_counter)
            case "anyio thread":
                await anyio.to_thread.run_sync(time.perf_counter)
            case "thread":
                threading.Thread(target=time.perf_counter).start()
            case "sleep":
                time.sleep(1)
            case "datagram":
                await loop.create_datagram_endpoint(asyncio.DatagramProtocol, ("127.0.0.1", 0))
            case "tls":
                await loop.create_connection(asyncio.Protocol, "10.0.0.1", 1, ssl=True)

    with pytest.raises((OutsideWorld, ValueError)):
        run(main)


def test_errors_nobody_handles_fail_the_run() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)

    with pytest.raises(UnhandledErrors) as caught:
        run(main)
    assert caught.group_contains(ZeroDivisionError)


def test_what_is_left_at_the_end_is_cancelled() -> None:
    ended: list[str] = []

    async def stay() -> None:
        try:
            await asyncio.sleep(1e6)
        finally:
            await asyncio.sleep(1)
            ended.append("orderly")

    tasks: list[asyncio.Task[None]] = []

    async def main() -> None:
        tasks.append(asyncio.get_running_loop().create_task(stay()))
        await asyncio.sleep(0)

    run(main)
    assert ended == ["orderly"]
    assert tasks[0].cancelled()


def test_another_thread_cannot_call_into_the_loop() -> None:
    go, refused = threading.Event(), []
    loops: list[asyncio.AbstractEventLoop] = []

    def call() -> None:
        go.wait()
        try:
            loops[0].call_soon_threadsafe(print)
        except OutsideWorld as refusal:
            refused.append(refusal)

    thread = threading.Thread(target=call)
    thread.start()

    async def main() -> None:
        loops.append(asyncio.get_running_loop())
        go.set()
        thread.join()

    run(main)
    assert len(refused) == 1
