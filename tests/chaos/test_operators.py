"""What operators do in a chaos run takes effect, and is mended again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from tests.chaos.__main__ import main
from tests.chaos.actions import KINDS, name_of
from tests.chaos.operators import ON_JOBS, WITHDRAWN, OnJob, operating
from tests.chaos.stage import NAMESPACE, SESSION_TIMEOUT, Stage
from tests.chaos.worker import PANIC, QUICK, DidNotStart, Order, work
from tests.support.embedded import EmbeddedServer

CONFIG = {"shardingTotalCount": 8, "failover": True, "monitorExecution": True}
ROOT = f"{NAMESPACE}/{QUICK.job_name}"


class Dice(Random):
    """Waits for nothing; looks at what was done where the action would have waited."""

    def __init__(self, look: Callable[[], None]) -> None:
        super().__init__(3)
        self._look = look

    def uniform(self, a: float, b: float) -> float:
        self._look()
        return 0.0


def nodes(client: KazooClient, path: str = NAMESPACE) -> dict[str, tuple[bytes, object]]:
    data, _ = client.get(path)
    acls, _ = client.get_acls(path)
    found = {path: (data, acls)}
    for name in client.get_children(path):
        found |= nodes(client, f"{path}/{name}")
    return found


def carried_out(action: OnJob, embedded: EmbeddedServer, directory: Path, look: Callable[[KazooClient], None]) -> Stage:
    """Carry a action out on a job that nobody runs, with a look at it while it lasts; return the stage."""
    stage = Stage(cast("Any", None), cast("Any", None), directory / "journal")
    client = KazooClient(embedded.address)
    client.start(60)
    try:
        client.create(f"{ROOT}/config", json.dumps(CONFIG).encode(), makepath=True)
        for item in range(QUICK.sharding_total_count):
            client.create(f"{ROOT}/execution/{item}", b'{"slot": 1}', makepath=True)
        before = nodes(client)

        async def play() -> None:
            async with operating(embedded.address) as operator:
                await action(stage, operator, QUICK, Dice(lambda: look(client)))

        asyncio.run(play())
        if name_of(action) != "remove-job":
            after = nodes(client)
            config = after.pop(f"{ROOT}/config")
            assert json.loads(config[0]) == CONFIG
            before.pop(f"{ROOT}/config")
            assert after == before
        assert not client.get_children("/zookeeper/quota") or not client.exists(f"/zookeeper/quota{ROOT}")
    finally:
        client.stop()
        client.close()
    return stage


def action_called(name: str) -> OnJob:
    return next(action for action in ON_JOBS if name_of(action) == name)


def refuses(client: KazooClient) -> None:
    with pytest.raises(NoAuthError):
        client.create(f"{ROOT}/execution/0/running")
    with pytest.raises(NoAuthError):
        client.set(f"{ROOT}/config", b"")


def is_limited(client: KazooClient) -> None:
    assert b"countHardLimit=1" in client.get(f"/zookeeper/quota{ROOT}/zookeeper_limits")[0]


def makes_no_sense(client: KazooClient) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        json.loads(client.get(f"{ROOT}/config")[0])["shardingTotalCount"]


def has_a_record_of_nonsense(client: KazooClient) -> None:
    records = [client.get(f"{ROOT}/execution/{item}")[0] for item in range(8)]
    assert sum(record != b'{"slot": 1}' for record in records) == 1


def has_failover_off(client: KazooClient) -> None:
    assert json.loads(client.get(f"{ROOT}/config")[0]) == CONFIG | {"failover": False}


def is_not_monitored(client: KazooClient) -> None:
    assert json.loads(client.get(f"{ROOT}/config")[0]) == CONFIG | {"failover": False, "monitorExecution": False}


@pytest.mark.parametrize(
    ("name", "look", "excused"),
    [
        ("withdraw-permission", refuses, False),
        ("meet-quota", is_limited, False),
        ("nonsense-in-config", makes_no_sense, False),
        ("nonsense-in-record", has_a_record_of_nonsense, True),
        ("switch-failover", has_failover_off, True),
        ("switch-monitoring", is_not_monitored, True),
    ],
)
def test_a_deed_takes_effect_and_is_mended(
    name: str, look: Callable[[KazooClient], None], excused: bool, embedded: EmbeddedServer, tmp_path: Path
) -> None:
    looked = 0

    def look_once_more(client: KazooClient) -> None:
        nonlocal looked
        look(client)
        looked += 1

    stage = carried_out(action_called(name), embedded, tmp_path, look_once_more)
    assert looked
    assert [excuse.kind for excuse in stage.excuses] == [name] * excused
    assert all(excuse.job == QUICK.job_name for excuse in stage.excuses)


def test_a_job_is_removed_and_excused_as_a_whole(embedded: EmbeddedServer, tmp_path: Path) -> None:
    stage = carried_out(action_called("remove-job"), embedded, tmp_path, lambda client: None)
    (excuse,) = stage.excuses
    assert excuse.item is None
    assert "fences grow" not in excuse.rules


def test_handlers_raise_while_a_file_is_there(embedded: EmbeddedServer, tmp_path: Path) -> None:
    def look(client: KazooClient) -> None:
        assert (tmp_path / PANIC).exists()

    carried_out(action_called("raise-base-exceptions"), embedded, tmp_path, look)
    assert not (tmp_path / PANIC).exists()


def test_kinds_have_names_of_their_own() -> None:
    assert len(set(KINDS)) == len(KINDS)
    assert {"kill-worker", "pause-worker", "take-the-majority", "meet-quota"} < set(KINDS)


def test_a_worker_that_may_not_write_says_that_it_did_not_start(embedded: EmbeddedServer, tmp_path: Path) -> None:
    client = KazooClient(embedded.address)
    client.start(60)
    try:
        client.create(NAMESPACE, acl=WITHDRAWN)
    finally:
        client.stop()
        client.close()
    order = Order("worker", f"zk://{embedded.address}{NAMESPACE}", str(tmp_path / "journal"), 0.0, SESSION_TIMEOUT)
    with pytest.raises(DidNotStart, match="not permitted"):
        asyncio.run(work(order))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--kinds", "kill-worker,kill-everybody"], "--kinds: no such kind: kill-everybody; there are kill-worker"),
    ],
)
def test_what_cannot_be_done_is_refused(
    options: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["chaos", *options])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
