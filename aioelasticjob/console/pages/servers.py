"""The hosts that jobs run on, over all jobs of a registry, and what can be done to one of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import Response

from aioelasticjob import operations
from aioelasticjob.console.pages.carrying_out import REFUSALS, filled
from aioelasticjob.console.watching.registry_watch import RegistrySnapshot
from aioelasticjob.console.web.frame import frame_pieces
from aioelasticjob.console.web.request import PageRequest, registry_of
from aioelasticjob.console.web.stream import Piece, Pieces, stream
from aioelasticjob.errors import ElasticJobError
from aioelasticjob.ground.times import moment, time_text
from aioelasticjob.operations import SERVER_ACTIONS, HostStatus, ServerAction

PAUSE_FIELDS: Final = ("until", "note")
"""What the form asks for of a pause."""


async def page(request: PageRequest) -> Response:
    """Show the hosts."""
    snapshot = registry_of(request).snapshot.value
    pieces = {piece.target: piece.html for piece in await _render(request)(snapshot)}
    return request.page("servers.html", pieces=pieces, snapshot=snapshot, tab="servers")


async def live(request: PageRequest) -> Response:
    """Stream what changes among them."""
    return stream(request, Pieces(_render(request)))


async def confirm(request: PageRequest) -> Response:
    """Ask whether something is really meant, and name the jobs that it concerns and what runs there."""
    return _ask(request)


async def act(request: PageRequest) -> Response:
    """Do something to a host in all jobs, and write down who did what."""
    ip = request.http.path_params["ip"]
    kind = request.http.path_params["action"]
    action = _action(request)
    session = registry_of(request).session
    before = await _read_facts(request, ip)  # what the pages show may be older
    form = filled(request, request.form)
    asked = {name: text for name in PAUSE_FIELDS if (text := form.text(name)) is not None}
    try:
        async with request.audited(f"{kind} server", ip, asked=asked, before=before) as result:
            options: dict[str, object] = {}
            if kind == "pause":
                options = {"until": form.time("until"), "note": form.text("note") or ""}
            done = await action.do(session, ip, by=request.viewer.name, **options)
            result.summary = done.summary
            result.after = await _read_facts(request, ip)
    except REFUSALS as error:
        if kind != "pause":
            raise
        return _ask(request, error)
    return request.redirect(request.registry_url("servers"), request.translate.message(done.summary))


def _ask(request: PageRequest, error: ElasticJobError | None = None) -> Response:
    """Show the form of an action, with the error of an earlier attempt."""
    action = _action(request)
    host = operations.host_of(registry_of(request).snapshot.value.jobs.values(), request.http.path_params["ip"])
    if host is None:
        raise HTTPException(404, request.translate("No job knows this server."))
    context = {"action": action, "name": request.http.path_params["action"], "host": host}
    problem = "" if error is None else request.translate.error(error)
    code = 200 if error is None else 409
    return request.page("server-confirm.html", code, problem=problem, asked=request.form, tab="servers", **context)


def hosts(snapshot: RegistrySnapshot) -> Sequence[HostStatus]:
    """Return the hosts of all jobs."""
    return operations.by_server(snapshot.jobs.values())


def _render(request: PageRequest) -> Callable[[RegistrySnapshot], Awaitable[Sequence[Piece]]]:
    async def render(snapshot: RegistrySnapshot) -> Sequence[Piece]:
        servers = request.render("servers-list.html", hosts=hosts(snapshot), snapshot=snapshot)
        return [*frame_pieces(request), Piece("servers", servers)]

    return render


async def _read_facts(request: PageRequest, ip: str) -> Mapping[str, object]:
    """Return what the registry says of a host now, for the audit log; nothing if it cannot be read."""
    try:
        statuses = await operations.jobs(registry_of(request).session, now=request.state.clock.now())
    except ElasticJobError:  # the action's own outcome says so
        return {}
    host = operations.host_of(statuses, ip)
    if host is None:
        return {}
    return {
        "paused": host.paused,
        "paused until": "" if host.pause is None or not host.pause.ends else time_text(moment(host.pause.until)),
        "disabled": host.disabled,
        "paused in": list(host.paused_in),
        "disabled in": list(host.disabled_in),
    }


def _action(request: PageRequest) -> ServerAction:
    action = SERVER_ACTIONS.get(request.http.path_params["action"])
    if action is None:
        raise HTTPException(404, request.translate("There is no such page."))
    return action
