"""Suspended machines: monotonic clocks and timers stand still, wall clocks and CLOCK_BOOTTIME go on."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from aioelasticjob import clock
from aioelasticjob.testing import Faults, VirtualClock, run
from aioelasticjob.testing.loop import START

A = "10.0.0.1"


def test_the_monotonic_clock_stands_still_and_the_others_go_on() -> None:
    seen: list[tuple[float, float, float]] = []

    async def main() -> None:
        async def sleeper() -> None:
            for _ in range(2):
                await asyncio.sleep(2)
                boot = clock.boot_time()
                seen.append((asyncio.get_running_loop().time(), boot, VirtualClock().now() - START))

        faults = Faults()
        process = faults.start("sleeper", A, sleeper)
        await asyncio.sleep(1)
        faults.suspend(process)
        await asyncio.sleep(10)
        assert not seen
        faults.wake(process)
        await process.wait()

    run(main)
    assert seen == [pytest.approx((2, 12, 12)), pytest.approx((4, 14, 14))]


def test_a_deadline_is_reached_in_spite_of_rounding() -> None:
    async def main() -> None:
        async def sleeper() -> None:
            for _ in range(100):
                with anyio.move_on_after(0.1):
                    await anyio.sleep(1)

        faults = Faults()
        process = faults.start("sleeper", A, sleeper)
        for _ in range(9):
            await asyncio.sleep(0.77)
            faults.suspend(process)
            await asyncio.sleep(1 / 3)
            faults.wake(process)
        await process.wait()
        assert faults.loop.time() == pytest.approx(10 + 3)

    run(main)


def test_a_machine_that_is_killed_in_its_sleep_does_not_wake() -> None:
    async def main() -> None:
        faults = Faults()
        process = faults.start("sleeper", A, lambda: asyncio.sleep(2))
        await asyncio.sleep(1)
        faults.suspend(process)
        faults.crash(process)
        faults.wake(process)
        await asyncio.sleep(10)
        assert not process.alive

    run(main)
