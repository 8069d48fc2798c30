"""For how long an item is certain to be ours: what a run that is cut off knows of it, and machines that slept."""

from __future__ import annotations

from contextlib import AbstractContextManager
from unittest import mock

import anyio
import pytest

from aioelasticjob import ElasticJob, ItemContext, clock
from aioelasticjob.jobs.context import run_lease
from aioelasticjob.testing import VirtualClock, VirtualCluster, simulated
from aioelasticjob.testing.process import current_process
from aioelasticjob.testing.virtual_cluster import REGISTRY


def now() -> float:
    return VirtualClock().now()


@simulated
async def test_a_run_whose_session_may_end_knows_that_it_has_the_margin_left() -> None:
    cluster, left = VirtualCluster(), list[float]()
    app = ElasticJob("embedded://", clock=VirtualClock(), session_timeout=6)

    @app.job(cron="0/30 * * * * ?")
    async def job(_context: ItemContext) -> None:
        claimed = run_lease.get()
        assert claimed is not None
        try:
            await anyio.sleep(20)
        finally:
            left.append(claimed.left - claimed.margin)

    instance = await cluster.start(app)
    await anyio.sleep(35)
    cluster.faults.partition([instance.host], [REGISTRY])
    await anyio.sleep(10)
    assert left == [pytest.approx(0, abs=0.001)]
    cluster.faults.heal()
    await cluster.close()


def suspended(host: str, seconds: float) -> AbstractContextManager[object]:
    """Let a host have been suspended: its loop's timers know nothing of those seconds."""
    awake = clock._read_boot_time

    def read() -> float:
        here = current_process()
        return awake() + (seconds if here is not None and here.address == host else 0.0)

    return mock.patch.object(clock, "_read_boot_time", read)


@pytest.mark.parametrize("monitored", [True, False])
def test_after_a_suspension_a_handler_is_cancelled_within_a_second_and_none_begins(monitored: bool) -> None:
    @simulated
    async def test() -> None:
        cluster, ends, begins = VirtualCluster(), list[float](), list[float]()
        app = ElasticJob("embedded://", clock=VirtualClock(), session_timeout=30)

        @app.job(cron="5/30 * * * * ?", name="long", monitor_execution=monitored)
        async def long(_context: ItemContext) -> None:
            try:
                await anyio.sleep(28)
            finally:
                ends.append(now())

        @app.job(cron="0/1 * * * * ?", name="short", monitor_execution=monitored)
        async def short(_context: ItemContext) -> None:
            begins.append(now())

        instance = await cluster.start(app)
        await anyio.sleep(40.5)
        cluster.faults.partition([instance.host], [REGISTRY])  # it will not be proven again before long
        woken = now()
        with suspended(instance.host, 60.0):
            await anyio.sleep(5)
            assert 0 <= ends[-1] - woken <= 1.001
            assert begins[-1] < woken
            cluster.faults.heal()
            await anyio.sleep(30)
            assert begins[-1] > woken, "it goes on once the session is proven again"
            await cluster.close()

    test()
