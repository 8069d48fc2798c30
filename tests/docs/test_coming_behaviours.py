"""Each difference in behaviour on the page for those who come from Elastic-Job is tried."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any, TypeAlias, TypeVar

import anyio
import pytest

from aioelasticjob import ElasticJob, ItemContext, operations
from aioelasticjob.events import Began, Ended, HandedOver
from aioelasticjob.model import FireSource, Outcome
from aioelasticjob.registry.transaction import Set
from aioelasticjob.testing import VirtualCluster, simulated
from aioelasticjob.testing.virtual_cluster import REGISTRY
from tests.docs.pages import read

PAGE = "docs/coming-from-elastic-job.md"
TEN_MINUTES = "0 0/10 * * * ?"
BEHAVIOURS = re.findall(r"^\* \*\*(.+?)\*\*", read(PAGE).partition("## What is different on purpose")[2], re.MULTILINE)
Scene: TypeAlias = Callable[[VirtualCluster], Awaitable[None]]
S = TypeVar("S", bound=Scene)
TRIED: dict[str, Scene] = {}


def tries(beginning: str) -> Callable[[S], S]:
    """Return a decorator for the scene that tries the behaviour that begins so."""

    def register(scene: S) -> S:
        TRIED[beginning] = scene
        return scene

    return register


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_a_difference_holds(behaviour: str) -> None:
    (scene,) = [scene for beginning, scene in TRIED.items() if behaviour.startswith(beginning)]
    simulated(scene)(VirtualCluster())


def test_there_is_no_scene_without_a_difference() -> None:
    assert len(TRIED) == len(BEHAVIOURS)


def app_of(*, work: float = 1, **settings: Any) -> ElasticJob:
    """Return an application with one job, whose handler takes ``work`` seconds."""
    app = ElasticJob("zk://registry:2181/shop", session_timeout=10)

    async def handler(context: ItemContext) -> None:
        await anyio.sleep(work)

    app.add(handler, name="job", **{"cron": TEN_MINUTES, "sharding_total_count": 4, **settings})
    return app


def began(cluster: VirtualCluster) -> list[tuple[int, int]]:
    """Return the moment and the item of each run that has begun."""
    return [(one.slot, item) for one in cluster.events if isinstance(one, Began) for item in one.items]


@tries("Assignment does not wait")
async def assignment_does_not_wait(cluster: VirtualCluster) -> None:
    app = app_of(work=120)
    first = await cluster.start(app)
    await cluster.event(Began)
    second = await cluster.start(app)
    await cluster.settled()
    assert (len(await first.holds()), len(await second.holds())) == (2, 2)
    asked = await operations.ask(cluster._session, "job")
    await anyio.sleep(60)
    assert len(began(cluster)) == 4  # the new owner is refused
    await operations.ended(cluster._session, "job", asked.request)
    assert len(began(cluster)) == 8


@tries("Every orphan is taken")
async def every_orphan_is_taken(cluster: VirtualCluster) -> None:
    app = app_of(work=30, failover=True)
    first, second = await cluster.start(app), await cluster.start(app)
    await cluster.event(Began)
    await anyio.sleep(5)
    lost = await first.holds()
    first.kill("silent")
    await anyio.sleep(120)
    rescues = [one for one in cluster.events if isinstance(one, Began) and one.source is FireSource.FAILOVER]
    assert sorted(item for one in rescues for item in one.items) == sorted(lost)
    assert len(lost) == 2
    assert {one.instance.partition("@")[0] for one in rescues} == {second.host}


@tries("`running` is always ephemeral")
async def running_is_ephemeral(cluster: VirtualCluster) -> None:
    host = await cluster.start(app_of(work=300))
    await cluster.event(Began)
    lock = await cluster._session.get("/job/execution/0/running")
    assert lock.stat.ephemeral_owner == host.session.incarnation
    host.kill("silent")
    await anyio.sleep(15)
    assert await cluster._session.exists("/job/execution/0/running") is None


@tries("One run per scheduled moment")
async def one_run_per_moment(cluster: VirtualCluster) -> None:
    app = app_of(work=60)
    first = await cluster.start(app)
    ended = await cluster.next_fire()
    await first.stop()
    await cluster.start(app)
    await cluster.start(app)
    await anyio.sleep(120)
    assert sorted(began(cluster)) == [(ended[0].slot, item) for item in range(4)]


@tries("A handler ends before its session does")
async def handlers_end_before_their_session(cluster: VirtualCluster) -> None:
    host = await cluster.start(app_of(work=300))
    await cluster.event(Began)
    over = cluster.now
    cluster.faults.drop(host.host, REGISTRY)
    end = await cluster.event(Ended)
    assert end.outcome is Outcome.CANCELLED
    assert (cluster.now - over).total_seconds() < 10
    assert await cluster._session.exists("/job/execution/0/running") is not None


@tries("A graceful stop is no crash")
async def a_graceful_stop_is_no_crash(cluster: VirtualCluster) -> None:
    app = app_of(work=300, shutdown_timeout=2, failover=True)
    first, second = await cluster.start(app), await cluster.start(app)
    await cluster.event(Began)
    await anyio.sleep(1)
    await first.stop()
    await anyio.sleep(3)  # nobody has to wait for the end of a session
    assert len(await second.holds()) == 4
    assert len([one for one in cluster.events if isinstance(one, HandedOver)]) == 2


@tries("Nobody watches what is busy")
async def a_fire_costs_two_transactions(cluster: VirtualCluster) -> None:
    calm = {"statistics_interval": "1d", "reconcile_interval": "1d"}
    await cluster.start(app_of(cron="0/30 * * * * ?", **calm))
    written = []
    for _ in range(3):
        await cluster.next_fire()
        await anyio.sleep(1)
        written.append((await cluster._session.get("/job/execution/0")).stat.mzxid)
    assert [after - before for before, after in pairwise(written)] == [2, 2]


@tries("Clocks")
async def a_host_that_is_ahead_does_not_claim_the_future(cluster: VirtualCluster) -> None:
    host = await cluster.start(app_of(cron="0/30 * * * * ?"))
    host._process.skew = 3600
    await anyio.sleep(100)
    assert len(began(cluster)) == 3 * 4
    assert all(slot / 1000 <= cluster.now.timestamp() for slot, _ in began(cluster))


@tries("A wrong setting is an error")
async def a_wrong_setting_is_an_error(cluster: VirtualCluster) -> None:
    await cluster.start(app_of())
    data = b'{"jobName": "job", "cron": "0 0 25 * * ?"}'
    await cluster._session.commit([Set("/job/config", data, -1)], incarnation=cluster._session.incarnation)
    await anyio.sleep(1)
    fault = (await cluster.status()).fault
    assert fault is not None
    assert "cron = '0 0 25 * * ?'" in fault
    assert "hour '25': 25 is out of range, 0 to 23" in fault


@tries("Switching off is for those who come later, too")
async def a_pause_is_for_those_who_come_later(cluster: VirtualCluster) -> None:
    app = app_of(cron="* * * * * ?")
    first = await cluster.start(app)
    await operations.disable(cluster._session, "job", server=first.host)
    await operations.enable_server(cluster._session, first.host)
    assert (await cluster.status()).servers[0].disabled
    await operations.pause(cluster._session, "job")
    await anyio.sleep(2)
    before = len(began(cluster))
    await cluster.start(app)
    await anyio.sleep(10)
    assert len(began(cluster)) == before


@tries("`disabled` in the settings counts once")
async def disabled_counts_once(cluster: VirtualCluster) -> None:
    app = app_of(disabled=True)
    first = await cluster.start(app)
    assert (await cluster.status()).servers[0].disabled
    await operations.enable(cluster._session, "job", server=first.host)
    await cluster.start(app)  # on a server that is new
    assert [server.disabled for server in (await cluster.status()).servers] == [False, True]


@tries("Several processes of one server")
async def several_processes_of_one_server(cluster: VirtualCluster) -> None:
    app = ElasticJob("zk://registry:2181/shop", ip="10.9.9.9")
    app.add(lambda context: None, name="job", cron=TEN_MINUTES, sharding_total_count=4)
    await cluster.start(app)
    await cluster.start(app)
    await anyio.sleep(5)
    status = await cluster.status()
    assert [(one.ip, len(one.holds)) for one in status.instances] == [("10.9.9.9", 2)] * 2
    assert [server.ip for server in status.servers] == ["10.9.9.9"]


@tries("Servers that are gone are forgotten")
async def servers_are_forgotten(cluster: VirtualCluster) -> None:
    app = app_of(server_retention="1h", reconcile_interval="1m")
    first = await cluster.start(app)
    second = await cluster.start(app)
    await first.stop()
    await anyio.sleep(1800)
    assert len((await cluster.status()).servers) == 2
    await anyio.sleep(7200)
    assert [server.ip for server in (await cluster.status()).servers] == [second.host]
