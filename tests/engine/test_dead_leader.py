"""A dead leader's session may last for long: instances that come or go meanwhile stop nobody's work."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import pytest

from aioelasticjob import ElasticJob, ItemContext
from aioelasticjob.testing import Instance, VirtualCluster

Event = Callable[[VirtualCluster, ElasticJob, list[Instance]], Awaitable[object]]


async def somebody_joins(cluster: VirtualCluster, app: ElasticJob, _others: list[Instance]) -> object:
    return await cluster.start(app)


async def somebody_leaves(_cluster: VirtualCluster, _app: ElasticJob, others: list[Instance]) -> object:
    return await others[-1].stop()


@pytest.mark.parametrize(("happens", "survivors"), [(somebody_joins, 4), (somebody_leaves, 3)])
async def test_items_go_on_though_the_leader_is_dead_and(
    happens: Event, survivors: int, virtual_cluster: VirtualCluster
) -> None:
    ran: list[tuple[float, int]] = []
    app = ElasticJob("zk://zk1:2181/shop", session_timeout=30)

    @app.job(cron="* * * * * ?", sharding_total_count=5, failover=True)
    async def till(context: ItemContext) -> None:
        ran.append((context.fire_time.timestamp(), context.item))

    workers = [await virtual_cluster.start(app) for _ in range(5)]
    await virtual_cluster.settled("till")
    status = await virtual_cluster.status("till")
    (leads,) = (one.id for one in status.instances if one.leads)
    (leader,) = (one for one in workers if leads.startswith(f"{one.host}@"))
    leader.kill()
    await happens(virtual_cluster, app, [one for one in workers if one is not leader])
    before = len(ran)
    await anyio.sleep(20)
    assert len(ran) - before >= 19 * survivors
    assert len(ran) == len(set(ran))
    await anyio.sleep(20)
    assert {item for _, item in ran[-10:]} == set(range(5))
