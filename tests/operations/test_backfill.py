"""What may be run again, and what is refused with the setting, the value and what would be right."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from aioelasticjob import InvalidSetting, operations
from aioelasticjob.ground.times import moment
from aioelasticjob.operations import NotPossible
from tests.engine.test_settings_changes import start_processes
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, simulate

HOURLY = "0 0 * * * ?"
HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("first", "last", "given", "setting"),
    [
        (-2, 1, {}, "end"),
        (-2, -2, {}, "end"),
        (-1, -2, {}, "end"),
        (-0.5, -0.25, {}, "start"),
        (-2, -1, {"items": [9]}, "items"),
        (-2, -1, {"items_at_once": 0}, "items_at_once"),
        (-2, -1, {"items_at_once": True}, "items_at_once"),
        (-2, -1, {"items_at_once": 1.5}, "items_at_once"),
        (-2, -1, {"id": "a/b"}, "id"),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_is_written(
    first: float, last: float, given: dict[str, Any], setting: str
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here, "a", cron=HOURLY)
        begin = moment(here.start)
        with pytest.raises(InvalidSetting) as refused:
            await operations.backfill(here.observer, "job", begin + first * HOUR, begin + last * HOUR, **given)
        assert refused.value.setting == setting
        assert await here.names(LAYOUT.requests) == ()

    simulate(scene)


@pytest.mark.parametrize(
    ("settings", "setting"), [({"cron": None}, "cron"), ({"monitor_execution": False}, "monitor_execution")]
)
def test_a_job_without_schedule_or_records_has_nothing_to_run_again(settings: dict[str, Any], setting: str) -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here, "a", **{"cron": HOURLY, **settings})
        with pytest.raises(InvalidSetting) as refused:
            await operations.rerun(here.observer, "job", moment(here.start) - HOUR)
        assert refused.value.setting == setting

    simulate(scene)


def test_times_need_a_zone() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here, "a", cron=HOURLY)
        naive = moment(here.start).replace(tzinfo=None)
        for ask in (
            operations.backfill(here.observer, "job", naive - HOUR, naive),
            operations.rerun(here.observer, "job", naive),
        ):
            with pytest.raises(InvalidSetting, match="time zone"):
                await ask

    simulate(scene)


def test_a_plan_says_what_would_run_in_the_jobs_zone_and_writes_nothing() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here, "a", cron=HOURLY, time_zone="Asia/Shanghai")
        begin = moment(here.start)
        plan = await operations.plan_backfill(here.observer, "job", begin - 3 * HOUR, begin, items=[1, 3])
        assert (plan.first, plan.last, plan.moments, plan.items) == (begin - 3 * HOUR, begin - HOUR, 3, 2)
        assert plan.first.utcoffset() == timedelta(hours=8)
        assert plan.summary.startswith("3 moments (2026-01-01T05:00:00+08:00 to ")
        assert await here.names(LAYOUT.requests) == ()

    simulate(scene)


def test_the_moments_of_an_item_that_is_disabled_wait_and_the_plan_and_the_answer_name_it() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "a", cron=HOURLY, sharding_total_count=2)
        begin = moment(here.start)
        await operations.disable(here.observer, "job", item=0)
        plan = await operations.plan_backfill(here.observer, "job", begin - 2 * HOUR, begin)
        assert plan.summary.endswith("of 2 items; the items that are disabled wait until they are enabled: 0")
        asked = await operations.backfill(here.observer, "job", begin - 2 * HOUR, begin, items_at_once=1, id="r")
        assert asked.summary.endswith(
            "again, as the request r; the items that are disabled wait until they are enabled: 0"
        )
        rerun = await operations.rerun(here.observer, "job", begin - HOUR, items=[0])
        assert rerun.summary.endswith("; the items that are disabled wait until they are enabled: 0")
        await here.until(20)
        assert [run.items for run in them.runs] == [(1,)] * 2
        await operations.enable(here.observer, "job", item=0)
        await here.until(40)
        assert [run.items for run in them.runs] == [(1,)] * 2 + [(0,)] * 3

    simulate(scene)


def test_one_moment_is_run_again_if_it_is_one_of_the_schedule() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "a", cron=HOURLY)
        wrong = moment(here.start) - 1.5 * HOUR
        with pytest.raises(InvalidSetting, match="near it are 2025-12-31T22:00:00"):
            await operations.rerun(here.observer, "job", wrong)
        done = await operations.rerun(here.observer, "job", datetime(2025, 12, 31, 23, tzinfo=UTC), items=[2])
        assert "the moment 2025-12-31T23:00:00+00:00 of 1 item again" in done.summary
        await here.until(10)
        assert [(run.items, run.source) for run in them.runs] == [((2,), "BACKFILL")]

    simulate(scene)


def test_the_number_of_items_is_not_changed_while_moments_are_run_again() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here, "a", cron=HOURLY, work=30)
        await operations.backfill(here.observer, "job", moment(here.start) - 3 * HOUR, moment(here.start), id="r")
        with pytest.raises(NotPossible, match=r"while moments are run again \(r\)"):
            await operations.configure(here.observer, "job", {"sharding_total_count": 7})
        await operations.configure(here.observer, "job", {"timeout": 60})
        await operations.cancel_request(here.observer, "job", "r")
        assert (await operations.configure(here.observer, "job", {"sharding_total_count": 7})).changed

    simulate(scene)
