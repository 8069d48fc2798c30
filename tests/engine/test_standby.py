"""A job that cannot run for the time being waits for its turn, beside those that can."""

from __future__ import annotations

import json

import anyio
import pytest

from aioelasticjob import ElasticJob, ItemContext, operations
from aioelasticjob.registry.codec import MULTI, SYNC
from aioelasticjob.registry.connection import Connection
from aioelasticjob.registry.transaction import Create, Delete, Set
from aioelasticjob.testing import VirtualClock
from tests.engine.test_required_features import ALL, JOB, MakeMixed
from tests.engine.test_required_features import mixed as mixed
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, simulate

NONSENSE = [
    b"hello",
    b"{",
    b"[]",
    b'{"jobName": "job", "cron": "every now and then"}',
    b'{"jobName": "another"}',
    b'{"jobName": "job", "options": {"command": "ls"}}',
]


def test_a_worker_that_lacks_what_is_required_at_its_start_is_up_and_takes_part_when_it_can(
    mixed: MakeMixed, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = mixed(here)
        await them.start("new", "x")
        await them.put(requires=["x"], dst="of another release")
        await them.start("old", overwrite=True, cron="0/1 * * * * ?")
        assert await them.ran(20) == {"new": ALL}
        assert (await them.stored())["cron"] == JOB["cron"]  # who does not know what it means does not overwrite it
        assert "requires 'x'" in (them.problem("old") or "")
        assert sum("the job requires 'x'" in text for text in caplog.messages) == 1
        status = await operations.jobs(here.observer, now=0)
        assert {one.ip for one in status[0].instances} == {"10.0.0.1", "10.0.0.2"}
        assert "old" in {name for _, name in them.others}
        await them.put(requires=[], dst="cron")
        await anyio.sleep(2)
        assert (await them.ran(12)).keys() == {"old", "new"}

    simulate(scene)


@pytest.mark.parametrize("how", ["shut down", "removed by hand", "stopped", "cut off"])
def test_a_worker_that_waits_for_its_turn_can_leave(mixed: MakeMixed, how: str) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = mixed(here)
        await them.start("new", "x")
        await them.put(requires=["x"])
        await them.start("old")
        (old,) = [name for name in await here.names(LAYOUT.instances) if name.startswith("10.0.0.2")]
        if how == "shut down":
            await here.write(Create(LAYOUT.shutdown(old)))
        elif how == "removed by hand":
            await here.write(Delete(LAYOUT.instance(old)))
        elif how == "stopped":
            here.faults.crash(them.processes["old"])
        else:
            here.faults.drop("10.0.0.2", "10.0.9.9")
            await anyio.sleep(15)
            assert len(await here.names(LAYOUT.instances)) == 1
            here.faults.heal()
        await anyio.sleep(8)
        there = await here.names(LAYOUT.instances)
        assert old not in there
        assert len(there) == (2 if how == "cut off" else 1)
        assert await here.names(LAYOUT.shutdowns) == ()
        assert ("restart the process" in (them.problem("old") or "")) is (how in ("shut down", "removed by hand"))
        await them.put(requires=[])
        await anyio.sleep(2)
        assert (await them.ran(6)).keys() == ({"old", "new"} if how == "cut off" else {"new"})

    simulate(scene)


def test_a_job_that_waits_leaves_at_once_though_another_job_of_its_process_still_runs() -> None:
    async def scene(here: SimulatedJobs) -> None:
        began, asked_to_leave = anyio.Event(), anyio.Event()
        app = ElasticJob(here.address, clock=VirtualClock(), session_timeout=5)

        @app.job(name="job", cron=JOB["cron"])
        async def waits(_: ItemContext) -> None:
            raise AssertionError("it lacks what the job requires")

        @app.job(name="other", cron=JOB["cron"], shutdown_timeout=60)
        async def slow(_: ItemContext) -> None:
            began.set()
            await anyio.sleep(30)

        async def main() -> None:
            async with app.running():
                await asked_to_leave.wait()

        config = {"jobName": "job", "cron": JOB["cron"], "requires": ["x"]}
        await here.write(Create(LAYOUT.root), Create(LAYOUT.config, json.dumps(config).encode()))
        here.faults.start("old", "10.0.0.1", main)
        await began.wait()
        assert len(await here.names(LAYOUT.instances)) == 1
        asked_to_leave.set()
        await anyio.sleep(2)
        assert await here.names(LAYOUT.instances) == ()

    simulate(scene)


@pytest.mark.parametrize("data", NONSENSE)
def test_a_job_whose_configuration_makes_no_sense_at_the_start_waits_until_it_is_mended(
    data: bytes, mixed: MakeMixed, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        caplog.set_level("INFO", "aioelasticjob.engine.life")
        them = mixed(here)
        await here.write(Create(LAYOUT.root), Create(LAYOUT.config, data))
        await them.start("a")
        await them.start("b")
        assert await them.ran(120) == {}
        assert {name for _, name in them.others} == {"a", "b"}
        assert (await here.observer.get(LAYOUT.config)).data == data
        assert await here.observer.children(LAYOUT.root) == ("config",)
        for name in "ab":
            health = them.apps[name].health
            assert (health.status, health.ready) == ("up", False)
            assert "/job/config" in (them.problem(name) or "")
            assert "docs: " not in (them.problem(name) or "")
        waits = "job: the job cannot run in this process at present: /job/config"
        said = [text for text in caplog.messages if text.startswith(waits)]
        assert [text.endswith(" (docs: errors/ForeignData)") for text in said] == [True] * 2, "once by each of them"
        assert (await them.status()).state == "faulty"
        await here.write(Set(LAYOUT.config, b'{"jobName": "job", "cron": "0/2 * * * * ?"}', -1))
        await anyio.sleep(2)
        assert set().union(*(await them.ran(6)).values()) == {0}
        assert [them.problem(name) for name in "ab"] == [None, None]
        assert all(them.apps[name].health.ready for name in "ab")
        assert sum("job: the job can run in this process now" in text for text in caplog.messages) == 2

    simulate(scene)


def test_while_a_job_waits_the_registry_is_not_asked_again_and_again(
    mixed: MakeMixed, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    call = Connection.call

    def counting(self: Connection, opcode: int, body: bytes) -> object:
        asked.append(opcode)
        return call(self, opcode, body)

    monkeypatch.setattr(Connection, "call", counting)

    async def scene(here: SimulatedJobs) -> None:
        them = mixed(here)
        await here.write(Create(LAYOUT.root), Create(LAYOUT.config, b"nonsense"))
        await them.start("a", cron="0 0 0 1 1 ? 2090")
        await anyio.sleep(7)
        asked.clear()
        await anyio.sleep(50)
        assert set(asked) <= {MULTI, SYNC}  # the other job runs

    simulate(scene)


def test_a_job_that_waits_stays_out_of_the_way_of_those_who_know_better(mixed: MakeMixed) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = mixed(here)
        await them.start("a")
        await anyio.sleep(6)
        good = (await here.observer.get(LAYOUT.config)).data
        await here.write(Set(LAYOUT.config, b"nonsense", -1))
        await them.start("b")
        assert await them.ran(12) == {"a": ALL}  # which has the last good one
        assert (them.problem("a"), them.problem("b") is None) == (None, False)
        await here.write(Set(LAYOUT.config, good, -1))
        await anyio.sleep(2)
        assert (await them.ran(12)).keys() == {"a", "b"}

    simulate(scene)


def test_a_job_that_turns_out_to_be_of_another_kind_after_it_has_waited_goes_on_waiting(mixed: MakeMixed) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = mixed(here)
        await here.write(Create(LAYOUT.root), Create(LAYOUT.config, b"nonsense"))
        await them.start("a")
        await here.write(Set(LAYOUT.config, b'{"jobName": "job", "jobType": "DATAFLOW"}', -1))
        await anyio.sleep(20)
        assert "is already a DATAFLOW job" in (them.problem("a") or "")
        assert {name for at, name in them.others if at > 10} == {"a"}
        await here.write(Set(LAYOUT.config, b'{"jobName": "job", "requires": ["x"]}', -1))
        await anyio.sleep(2)
        assert "requires 'x'" in (them.problem("a") or "")
        assert len(await here.names(LAYOUT.instances)) == 1
        await here.write(Set(LAYOUT.config, b'{"jobName": "job"}', -1))
        await anyio.sleep(2)
        assert them.problem("a") is None

    simulate(scene)


@pytest.mark.parametrize("waits_for", ["sense", "feature"])
def test_an_application_whose_job_waits_stops_at_once(waits_for: str) -> None:
    async def scene(here: SimulatedJobs) -> None:
        data = b"nonsense" if waits_for == "sense" else b'{"jobName": "job", "requires": ["x"]}'
        await here.write(Create(LAYOUT.root), Create(LAYOUT.config, data))
        app = here.app(cron="0/5 * * * * ?")
        async with app.running():
            await anyio.sleep(7)
            assert not app.health.ready
            before = here.now()
        assert here.now() - before < 1
        assert await here.names(LAYOUT.instances) == ()
        assert here.runs == []

    simulate(scene)


def test_a_job_that_cannot_register_waits_until_what_stands_in_its_way_is_gone(mixed: MakeMixed) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = mixed(here)
        await here.write(Create(LAYOUT.root), Create(LAYOUT.instances, ephemeral=True))
        app = here.app(cron="0/5 * * * * ?")
        async with app.running():
            assert "something keeps changing it" in str(app.health.jobs[0].problem)
            await anyio.sleep(30)
            await here.write(Delete(LAYOUT.instances))
            await anyio.sleep(12)
            assert app.health.ready
            assert here.runs
        assert them.runs == []

    simulate(scene)
