"""Jobs with calendars, which are edited, are missing and come back while the jobs run, in virtual time."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Any

import pytest

from aioelasticjob import operations
from aioelasticjob.core.layout import CALENDARS, calendar_path
from aioelasticjob.events import Misfired
from aioelasticjob.ground.times import moment
from aioelasticjob.operations import NotPossible
from aioelasticjob.registry.transaction import Create, Delete, Set
from aioelasticjob.schedules.calendars import Calendar
from aioelasticjob.testing.loop import START
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, listening, simulate

SETTINGS: dict[str, Any] = {"cron": "0/10 * * * * ?", "calendar": "closed"}
OPEN = Calendar.of(["2026-12-25"])
CLOSED = Calendar.of(["2026-01-01"])
"""The day on which tests begin is open, or closed."""


def at(second: float) -> datetime:
    return moment(START + second)


def slots(here: SimulatedJobs) -> list[float]:
    return [slot for _, _, slot in here.starts()]


def missed(here: SimulatedJobs) -> list[tuple[float, float, int, str]]:
    found = [one for one in here.events if isinstance(one, Misfired)]
    return [(one.first / 1000 - START, one.slot / 1000 - START, one.moments, one.why) for one in found]


def test_an_edit_of_a_calendar_counts_from_then_on_and_moments_of_the_past_stay() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await operations.set_calendar(here.observer, "closed", OPEN)
        apps = [here.app(sharding_total_count=2, **SETTINGS) for _ in range(2)]
        async with listening(here, apps[0]), apps[0].running(), apps[1].running():
            await here.until(25)
            await operations.set_calendar(here.observer, "closed", CLOSED)
            await here.until(45)
            found = await operations.job(here.observer, "job", now=START + 45)
            assert found.next_fire is not None
            assert f"{found.next_fire:%m-%d %H:%M:%S}" == "01-02 00:00:00"
            await operations.set_calendar(here.observer, "closed", OPEN)
            await here.until(65)
        for item in (0, 1):
            assert [slot for _, _, slot in here.starts(item)] == [10.0, 20.0, 50.0, 60.0]
        assert missed(here) == []
        assert {*await here.names(LAYOUT.schedule)} == {OPEN.hash, CLOSED.hash}

    simulate(scene)


def test_the_spans_of_a_job_name_the_contents_that_were_in_force() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await operations.set_calendar(here.observer, "closed", CLOSED)
        async with here.app(**SETTINGS).running():
            await here.until(15)
            await operations.set_calendar(here.observer, "closed", OPEN)
            await here.until(25)
            view = await operations.queries.view_of(here.observer, "job")
        first, second = view.schedules.periods
        assert first.schedule is not None
        assert second.schedule is not None
        assert (first.schedule.calendars, second.schedule.calendars) == ((CLOSED,), (OPEN,))
        assert first.until == second.since
        assert slots(here) == [20.0]

    simulate(scene)


def test_while_a_calendar_is_missing_nothing_is_run_and_the_moments_are_reported_as_missed() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(misfire=True, **SETTINGS)
        async with listening(here, app), app.running():
            await here.until(25)
            found = await operations.job(here.observer, "job", now=START + 25)
            assert (found.state, found.next_fire, found.missing_calendars) == ("calendar missing", None, ("closed",))
            await operations.set_calendar(here.observer, "closed", OPEN)
            await here.until(45)
        assert slots(here) == [30.0, 40.0]
        assert missed(here) == [(slot, slot, 1, "a calendar was missing: closed") for slot in (10.0, 20.0)]

    simulate(scene)


@pytest.mark.parametrize("data", [None, b"no calendar"])
def test_a_calendar_that_somebody_removes_or_spoils_by_hand_is_missing(data: bytes | None) -> None:
    path = calendar_path("closed")

    async def scene(here: SimulatedJobs) -> None:
        await operations.set_calendar(here.observer, "closed", OPEN)
        app = here.app(work=12, **SETTINGS)
        async with listening(here, app), app.running():
            await here.until(15)
            await here.write(Delete(path) if data is None else Set(path, data, -1))
            await here.until(45)
            await operations.set_calendar(here.observer, "closed", OPEN)
            await here.until(55)
        assert slots(here) == [10.0, 50.0]
        assert [one[:3] for one in missed(here)] == [(20.0, 20.0, 1), (30.0, 30.0, 1), (40.0, 40.0, 1)]

    simulate(scene)


def test_what_people_ask_for_is_run_although_a_calendar_is_missing_but_no_backfill() -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with here.app(**SETTINGS).running():
            await here.until(12)
            await operations.ask(here.observer, "job")
            await here.until(18)
            with pytest.raises(NotPossible, match="a calendar is missing, so its moments are not known: make closed"):
                await operations.rerun(here.observer, "job", at(10))
        assert [source for _, source, _ in here.starts()] == ["TRIGGER"]

    simulate(scene)


def test_a_run_that_was_claimed_ahead_does_not_begin_if_the_calendar_goes_missing_meanwhile() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await operations.set_calendar(here.observer, "closed", OPEN)
        async with here.app(**SETTINGS).running():
            await here.until(9.9)
            assert await here.observer.exists(LAYOUT.item(0).running) is not None
            await here.write(Delete(calendar_path("closed")))
            await here.until(15)
        assert slots(here) == []

    simulate(scene)


def test_contents_that_somebody_removes_by_hand_are_kept_again() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await operations.set_calendar(here.observer, "closed", OPEN)
        async with here.app(**SETTINGS).running():
            await here.until(5)
            await here.write(Set(LAYOUT.contents(OPEN.hash), b"2026-01-01", -1))
            await here.until(6)
            assert (await here.observer.get(LAYOUT.contents(OPEN.hash))).text == OPEN.text
            await here.write(Delete(LAYOUT.contents(OPEN.hash)))
            await here.until(15)
            assert await here.names(LAYOUT.schedule) == (OPEN.hash,)
        assert slots(here) == [10.0]

    simulate(scene)


def test_a_backfill_keeps_the_calendar_when_that_is_edited_meanwhile() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await operations.set_calendar(here.observer, "closed", OPEN)
        async with here.app(work=3, misfire=False, **SETTINGS).running():
            await here.until(1)
            await operations.backfill(here.observer, "job", at(-30), at(0))
            await here.until(2)
            await operations.set_calendar(here.observer, "closed", Calendar.of(["2025-12-31", "2026-01-01"]))
            await here.until(20)
        assert [slot for _, source, slot in here.starts() if source == "BACKFILL"] == [-30.0, -20.0, -10.0]

    simulate(scene)


def test_workers_log_who_has_edited_or_removed_a_calendar_of_their_jobs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def scene(here: SimulatedJobs) -> None:
        await operations.set_calendar(here.observer, "closed", OPEN, by="ada")
        async with here.app(**SETTINGS).running():
            await here.until(5)
            await operations.set_calendar(here.observer, "closed", CLOSED, by="ada")
            await here.until(6)
            await here.write(Delete(calendar_path("closed")))
            await here.until(7)
            await operations.set_calendar(here.observer, "closed", OPEN, by="bob")
            await here.until(8)
            await operations.set_calendar(here.observer, "other", OPEN, by="bob")
            await here.until(9)

    simulate(scene)
    said = [record.getMessage() for record in caplog.records if "the calendar" in record.getMessage()]
    assert said == [
        "job: ada has changed the calendar closed",
        "job: an operator has removed the calendar closed: the job runs nothing until there is one",
        "job: bob has made the calendar closed",
    ]


def test_a_job_without_calendars_does_not_heed_them() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await here.write(Create(CALENDARS), Create(calendar_path("closed"), CLOSED.text.encode()))
        async with here.app(cron="0/10 * * * * ?").running():
            await here.until(15)
            assert await here.names(LAYOUT.schedule) == ()
        assert slots(here) == [10.0]

    simulate(scene)
