"""What lies in the registry while a job runs: the names that are promised, and who may touch them."""

from __future__ import annotations

import json
import re

import anyio
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from aioelasticjob import ElasticJob, ItemContext
from tests.support.local_applications import EVERY_SECOND, TIMEOUT, registry_observer
from tests.support.loops import run_async

DIGEST = "carol:sesame"
EPHEMERAL = {"instances/{id}", "leader/election/host", "execution/0/running"}
THERE = EPHEMERAL | {
    *("config", "servers", "servers/127.0.0.1", "instances", "shutdown", "requests"),
    *("leader", "leader/election", "leader/election/epoch", "leader/sharding", "leader/failover"),
    *("leader/failover/items", "sharding", "sharding/0", "sharding/0/instance", "execution", "execution/0", "offset"),
}
PROMISED = (
    r"config|instances(/\{id\})?|shutdown|requests|offset|systemTime(/current)?|guarantee(/(started|completed)(/\d+)?)?",
    r"servers(/127\.0\.0\.1(/(disabled|paused|processSuccessCount|processFailureCount|countedBy))?)?",
    r"leader(/election(/(host|epoch))?|/sharding(/(necessary|processing))?|/failover(/items(/\d+)?)?|/schedule)?",
    r"sharding(/\d+(/(instance|disabled|failover))?)?",
    r"execution(/\d+(/(running|misfire))?)?",
)


def test_the_nodes_are_named_as_promised_and_closed_to_strangers(registry_address: str) -> None:
    async def main() -> None:
        runs, goes_on = anyio.Event(), anyio.Event()

        async def handler(context: ItemContext) -> None:
            runs.set()
            await goes_on.wait()

        app = ElasticJob(registry_address, digest=DIGEST)
        app.add(handler, name="job", cron=EVERY_SECOND)
        async with registry_observer(registry_address, digest=DIGEST) as registry, app.running() as session:
            with anyio.fail_after(TIMEOUT):
                await runs.wait()
            await registry.session.sync()
            tree = await registry.session.subtree(["/job"])
            (me,) = registry.view.instances
            found = {path.removeprefix("/job/").replace(me, "{id}"): tree.get(path) for path in tree if path != "/job"}
            assert found.keys() >= THERE
            assert [name for name in found if not any(re.fullmatch(names, name) for names in PROMISED)] == []
            owners = {name: node.stat.ephemeral_owner for name, node in found.items() if node}
            assert {name for name, owner in owners.items() if owner} == EPHEMERAL
            assert {owners[name] for name in EPHEMERAL} == {session.incarnation}
            assert re.fullmatch(r"127\.0\.0\.1@-@\d+-[0-9a-f]{8}", me)
            await anyio.to_thread.run_sync(is_closed_to_strangers, registry_address)
            check_texts({name: node.data for name, node in found.items() if node}, me)
            goes_on.set()

    run_async("asyncio", main)


def check_texts(data: dict[str, bytes], me: str) -> None:
    """See that nodes say what is promised of them."""
    assert {data["leader/election/host"], data["sharding/0/instance"], data["execution/0/running"]} == {me.encode()}
    config, instance, record = (json.loads(data[name]) for name in ("config", "instances/{id}", "execution/0"))
    assert config.keys() >= {"jobName", "cron", "shardingTotalCount", "monitorExecution", "failover", "misfire"}
    assert instance.keys() >= {"id", "ip", "host", "pid", "incarnation"}
    assert instance["id"] == record["instance"] == me
    assert record.keys() >= {"slot", "source", "lastBeginTime", "lastCompleteTime", "nextFireTime", "completed"}
    assert record["completed"] is False


def is_closed_to_strangers(address: str) -> None:
    """Look at every node with somebody else's client: with the digest, and without."""
    server, _, namespace = address.removeprefix("zk://").partition("/")
    owner = KazooClient(server, auth_data=[("digest", DIGEST)])
    stranger = KazooClient(server)
    owner.start()
    stranger.start()
    try:
        waiting, seen = [f"/{namespace}"], 0
        while waiting:
            path = waiting.pop()
            acls, _ = owner.get_acls(path)
            assert [(acl.id.scheme, acl.id.id.partition(":")[0]) for acl in acls] == [("digest", "carol")], path
            try:
                stranger.get(path)
                raise AssertionError(f"{path} is open to everybody")
            except NoAuthError:
                seen += 1
            waiting += [f"{path}/{name}" for name in owner.get_children(path)]
        assert seen > len(THERE)
    finally:
        for client in (owner, stranger):
            client.stop()
            client.close()
