"""Workers of different releases run a job side by side: who lacks what it requires stands aside."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from aioelasticjob import ElasticJob, ItemContext, operations
from aioelasticjob import config as settings
from aioelasticjob.coordination import view
from aioelasticjob.operations import JobStatus, NotPossible
from aioelasticjob.registry.codec import MULTI, SYNC
from aioelasticjob.registry.connection import Connection
from aioelasticjob.registry.transaction import Create, Delete, Set
from aioelasticjob.testing import Process, VirtualClock
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, simulate

JOB = {"cron": "0/5 * * * * ?", "sharding_total_count": 4, "failover": True}


@dataclass
class Mixed:
    """Workers on hosts of their own, each of which knows some features."""

    here: SimulatedJobs
    monkeypatch: pytest.MonkeyPatch
    runs: list[tuple[float, str, int]] = field(default_factory=list)
    """Second, worker, item."""
    others: list[tuple[float, str]] = field(default_factory=list)
    apps: dict[str, ElasticJob] = field(default_factory=dict)
    processes: dict[str, Process] = field(default_factory=dict)
    work: float = 0.1

    async def start(self, name: str, *features: str, **changes: Any) -> None:
        """Start a worker and wait until it is up, which it is though it may have to wait for its turn."""
        up, app = anyio.Event(), ElasticJob(self.here.address, clock=VirtualClock(), session_timeout=5)

        async def handler(context: ItemContext) -> None:
            self.runs.append((self.here.now(), name, context.item))
            await anyio.sleep(self.work)

        async def other(context: ItemContext) -> None:
            self.others.append((self.here.now(), name))

        async def main() -> None:
            async with app.running():
                up.set()
                await anyio.sleep_forever()

        app.add(handler, name="job", **{**JOB, **changes})
        app.add(other, name=f"other-{name}", cron="0/5 * * * * ?")
        with self.monkeypatch.context() as patched:
            patched.setattr(settings, "FEATURES", frozenset(features))
            self.processes[name] = self.here.faults.start(name, f"10.0.0.{len(self.apps) + 1}", main)
            self.apps[name] = app
            with anyio.fail_after(10):
                await up.wait()

    async def stored(self) -> dict[str, Any]:
        return json.loads((await self.here.observer.get(LAYOUT.config)).data)  # type: ignore[no-any-return]

    async def put(self, **keys: object) -> None:
        """Write keys into the configuration as somebody of another release would."""
        await self.here.write(Set(LAYOUT.config, json.dumps({**await self.stored(), **keys}).encode(), -1))

    async def ran(self, seconds: float) -> dict[str, set[int]]:
        """Let time pass; return which items each worker has run meanwhile."""
        since = self.here.now()
        await anyio.sleep(seconds)
        found: dict[str, set[int]] = {}
        for at, name, item in self.runs:
            if at >= since:
                found.setdefault(name, set()).add(item)
        return found

    async def status(self) -> JobStatus:
        return await operations.job(self.here.observer, "job", now=VirtualClock().now())

    def problem(self, name: str) -> str | None:
        return next(job.problem for job in self.apps[name].health.jobs if job.name == "job")


@pytest.fixture
def mixed(monkeypatch: pytest.MonkeyPatch) -> Callable[[SimulatedJobs], Mixed]:
    return lambda here: Mixed(here, monkeypatch)


Mix = Callable[[SimulatedJobs], Mixed]
ALL = {0, 1, 2, 3}


def test_workers_that_lack_what_is_required_stand_aside_while_it_is(
    mixed: Mix, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = mixed(here)
        await them.start("old")
        await them.start("new", "x")
        assert (await them.ran(12)).keys() == {"old", "new"}
        await them.put(requires=["x"])
        await anyio.sleep(2)
        assert await them.ran(20) == {"new": ALL}
        status = await them.status()
        assert {one.ip: one.lacks for one in status.instances} == {"10.0.0.1": ("x",), "10.0.0.2": ()}
        assert status.leader == next(one.id for one in status.instances if one.ip == "10.0.0.2")
        assert "requires 'x'" in (them.problem("old") or "")
        assert them.problem("new") is None
        assert [text for text in caplog.messages if "the job requires 'x', which this worker does not know" in text]
        since = here.now()
        await them.put(requires=[])
        await anyio.sleep(2)
        assert (await them.ran(12)).keys() == {"old", "new"}
        assert them.problem("old") is None
        assert {name for at, name in them.others if at > since - 10} == {"old", "new"}

    simulate(scene)


def test_a_worker_that_lacks_what_is_required_at_its_start_is_up_and_takes_part_when_it_can(
    mixed: Mix, caplog: pytest.LogCaptureFixture
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
def test_a_worker_that_waits_for_its_turn_can_leave(mixed: Mix, how: str) -> None:
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
        await them.put(requires=[])
        await anyio.sleep(2)
        assert (await them.ran(6)).keys() == ({"old", "new"} if how == "cut off" else {"new"})

    simulate(scene)


def test_nobody_runs_what_nobody_knows_and_operators_see_why(mixed: Mix) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = mixed(here)
        await them.start("old", sharding_total_count=2)
        await them.start("older", sharding_total_count=2)
        them.work = 7
        await anyio.sleep(5)
        await them.put(requires=["x", "y"])
        await anyio.sleep(12)  # what ran has ended in peace
        assert [item.record.outcome for item in (await them.status()).items if item.record] == ["completed"] * 2
        assert await them.ran(20) == {}
        status = await them.status()
        assert (status.state, status.leader) == ("nobody able", None)
        with pytest.raises(NotPossible, match=r"do not know all that the job requires \(x, y\)"):
            await operations.trigger(here.observer, "job")
        warnings = (await operations.preview(here.observer, "job", {"description": "x"}, now=0)).warnings
        assert warnings == ("no instance knows all that the job requires (x, y): it takes effect when that changes",)
        await operations.configure(here.observer, "job", {"requires": ""})
        them.work = 0.1
        assert (await them.ran(12)).keys() == {"old", "older"}

    simulate(scene)


def test_keys_that_are_not_known_are_ignored_said_once_and_kept_by_whoever_writes(
    mixed: Mix, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = mixed(here)
        await them.start("old")
        await them.put(corn="newer", cron="0/3 * * * * ?")
        assert await them.ran(13) == {"old": ALL}
        assert len({round(at) for at, _, _ in them.runs if here.now() - at < 13}) == 4  # by the new schedule
        assert sum("'corn' is not known here (did you mean cron?)" in text for text in caplog.messages) == 1
        status = await them.status()
        assert (status.fault, len(status.ignored)) == (None, 1)
        await operations.configure(here.observer, "job", {"description": "changed"})
        assert (await them.stored())["corn"] == "newer"
        text = await operations.export_jobs(here.observer, ["job"])
        await them.put(corn="newest", more=[1], requires=["x"])
        done = await operations.import_jobs(here.observer, text, overwrite=True)
        assert "'corn' is not known here" in done.summary
        stored = await them.stored()
        assert (stored["corn"], stored["more"], stored["requires"]) == ("newer", [1], ["x"])
        await them.start("new", "x", overwrite=True, description="overwritten")
        stored = await them.stored()
        assert (stored["description"], stored["cron"]) == ("overwritten", JOB["cron"])
        assert (stored["corn"], stored["more"], stored["requires"]) == ("newer", [1], ["x"])

    simulate(scene)


def test_an_instance_says_what_it_knows_and_keeps_what_it_does_not_when_it_says_that_it_leaves(mixed: Mix) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = mixed(here)
        them.work = 4
        await them.start("old", "b", "a")
        (name,) = await here.names(LAYOUT.instances)
        told = view.instance_data((await here.observer.get(LAYOUT.instance(name))).data)
        assert told["features"] == ["a", "b"]
        await here.write(Set(LAYOUT.instance(name), json.dumps({**told, "newer": {"a": 1}}).encode(), -1))
        await here.until(6)
        await here.write(Create(LAYOUT.shutdown(name)))
        await anyio.sleep(1)
        after = view.instance_data((await here.observer.get(LAYOUT.instance(name))).data)
        assert after == {**told, "newer": {"a": 1}, "leaving": True, "upSince": after["upSince"]}

    simulate(scene)


NONSENSE = [
    b"hello",
    b"{",
    b"[]",
    b'{"jobName": "job", "cron": "every now and then"}',
    b'{"jobName": "another"}',
    b'{"jobName": "job", "options": {"command": "ls"}}',
]


@pytest.mark.parametrize("data", NONSENSE)
def test_a_job_whose_configuration_makes_no_sense_at_the_start_waits_until_it_is_mended(
    data: bytes, mixed: Mix, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        caplog.set_level("INFO", "aioelasticjob.running.life")
        them = mixed(here)
        await here.write(Create(LAYOUT.root), Create(LAYOUT.config, data))
        await them.start("a", overwrite=b"options" not in data)  # which would be replaced: it is a configuration
        await them.start("b")
        assert await them.ran(120) == {}
        assert {name for _, name in them.others} == {"a", "b"}
        assert (await here.observer.get(LAYOUT.config)).data == data
        assert await here.observer.children(LAYOUT.root) == ("config",)
        for name in "ab":
            health = them.apps[name].health
            assert (health.status, health.ready) == ("up", False)
            assert "/job/config" in (them.problem(name) or "")
        assert sum("job: waits: /job/config" in text for text in caplog.messages) == 2  # once by each of them
        assert (await them.status()).state == "faulty"
        await here.write(Set(LAYOUT.config, b'{"jobName": "job", "cron": "0/2 * * * * ?"}', -1))
        await anyio.sleep(2)
        ran = set().union(*(await them.ran(6)).values())
        assert ran == ({0} if b"options" in data else ALL)  # by the settings of the one that overwrites, if one does
        assert [them.problem(name) for name in "ab"] == [None, None]
        assert all(them.apps[name].health.ready for name in "ab")
        assert sum("job: has joined" in text for text in caplog.messages) == 2

    simulate(scene)


def test_while_a_job_waits_the_registry_is_not_asked_again_and_again(
    mixed: Mix, monkeypatch: pytest.MonkeyPatch
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


def test_a_job_that_waits_stays_out_of_the_way_of_those_who_know_better(mixed: Mix) -> None:
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


def test_a_job_that_turns_out_to_be_of_another_kind_after_it_has_waited_goes_on_waiting(mixed: Mix) -> None:
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


def test_a_job_that_cannot_register_waits_until_what_stands_in_its_way_is_gone(mixed: Mix) -> None:
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
