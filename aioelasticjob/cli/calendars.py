"""`aioelasticjob calendars`: the days on which jobs do not run, in the registry."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from rich.text import Text

from aioelasticjob import operations
from aioelasticjob.cli import completion, stdout
from aioelasticjob.cli.actions import Yes, print_result
from aioelasticjob.cli.jobs import AsJson
from aioelasticjob.cli.operator_name import operator_name
from aioelasticjob.cli.registry import RegistryOptions, on_a_registry
from aioelasticjob.cli.settings import read_text
from aioelasticjob.cli.tables import TextTable
from aioelasticjob.cli.terminal import confirm, out, write_json
from aioelasticjob.clock import SystemClock
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.times import moment
from aioelasticjob.operations import CalendarStatus
from aioelasticjob.schedules.calendars import Calendar

_YEARS = re.compile(r"([0-9]{4})(?:-([0-9]{4}))?")

CalendarName: TypeAlias = Annotated[
    str, typer.Argument(metavar="CALENDAR", help="The calendar's name.", autocompletion=completion.calendars)
]
NewName: TypeAlias = Annotated[str | None, typer.Option("--name", help="The calendar's name.")]

calendars = typer.Typer(
    name="calendars",
    help="The days on which jobs do not run: list, show, set, import or remove calendars.",
    no_args_is_help=True,
    add_completion=False,
)


@calendars.command("list")
@on_a_registry
def list_(where: RegistryOptions, as_json: AsJson = False) -> None:
    """List the calendars, and the jobs that name them."""
    found = where.look(operations.calendars)
    if as_json:
        write_json([_summary(one) for one in found])
        return
    if not found:
        out().print(f"no calendars in {where.address}", style="dim", markup=False)
        return
    today = moment(SystemClock().now()).date()
    table = TextTable("Calendar", "Days", "Jobs", "")
    for one in found:
        days = "" if one.calendar is None else one.calendar.describe()
        mark = "ends soon: add further dates" if one.ends_soon(today) else _lacks(one)
        table.add(
            Text(one.name, style="bold"), Text(days), Text(operations.listed(one.jobs, 5)), Text(mark, style="yellow")
        )
    out().print(table)


@calendars.command()
@on_a_registry
def show(where: RegistryOptions, name: CalendarName, as_json: AsJson = False) -> None:
    """Print the days of a calendar, as the text that `calendars set` takes."""
    found = where.look(lambda session: operations.calendar(session, name))
    if as_json:
        write_json(_whole(found))
    elif found.calendar is None:
        raise InvalidSetting("calendar", name, _lacks(found))
    else:
        print(found.calendar.text, end="", file=stdout())


@calendars.command("set")
@on_a_registry
def set_(
    where: RegistryOptions,
    file: Annotated[
        Path, typer.Argument(help="A text file with a date a line, and a line: weekdays sat, sun. - is stdin.")
    ],
    name: NewName = None,
    as_json: AsJson = False,
) -> None:
    """Make a calendar, or replace its days.  It is named after the file, unless --name says otherwise."""
    if name is None and str(file) == "-":
        raise InvalidSetting("name", None, "what comes from standard input needs a name: --name de-holidays")
    calendar = Calendar.of_text(read_text(file))
    _set(where, name or file.stem, calendar, as_json=as_json)


@calendars.command("import")
@on_a_registry
def import_(
    where: RegistryOptions,
    source: Annotated[str, typer.Argument(help="Such as holidays:DE-BY, with the package holidays.")],
    years: Annotated[str, typer.Option(help="Such as 2026-2030.")],
    name: NewName = None,
    as_json: AsJson = False,
) -> None:
    """Make a calendar of the public holidays of a country, or replace its days; it is named after the country."""
    span = _YEARS.fullmatch(years)
    if span is None:
        raise InvalidSetting("years", years, "write a year, or a first and a last one, such as 2026-2030")
    first = int(span[1])
    last = int(span[2] or first)
    calendar = operations.import_calendar(source, range(first, last + 1))
    _set(where, name or source.partition(":")[2], calendar, as_json=as_json)


@calendars.command()
@on_a_registry
def remove(where: RegistryOptions, name: CalendarName, yes: Yes = False, as_json: AsJson = False) -> None:
    """Remove a calendar that no job names."""
    confirm(f"Remove the calendar {name}?", sure=yes)
    done = where.look(lambda session: operations.remove_calendar(session, name, by=operator_name()))
    print_result(done, as_json=as_json)


def _set(where: RegistryOptions, name: str, calendar: Calendar, *, as_json: bool) -> None:
    done = where.look(lambda session: operations.set_calendar(session, name, calendar, by=operator_name()))
    print_result(done, as_json=as_json)


def _lacks(status: CalendarStatus) -> str:
    """Return what is wrong with a calendar that has no days; empty if it has some."""
    if status.calendar is not None:
        return ""
    return "its node holds something else" if status.is_there else "missing: its jobs run nothing"


def _summary(status: CalendarStatus) -> dict[str, object]:
    days = status.calendar
    last = None if days is None else days.last
    return {"name": status.name, "isThere": days is not None, "last": last, "jobs": status.jobs}


def _whole(status: CalendarStatus) -> dict[str, object]:
    days = status.calendar or Calendar()
    dates = {day.isoformat(): name for day, name in days.dates}
    return {**_summary(status), "dates": dates, "weekdays": days.weekday_names}
