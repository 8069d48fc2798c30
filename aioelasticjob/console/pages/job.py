"""One job: which instance holds which item, every item's runs over time, and the actions on the job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response

from aioelasticjob import operations
from aioelasticjob.console.actions.job_actions import ACTIONS, Action
from aioelasticjob.console.pages.carrying_out import REFUSALS, asked_for, carry_out, filled
from aioelasticjob.console.pages.job_pieces import JobFeed, JobPieces
from aioelasticjob.console.web.request import PageRequest, registry_of, require
from aioelasticjob.console.web.stream import stream
from aioelasticjob.errors import ElasticJobError, InvalidSetting
from aioelasticjob.operations import JobStatus

MAX_VALUE_CHARACTERS: Final = 2000
"""How much of each value of a form is taken from a page's address."""


async def page(request: PageRequest) -> Response:
    """Show a job."""
    status = _job(request)
    registry = registry_of(request)
    snapshot = registry.snapshot.value
    pieces = JobPieces(request)
    html = {piece.target: piece.html for piece in await pieces.small(snapshot, status)}
    html |= {group.target: group.whole(group.parts) for group in pieces.groups(status)}
    at = f"{registry.epoch}.{snapshot.changed[status.name]}"
    return request.page("job.html", job=status, pieces=html, tab="jobs", at=at, **pieces.controls(status))


async def live(request: PageRequest) -> Response:
    """Stream what changes on a job's page."""
    return stream(request, JobFeed(request, request.http.query_params.get("at", "")))


async def dump(request: PageRequest) -> Response:
    """Show every node of a job, to look at or to send to somebody; without addresses if wished."""
    masked = request.http.query_params.get("masked") == "1"
    name = request.http.path_params["job"]
    async with request.audited("dump", name, asked={"masked": masked}):
        text = await operations.dump(registry_of(request).session, name, masked=masked)
    if request.http.query_params.get("as") == "text":
        return PlainTextResponse(text + "\n")
    return request.page("dump.html", name=name, text=text, masked=masked, tab="jobs")


async def confirm(request: PageRequest) -> Response:
    """Show the form of an action; when it is complete, ask for confirmation of what would be done."""
    action = _action(request)
    status = _job(request)
    query = request.http.query_params
    asked = {name: query[name][:MAX_VALUE_CHARACTERS] for name in action.carries if query.get(name)}
    if action.plan is None or not all(asked.get(one.name) for one in action.inputs if one.required):
        return _ask(request, action, asked)
    session = registry_of(request).session
    try:
        plan = await action.plan(session, status.name, filled(request, asked))
    except REFUSALS as error:
        return _ask(request, action, asked, error)
    return _ask(request, action, asked, plan=plan)


async def act(request: PageRequest) -> Response:
    """Do something to a job, and write down who did what."""
    action = _action(request)
    name = request.http.path_params["job"]
    kind = request.http.path_params["action"]
    try:
        if action.typed and request.form.get("typed") != name:
            raise InvalidSetting("name", request.form.get("typed", "")[:200], f"type {name} to confirm")
        done = await carry_out(request, kind, name, request.form)
    except REFUSALS as error:
        if not (action.inputs or action.typed) or request.is_fragment:
            raise
        return _ask(request, action, asked_for(action, request.form), error)
    is_gone = kind == "remove"
    url = request.registry_url("jobs") if is_gone else request.registry_url("job", name)
    return request.redirect(url, request.translate.message(done.summary))


def _ask(
    request: PageRequest, action: Action, asked: Mapping[str, str], error: ElasticJobError | None = None, plan: str = ""
) -> Response:
    """Show the form of an action, with the error of an earlier attempt; with a ``plan``, ask for its confirmation."""
    name = request.http.path_params["action"]
    status = _job(request)
    code = 200
    problem = ""
    if error is not None:
        code = 409
        problem = request.translate.error(error)
    context = {"action": action, "name": name, "job": status, "asked": asked, "problem": problem, "plan": plan}
    return request.page("confirm.html", code, tab="jobs", **context)


def _action(request: PageRequest) -> Action:
    """Return what is to be done; a person without the permission that it needs is refused."""
    found = ACTIONS.get(request.http.path_params["action"])
    if found is None:
        raise HTTPException(404, request.translate("There is no such page."))
    require(request, found.needs)
    return found


def _job(request: PageRequest) -> JobStatus:
    registry = registry_of(request)
    name = request.http.path_params["job"]
    found = registry.snapshot.value.jobs.get(name)
    if found is None:
        lost = registry.snapshot.value.lost
        if lost is not None and not registry.snapshot.value.read:  # nobody knows yet which jobs there are
            raise HTTPException(503, lost)
        raise HTTPException(404, request.translate("There is no such job."))
    return found
