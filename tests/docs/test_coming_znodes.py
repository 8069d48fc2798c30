"""Each row about znodes on the page for those who come from Elastic-Job is tried on the nodes of a running job."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import anyio
import pytest

from aioelasticjob import ElasticJob, FireSource, ItemContext, operations
from aioelasticjob.core.layout import SWITCHES
from aioelasticjob.events import Began
from aioelasticjob.registry.transaction import Create
from aioelasticjob.registry.tree import Tree
from aioelasticjob.testing import VirtualCluster, simulated
from tests.docs.pages import table

ROWS = table("docs/coming-from-elastic-job.md", "| there | here |")


@dataclass
class Seen:
    """The nodes of one job at several moments."""

    trees: dict[str, Tree] = field(default_factory=dict)
    hosts: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    asked_to_leave: tuple[str, ...] = ()

    def data(self, path: str, when: str = "running") -> str:
        node = self.trees[when].get(path)
        assert node is not None, f"{path} is not there"
        return node.data.decode()

    @property
    def known(self) -> set[str]:
        """Every node that was seen, without the parts that differ from job to job."""
        return {part for tree in self.trees.values() for path in tree for part in path.split("/")}


@cache
def seen() -> Seen:
    found = Seen()
    app = ElasticJob("zk://registry:2181/shop")

    @app.job("job", cron="0 0/10 * * * ?", sharding_total_count=2, failover=True)
    async def handler(context: ItemContext) -> None:
        found.sources.append(context.source.value)
        await anyio.sleep(5)

    async def main(cluster: VirtualCluster) -> None:
        async def look(when: str) -> None:
            found.trees[when] = await cluster._session.subtree(("/job", SWITCHES))

        one, two = await cluster.start(app), await cluster.start(app)
        found.hosts = [one.host, two.host]
        await cluster.event(Began, source=FireSource.SCHEDULE)
        await anyio.sleep(1)
        await look("running")
        one.kill("silent")
        await cluster.event(Began, source=FireSource.FAILOVER)
        await look("rescued")
        await anyio.sleep(6)
        await look("at rest")
        session = cluster._session
        found.sources.clear()
        by_hand = Create("/job/requests/x", b'{"kind": "TRIGGER"}')
        await session.commit([by_hand], incarnation=session.incarnation)
        await anyio.sleep(6)
        await look("triggered")
        await operations.ask(session, "job", items=[1], id="again")
        await look("asked")
        for act in (operations.pause, operations.disable):
            await act(session, "job", server=two.host)
        await operations.pause(session, "job")
        await operations.disable_server(session, two.host)
        await look("switched off")
        await anyio.sleep(10)
        found.asked_to_leave = (await operations.shut_down(session, "job")).paths
        await anyio.sleep(10)
        await look("left")

    simulated(main)(VirtualCluster())
    return found


def config_is_json() -> bool:
    stored = json.loads(seen().data("/job/config"))
    return {"jobName", "cron", "shardingTotalCount", "monitorExecution", "streamingProcess"} <= stored.keys()


def record_has_the_times() -> bool:
    record = json.loads(seen().data("/job/execution/0", "at rest"))
    return {"lastBeginTime", "lastCompleteTime", "nextFireTime", "completed"} <= record.keys()


def lives_as_long_as_its_nodes() -> bool:
    running = seen().trees["running"]
    return len(running.children("/job/instances")) == 2 and "/job/execution/0/running" in running


def is_rescued_below_sharding() -> bool:
    rescued = seen().trees["rescued"]
    return any(f"/job/sharding/{item}/failover" in rescued for item in range(2))


def is_switched_off_by_one_node() -> bool:
    off = seen().trees["switched off"]
    return "/job/leader/paused" in off and f"{SWITCHES}/{seen().hosts[1]}/disabled" in off


def is_asked_by_one_node() -> bool:
    return seen().sources[:2] == ["TRIGGER"] * 2 and '"closed"' in seen().data("/job/requests/x", "triggered")


def leaves_when_asked() -> bool:
    left = seen().trees["left"]
    (asked,) = seen().asked_to_leave
    return asked.startswith("/job/shutdown/10.") and not ({asked} & {*left} or left.children("/job/instances"))


def server() -> str:
    return f"/job/servers/{seen().hosts[1]}"


TRIED: dict[str, Callable[[], Any]] = {
    "`config` as YAML": config_is_json,
    "`leader/election/instance`": lambda: seen().data("/job/leader/election/host") in seen().known,
    "`leader/election/latch`": lambda: not {"latch"} & seen().known,
    "`execution/{item}/completed`": record_has_the_times,
    "`execution/{item}/failover`": is_rescued_below_sharding,
    "`servers/{ip}/status`": lives_as_long_as_its_nodes,
    "`servers/{ip}/sharding`": lambda: seen().data("/job/sharding/1/instance").startswith("10."),
    "`servers/{ip}/hostName`": lambda: seen().data(server()) != "",
    "`leader/execution/necessary`": lambda: not seen().trees["running"].children("/job/leader/execution"),
    "`config/jobClass`": lambda: all(
        json.loads(seen().data(f"/job/instances/{one}"))["handler"].endswith(":seen.<locals>.handler")
        for one in seen().trees["running"].children("/job/instances")
    ),
    "`servers/{ip}` = `DISABLED`": lambda: f"{server()}/disabled" in seen().trees["switched off"],
    "`servers/{ip}/paused`": lambda: (
        f"{server()}/paused" in seen().trees["switched off"] and f"{server()}/paused" in seen().trees["left"]
    ),
    "`servers/{ip}/trigger`": lambda: is_asked_by_one_node() and "/job/requests/again" in seen().trees["asked"],
    "`servers/{ip}/shutdown`": leaves_when_asked,
    "every `servers/{ip}` changed": is_switched_off_by_one_node,
    "`instances/{id}` = `TRIGGER`": is_asked_by_one_node,
    "instance id": lambda: all(
        re.fullmatch(r"10\.0\.\d+\.\d+@-@\d+-\w+", one) for one in seen().trees["running"].children("/job/instances")
    ),
}


@pytest.mark.parametrize("there", [row[0] for row in ROWS])
def test_a_row_holds(there: str) -> None:
    (check,) = [check for beginning, check in TRIED.items() if there.startswith(beginning)]
    assert check()


def test_there_is_no_check_without_a_row() -> None:
    assert len(TRIED) == len(ROWS)
