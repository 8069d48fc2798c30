"""What operators do has the effect it is said to have, on a cluster in virtual time, and is not done twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from aioelasticjob import InvalidSetting, JobConfig, operations
from aioelasticjob.core.layout import Layout
from aioelasticjob.errors import OutcomeUnknown, RegistryError
from aioelasticjob.operations import ChangedMeanwhile, NotPossible
from aioelasticjob.operations.results import commit
from aioelasticjob.registry.session import ConnectionSettings, Session, open_session
from aioelasticjob.registry.transaction import Check, Create, Delete, Op
from tests.engine.test_settings_changes import SOON, start_processes
from tests.support.simulated_jobs import LAYOUT, REGISTRY, SimulatedJobs, simulate

HOSTILE = ("", "..", ".", "a/b", "/job", "<script>", "job\0", "job\n", "x" * 300, "zookeeper", "nosuch")


def test_a_parameter_may_be_a_mapping() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here)
        await operations.ask(here.observer, "job", parameter={"day": "Mönch"})
        await anyio.sleep(SOON)
        assert {run.parameter for run in them.runs} == {'{"day": "Mönch"}'}

    simulate(scene)


def test_one_instance_is_asked_to_run_what_it_holds_with_a_parameter_for_that_run() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here)
        b = await them.id_of("b")
        held = sorted(item for item, holder in (await them.holders()).items() if holder == "b")
        done = await operations.ask(here.observer, "job", instance=b, parameter="now", id="r")
        assert done.summary == f"job: asked to run items {held[0]}, {held[1]}, as the request r"
        assert done.paths == (LAYOUT.request("r"),)
        assert done.zxid > 0
        await anyio.sleep(SOON)
        assert {(run.host, run.source, run.parameter) for run in them.runs} == {("b", "TRIGGER", "now")}
        assert sorted(item for run in them.runs for item in run.items) == held
        with pytest.raises(InvalidSetting, match="names the items that it holds: give either it or items"):
            await operations.ask(here.observer, "job", instance=b, items=held)

    simulate(scene)


def test_a_run_of_nothing_is_not_asked_for() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "ab", sharding_total_count=1)
        (holder,) = set((await them.holders()).values())
        idle = await them.id_of("b" if holder == "a" else "a")
        with pytest.raises(NotPossible, match="holds no item"):
            await operations.ask(here.observer, "job", instance=idle)
        assert (await operations.ask(here.observer, "job")).changed
        asked = 1
        await anyio.sleep(SOON)
        await operations.disable(here.observer, "job", item=0)
        with pytest.raises(NotPossible, match="all items of 2 instances are disabled: enable one first"):
            await operations.ask(here.observer, "job")
        assert len(await here.names(LAYOUT.requests)) == asked

    simulate(scene)


def test_a_run_of_an_instance_leaves_out_its_items_that_are_disabled() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "a")
        await operations.disable(here.observer, "job", item=1)
        asked = await operations.ask(here.observer, "job", instance=await them.id_of("a"), id="r")
        assert asked.summary == "job: asked to run items 0, 2, 3, as the request r"

    simulate(scene)


def test_a_request_to_leave_that_comes_while_one_leaves_is_not_left_behind() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here, "ab", work=5)
        await here.until(11)
        for _ in range(2):
            await operations.shut_down(here.observer, "job")
            await anyio.sleep(1)
        assert len(await here.names(LAYOUT.shutdowns)) == 2
        await here.until(20)
        assert await here.names(LAYOUT.instances) == ()
        assert await here.names(LAYOUT.shutdowns) == ()

    simulate(scene)


def test_an_instance_leaves_and_then_all_do() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here)
        a = await them.id_of("a")
        done = await operations.shut_down(here.observer, "job", instance=a)
        assert done.summary == f"job: asked {a} to leave"
        await here.until(15)
        assert len(await here.names(LAYOUT.instances)) == 1
        assert (await operations.shut_down(here.observer, "job")).changed
        await here.until(25)
        assert await here.names(LAYOUT.instances) == ()
        assert set(them.others) == {"a", "b"}
        for action in (operations.shut_down, operations.ask):
            with pytest.raises(NotPossible, match="no instance is there"):
                await action(here.observer, "job")

    simulate(scene)


def test_nobody_is_asked_to_run_what_he_may_not() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them, asked = await start_processes(here), 0
        await operations.disable(here.observer, "job", server="10.0.0.1")
        with pytest.raises(NotPossible, match="is switched off: resume or enable first"):
            await operations.ask(here.observer, "job", instance=await them.id_of("a"))
        await operations.pause(here.observer, "job")
        with pytest.raises(NotPossible, match="job: is paused: resume it first"):
            await operations.ask(here.observer, "job")
        assert len(await here.names(LAYOUT.requests)) == asked

    simulate(scene)


def test_names_that_are_not_there_are_answered_with_those_that_are_and_write_nothing() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here)
        before = await here.observer.subtree(["/"])
        for name in HOSTILE:
            for of_a_job in (operations.ask, operations.pause, operations.disable, operations.shut_down):
                with pytest.raises(InvalidSetting, match="there are: job, other"):
                    await of_a_job(here.observer, name)
            with pytest.raises(InvalidSetting, match=r"there are: 10\.0\.0\.1, 10\.0\.0\.2"):
                await operations.pause(here.observer, "job", server=name)
            with pytest.raises(InvalidSetting, match=r"there are: 10\.0\.0\.1, 10\.0\.0\.2"):
                await operations.pause_server(here.observer, name)
            for of_an_instance in (operations.ask, operations.shut_down):
                with pytest.raises(InvalidSetting, match=r"no such instance; there are: 10\.0\.0\.1@-@"):
                    await of_an_instance(here.observer, "job", instance=name)
        for item in (-1, 4, 10**9, True, "2", "../2"):
            with pytest.raises(InvalidSetting, match="has the items 0 to 3"):
                await operations.disable(here.observer, "job", item=item)  # type: ignore[arg-type]
        with pytest.raises(InvalidSetting, match="either an item or a server"):
            await operations.enable(here.observer, "job", item=1, server="10.0.0.1")
        with pytest.raises(InvalidSetting, match="must be text, or a mapping"):
            await operations.ask(here.observer, "job", parameter=7)  # type: ignore[arg-type]
        with pytest.raises(InvalidSetting, match="must be at most 65536 bytes, is 65537"):
            await operations.ask(here.observer, "job", parameter="x" * 65537)
        with pytest.raises(InvalidSetting, match="UTF-8"):
            await operations.ask(here.observer, "job", parameter="\ud800")
        assert set(await here.observer.subtree(["/"])) == set(before)

    simulate(scene)


class Meddled(Session):
    """A session in which somebody else is faster with every transaction."""

    def __init__(self, session: Session, *faster: Op) -> None:
        self.__dict__ = session.__dict__
        self._faster = faster

    async def commit(self, ops: Any, *, incarnation: int) -> Any:
        await super().commit(self._faster, incarnation=incarnation)
        return await super().commit(ops, incarnation=incarnation)


def test_what_somebody_else_did_meanwhile_is_named_and_nothing_is_written() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here)
        a, observer, paused = await them.id_of("a"), here.observer, LAYOUT.paused
        with pytest.raises(ChangedMeanwhile, match=f"{paused} was made meanwhile: nothing was written") as made:
            await operations.pause(Meddled(observer, Create(paused)), "job")
        assert made.value.path == paused
        assert (await observer.get(paused)).stat.version == 0
        with pytest.raises(ChangedMeanwhile, match=f"{paused} was removed meanwhile"):
            await operations.resume(Meddled(observer, Delete(paused)), "job")
        with pytest.raises(ChangedMeanwhile) as gone:
            await operations.shut_down(Meddled(observer, Delete(LAYOUT.instance(a))), "job")
        assert gone.value.path == LAYOUT.instance(a)
        with pytest.raises(ChangedMeanwhile, match="/job/config was removed meanwhile"):
            await operations.disable(Meddled(observer, Delete(LAYOUT.config)), "job")

    simulate(scene)


def test_of_two_operators_who_pause_at_once_one_does_it_and_the_other_is_told() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here)
        answers = await asyncio.gather(
            *(operations.pause(here.observer, "job") for _ in range(2)), return_exceptions=True
        )
        assert sorted(type(answer).__name__ for answer in answers) == ["ChangedMeanwhile", "OperationResult"]

    simulate(scene)


def test_a_condition_alone_writes_nothing() -> None:
    async def scene(here: SimulatedJobs) -> None:
        done = await commit(here.observer, [Check("/nosuch")], "nothing to do")
        assert (done.summary, done.changed, done.zxid) == ("nothing to do", False, here.observer.zxid)

    simulate(scene)


def test_all_of_it_on_either_registry(registry_address: str) -> None:
    layout, me = Layout("report"), "10.0.0.5@-@1-a"

    async def main() -> None:
        async with open_session(ConnectionSettings.parse(registry_address)) as session:
            config = JobConfig(job_name="report", sharding_total_count=2)
            nodes = [Create(path) for path in layout.skeleton]
            nodes += [Create(layout.config, config.to_json()), Create(layout.server("10.0.0.5"))]
            nodes.append(Create(layout.instance(me), b"{}", ephemeral=True))
            await session.commit(nodes, incarnation=session.incarnation)
            done = [
                await operations.ask(session, "report", parameter="x", id="r"),
                await operations.disable(session, "report", item=1),
                await operations.pause_server(session, "10.0.0.5"),
                await operations.disable(session, "report"),
                await operations.shut_down(session, "report"),
            ]
            again = await operations.shut_down(session, "report")
            assert (again.summary, again.changed) == (f"report: {me} was asked to leave already", False)
            assert [one.zxid for one in done] == sorted({one.zxid for one in done})
            status = await operations.job(session, "report", now=0)
            assert status.state == "switched off"
            assert (status.paused, status.items[0].disabled) == (True, True)
            assert status.servers[0].flags == ("paused in all jobs",)
            assert b'"parameter": "x"' in (await session.get(layout.request("r"))).data
            await operations.enable(session, "report", item=1)
            await operations.resume_server(session, "10.0.0.5")
            await operations.enable(session, "report")
            assert (await operations.job(session, "report", now=0)).state == "waiting"
            with pytest.raises(ChangedMeanwhile):
                await operations.pause(Meddled(session, Create(layout.paused)), "report")

    asyncio.run(main())


def test_a_registry_that_disappears_is_a_typed_error_within_a_bounded_time_and_one_that_returns_is_used() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here)
        network = here.faults.network
        network.unpowered.add(REGISTRY)
        network.links_changed()
        begun = here.now()
        actions: list[Callable[[], Awaitable[object]]] = [
            lambda: operations.pause(here.observer, "job"),
            lambda: operations.configure(here.observer, "job", {"cron": "@daily"}),
            lambda: operations.remove(here.observer, "job", force=True),
            lambda: operations.import_jobs(here.observer, "jobName: fresh"),
        ]
        for action in actions:
            with pytest.raises(RegistryError):
                await action()
        assert here.now() - begun < 120
        network.unpowered.discard(REGISTRY)
        network.links_changed()
        await here.observer.connected()
        assert (await operations.pause(here.observer, "job")).changed

    simulate(scene)


def test_an_answer_that_is_lost_leaves_an_action_that_can_be_asked_for_again() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here)

        class Lost(Session):
            def __init__(self, session: Session) -> None:
                self.__dict__ = session.__dict__

            async def commit(self, ops: Any, *, incarnation: int) -> Any:
                await super().commit(ops, incarnation=incarnation)
                raise OutcomeUnknown("connection lost before the reply")

        with pytest.raises(OutcomeUnknown):
            await operations.pause(Lost(here.observer), "job")
        again = await operations.pause(here.observer, "job")
        assert (again.summary, again.changed) == ("job: is paused already", False)

    simulate(scene)
