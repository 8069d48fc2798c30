"""A pause that ends by itself: every process honours its end by the registry's clock, and nobody touches its flag."""

from __future__ import annotations

import logging

import pytest

from aioelasticjob import operations
from aioelasticjob.core.layout import SWITCHES, server_switch
from aioelasticjob.core.pauses import Pause, pause_data, pause_in
from aioelasticjob.ground.times import moment
from aioelasticjob.registry.transaction import Create, Delete, Op, Set
from aioelasticjob.registry.tree import Node, Stat
from tests.engine.test_settings_changes import start_processes
from tests.engine.test_switches import A, missed, start_process
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, simulate


def flag(data: bytes) -> Node:
    return Node.of(data, Stat.of((1, 1), (1000.0, 1000.0), 0))


def paused_until(here: SimulatedJobs, second: float, what: str = "the job") -> list[Op]:
    data = pause_data("anna", "the bank is closed", here.start + second)
    if what == "the job":
        return [Create(LAYOUT.paused, data)]
    return [Create(SWITCHES), Create(server_switch(A)), Create(server_switch(A, "paused"), data)]


@pytest.mark.parametrize("what", ["the job", "the server in all jobs"])
def test_a_pause_ends_at_its_time_and_the_moment_at_its_end_is_run(what: str) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here)
        before = await them.holders()
        await here.write(*paused_until(here, 40, what))
        await here.until(39.9)
        assert {run.host for run in them.runs} == (set() if what == "the job" else {"b"})
        await here.until(45)
        assert sorted(item for run in them.since(39) for item in run.items) == [0, 1, 2, 3]
        assert all(40 <= run.at < 40.5 for run in them.runs if run.host == "a")  # and nothing is made up for
        assert await them.holders() == before

    simulate(scene)


def test_a_pause_between_two_moments_delays_nothing() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_process(here, "a")
        await here.write(*paused_until(here, 50))
        await here.until(125)
        assert [at for at, *_ in here.runs] == [60.0, 60.0, 120.0, 120.0]
        assert missed(here) == []

    simulate(scene)


def test_the_end_of_a_pause_can_be_moved() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_process(here, "a")
        await here.write(*paused_until(here, 90))
        await here.until(80)
        await here.write(Set(LAYOUT.paused, pause_data(until=here.start + 200), -1))
        await here.until(250)
        assert {at for at, *_ in here.runs} == {240.0}
        await here.write(Set(LAYOUT.paused, pause_data(until=here.start + 500), -1))  # whose end has been before
        await here.until(310)
        await here.write(Delete(LAYOUT.paused))
        await here.until(370)
        assert {at for at, *_ in here.runs} == {240.0, 360.0}
        assert missed(here) == []

    simulate(scene)


def test_moments_of_a_pause_that_ended_while_nobody_was_there_are_excused() -> None:
    async def scene(here: SimulatedJobs) -> None:
        a = await start_process(here, "a")
        await here.until(65)
        await here.write(*paused_until(here, 230))
        await here.until(130)
        here.faults.crash(a)
        await here.until(235)
        await start_process(here, "b")
        await here.until(245)
        assert [run[0] for run in here.runs] == [60.0, 60.0, 240.0, 240.0]
        assert missed(here) == []

    simulate(scene)


def test_a_process_that_starts_during_a_pause_obeys_and_wakes_at_its_end() -> None:
    async def scene(here: SimulatedJobs) -> None:
        a = await start_process(here, "a")
        await here.until(65)
        await here.write(*paused_until(here, 300))
        here.faults.crash(a)
        await here.until(150)
        await start_process(here, "b")
        await here.until(305)
        assert [run[0] for run in here.runs] == [60.0, 60.0, 300.0, 300.0]
        assert missed(here) == []

    simulate(scene)


@pytest.mark.parametrize("off", [-300.0, 300.0])
def test_a_pause_ends_by_the_clock_of_the_registry(off: float) -> None:
    async def scene(here: SimulatedJobs) -> None:
        process = await start_process(here, "a")
        process.skew = off
        await here.until(65)
        await here.write(*paused_until(here, 180))
        await here.until(179)
        assert {fired for *_, fired in here.runs} <= {60.0}
        await here.until(185)
        assert [fired for *_, fired in here.runs if fired >= 100] == [180.0, 180.0]

    simulate(scene)


def test_who_reads_the_job_sees_that_the_pause_has_ended() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_process(here, "a")
        end = here.start + 90
        await here.write(*paused_until(here, 90))
        during = await operations.job(here.observer, "job", now=end - 0.001)
        assert (during.state, during.paused_until) == ("switched off", moment(end))
        assert during.pause is not None
        assert during.pause == Pause(during.pause.since, end, "anna", "the bank is closed")
        assert during.changes_at == end
        assert during.next_fire is None
        for after in (during.at(end), await operations.job(here.observer, "job", now=end)):
            assert (after.state, after.paused, after.next_fire) == ("waiting", False, moment(here.start + 120))
        (listed,) = await operations.jobs(here.observer, now=end)
        assert not listed.paused

    simulate(scene)


def test_a_server_whose_pause_has_ended_is_shown_at_work() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_process(here, "a")
        await here.write(*paused_until(here, 90, "the server in all jobs"))
        during = await operations.job(here.observer, "job", now=here.start + 89)
        assert during.servers[0].flags == ("paused in all jobs",)
        after = during.at(here.start + 90)
        assert (after.servers[0].flags, after.servers[0].flagged_at, after.state) == ((), (), "waiting")

    simulate(scene)


def test_the_log_says_until_when_and_that_it_has_ended(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def scene(here: SimulatedJobs) -> None:
        await start_process(here, "a")
        await here.write(*paused_until(here, 90))
        await here.until(95)

    simulate(scene)
    lines = [one.getMessage() for one in caplog.records if "pause" in one.getMessage()]
    assert lines == [
        "job: an operator has paused the job until 2026-01-01T00:01:30+00:00",
        "job: the pause of the job has ended at its time",
    ]


@pytest.mark.parametrize("data", [b"", b"x", b'{"until": "soon"}', b'{"until": true, "by": 7}', b"[1]"])
def test_a_flag_that_says_nothing_sensible_holds_for_ever(data: bytes) -> None:
    pause = pause_in(flag(data))
    assert (pause.is_over(1e12), pause.by, pause.note) == (False, "", "")


def test_a_pause_reads_what_was_written() -> None:
    pause = pause_in(flag(pause_data("anna", "why", 1234.567)))
    assert (pause.until, pause.by, pause.note) == (1234.567, "anna", "why")
    assert pause_data() == b""
