"""Calendars in the registry: the days on which jobs that name them do not run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from aioelasticjob.core.layout import CALENDARS, Layout, calendar_path
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.encoding import json_object
from aioelasticjob.operations.queries import listed, names
from aioelasticjob.operations.results import ChangedMeanwhile, NotPossible, OperationResult, commit, note
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.transaction import Create, Delete, Op, put
from aioelasticjob.registry.tree import Tree
from aioelasticjob.schedules.calendars import Calendar, calendar_in, checked_name

ENDS_SOON = 60
"""Days before the last date of a calendar from which jobs that name it need attention."""
MAX_YEARS = 50
"""The most years that are imported at once."""
SOURCE = "holidays:"
"""What stands before the name of a country in a source of dates."""


class CalendarInUse(NotPossible):
    """Jobs name the calendar, so it cannot be removed: without it they would run nothing."""

    def __init__(self, name: str, jobs: Sequence[str]) -> None:
        super().__init__(
            f"{name}: jobs name this calendar, and would run nothing without it ({listed(jobs)}): "
            "change their setting calendar first"
        )
        self.name = name
        self.jobs = tuple(jobs)


@dataclass(frozen=True, slots=True)
class CalendarStatus:
    """A calendar that the registry has, or that a job names."""

    name: str
    calendar: Calendar | None
    """Its days; None if it is missing, or if its node holds something else."""
    version: int
    """Rises with each edit; -1 if there is no such calendar."""
    jobs: tuple[str, ...] = ()
    """The jobs that name it."""

    @property
    def is_there(self) -> bool:
        """Whether the registry has a node of it, which may hold something else."""
        return self.version >= 0

    def ends_soon(self, today: date) -> bool:
        """Whether its dates are over, or will be in so many days that somebody has to add further ones."""
        return self.calendar is not None and ends_soon(self.calendar, today)


def ends_soon(calendar: Calendar, today: date) -> bool:
    """Whether the dates of a calendar are over, or will be in 60 days; one with weekdays only does not end."""
    return calendar.last is not None and (calendar.last - today).days < ENDS_SOON


async def calendars(session: Session) -> tuple[CalendarStatus, ...]:
    """Read all calendars, in the order of their names, also those that jobs name and that are missing.

    Raises:
        RegistryError: the registry could not be read.
    """
    await session.sync()
    tree = await session.subtree([CALENDARS])
    used = await _used(session)
    return tuple(_status(tree, name, used) for name in sorted({*tree.children(CALENDARS), *used}))


async def calendar(session: Session, name: str) -> CalendarStatus:
    """Read one calendar.

    Raises:
        InvalidSetting: there is no such calendar, and no job names it.
        RegistryError: the registry could not be read.
    """
    found = {one.name: one for one in await calendars(session)}
    if name not in found:
        raise _no_such(name, [one.name for one in found.values() if one.is_there])
    return found[name]


async def set_calendar(
    session: Session, name: str, calendar: Calendar, *, version: int | None = None, by: str = ""
) -> OperationResult:
    """Make a calendar, or replace its days: jobs that name it follow within moments, from then on.

    Moments of the past stay as they were.  ``version`` is the version of the calendar on which the change was decided
    (``CalendarStatus.version``); without it the change applies to whatever is there now.

    Raises:
        InvalidSetting: no calendar can have such a name.
        ChangedMeanwhile: the calendar is no longer at that version, or others have changed it meanwhile.
        RegistryError: the registry could not be read or written.
    """
    await session.sync()
    tree = await session.subtree([CALENDARS])
    path = calendar_path(checked_name(name))
    node = tree.get(path)
    status = _status(tree, name, {})
    if version not in (None, status.version):
        raise ChangedMeanwhile(path, f"was changed (it is at version {status.version}, {version} was seen)")
    if status.calendar == calendar:
        return await commit(session, (), f"calendar {name}: has these days already")
    done = "made" if node is None else "changed"
    return await _write(
        session, tree, put(path, calendar.text.encode(), node), by, f"calendar {name}: {done}: {calendar.describe()}"
    )


async def remove_calendar(session: Session, name: str, *, by: str = "") -> OperationResult:
    """Remove a calendar that no job names.

    Raises:
        InvalidSetting: there is no such calendar.
        CalendarInUse: jobs name it.
        ChangedMeanwhile: others have changed it meanwhile.
        RegistryError: the registry could not be read or written.
    """
    found = await calendar(session, name)
    if found.jobs:
        raise CalendarInUse(name, found.jobs)
    tree = await session.subtree([CALENDARS])
    return await _write(session, tree, Delete(calendar_path(name), found.version), by, f"calendar {name}: removed")


def import_calendar(source: str, years: Sequence[int]) -> Calendar:
    """Return the public holidays of a country or a part of it in some years, such as ``holidays:DE-BY``.

    The dates are those of the package ``holidays``, an extra: ``pip install aioelasticjob[holidays]``.

    Raises:
        InvalidSetting: the source is none, the package is not installed, or it does not know the country.
    """
    country, _, part = source.removeprefix(SOURCE).partition("-")
    if not source.startswith(SOURCE) or not country:
        raise InvalidSetting(
            "source", source, "write holidays:COUNTRY or holidays:COUNTRY-PART, such as holidays:DE-BY"
        )
    if not 1 <= len(years) <= MAX_YEARS:
        raise InvalidSetting("years", f"{len(years)} years", f"must be 1 to {MAX_YEARS} years, such as 2026-2030")
    try:
        import holidays  # an extra: only people who import dates need it, and workers never do
    except ImportError as missing:
        raise InvalidSetting(
            "source", source, "needs the package holidays: pip install aioelasticjob[holidays]"
        ) from missing
    try:
        found = holidays.country_holidays(country, subdiv=part or None, years=years)
    except NotImplementedError as unknown:
        raise InvalidSetting("source", source, f"is not known to the package holidays: {unknown}") from unknown
    return Calendar.of(dict(found))


async def _write(session: Session, tree: Tree, operation: Op, by: str, summary: str) -> OperationResult:
    """Write a calendar, and note who does it: workers of jobs that name it log that."""
    first = [note(CALENDARS, CALENDARS in tree, by, [operation])] if by else []
    parents = [] if first or CALENDARS in tree else [Create(CALENDARS)]
    return await commit(session, [*first, *parents, operation], summary)


async def _used(session: Session) -> dict[str, tuple[str, ...]]:
    """Return the jobs that name calendars, by the names of these."""
    jobs = await names(session)
    configs = await session.get_many([Layout(job).config for job in jobs])
    used = dict[str, tuple[str, ...]]()
    for job, config in zip(jobs, configs, strict=True):
        named = {} if config is None else json_object(config.data)
        calendars = named.get("calendar", ())
        for name in calendars if isinstance(calendars, list) else ():
            if isinstance(name, str):
                used[name] = (*used.get(name, ()), job)
    return used


def _status(tree: Tree, name: str, used: Mapping[str, tuple[str, ...]]) -> CalendarStatus:
    node = tree.get(calendar_path(name))
    jobs = used.get(name, ())
    if node is None:
        return CalendarStatus(name, None, -1, jobs)
    return CalendarStatus(name, calendar_in(node.data), node.stat.version, jobs)


def _no_such(name: str, there: Sequence[str]) -> InvalidSetting:
    return InvalidSetting("calendar", name, f"there is no such calendar; there are: {listed(there)}")
