"""Pausing keeps the assignment, disabling gives items away; moments that came meanwhile are excused for all holders."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import anyio
import pytest

from aioelasticjob import ElasticJob, ItemContext
from aioelasticjob.clock import SystemClock
from aioelasticjob.core.layout import COMMON, SWITCHES, Layout, server_switch
from aioelasticjob.engine import tree_follower as module
from aioelasticjob.engine.local_jobs import follow_common_nodes
from aioelasticjob.engine.process_context import ProcessContext
from aioelasticjob.errors import NotPermitted, RegistryError, SessionEnded
from aioelasticjob.events import Misfired
from aioelasticjob.ground.latest import Latest
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.transaction import Create, Delete
from aioelasticjob.registry.tree import Node, Stat, Tree
from aioelasticjob.testing import Process, VirtualClock
from tests.engine.test_settings_changes import SOON, start_processes
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, listening, simulate

A = "10.0.0.1"
EVERY_MINUTE = "0 * * * * ?"
PAUSES = {
    "the job": [Create(LAYOUT.paused)],
    "the server in the job": [Create(LAYOUT.server_paused(A))],
    "the server in all jobs": [
        Create(SWITCHES),
        Create(server_switch(A)),
        Create(server_switch(A, "paused")),
    ],
}


@pytest.mark.parametrize("what", PAUSES)
def test_what_is_paused_keeps_its_items_and_runs_none_of_them(what: str) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here)
        before = await them.holders()
        await here.until(10 - SOON)
        await here.write(*PAUSES[what])
        await here.until(35)
        assert await them.holders() == before
        assert {run.host for run in them.runs} == (set() if what == "the job" else {"b"})
        assert them.others["b"] > 0  # another job goes on, and on the other server in any case
        assert (them.others["a"] > 0) is (what != "the server in all jobs")
        await here.write(Delete(PAUSES[what][-1].path))
        await here.until(45)
        assert sorted(item for run in them.since(39) for item in run.items) == [0, 1, 2, 3]
        assert min(run.at for run in them.runs if run.host == "a") >= 40  # nothing is made up for

    simulate(scene)


def test_who_joins_a_paused_job_obeys() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "a")
        await here.flag(LAYOUT.paused)
        await them.start_processes("b", "c")
        await here.until(25)
        assert them.runs == []
        assert set((await them.holders()).values()) == {"a", "b", "c"}
        await here.write(Delete(LAYOUT.paused))
        await here.until(31)
        assert {run.host for run in them.runs} == {"a", "b", "c"}

    simulate(scene)


def test_a_server_disabled_in_all_jobs_gives_all_items_away_also_of_jobs_that_start_later() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await here.write(Create(SWITCHES), Create(server_switch(A)), Create(server_switch(A, "disabled")))
        them = await start_processes(here)
        assert set((await them.holders()).values()) == {"b"}
        await here.until(15)
        assert set(them.others) == {"b"}
        assert {run.host for run in them.runs} == {"b"}
        await here.write(Delete(server_switch(A, "disabled")))
        await here.until(25)
        assert {run.host for run in them.since(19)} == {"a", "b"}
        assert set(them.others) == {"a", "b"}

    simulate(scene)


def test_what_was_off_for_a_job_alone_stays_off_when_its_server_is_enabled_in_all_jobs() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here)
        await here.flag(LAYOUT.server_disabled(A))
        await here.write(Create(SWITCHES), Create(server_switch(A)), Create(server_switch(A, "disabled")))
        await here.until(15)
        await here.write(Delete(server_switch(A, "disabled")))
        await here.until(25)
        assert {run.host for run in them.runs} == {"b"}
        assert them.others["a"] > 0

    simulate(scene)


async def start_process(here: SimulatedJobs, name: str) -> Process:
    async def main() -> None:
        app = here.app(cron=EVERY_MINUTE, sharding_total_count=2)
        async with listening(here, app), app.running():
            await anyio.sleep_forever()

    process = here.faults.start(name, f"10.0.0.{ord(name) - 96}", main)
    await anyio.sleep(2)
    return process


def missed(here: SimulatedJobs) -> list[Misfired]:
    return [one for one in here.events if isinstance(one, Misfired)]


@pytest.mark.parametrize("what", PAUSES)
@pytest.mark.parametrize("crashes", [True, False])
def test_items_that_move_during_a_pause_owe_nothing(what: str, crashes: bool) -> None:
    async def scene(here: SimulatedJobs) -> None:
        a = await start_process(here, "a")
        await start_process(here, "b")
        await here.until(65)
        await here.write(*PAUSES[what])
        await here.until(250)
        if crashes:
            here.faults.crash(a)  # a server is paused, and restarted for maintenance
        else:
            await here.flag(LAYOUT.server_disabled(A))
        await here.until(285)
        assert [at for at, *_ in here.runs if at > 245] == []
        await here.write(Delete(PAUSES[what][-1].path))
        await here.until(305)
        assert sorted(here.starts(0) + here.starts(1))[-2:] == [(300.0, "SCHEDULE", 300.0)] * 2
        assert missed(here) == []

    simulate(scene)


def test_a_paused_job_that_is_deployed_anew_owes_nothing() -> None:
    async def scene(here: SimulatedJobs) -> None:
        old = [await start_process(here, name) for name in "ab"]
        await here.until(65)
        await here.flag(LAYOUT.paused)
        await here.until(190)
        for process in old:
            here.faults.crash(process)
        await here.until(250)
        for name in "cd":
            await start_process(here, name)
        await here.until(275)
        await here.write(Delete(LAYOUT.paused))
        await here.until(305)
        assert [run[0] for run in here.runs] == [60.0, 60.0, 300.0, 300.0]
        assert missed(here) == []

    simulate(scene)


def test_a_process_follows_the_servers_once_for_all_of_its_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, ...]] = []

    class Counting(module.Follower):
        def __init__(self, session: Session, roots: Sequence[str], *rest: Any) -> None:
            made.append(tuple(roots))
            super().__init__(session, roots, *rest)

    monkeypatch.setattr(module, "Follower", Counting)

    async def scene(here: SimulatedJobs) -> None:
        app, ran = ElasticJob(here.address, clock=VirtualClock(), session_timeout=5), list[str]()

        async def note(context: ItemContext) -> None:
            ran.append(context.job_name)

        for number in range(5):
            app.add(note, name=f"job{number}", cron="0/10 * * * * ?")
        async with app.running():
            await here.until(15)
            assert len(ran) == 5
            ip = (await here.names(Layout("job0").servers))[0]
            await here.write(Create(SWITCHES), Create(server_switch(ip)), Create(server_switch(ip, "paused")))
            await here.until(35)
            assert len(ran) == 5
            await here.write(Delete(server_switch(ip, "paused")))
            await here.until(45)
            assert len(ran) == 10

    simulate(scene)
    assert made == [COMMON]


class Reader:
    """A follower whose reads fail as often as told, and then show one server."""

    failures: list[RegistryError]

    def __init__(self, _session: Session, _roots: object, _shallow: object, _news: Callable[[], None]) -> None:
        self.trees = Latest(Tree())

    async def catch_up(self) -> None:
        if self.failures:
            raise self.failures.pop(0)
        node = Node.of(b"", Stat.of((0, 0), (0.0, 0.0), 0))
        self.trees.set(Tree({server_switch(A, "paused"): node}))

    def close(self) -> None: ...


class Patient:
    def __init__(self) -> None:
        self.waits: list[int] = []

    async def back_off(self, failures: int) -> None:
        self.waits.append(failures)


@pytest.mark.parametrize(
    ("failures", "waits", "known"),
    [
        ([], [], True),
        ([NotPermitted(SWITCHES), NotPermitted(SWITCHES)], [0, 1], True),
        ([NotPermitted(SWITCHES), SessionEnded("closed")], [0], False),
    ],
)
def test_jobs_begin_also_if_the_registry_refuses_to_say_and_hear_it_later(
    failures: list[RegistryError], waits: list[int], known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "Follower", Reader)
    Reader.failures = failures

    async def main() -> None:
        shared = ProcessContext(SystemClock(), cast(Any, None), cast(Any, None), cast(Any, None), cast(Any, None))
        called, session = asyncio.Event(), Patient()
        async with anyio.create_task_group() as tasks:
            shared.common.listen(called.set)
            await tasks.start(follow_common_nodes, cast(Session, session), shared)
            if known:
                await called.wait()
                tasks.cancel_scope.cancel()
        assert session.waits == waits
        assert (server_switch(A, "paused") in shared.common.value) is known

    asyncio.run(main())
