"""An interval, single moments and several expressions behave as one cron expression does, in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import pytest

from aioelasticjob import ElasticJob, operations
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.events import Misfired
from aioelasticjob.ground.times import moment
from aioelasticjob.schedules.calendars import Calendar
from aioelasticjob.testing.loop import START
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, listening, simulate

CRON = {"cron": "0/10 * * * * ?"}
KINDS: dict[str, dict[str, Any]] = {
    "cron": CRON,
    "several expressions": {"cron": ["0/20 * * * * ?", "10/20 * * * * ?", "0 * * * * ?"]},
    "an interval": {"every": "10s"},
    "an interval from a start": {"every": 10, "start_at": moment(START - 600)},
    "single moments": {"at": [moment(START + second) for second in range(-600, 600, 10)]},
    "with days left out": {"cron": "0/10 * * * * ?", "calendar": "closed", "time_zone": "GMT+12"},
    "with a day that moves on": {
        "cron": "0/10 * * 31 12 ? 2025",
        "calendar": "closed",
        "calendar_mode": "next",
        "time_zone": "GMT+12",
    },
    "between two times": {"cron": "0/10 * * * * ?", "start_at": moment(START - 600), "end_at": moment(START + 600)},
}
"""Schedules that all have a moment every ten seconds around the start of a test, at noon in the zone ``GMT+12``."""
CLOSED = Calendar.of(["2025-12-31", "2026-01-02"])
each_kind = pytest.mark.parametrize("settings", KINDS.values(), ids=KINDS.keys())


def at(second: float) -> datetime:
    return moment(START + second)


def missed(here: SimulatedJobs) -> list[tuple[float, float, int]]:
    """Return the moments that were reported as missed: the first, the last and the number of each report."""
    return [
        (one.first / 1000 - START, one.slot / 1000 - START, one.moments)
        for one in here.events
        if isinstance(one, Misfired)
    ]


def play(scene: Callable[[SimulatedJobs], Awaitable[None]]) -> None:
    """Play a scene in virtual time, in a registry that has the calendar ``closed``."""

    async def with_calendar(here: SimulatedJobs) -> None:
        await operations.set_calendar(here.observer, "closed", CLOSED)
        await scene(here)

    simulate(with_calendar)


@each_kind
def test_it_runs_at_each_moment(settings: dict[str, Any]) -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with here.app(**settings).running():
            await here.until(35)
        assert here.starts() == [(10.0, "SCHEDULE", 10.0), (20.0, "SCHEDULE", 20.0), (30.0, "SCHEDULE", 30.0)]
        record = await here.record(0)
        assert (record.slot, record.next_fire) == (round((START + 30) * 1000), round((START + 40) * 1000))

    play(scene)


@each_kind
@pytest.mark.parametrize("misfire", [True, False])
def test_of_the_moments_that_come_during_a_run_the_newest_is_run_late_or_all_are_missed(
    settings: dict[str, Any], misfire: bool
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(work=25, misfire=misfire, **settings)
        async with listening(here, app), app.running():
            await here.until(38)
        late = [(35.0, "MISFIRE", 30.0)] if misfire else []
        assert here.starts() == [(10.0, "SCHEDULE", 10.0), *late]
        assert missed(here) == ([(20.0, 20.0, 1)] if misfire else [(20.0, 30.0, 2)])

    play(scene)


@each_kind
@pytest.mark.parametrize(("catch_up", "runs"), [(60, [("MISFIRE", 40.0)]), (0, [])])
def test_of_the_moments_at_which_no_instance_was_up_only_a_recent_one_is_caught_up(
    settings: dict[str, Any], catch_up: int, runs: list[tuple[str, float]]
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with here.app(catch_up=catch_up, **settings).running():
            await here.until(15)
        await here.until(44)
        app = here.app(catch_up=catch_up, **settings)
        async with listening(here, app), app.running():
            await here.until(49)
        assert [(source, slot) for _, source, slot in here.starts()] == [("SCHEDULE", 10.0), *runs]
        assert missed(here) == ([(20.0, 30.0, 2)] if runs else [(20.0, 40.0, 3)])

    play(scene)


@each_kind
def test_a_backfill_runs_the_moments_of_its_span_and_a_rerun_one_of_them(settings: dict[str, Any]) -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(**settings)
        async with app.running():
            await here.until(1)
            plan = await operations.plan_backfill(here.observer, "job", at(-30), at(0))
            assert (plan.first, plan.last, plan.moments) == (at(-30), at(-10), 3)
            await operations.backfill(here.observer, "job", at(-30), at(0))
            await here.until(5)
            await operations.rerun(here.observer, "job", at(-20))
            await here.until(9)
            with pytest.raises(
                InvalidSetting, match=r"must be a moment of the schedule; near it are .*59:30.*, .*59:40"
            ):
                await operations.rerun(here.observer, "job", at(-25))
        assert [(source, slot) for _, source, slot in here.starts()] == [
            *(("BACKFILL", -30.0), ("BACKFILL", -20.0), ("BACKFILL", -10.0), ("BACKFILL", -20.0))
        ]

    play(scene)


def test_a_change_of_the_kind_of_schedule_takes_effect_while_the_job_runs_and_changes_no_moment_of_the_past() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(**CRON)
        async with listening(here, app), app.running():
            await here.until(25)
            every_7 = {"cron": None, "every": "7s", "start_at": at(1).isoformat()}
            await operations.configure(here.observer, "job", every_7)
            await here.until(37)
            at_once = f"{at(44).isoformat()},{at(47).isoformat()}"
            await operations.configure(here.observer, "job", {"every": None, "start_at": None, "at": at_once})
            await here.until(60)
            found = await operations.job(here.observer, "job", now=START + 60)
            assert (found.state, found.next_fire) == ("finished", None)
        assert [slot for _, _, slot in here.starts()] == [10.0, 20.0, 29.0, 36.0, 44.0, 47.0]
        assert missed(here) == []
        assert len((await here.observer.get(LAYOUT.schedule)).data) < 1_000

    simulate(scene)


def test_a_schedule_has_no_moment_before_its_start_and_after_its_end() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(every="10s", start_at=at(15), end_at=at(35))
        async with listening(here, app), app.running():
            await here.until(60)
        assert [slot for _, _, slot in here.starts()] == [15.0, 25.0, 35.0]
        assert missed(here) == []

    simulate(scene)


def test_a_backfill_keeps_its_schedule_when_that_is_changed_meanwhile() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app: ElasticJob = here.app(work=3, every="10s", misfire=False)
        async with app.running():
            await here.until(1)
            await operations.backfill(here.observer, "job", at(-30), at(0))
            await here.until(2)
            await operations.configure(here.observer, "job", {"every": None, "at": at(600).isoformat()})
            await here.until(20)
        assert [slot for _, source, slot in here.starts() if source == "BACKFILL"] == [-30.0, -20.0, -10.0]

    simulate(scene)
