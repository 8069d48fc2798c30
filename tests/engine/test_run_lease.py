"""For how long an item is certain to be ours: what a run that is cut off knows of it, and machines that slept."""

from __future__ import annotations

from contextlib import AbstractContextManager
from unittest import mock

import anyio
import pytest

from aioelasticjob import ElasticJob, ItemContext
from aioelasticjob.jobs.context import run_lease
from aioelasticjob.registry.session import Session
from aioelasticjob.testing import VirtualClock, VirtualCluster, simulated
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


def suspended(session: Session, seconds: float) -> AbstractContextManager[object]:
    """Let the host of a session have been suspended: its loop's timers know nothing of those seconds."""
    lease = session._keeper.lease
    return mock.patch.object(lease, "now", side_effect=lambda awake=lease.now: awake() + seconds)


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
        with suspended(instance.session, 60.0):
            await anyio.sleep(5)
            assert 0 <= ends[-1] - woken <= 1.001
            assert begins[-1] < woken
            cluster.faults.heal()
            await anyio.sleep(30)
            assert begins[-1] > woken, "it goes on once the session is proven again"
            await cluster.close()

    test()
