"""The node of a process says what the process cannot do, within seconds, and is written seldom."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import pytest

from aioelasticjob.core.layout import PROCESSES
from aioelasticjob.core.processes import NO_PROBLEMS, LostEvents, ProcessProblems, UnwrittenEvents
from aioelasticjob.engine.local_jobs import Host
from aioelasticjob.engine.process_node import WRITE_INTERVAL, ProcessNode
from aioelasticjob.errors import NotPermitted
from aioelasticjob.ground.limited_log import LimitedLog
from aioelasticjob.ground.times import moment
from aioelasticjob.observers.sql.writer import Lost, StoreCounts, Unwritten
from aioelasticjob.operations import job, processes, watch_processes
from aioelasticjob.registry.session import ConnectionSettings, Session, beside, open_session
from aioelasticjob.registry.transaction import Create, Delete
from aioelasticjob.testing import VirtualClock
from aioelasticjob.testing.loop import START
from tests.support.simulated_jobs import REGISTRY, SimulatedJobs, simulate
from tests.support.simulated_registry import expire

HOST = Host("10.0.0.5", "web-1", 4711)


@dataclass
class Process:
    """What a process cannot do, as a test says it."""

    problems: ProcessProblems = NO_PROBLEMS
    looks: list[float] = field(default_factory=list)

    def waits(self, events: int) -> None:
        self.problems = ProcessProblems(UnwrittenEvents(VirtualClock().now(), "gone", events))

    def look(self) -> ProcessProblems:
        self.looks.append(anyio.current_time())
        return self.problems

    def node(self, session: Session) -> ProcessNode:
        return ProcessNode(session, HOST, self.look, VirtualClock(), LimitedLog())


async def waiting_events(session: Session) -> list[int]:
    found = await processes(session)
    return [one.problems.event_store.waiting for one in found if one.problems.event_store is not None]


def test_nothing_is_written_while_all_is_well() -> None:
    async def scene(here: SimulatedJobs) -> None:
        before = here.observer.zxid
        async with beside(Process().node(here.observer).keep):
            await anyio.sleep(3600)
        await here.observer.sync()
        assert here.observer.zxid == before
        assert await here.names(PROCESSES) == ()

    simulate(scene)


def test_a_problem_is_noted_within_two_seconds_and_the_note_is_gone_when_the_problem_is() -> None:
    async def scene(here: SimulatedJobs) -> None:
        mine = Process()
        async with beside(mine.node(here.observer).keep):
            await anyio.sleep(30)
            mine.waits(335)
            await anyio.sleep(2)
            (found,) = await processes(here.observer)
            assert found.problems == mine.problems
            assert found.incarnation == here.observer.incarnation
            mine.problems = NO_PROBLEMS
            await anyio.sleep(WRITE_INTERVAL + 2)
            assert await processes(here.observer) == ()
            assert await here.names(PROCESSES) == ()

    simulate(scene)


def test_a_problem_that_changes_all_the_time_is_written_at_most_every_five_seconds() -> None:
    async def scene(here: SimulatedJobs) -> None:
        mine = Process()
        before = here.observer.zxid
        async with beside(mine.node(here.observer).keep):
            for second in range(60):
                mine.waits(2**second)
                await anyio.sleep(1)
        await here.observer.sync()
        assert 60 / WRITE_INTERVAL - 2 <= here.observer.zxid - before <= 60 / WRITE_INTERVAL + 1

    simulate(scene)


def test_the_note_ends_with_its_process() -> None:
    async def scene(here: SimulatedJobs) -> None:
        mine = Process()
        mine.waits(7)
        settings = ConnectionSettings.parse(here.address)
        async with open_session(settings, clock=VirtualClock()) as session, beside(mine.node(session).keep):
            await anyio.sleep(2)
            assert await waiting_events(here.observer) == [7]
        assert await processes(here.observer) == ()

    simulate(scene)


def test_a_note_that_somebody_has_removed_is_written_again_when_there_is_news() -> None:
    async def scene(here: SimulatedJobs) -> None:
        mine = Process()
        mine.waits(7)
        async with beside(mine.node(here.observer).keep):
            await anyio.sleep(2)
            (name,) = await here.names(PROCESSES)
            await here.write(Delete(f"{PROCESSES}/{name}"))
            mine.waits(70)
            await anyio.sleep(WRITE_INTERVAL + 2)
            assert await waiting_events(here.observer) == [70]

    simulate(scene)


def test_a_new_session_writes_the_note_anew() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron="0 0 12 * * ?")
        app._here.clock = AheadClock()
        async with app.running() as session:
            await anyio.sleep(3)
            (before,) = await processes(here.observer)
            await expire(session, REGISTRY, 2181)
            with anyio.fail_after(60):
                await session.status.until(lambda now: now.incarnation != before.incarnation)
            await anyio.sleep(WRITE_INTERVAL + 2)
            (after,) = await processes(here.observer)
            assert after.incarnation == session.incarnation != before.incarnation

    simulate(scene)


def test_two_processes_that_write_the_first_notes_of_all_together_both_write_them() -> None:
    async def scene(here: SimulatedJobs) -> None:
        one = Process()
        other = Process()
        one.waits(1)
        other.waits(2)
        async with (
            open_session(ConnectionSettings.parse(here.address), clock=VirtualClock()) as session,
            beside(one.node(here.observer).keep),
            beside(other.node(session).keep),
        ):
            await anyio.sleep(3)
            assert sorted(await waiting_events(here.observer)) == [1, 2]

    simulate(scene)


def test_a_registry_that_refuses_the_note_is_asked_again_seldom(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        mine = Process()
        mine.waits(1)
        asked = list[float]()
        commit = here.observer.commit

        def refuse(*args: object, **named: object) -> object:
            asked.append(anyio.current_time())
            raise NotPermitted(PROCESSES)

        monkeypatch.setattr(here.observer, "commit", refuse)
        async with beside(mine.node(here.observer).keep):
            await anyio.sleep(20)
            assert 3 <= len(asked) <= 5
            monkeypatch.setattr(here.observer, "commit", commit)
            await anyio.sleep(WRITE_INTERVAL + 1)
            assert await waiting_events(here.observer) == [1]

    simulate(scene)
    assert "the registry refuses to note what this process cannot do" in caplog.messages[0]


def test_readers_are_told_of_each_change() -> None:
    async def scene(here: SimulatedJobs) -> None:
        mine = Process()
        async with watch_processes(here.observer) as states, beside(mine.node(here.observer).keep):
            assert await anext(states) == ()
            mine.waits(5)
            (found,) = await anext(states)
            assert found.name == "process 4711 on web-1"
            mine.problems = NO_PROBLEMS
            with anyio.fail_after(WRITE_INTERVAL + 2):
                assert await anext(states) == ()

    simulate(scene)


def test_what_somebody_has_written_there_by_hand_is_no_process() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await here.write(Create(PROCESSES), Create(f"{PROCESSES}/by-hand", b"not JSON"))
        assert await processes(here.observer) == ()

    simulate(scene)


class AheadClock:
    """The clock of a host that is five minutes ahead."""

    def now(self) -> float:
        return VirtualClock().now() + 300.0


def test_a_host_whose_clock_is_ahead_says_so_though_its_jobs_tolerate_every_difference() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron="0 0 12 * * ?", max_time_diff_seconds=-1)
        app._here.clock = AheadClock()
        async with app.running():
            await anyio.sleep(3)
            (found,) = await processes(here.observer)
            assert found.problems.clock_differs == pytest.approx(300.0, abs=0.1)
            assert found.problems == app.health.problems
            (instance,) = (await job(here.observer, "job", now=here.start)).instances
            assert instance.incarnation == found.incarnation

    simulate(scene)


class StandIn:
    """An event store to which nothing can be written."""

    def __init__(self) -> None:
        self.counts = StoreCounts(waiting=335)
        self.unwritten = Unwritten(60.0, "the disk is full")
        self.lost = Lost(3, moment(START - 90), moment(START - 80), 0.0)

    @asynccontextmanager
    async def open(self, *given: object) -> AsyncIterator[None]:
        yield


def test_an_event_store_that_cannot_be_written_is_noted_in_the_registrys_time() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron="0 0 12 * * ?")
        app._here.clock = AheadClock()
        app._here.recorder = StandIn()  # type: ignore[assignment]
        async with app.running():
            await anyio.sleep(3)
            (found,) = await processes(here.observer)
            store = found.problems.event_store
            assert store is not None
            assert (store.why, store.waiting) == ("the disk is full", 335)
            assert store.since == pytest.approx(VirtualClock().now() - 60, abs=3)
            assert found.problems.lost == LostEvents(3, START - 90, START - 80)

    simulate(scene)


def test_what_the_registry_refuses_to_jobs_is_noted_for_their_process() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron="0 0 12 * * ?")
        async with app.running():
            assert app._here.jobs is not None
            app._here.jobs._jobs["job"]._refusals.refused("to settle items", NotPermitted("/job"))
            await anyio.sleep(2)
            (found,) = await processes(here.observer)
            (refused,) = found.problems.refused
            assert (refused.what, refused.job, refused.jobs) == ("to settle items", "job", 1)
            assert refused.since == pytest.approx(VirtualClock().now(), abs=5)

    simulate(scene)
