"""A job with jitter begins each moment later, and counts as one without, in virtual time."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from aioelasticjob import operations
from aioelasticjob.config.job import JobConfig
from aioelasticjob.events import Began, Misfired
from aioelasticjob.ground.times import moment
from aioelasticjob.testing.loop import START
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, listening, simulate

SETTINGS: dict[str, Any] = {"every": "20s", "jitter": "15s"}
DELAYED = JobConfig.build(job_name="job", **SETTINGS).schedule


def start(second: float) -> float:
    """Return when the moment at a second comes, in seconds after the start of a test."""
    assert DELAYED is not None
    return DELAYED.starts(round((START + second) * 1000)) / 1000 - START


def missed(here: SimulatedJobs) -> list[tuple[float, float, int]]:
    found = [one for one in here.events if isinstance(one, Misfired)]
    return [(one.first / 1000 - START, one.slot / 1000 - START, one.moments) for one in found]


def test_the_delays_of_these_tests_are_long_enough_to_be_seen() -> None:
    assert [round(start(second) - second) for second in (20, 40, 60)] == [3, 8, 2]


def test_all_instances_begin_a_moment_at_its_delayed_start_and_all_that_counts_stays_at_the_moment() -> None:
    async def scene(here: SimulatedJobs) -> None:
        apps = [here.app(sharding_total_count=4, **SETTINGS) for _ in range(2)]
        async with listening(here, apps[0]), apps[0].running(), apps[1].running():
            await here.until(79)
            record = await here.record(0)
        for item in range(4):
            expected = [(round(start(slot), 1), "SCHEDULE", float(slot)) for slot in (20, 40, 60)]
            assert here.starts(item) == expected
        at = round((START + 60) * 1000)
        assert (record.slot, record.accounted, record.next_fire) == (at, at, at + 20_000)
        began = [one for one in here.events if isinstance(one, Began)]
        assert len(began) == 3
        for one in began:
            assert abs(one.late) < 0.01
            assert abs(one.at - START - start(one.slot / 1000 - START)) < 0.01
        assert missed(here) == []

    simulate(scene)


def test_a_claim_is_written_ahead_of_the_delayed_start_and_not_before_that() -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with here.app(**SETTINGS).running():
            await here.until(start(20) - 0.3)
            assert await here.observer.exists(LAYOUT.item(0).running) is None
            await here.until(start(20) - 0.01)
            assert await here.observer.exists(LAYOUT.item(0).running) is not None
            assert here.starts() == []
            await here.until(start(20) + 1)
        assert len(here.starts()) == 1

    simulate(scene)


def test_a_moment_whose_start_comes_during_a_run_is_run_late() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(work=start(40) - start(20) + 1, **SETTINGS)
        async with listening(here, app), app.running():
            await here.until(start(40) + 2)
        assert [(source, slot) for _, source, slot in here.starts()] == [("SCHEDULE", 20.0), ("MISFIRE", 40.0)]

    simulate(scene)


def test_a_moment_whose_start_comes_after_a_run_is_on_time_though_the_moment_came_during_it() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(work=start(40) - start(20) - 1, **SETTINGS)
        async with listening(here, app), app.running():
            await here.until(start(40) + 1)
        assert [(source, slot) for _, source, slot in here.starts()] == [("SCHEDULE", 20.0), ("SCHEDULE", 40.0)]
        assert missed(here) == []

    simulate(scene)


def test_a_moment_that_waits_for_its_start_is_neither_lost_nor_run_twice_when_the_process_is_started_anew() -> None:
    async def scene(here: SimulatedJobs) -> None:
        waiting = (40 + start(40)) / 2
        for until in (waiting - 1, 59):
            app = here.app(catch_up=60, **SETTINGS)
            async with listening(here, app), app.running():
                await here.until(until)
            await anyio.sleep(0.5)
        assert [(source, slot) for _, source, slot in here.starts()] == [("SCHEDULE", 20.0), ("SCHEDULE", 40.0)]
        assert missed(here) == []

    simulate(scene)


@pytest.mark.parametrize("catch_up", [0, 60])
def test_a_moment_that_came_while_no_instance_was_up_is_caught_up_or_missed(catch_up: int) -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with here.app(catch_up=catch_up, **SETTINGS).running():
            await here.until(start(20) + 1)
        await here.until(start(40) + 1)
        app = here.app(catch_up=catch_up, **SETTINGS)
        async with listening(here, app), app.running():
            await here.until(start(60) - 1)
        runs = [("SCHEDULE", 20.0), *([("MISFIRE", 40.0)] if catch_up else [])]
        assert [(source, slot) for _, source, slot in here.starts()] == runs
        assert missed(here) == ([] if catch_up else [(40.0, 40.0, 1)])

    simulate(scene)


def test_a_pause_excuses_the_moments_that_came_in_it_and_not_one_whose_start_comes_later() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(**SETTINGS)
        async with listening(here, app), app.running():
            await here.until(start(20) + 1)
            await operations.pause(here.observer, "job")
            await here.until((40 + start(40)) / 2)
            await operations.resume(here.observer, "job")
            await here.until(59)
        assert [(source, slot) for _, source, slot in here.starts()] == [("SCHEDULE", 20.0), ("SCHEDULE", 40.0)]
        assert missed(here) == []

    simulate(scene)


def test_a_delayed_moment_comes_at_the_latest_when_its_schedule_is_replaced() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(**SETTINGS)
        async with listening(here, app), app.running():
            changed = (40 + start(40)) / 2
            await here.until(changed)
            await operations.configure(here.observer, "job", {"jitter": 0})
            await here.until(61)
        starts = here.starts()
        assert [slot for _, _, slot in starts] == [20.0, 40.0, 60.0]
        assert round(changed, 1) <= starts[1][0] < start(40) - 1
        assert starts[2][0] == 60.0
        assert missed(here) == []

    simulate(scene)


def test_the_next_fire_is_the_moment_that_waits_for_its_start() -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with here.app(**SETTINGS).running():
            for second, slot in ((start(40) - 1, 40), (start(40) + 1, 60)):
                found = await operations.job(here.observer, "job", now=START + second)
                assert found.next_fire == moment(START + slot)

    simulate(scene)
