"""Each row about features on the page for those who come from Elastic-Job is tried."""

from __future__ import annotations

import anyio
import pytest

from aioelasticjob import ElasticJob, operations
from aioelasticjob.config.job import JobConfig
from aioelasticjob.doctor.judgement import OLDEST
from aioelasticjob.errors import ForeignData
from aioelasticjob.events import Began, Ended
from aioelasticjob.model import FireSource
from aioelasticjob.testing import VirtualCluster, simulated
from tests.docs.pages import table
from tests.docs.test_coming_behaviours import Scene, app_of, assignment_does_not_wait, every_orphan_is_taken
from tests.support.java_trees import java_job

ROWS = {row[0]: row[2] for row in table("docs/coming-from-elastic-job.md", "| feature | in Elastic-Job | here |")}


async def _java(cluster: VirtualCluster) -> None:
    """Make a job as Java does, in a namespace in which another job runs here."""
    app = ElasticJob("zk://registry:2181/shop")
    app.add(print, name="other", cron="0 0 0 1 1 ? 2090")
    await cluster.start(app)
    session = cluster._session
    await session.commit(java_job("3.x", is_up=True), incarnation=session.incarnation)


async def a_job_of_java_is_left_alone(cluster: VirtualCluster) -> None:
    await _java(cluster)
    app = app_of()
    await cluster.start(app)
    await anyio.sleep(1200)
    assert not any(isinstance(one, Began) for one in cluster.events)
    assert await cluster._session.children("/job/instances") == ("192.0.2.2@-@31385",)


async def orphans_are_taken_by_a_job_that_has_failover(cluster: VirtualCluster) -> None:
    assert JobConfig.model_fields["failover"].default is False
    assert ElasticJob("zk://registry:2181/shop").settings.session_timeout == 30
    await every_orphan_is_taken(cluster)


async def one_run_makes_up_for_what_came_during_a_run(cluster: VirtualCluster) -> None:
    assert JobConfig.model_fields["misfire"].default is True
    await cluster.start(app_of(work=25 * 60, sharding_total_count=1))
    first = await cluster.event(Began)
    second = await cluster.event(Began, source=FireSource.MISFIRE)
    assert (second.slot - first.slot) / 1000 == 20 * 60  # two moments have come meanwhile


async def counts_are_below_the_servers(cluster: VirtualCluster) -> None:
    host = await cluster.start(app_of(reconcile_interval=10))
    await cluster.event(Ended)
    await anyio.sleep(60)
    assert (await cluster._session.get(f"/job/servers/{host.host}/processSuccessCount")).data == b"4"


async def what_would_change_a_job_of_java_is_refused(cluster: VirtualCluster) -> None:
    await _java(cluster)
    status = await operations.job(cluster._session, "job", now=0)
    assert status.state == "foreign"
    with pytest.raises(ForeignData):
        await operations.pause(cluster._session, "job")


async def servers_of_a_release_are_needed(_: VirtualCluster) -> None:
    major, minor = OLDEST
    assert ROWS["the ZooKeeper server"].startswith(f"{major}.{minor} or newer")


TRIED: dict[str, Scene] = {
    "processes of both languages": a_job_of_java_is_left_alone,
    "scaling": assignment_does_not_wait,
    "failover": orphans_are_taken_by_a_job_that_has_failover,
    "misfire": one_run_makes_up_for_what_came_during_a_run,
    "statistics": counts_are_below_the_servers,
    "operations": what_would_change_a_job_of_java_is_refused,
    "the ZooKeeper server": servers_of_a_release_are_needed,
}


@pytest.mark.parametrize("feature", ROWS)
def test_a_row_holds(feature: str) -> None:
    (scene,) = [scene for beginning, scene in TRIED.items() if feature.startswith(beginning)]
    simulated(scene)(VirtualCluster())


def test_there_is_no_scene_without_a_row() -> None:
    assert len(TRIED) == len(ROWS)
