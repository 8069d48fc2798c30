"""`aioelasticjob calendars`: made of files and holidays, shown, removed; and what `schedule` shows of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from aioelasticjob import JobConfig
from aioelasticjob.core.layout import Layout
from aioelasticjob.registry.session import ConnectionSettings, open_session
from aioelasticjob.registry.transaction import Create
from tests.cli.conftest import Command
from tests.support.embedded import EmbeddedServer

TEXT = "weekdays sat, sun\n2190-12-23 Day before\n2190-12-24\n"


@pytest.fixture
def typed(embedded: EmbeddedServer, command: Command) -> Callable[..., Result]:
    """Types commands for a namespace with one job, which names the calendar ``closed``."""
    address = f"zk://{embedded.address}/shop"

    async def make_job() -> None:
        layout = Layout("report")
        config = JobConfig.build(job_name="report", at="2190-12-24T09:00", calendar="closed", calendar_mode="next")
        async with open_session(ConnectionSettings.parse(address)) as session:
            nodes = [*map(Create, layout.skeleton), Create(layout.config, config.to_json())]
            await session.commit(nodes, incarnation=session.incarnation)

    asyncio.run(make_job())
    return lambda *words: command(*words, "-r", address)


def said(result: Result) -> str:
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return result.stdout


def test_a_calendar_is_made_of_a_file_and_shown_as_the_same_text(typed: Callable[..., Result], tmp_path: Path) -> None:
    file = tmp_path / "closed.txt"
    file.write_text(TEXT)
    days = "sat, sun; 2 dates from 2190-12-23 to 2190-12-24"
    assert said(typed("calendars", "set", str(file))).strip() == f"calendar closed: made: {days}"
    assert said(typed("calendars", "show", "closed")) == TEXT
    printed = json.loads(said(typed("calendars", "show", "closed", "--json")))
    assert printed["dates"] == {"2190-12-23": "Day before", "2190-12-24": ""}
    assert (printed["weekdays"], printed["jobs"], printed["last"]) == (["sat", "sun"], ["report"], "2190-12-24")
    listed = said(typed("calendars", "list"))
    assert days in listed
    assert "report" in listed
    (one,) = json.loads(said(typed("calendars", "list", "--json")))
    assert (one["name"], one["isThere"], one["jobs"]) == ("closed", True, ["report"])


def test_a_calendar_in_use_is_not_removed_and_another_one_is(typed: Callable[..., Result], tmp_path: Path) -> None:
    file = tmp_path / "days.txt"
    file.write_text(TEXT)
    for name in ("closed", "other"):
        said(typed("calendars", "set", str(file), "--name", name))
    refused = typed("calendars", "remove", "closed", "--yes")
    assert refused.exit_code == 1
    assert "jobs name this calendar, and would run nothing without it (report)" in refused.stderr
    assert said(typed("calendars", "remove", "other", "--yes")).strip() == "calendar other: removed"


def test_days_from_standard_input_need_a_name(typed: Callable[..., Result]) -> None:
    refused = typed("calendars", "set", "-")
    assert (refused.exit_code, "needs a name: --name de-holidays" in refused.stderr) == (2, True)


def test_holidays_are_imported_by_country_and_years(typed: Callable[..., Result]) -> None:
    done = said(typed("calendars", "import", "holidays:DE-BY", "--years", "2026-2027"))
    assert done.startswith("calendar DE-BY: made: ")
    assert "from 2026-01-01 to 2027-12-26" in done
    wrong = typed("calendars", "import", "holidays:DE-BY", "--years", "soon")
    assert (wrong.exit_code, "such as 2026-2030" in wrong.stderr) == (2, True)


def test_a_calendar_that_is_missing_is_named_in_the_list_and_in_the_schedule(typed: Callable[..., Result]) -> None:
    assert "missing: its jobs run nothing" in said(typed("calendars", "list"))
    assert typed("calendars", "show", "closed").exit_code == 2
    shown = said(typed("schedule", "report"))
    assert "There is no calendar closed: a job that names it runs nothing until there is one." in shown


def test_the_schedule_of_a_job_shows_what_calendars_have_closed_and_why(
    typed: Callable[..., Result], tmp_path: Path
) -> None:
    file = tmp_path / "closed.txt"
    file.write_text(TEXT)
    said(typed("calendars", "set", str(file)))
    sentence, closed, fire, last = said(typed("schedule", "report")).splitlines()
    assert sentence == "At 2190-12-24T09:00:00+00:00, on the next open day instead of days of closed"
    assert closed == "Fri   2190-12-24   moved to Mon 2190-12-27: closed (Friday)"
    assert fire.startswith("Mon   2190-12-27T09:00:00+00:00   in ")
    assert last == "That is the last one."
    printed = json.loads(said(typed("schedule", "report", "--json")))
    assert printed["closedDays"] == [
        {"day": "2190-12-24", "closedBy": ["closed (Friday)"], "movedTo": "2190-12-27T09:00:00+00:00"}
    ]


def test_a_schedule_that_no_job_has_is_shown_with_a_calendar(typed: Callable[..., Result], tmp_path: Path) -> None:
    file = tmp_path / "closed.txt"
    file.write_text(TEXT)
    said(typed("calendars", "set", str(file)))
    days = ["--at", "2190-12-23", "--at", "2190-12-27"]
    lines = said(typed("schedule", *days, "--calendar", "closed")).splitlines()
    assert lines[1] == "Thu   2190-12-23   left out: closed (Day before)"
    assert lines[2].startswith("Mon   2190-12-27T00:00:00+00:00")
    earlier = said(typed("schedule", *days, "--calendar", "closed", "--calendar-mode", "previous")).splitlines()
    assert earlier[1].startswith("Wed   2190-12-22T00:00:00+00:00")
