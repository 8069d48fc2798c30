"""One job: which instance holds which item, every item's runs over time, and the actions on the job."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response

from aioelasticjob import operations
from aioelasticjob.console.accounts import Role
from aioelasticjob.console.job_pieces import JobFeed, JobPieces
from aioelasticjob.console.request import PageRequest, registry_of, require_role
from aioelasticjob.console.stream import stream
from aioelasticjob.errors import ElasticJobError, InvalidSetting
from aioelasticjob.operations import JobStatus, OperationResult
from aioelasticjob.registry.session import Session


@dataclass(frozen=True, slots=True)
class Action:
    """Something that may be done to a job."""

    label: str
    do: Callable[[Session, str, Mapping[str, str]], Awaitable[OperationResult]]
    warning: str = ""
    """What to think of before; asks for confirmation where there is one."""
    typed: bool = False
    """Whether the job's name must be typed to confirm."""
    asks: Sequence[str] = field(default=())
    """What else the form may carry."""
    role: Role = Role.OPERATOR
    """Who may do it."""


def _may(form: Mapping[str, str], name: str) -> str | None:
    return form.get(name) or None


def _item(form: Mapping[str, str]) -> int | None:
    text = form.get("item", "")
    if not text:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise InvalidSetting("item", text[:40], "a whole number")
    return int(text)


ACTIONS: Final[Mapping[str, Action]] = {
    "trigger": Action(
        "Run now",
        lambda s, job, form: operations.trigger(
            s, job, instance=_may(form, "instance"), parameter=_may(form, "parameter")
        ),
        asks=("instance", "parameter"),
        role=Role.TRIGGER,
    ),
    "pause": Action(
        "Pause", lambda s, job, form: operations.pause(s, job, server=_may(form, "server")), asks=("server",)
    ),
    "resume": Action(
        "Resume", lambda s, job, form: operations.resume(s, job, server=_may(form, "server")), asks=("server",)
    ),
    "disable": Action(
        "Disable",
        lambda s, job, form: operations.disable(s, job, server=_may(form, "server"), item=_item(form)),
        asks=("server", "item"),
    ),
    "enable": Action(
        "Enable",
        lambda s, job, form: operations.enable(s, job, server=_may(form, "server"), item=_item(form)),
        asks=("server", "item"),
    ),
    "shut-down": Action(
        "Shut down",
        lambda s, job, form: operations.shut_down(s, job, instance=_may(form, "instance")),
        "Its instances finish their items, hand them over and leave this job until their processes are started again.",
        asks=("instance",),
    ),
    "remove": Action(
        "Remove",
        lambda s, job, form: operations.remove(s, job),
        "Everything the registry holds of this job is deleted: settings, offsets, records. This cannot be undone.",
        typed=True,
    ),
}


async def page(request: PageRequest) -> Response:
    """Show a job."""
    status, registry = _job(request), registry_of(request)
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
    text = await operations.dump(registry_of(request).session, name, masked=masked)
    if request.http.query_params.get("as") == "text":
        return PlainTextResponse(text + "\n")
    return request.page("dump.html", name=name, text=text, masked=masked, tab="jobs")


async def confirm(request: PageRequest) -> Response:
    """Ask whether something is really meant."""
    action, status = _action(request), _job(request)
    asked = {name: request.http.query_params.get(name, "")[:200] for name in action.asks}
    name = request.http.path_params["action"]
    return request.page("confirm.html", action=action, name=name, job=status, asked=asked, tab="jobs")


async def act(request: PageRequest) -> Response:
    """Do something to a job, and write down who did what."""
    action, name = _action(request), request.http.path_params["job"]
    if action.typed and request.form.get("typed") != name:
        raise InvalidSetting("name", request.form.get("typed", "")[:200], f"type {name} to confirm")
    registry, kind = registry_of(request), request.http.path_params["action"]
    session = registry.session
    asked = {key: request.form[key] for key in action.asks if request.form.get(key)}
    before = facts(registry.snapshot.value.jobs.get(name))
    async with request.audited(kind, name, asked=asked, before=before) as result:
        done = await action.do(session, name, request.form)
        result.summary, result.after = done.summary, await _after(session, name, request.state.clock.now())
    gone = kind == "remove"
    return request.redirect(request.registry_url("jobs") if gone else request.registry_url("job", name), done.summary)


def facts(status: JobStatus | None) -> Mapping[str, object]:
    """Return what actions may change, for the audit log."""
    if status is None:
        return {}
    return {
        "state": status.state,
        "instances": len(status.instances),
        "paused": status.paused,
        "pausedOn": [server.ip for server in status.servers if server.paused],
        "disabledOn": [server.ip for server in status.servers if server.disabled],
        "disabledItems": [item.item for item in status.items if item.disabled],
    }


async def _after(session: Session, name: str, now: float) -> Mapping[str, object]:
    try:
        return facts(await operations.job(session, name, now=now))
    except ElasticJobError:  # removed, or the registry is gone: the action itself is done
        return {}


def _action(request: PageRequest) -> Action:
    """Return what is to be done; a person without the role that it needs is refused."""
    found = ACTIONS.get(request.http.path_params["action"])
    if found is None:
        raise HTTPException(404, request.translate("There is no such page."))
    require_role(request, found.role)
    return found


def _job(request: PageRequest) -> JobStatus:
    registry, name = registry_of(request), request.http.path_params["job"]
    found = registry.snapshot.value.jobs.get(name)
    if found is None:
        lost = registry.snapshot.value.lost
        known = registry.snapshot.value.read or lost is None
        raise HTTPException(404 if known else 503, request.translate("There is no such job.") if known else str(lost))
    return found
