"""What somebody writes into an instance's node changes nothing that anybody does; it is said once, and once mended."""

from __future__ import annotations

import json

import anyio
import pytest

from aioelasticjob import operations
from aioelasticjob.core.diagnostics import diagnose
from aioelasticjob.operations import NotPossible
from aioelasticjob.registry.transaction import Create, Delete, Set
from tests.engine.test_damaged_nodes import start_three
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, simulate

NONSENSE = (
    b'{"ip": "\\ud800"}',
    b'{"ip": ""}',
    b'{"ip": "."}',
    b'{"ip": "a/b"}',
    b'{"ip": "a\\u0000b"}',
    b'{"ip": "10.0.0.77"}',
    b'{"ip": 7}',
    b'{"host": "\\ud800"}',
    b'{"host": ["web"]}',
    b'{"ip": "' + b"x" * 3000 + b'"}',
    b"garbage",
    b"17",
    b"\xff",
)


@pytest.mark.parametrize("data", NONSENSE, ids=lambda data: repr(data[:24]))
def test_an_instance_does_what_it_does_whatever_its_node_says(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(here: SimulatedJobs) -> None:
        there = await start_three(here)
        for name in await here.names(LAYOUT.instances):
            path = LAYOUT.instance(name)
            good = (await here.observer.get(path)).data
            since, caplog.records[:] = here.now(), []
            await here.write(Set(path, data, -1))
            await anyio.sleep(12)
            view = await there.view()
            assert [one.ip for one in view.instances.values()] == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
            assert list(diagnose(view, "")) == [path]
            said_of_it = [text for text in caplog.messages if path in text]
            assert len(set(said_of_it)) == 1
            assert len(said_of_it) == 3  # once by each of them
            assert not [text for text in caplog.messages if "joins the job again" in text or " missed " in text]
            assert there.items_since(since) == {0, 1, 2, 3}
            status = await operations.job(here.observer, "job", now=0)
            str(status).encode()
            await here.write(Set(path, good, -1))
            await anyio.sleep(1)
        assert await here.names(LAYOUT.servers) == ("10.0.0.1", "10.0.0.2", "10.0.0.3")
        there.nobody_else_noticed(22)
        await there.is_right(here.now() - 30)

    simulate(scene)


def test_who_is_disabled_is_found_though_its_node_says_that_it_is_elsewhere() -> None:
    async def scene(here: SimulatedJobs) -> None:
        there = await start_three(here)
        (first,) = [name for name in await here.names(LAYOUT.instances) if name.startswith("10.0.0.1@")]
        await here.write(Set(LAYOUT.instance(first), b'{"ip": "10.0.0.77"}', -1))
        await here.write(Create(LAYOUT.server_disabled("10.0.0.1")))
        await here.until(62)
        assert {host for at, host, _ in there.runs if at > 25} == {"b", "c"}
        assert there.items_since(50) == {0, 1, 2, 3}

    simulate(scene)


def test_a_server_removed_by_hand_comes_back_with_its_own_name() -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with here.app(cron="0/10 * * * * ?").running():
            (me,) = await here.names(LAYOUT.instances)
            (server,) = await here.names(LAYOUT.servers)
            path = LAYOUT.server(server)
            name = (await here.observer.get(path)).data
            await here.write(Set(LAYOUT.instance(me), json.dumps({"host": "somebody"}).encode(), -1))
            await here.write(Delete(path))
            await anyio.sleep(2)
            assert (await here.observer.get(path)).data == name

    simulate(scene)


def test_half_a_character_is_reported_and_shown_and_stops_nobody() -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with here.app(cron="0/10 * * * * ?").running():
            await here.until(12)
            config = json.loads((await here.observer.get(LAYOUT.config)).data)
            await here.write(Set(LAYOUT.config, json.dumps({**config, "description": "\ud800"}).encode(), -1))
            record = b'{"slot": 1, "instance": "\\ud800", "completed": true}'
            await here.write(Set(LAYOUT.item(0).execution, record, -1))
            status = await operations.job(here.observer, "job", now=0)
            assert status.fault is not None
            assert "description" in status.fault
            assert status.items[0].record is None
            str(status).encode()
            with pytest.raises(NotPossible, match="description"):
                await operations.export_jobs(here.observer)
            before = len(here.starts())
            await here.until(45)
            assert len(here.starts()) >= before + 2

    simulate(scene)
