"""An instance that leaves finishes what it has begun; others take over the rest at once, and the leader's role too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from aioelasticjob import ElasticJob, ItemContext, operations
from aioelasticjob.core.layout import Layout
from aioelasticjob.core.records import decode
from aioelasticjob.engine import life, process_context
from aioelasticjob.engine.ending import Ending
from aioelasticjob.engine.life import LEAVE_TIMEOUT
from aioelasticjob.engine.member import Member
from aioelasticjob.engine.stopping import SETTLE_TIMEOUT, Departures, Stopping
from aioelasticjob.ground.latest import Latest
from aioelasticjob.ground.limited_log import LimitedLog
from aioelasticjob.operations import JobStatus, NotPossible
from aioelasticjob.registry.session import Session, SessionState
from aioelasticjob.registry.transaction import Create, Delete
from aioelasticjob.testing import Process, VirtualClock, VirtualCluster, run
from aioelasticjob.testing.loop import START
from tests.engine.test_refused_writes import refusing, unlocks
from tests.engine.test_settings_changes import EVERY_TEN, JobProcesses, start_processes
from tests.support.simulated_jobs import LAYOUT, REGISTRY, SimulatedJobs, simulate

EVERY_MINUTE = "0 * * * * ?"
SOON = 1.0
"""Seconds: an election, ``sharding_quiet`` and an assignment."""


async def look(here: SimulatedJobs) -> JobStatus:
    return await operations.job(here.observer, "job", now=here.now())


async def leader(here: SimulatedJobs) -> str:
    """Return the name of the one who leads, or ``nobody``."""
    found = await here.observer.get_many([LAYOUT.host])
    return "nobody" if found[0] is None else _name(found[0].data.decode())


async def leavers(here: SimulatedJobs) -> list[str]:
    return [_name(one.id) for one in (await look(here)).instances if one.leaving]


def _name(instance: str) -> str:
    return chr(96 + int(instance.partition("@")[0].rpartition(".")[2]))


async def dismiss(here: SimulatedJobs, them: JobProcesses, name: str, how: str) -> None:
    """Ask somebody to leave, or end its process, or remove its node."""
    me = await them.id_of(name)
    if how == "the process ends":
        them.people[name].terminate()
    else:
        await here.write(Create(LAYOUT.shutdown(me)) if how == "asked to" else Delete(LAYOUT.instance(me)))


@asynccontextmanager
async def draining(
    here: SimulatedJobs, how: str = "asked to", names: str = "abc", who: str | None = None
) -> AsyncIterator[tuple[JobProcesses, str]]:
    """Yield when the leader, or ``who``, has been leaving for a second, with 38 seconds of a run before it."""
    them = await start_processes(here, names, work=40, cron=EVERY_MINUTE, shutdown_timeout=120.0, failover=True)
    await here.until(61)
    who = who or await leader(here)
    await dismiss(here, them, who, how)
    await here.until(61 + SOON)
    yield them, who


WAYS = ["asked to", "the process ends", "removed"]


@pytest.mark.parametrize("how", WAYS)
def test_a_leader_that_leaves_gives_up_its_seat_and_its_items_before_its_run_is_over(how: str) -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with draining(here, how) as (them, left):
            others = set("abc") - {left}
            assert await leader(here) in others
            assert set((await them.holders()).values()) == others
            assert await leavers(here) == ([] if how == "removed" else [left])
            await here.until(130)
            assert len(await here.names(LAYOUT.instances)) == 2
            assert them.cancelled == []
            assert sorted(item for run in them.runs if 59 < run.at < 61 for item in run.items) == [0, 1, 2, 3]
            again = them.since(61)
            assert sorted(item for run in again for item in run.items) == [0, 1, 2, 3]
            assert {(round(run.at), run.source) for run in again} == {(120, "SCHEDULE")}
            assert {run.host for run in again} == others

    simulate(scene)


@pytest.mark.parametrize("how", WAYS)
def test_the_next_leader_does_not_hesitate_as_if_somebody_had_torn_the_last_one_from_its_seat(how: str) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "abc", work=40, cron=EVERY_MINUTE, shutdown_timeout=120.0)
        await here.until(61)
        left = await leader(here)
        await dismiss(here, them, left, how)
        await here.until(61.2)
        assert await leader(here) in set("abc") - {left}

    simulate(scene)


@pytest.mark.parametrize("how", WAYS)
def test_a_crash_while_the_leader_drains_is_noticed_at_once(how: str) -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with draining(here, how) as (them, left):
            victim, last = sorted(set("abc") - {left})
            here.faults.crash(them.people[victim])
            await here.until(62 + 5 + SOON)  # its session has ended
            assert set((await them.holders()).values()) == {last}
            assert await here.names(LAYOUT.orphans)
            assert await leader(here) == last

    simulate(scene)


@pytest.mark.parametrize("how", WAYS)
def test_who_joins_while_the_leader_drains_gets_items_at_once_and_who_drains_gets_none(how: str) -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with draining(here, how) as (them, left):
            await them.start_processes("d")
            await here.until(62 + 2 * SOON)
            assert set((await them.holders()).values()) == {*"abcd"} - {left}

    simulate(scene)


async def test_what_a_dead_instance_held_is_not_given_to_one_that_leaves(virtual_cluster: VirtualCluster) -> None:
    ran: list[tuple[int, int]] = []
    app = ElasticJob("zk://zk1:2181/shop", session_timeout=5)

    @app.job(cron=EVERY_TEN, sharding_total_count=3, shutdown_timeout=100.0)
    async def till(context: ItemContext) -> None:
        ran.append((context.item, round(context.fire_time.timestamp() - START)))
        await anyio.sleep(60 if ran[-1] == (0, 10) else 0)

    workers = [await virtual_cluster.start(app) for _ in range(3)]
    await virtual_cluster.settled("till")
    held = {item: one for one in workers for item in await one.holds()}
    await anyio.sleep(12 - VirtualClock().now() + START)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(held[0].stop)
        held[1].kill()
        await anyio.sleep(10)
        assert await held[2].holds() == (0, 1, 2)
        await anyio.sleep(30)
        assert {(1, second) for second in (20, 30, 40, 50)} <= set(ran)
        assert held[0].alive
    assert len(ran) == len(set(ran))


@pytest.mark.parametrize("how", ["asked to", "the process ends"])
def test_the_only_instance_keeps_its_items_until_somebody_joins(how: str) -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with draining(here, how, "a") as (them, _):
            assert set((await them.holders()).values()) == {"a"}
            assert (await leader(here), await leavers(here)) == ("nobody", ["a"])
            with pytest.raises(NotPossible, match="all its instances are leaving"):
                await operations.ask(here.observer, "job")
            with pytest.raises(NotPossible, match=r"10\.0\.0\.1@-@\S+ is leaving"):
                await operations.ask(here.observer, "job", instance=await them.id_of("a"))
            warnings = (await operations.preview(here.observer, "job", {"description": "x"}, now=here.now())).warnings
            assert "all instances are leaving: it takes effect when that changes" in warnings
            await them.start_processes("b")
            await here.until(62 + 2 * SOON)
            assert (await leader(here), set((await them.holders()).values())) == ("b", {"b"})
            await here.until(130)
            assert them.cancelled == []
            assert {run.host for run in them.since(119)} == {"b"}

    simulate(scene)


@pytest.mark.parametrize("how", ["asked to", "the process ends"])
def test_who_has_nothing_to_finish_is_gone_without_notice(how: str) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "ab")
        name = await leader(here)
        await dismiss(here, them, name, how)
        while (status := await look(here)) and len(status.instances) == 2:
            assert not any(one.leaving for one in status.instances)
            await anyio.sleep(0.001)
        assert here.now() < 5.2

    simulate(scene)


def test_without_a_connection_a_drain_waits_for_nothing_and_the_notice_is_given_later() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "ab", work=10, cron=EVERY_MINUTE)
        await here.until(61)
        name = await leader(here)
        here.faults.reset("10.0.9.9", _ip(name))
        here.faults.drop("10.0.9.9", _ip(name))
        await here.until(62)
        process = them.people[name]
        await dismiss(here, them, name, "the process ends")
        await here.until(63)
        assert await leader(here) == name
        here.faults.heal("10.0.9.9", _ip(name))
        await here.until(66)
        assert await leader(here) != name
        assert set((await them.holders()).values()) == {"a", "b"} - {name}
        await ended(process)
        assert 69 < here.now() < 71
        assert them.cancelled == []

    simulate(scene)


def _ip(name: str) -> str:
    return f"10.0.0.{ord(name) - 96}"


async def ended(process: Process) -> None:
    while not process.ended:
        await anyio.sleep(0.05)


def test_who_was_shut_down_by_an_operator_knows_that_it_leads_no_more() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(work=20, cron=EVERY_TEN, sharding_total_count=2)
        async with app.running():
            await here.until(11)
            assert [(job.leads, job.running) for job in app.health.jobs] == [(True, (0, 1))]
            (me,) = await here.names(LAYOUT.instances)
            await here.write(Create(LAYOUT.shutdown(me)))
            await here.until(12)
            assert [(job.leads, job.running) for job in app.health.jobs] == [(False, (0, 1))]

    simulate(scene)


@pytest.mark.parametrize(
    ("ask", "why"),
    [
        (partial(operations.remove, force=True, by="ann"), "ann has removed the job from the registry"),
        (operations.shut_down, "an operator has asked this instance to leave"),
    ],
    ids=["removed", "shut down"],
)
def test_the_health_says_why_an_operator_has_had_a_job_leave_and_the_process_stays_ready(
    ask: Callable[[Session, str], Awaitable[object]], why: str
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron=EVERY_TEN)
        async with app.running():
            await here.until(11)
            assert app.health.jobs[0].problem is None
            await ask(here.observer, "job")
            await here.until(30)
            (job,) = app.health.jobs
            assert job.problem == f"{why}; restart the process to run the job here again"
            assert (job.instance, app.health.ready) == (None, True)
        assert len(here.runs) == 1

    simulate(scene)


@pytest.mark.parametrize("work", [0.0, 3.0])
def test_a_job_that_leaves_while_the_registry_is_away_leaves_nothing_behind_though_its_process_goes_on(
    work: float,
) -> None:
    us = "10.0.0.1"

    async def scene(here: SimulatedJobs) -> None:
        async def main() -> None:
            app = here.app(work=work, cron=EVERY_MINUTE)
            app.add(_nothing, name="other", cron=EVERY_MINUTE)
            async with app.running():
                await anyio.sleep_forever()

        here.faults.start("a", us, main)
        await here.until(61)
        (name,) = await here.names(LAYOUT.instances)
        here.faults.drop(REGISTRY, us)  # the request arrives once the network is back
        await here.write(Create(LAYOUT.shutdown(name)))
        await here.until(62)
        here.faults.heal()
        while LAYOUT.shutdown(name).rpartition("/")[2] in await here.names(LAYOUT.shutdown(name).rpartition("/")[0]):
            await anyio.sleep(0.001)
        here.faults.partition([us], [REGISTRY])
        await here.until(69)  # its handler is over since 63
        here.faults.heal()
        await here.until(75)
        assert await here.names(LAYOUT.instances) == ()
        assert await leader(here) == "nobody"
        assert "running" not in await here.names(LAYOUT.item(0).execution)
        assert len(await here.names(Layout("other").instances)) == 1

    simulate(scene)


async def _nothing(context: ItemContext) -> None: ...


@pytest.mark.parametrize("resting", [True, False])
def test_an_instance_announces_that_it_leaves_only_if_it_has_something_to_end_first(
    resting: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    announced = list[str]()

    async def announce(member: Member) -> None:
        announced.append(member.ip)

    monkeypatch.setattr(life, "announce_leaving", announce)

    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "a", work=40, cron=EVERY_MINUTE, shutdown_timeout=120.0)
        await here.until(45 if resting else 65)
        them.people["a"].terminate()
        await here.until(46 if resting else 110)
        assert await here.names(LAYOUT.instances) == ()

    simulate(scene)
    assert len(announced) == (0 if resting else 1)


def test_the_jobs_of_a_process_that_stops_unregister_a_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(process_context, "REGISTERING_AT_ONCE", 3)
    unregister, at_once, most = life.leave, 0, 0

    async def counted(member: Member) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        try:
            await asyncio.sleep(0.5)  # the registry is slow: forty jobs take seven seconds
            await unregister(member)
        finally:
            at_once -= 1

    async def scene(here: SimulatedJobs) -> None:
        app = here.app(_nothing, cron=EVERY_MINUTE)
        for number in range(39):
            app.add(_nothing, name=f"more-{number}", cron=EVERY_MINUTE)
        monkeypatch.setattr(life, "leave", counted)
        async with app.running():
            await here.until(30)
        assert [await here.names(Layout(f"more-{number}").instances) for number in range(39)] == [()] * 39

    simulate(scene)
    assert most == 3
    assert not [one for one in caplog.records if one.levelname != "INFO"]


def test_if_the_registry_does_not_answer_the_jobs_do_not_wait_for_it_one_after_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process_context, "REGISTERING_AT_ONCE", 3)
    stopped = list[float]()

    async def scene(here: SimulatedJobs) -> None:
        async def process() -> None:
            app = here.app(_nothing, cron=EVERY_MINUTE, shutdown_timeout=0.0)
            for number in range(11):
                app.add(_nothing, name=f"more-{number}", cron=EVERY_MINUTE, shutdown_timeout=0.0)
            async with app.running():
                await here.until(30)
                jobs = app._here.jobs
                assert jobs is not None
                leave = jobs._leave

                async def timed() -> None:
                    await leave()
                    stopped.append(here.now() - 30)

                monkeypatch.setattr(jobs, "_leave", timed)

        here.faults.start("a", "10.0.0.1", process)
        await here.until(29.5)
        here.faults.partition(["10.0.0.1"], [REGISTRY])  # which is not noticed yet
        await here.until(40)

    simulate(scene)
    assert stopped == 2 * [pytest.approx(LEAVE_TIMEOUT, abs=0.1)]  # when the tasks are cancelled, all have left


@pytest.mark.parametrize("accepting_for", [1.0, 5.0])
def test_a_job_is_not_said_to_be_refused_while_writes_of_other_jobs_that_leave_are_accepted(
    accepting_for: float, caplog: pytest.LogCaptureFixture
) -> None:
    said, settle_timeout = _said_while_others_leave(accepting_for, 30, caplog)
    assert [text for _, text in said] == [
        "waits up to 2 s to unregister: the registry has not accepted it",
        "waits no longer to unregister: the registry has not accepted it",
    ]
    assert [at for at, _ in said] == pytest.approx([accepting_for + 1, accepting_for + 2], abs=0.3)
    assert settle_timeout == 0


def test_a_process_does_not_wait_longer_than_its_handlers_could_take_for_a_registry_that_is_slow(
    caplog: pytest.LogCaptureFixture,
) -> None:
    said, settle_timeout = _said_while_others_leave(9, 4, caplog)
    assert said == [
        (
            pytest.approx(4, abs=0.3),
            "waits no longer to unregister: the registry is slow: it has not accepted everything in 4 s",
        )
    ]
    assert settle_timeout == 0


def _said_while_others_leave(
    accepting_for: float, seconds: float, caplog: pytest.LogCaptureFixture
) -> tuple[list[tuple[float, str]], float]:
    """Let a job wait for its last write while those of others are accepted; return the lines and its time to settle."""
    status = SimpleNamespace(value=SimpleNamespace(state=SessionState.CONNECTED))
    session = SimpleNamespace(status=status)
    member = cast(Any, SimpleNamespace(layout=LAYOUT, session=session, limited_log=LimitedLog()))
    said = list[tuple[float, str]]()

    async def scene() -> float:
        departures, loop = Departures(), asyncio.get_running_loop()
        last, other = (Stopping(member, departures, Latest(Ending().with_process())) for _ in range(2))
        began = loop.time()
        async with anyio.create_task_group() as tasks:
            for one in (last, other):
                one.leave(seconds - SETTLE_TIMEOUT, list)
                tasks.start_soon(one.stopped)
            while loop.time() - began < 8:
                await asyncio.sleep(0.25)
                for text in caplog.messages[len(said) :]:
                    said.append((loop.time() - began, text.partition(", and ")[2]))
                if loop.time() - began <= accepting_for:
                    other.accepted()
            other.ending.set(other.ending.value.gone())
        return last.settle_timeout

    return said, run(scene)


def test_items_are_settled_at_a_stop_if_a_slow_registry_accepts_one_write_after_another(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    commit, turn = Session.commit, 0.0

    async def in_turn(session: Session, ops: Any, incarnation: int) -> Any:
        nonlocal turn
        now = asyncio.get_running_loop().time()
        turn = max(turn, now) + 0.25
        await asyncio.sleep(turn - now)
        return await commit(session, ops, incarnation=incarnation)

    def slowly(session: Session, ops: Any, *, incarnation: int) -> Any:
        return asyncio.get_running_loop().create_task(in_turn(session, ops, incarnation))

    async def scene(here: SimulatedJobs) -> None:
        app = here.app(work=10, cron=EVERY_MINUTE)
        for number in range(1, 12):
            app.add(handler, name=f"job-{number}", cron=EVERY_MINUTE)
        async with app.running():
            await here.until(65)
            monkeypatch.setattr(Session, "commit", slowly)
        for layout in (LAYOUT, *(Layout(f"job-{number}") for number in range(1, 12))):
            record = decode((await here.observer.get(layout.item(0).execution)).data)
            assert record is not None
            assert record.outcome == "completed"

    async def handler(context: ItemContext) -> None:
        await anyio.sleep(10)

    simulate(scene)
    assert [text for text in caplog.messages if "no longer" in text or "to settle" in text] == []


def test_the_last_writes_of_a_job_that_was_dismissed_have_time_again_when_its_process_stops(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stopped = list[float]()

    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron=EVERY_MINUTE, work=1)
        async with anyio.create_task_group() as tasks:
            async with app.running() as session:

                async def refuse() -> None:
                    async with refusing(session, -4, unlocks):
                        await here.until(63.1)

                await here.until(60.5)
                tasks.start_soon(refuse)
                (me,) = await here.names(LAYOUT.instances)
                await here.flag(LAYOUT.shutdown(me))
                await here.until(63.2)  # it goes on trying, as the process goes on
            stopped.append(here.now())
        assert (await here.record(0)).completed
        assert (await here.record(0)).outcome == "completed"
        assert 63.2 < stopped[0] < 65.5

    simulate(scene)
    assert [text for text in caplog.messages if "this instance" in text] == [
        "job: this instance leaves, and goes on trying to settle item 0: the registry has not accepted it"
    ]


def test_a_job_that_has_left_cancels_nothing_when_its_shutdown_timeout_is_over() -> None:
    cancelled = list[str]()

    async def scene() -> None:
        ended, goes_on = (Stopping(cast(Any, None), Departures(), Latest(Ending().with_process())) for _ in range(2))
        with goes_on:  # otherwise it would say that the registry accepts nothing
            for one, name in ((ended, "ended"), (goes_on, "goes on")):
                one.leave(5.0, partial(cancelled.append, name))
            ended.life_ended()
            await asyncio.sleep(4.9)
            assert cancelled == []
            await asyncio.sleep(0.2)
            goes_on.life_ended()

    run(scene)
    assert cancelled == ["goes on"]
