"""Calendars are made, changed, removed and read by operators, and imported; previews and attention know them."""

from __future__ import annotations

import sys
from datetime import date, datetime
from typing import Literal

import pytest

from aioelasticjob import JobConfig, operations
from aioelasticjob.core.layout import CALENDARS, Layout, calendar_path
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.encoding import json_object
from aioelasticjob.operations import CalendarInUse, ChangedMeanwhile, NotPossible
from aioelasticjob.operations.attention import reasons
from aioelasticjob.registry.transaction import Create, Set
from aioelasticjob.schedules.calendars import Calendar
from aioelasticjob.testing.loop import START
from tests.support.simulated_jobs import SimulatedJobs, simulate

WEEKEND = Calendar.of((), "sat sun")
CHRISTMAS = Calendar.of({"2026-12-25": "Christmas Day"})


async def make_job(here: SimulatedJobs, name: str, **settings: object) -> None:
    """Make a job that no instance runs."""
    config = JobConfig.build(job_name=name, cron="0 9 * * *", **settings)
    layout = Layout(name)
    await here.write(*map(Create, layout.skeleton), Create(layout.config, config.to_json()))


def test_a_calendar_is_made_changed_and_removed_and_each_is_noted() -> None:
    async def scene(here: SimulatedJobs) -> None:
        made = await operations.set_calendar(here.observer, "closed", WEEKEND, by="ada")
        assert (made.summary, made.paths) == (
            "calendar closed: made: sat, sun",
            (CALENDARS, calendar_path("closed")),
        )
        again = await operations.set_calendar(here.observer, "closed", WEEKEND, by="ada")
        assert (again.summary, again.changed) == ("calendar closed: has these days already", False)
        changed = await operations.set_calendar(here.observer, "closed", CHRISTMAS, by="bob")
        assert changed.summary == "calendar closed: changed: 1 dates from 2026-12-25 to 2026-12-25"
        note = await here.observer.get(CALENDARS)
        assert json_object(note.data) == {"by": "bob", "paths": [calendar_path("closed")]}
        (found,) = await operations.calendars(here.observer)
        assert (found.name, found.calendar, found.version, found.jobs) == ("closed", CHRISTMAS, 1, ())
        removed = await operations.remove_calendar(here.observer, "closed")
        assert removed.summary == "calendar closed: removed"
        assert await operations.calendars(here.observer) == ()

    simulate(scene)


def test_an_edit_of_what_somebody_else_has_changed_meanwhile_is_refused() -> None:
    async def scene(here: SimulatedJobs) -> None:
        with pytest.raises(ChangedMeanwhile):
            await operations.set_calendar(here.observer, "closed", WEEKEND, version=0)
        await operations.set_calendar(here.observer, "closed", WEEKEND, version=-1)
        await operations.set_calendar(here.observer, "closed", CHRISTMAS, version=0)
        with pytest.raises(ChangedMeanwhile, match="it is at version 1, 0 was seen"):
            await operations.set_calendar(here.observer, "closed", WEEKEND, version=0)

    simulate(scene)


def test_a_calendar_that_jobs_name_is_not_removed() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await operations.set_calendar(here.observer, "closed", WEEKEND)
        await make_job(here, "report", calendar="closed")
        await make_job(here, "pay", calendar=["closed", "other"])
        with pytest.raises(CalendarInUse, match=r"\(pay, report\): change their setting calendar first") as refused:
            await operations.remove_calendar(here.observer, "closed")
        assert refused.value.jobs == ("pay", "report")
        missing = await operations.calendar(here.observer, "other")
        assert (missing.calendar, missing.is_there, missing.jobs) == (None, False, ("pay",))
        with pytest.raises(InvalidSetting, match="there is no such calendar; there are: closed"):
            await operations.remove_calendar(here.observer, "nothing")

    simulate(scene)


def test_a_node_that_holds_something_else_is_shown_as_such_and_can_be_set() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await operations.set_calendar(here.observer, "closed", WEEKEND)
        await here.write(Set(calendar_path("closed"), b"no calendar", -1))
        found = await operations.calendar(here.observer, "closed")
        assert (found.calendar, found.is_there) == (None, True)
        assert (await operations.set_calendar(here.observer, "closed", WEEKEND)).changed

    simulate(scene)


def test_a_preview_shows_the_moments_with_a_calendar_and_says_if_there_is_none() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await operations.set_calendar(here.observer, "closed", WEEKEND)
        await make_job(here, "report")
        friday = datetime.fromisoformat("2026-01-02T12:00+00:00").timestamp()
        found = await operations.preview(here.observer, "report", {"calendar": "closed"}, now=friday)
        assert [f"{one:%a %d}" for one in found.next_fires] == ["Mon 05", "Tue 06", "Wed 07", "Thu 08", "Fri 09"]
        wrong = await operations.preview(here.observer, "report", {"calendar": "closed,nothing"}, now=friday)
        assert "there is no calendar nothing: the job runs nothing until there is" in wrong.warnings

    simulate(scene)


def test_a_job_needs_attention_from_sixty_days_before_the_dates_of_its_calendar_end() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await operations.set_calendar(here.observer, "closed", Calendar.of(["2026-03-05"]))
        async with here.app(cron="0 9 * * *", calendar="closed", time_zone="Europe/Berlin").running():
            await here.until(5)
            day = 86_400
            for days, found in ((3, []), (4, ["calendar ends"]), (100, ["calendar ends"])):
                now = START + days * day
                status = await operations.job(here.observer, "job", now=now)
                assert [one.kind for one in reasons(status, now) if one.kind.startswith("calendar")] == found
            (reason,) = (one for one in reasons(status, now) if one.kind == "calendar ends")
            assert reason.values == {"calendar": "closed", "last": date(2026, 3, 5)}
            await operations.set_calendar(here.observer, "closed", WEEKEND)
            status = await operations.job(here.observer, "job", now=now)
            assert "calendar ends" not in [one.kind for one in reasons(status, now)]

    simulate(scene)


def test_a_job_of_which_a_calendar_is_missing_needs_attention() -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with here.app(cron="0 9 * * *", calendar="closed").running():
            await here.until(5)
            status = await operations.job(here.observer, "job", now=START + 5)
        (reason,) = reasons(status, START + 5)
        assert (reason.kind, reason.values) == ("calendar missing", {"calendars": "closed"})

    simulate(scene)


def test_a_job_that_is_watched_shows_an_edit_of_its_calendar_at_once() -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with (
            here.app(cron="0 9 * * *", calendar="closed").running(),
            operations.watch(here.observer, "job") as states,
        ):
            await here.until(5)
            assert (await anext(states)).state == "calendar missing"
            await operations.set_calendar(here.observer, "closed", Calendar.of(["2026-01-01"]))
            async for state in states:
                if state.next_fire is not None:
                    assert f"{state.next_fire:%d %H}" == "02 09"
                    break

    simulate(scene)


def test_holidays_of_a_country_are_imported_as_dates_with_names() -> None:
    found = operations.import_calendar("holidays:DE-BY", range(2026, 2028))
    named = dict(found.dates)
    assert named[date(2026, 12, 25)]
    assert date(2027, 1, 6) in named  # Epiphany, in Bavaria
    assert date(2027, 1, 6) not in dict(operations.import_calendar("holidays:DE", [2027]).dates)
    assert {day.year for day in named} == {2026, 2027}
    assert found.weekdays == ()


@pytest.mark.parametrize(
    ("source", "years", "said"),
    [
        ("DE-BY", [2026], "write holidays:COUNTRY"),
        ("holidays:", [2026], "write holidays:COUNTRY"),
        ("holidays:XX", [2026], "is not known to the package holidays"),
        ("holidays:DE-XX", [2026], "is not known to the package holidays"),
        ("holidays:DE", [], "must be 1 to 50 years"),
        ("holidays:DE", range(1900, 2000), "must be 1 to 50 years"),
    ],
)
def test_an_import_that_makes_no_sense_says_what_would_be_right(source: str, years: list[int], said: str) -> None:
    with pytest.raises(InvalidSetting, match=said):
        operations.import_calendar(source, years)


def test_an_import_without_the_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "holidays", None)
    with pytest.raises(InvalidSetting, match=r"pip install aioelasticjob\[holidays\]"):
        operations.import_calendar("holidays:DE", [2026])


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_an_export_has_the_calendars_and_an_import_makes_them_before_the_jobs(form: Literal["json", "yaml"]) -> None:
    async def scene(here: SimulatedJobs) -> None:
        await operations.set_calendar(here.observer, "closed", CHRISTMAS)
        await operations.set_calendar(here.observer, "other", WEEKEND)
        await make_job(here, "report", calendar="closed")
        text = await operations.export_jobs(here.observer, form=form)
        of_report = await operations.export_jobs(here.observer, ["report"], form=form)
        await operations.remove(here.observer, "report")
        for name in ("closed", "other"):
            await operations.remove_calendar(here.observer, name)
        done = await operations.import_jobs(here.observer, of_report)
        assert done.summary == "imported: 1 new (report); 1 calendar (closed)"
        await operations.import_jobs(here.observer, text)
        found = {one.name: one.calendar for one in await operations.calendars(here.observer)}
        assert found == {"closed": CHRISTMAS, "other": WEEKEND}

    simulate(scene)


def test_a_calendar_that_is_there_keeps_its_days_unless_the_import_overwrites_it() -> None:
    text = '{"jobs": [], "calendars": {"closed": ["2026-12-25 Christmas Day"]}}'

    async def scene(here: SimulatedJobs) -> None:
        await operations.set_calendar(here.observer, "closed", WEEKEND)
        with pytest.raises(NotPossible, match=r"1 calendar is there already with other days \(closed\)"):
            await operations.import_jobs(here.observer, text)
        assert (await operations.calendar(here.observer, "closed")).calendar == WEEKEND
        await operations.import_jobs(here.observer, text, overwrite=True)
        assert (await operations.calendar(here.observer, "closed")).calendar == CHRISTMAS
        assert not (await operations.import_jobs(here.observer, text)).changed

    simulate(scene)


@pytest.mark.parametrize(
    ("calendars", "said"),
    [
        ('["closed"]', "write {"),
        ('{"closed": 7}', "must be a list of lines"),
        ('{"closed": ["Christmas"]}', "must be a date such as"),
        ('{"a/b": ["2026-12-25"]}', "must be a name of"),
    ],
)
def test_calendars_of_an_import_that_make_no_sense_are_refused(calendars: str, said: str) -> None:
    async def scene(here: SimulatedJobs) -> None:
        with pytest.raises(InvalidSetting, match=said):
            await operations.import_jobs(here.observer, f'{{"jobs": [], "calendars": {calendars}}}')
        assert await operations.calendars(here.observer) == ()

    simulate(scene)
