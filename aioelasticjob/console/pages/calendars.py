"""The calendars of a registry: on their days the jobs that name them do not run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from starlette.responses import Response

from aioelasticjob import operations
from aioelasticjob.console.pages.carrying_out import REFUSALS
from aioelasticjob.console.web.request import PageRequest, registry_of
from aioelasticjob.errors import ElasticJobError, InvalidSetting
from aioelasticjob.ground.times import moment
from aioelasticjob.ground.whole_numbers import whole_number
from aioelasticjob.operations import CalendarStatus
from aioelasticjob.registry.session import Session
from aioelasticjob.schedules.calendars import Calendar


async def page(request: PageRequest) -> Response:
    """Show the calendars, and a form for a new one."""
    return await _list(request)


async def make(request: PageRequest) -> Response:
    """Make a calendar of a form."""
    try:
        return await _set(request, request.form.get("name", "").strip(), version=-1)
    except REFUSALS as error:
        return await _list(request, error)


async def one(request: PageRequest) -> Response:
    """Show one calendar, and a form to change it."""
    return await _show(request)


async def save(request: PageRequest) -> Response:
    """Replace the days of a calendar, unless somebody else has changed it since the form was shown."""
    try:
        version = whole_number(request.form.get("version", ""), digits=10)
        return await _set(request, request.http.path_params["calendar"], version=version)
    except REFUSALS as error:
        return await _show(request, error)


async def remove(request: PageRequest) -> Response:
    """Remove a calendar that no job names."""
    session = registry_of(request).session
    name = request.http.path_params["calendar"]
    try:
        before = await _days(session, name)
        async with request.audited("remove calendar", name, before=before) as result:
            done = await operations.remove_calendar(session, name, by=request.viewer.name)
            result.summary = done.summary
    except REFUSALS as error:
        return await _show(request, error)
    return request.redirect(request.registry_url("calendars"), request.translate.message(done.summary))


async def _set(request: PageRequest, name: str, *, version: int | None) -> Response:
    session = registry_of(request).session
    calendar = Calendar.of_text(request.form.get("days", ""))
    before = await _days(session, name)
    async with request.audited("set calendar", name, asked={"days": calendar.text}, before=before) as result:
        done = await operations.set_calendar(session, name, calendar, version=version, by=request.viewer.name)
        result.summary = done.summary
        result.after = {"days": calendar.text}
    return request.redirect(request.registry_url("calendars"), request.translate.message(done.summary))


async def _list(request: PageRequest, error: ElasticJobError | None = None) -> Response:
    found = await operations.calendars(registry_of(request).session)
    return _page(request, "calendars.html", error, calendars=[_seen(request, one) for one in found])


async def _show(request: PageRequest, error: ElasticJobError | None = None) -> Response:
    found = await operations.calendar(registry_of(request).session, request.http.path_params["calendar"])
    return _page(request, "calendar.html", error, calendar=_seen(request, found))


def _page(request: PageRequest, template: str, error: ElasticJobError | None, **context: object) -> Response:
    """Show a page, after a refused form with the error and with what was typed."""
    problem = "" if error is None else request.translate.error(error)
    today = moment(request.state.clock.now()).date()
    status = 200 if error is None else 409
    return request.page(template, status, problem=problem, asked=request.form, today=today, tab="jobs", **context)


def _seen(request: PageRequest, calendar: CalendarStatus) -> CalendarStatus:
    """Return a calendar with those of its jobs that this person may see."""
    there = registry_of(request).snapshot.value.jobs
    jobs: Sequence[str] = [job for job in calendar.jobs if job in there]
    return replace(calendar, jobs=tuple(jobs))


async def _days(session: Session, name: str) -> dict[str, str]:
    """Return the days of a calendar, for the audit log; nothing if there is none."""
    try:
        found = await operations.calendar(session, name)
    except InvalidSetting:
        return {}
    return {} if found.calendar is None else {"days": found.calendar.text}
