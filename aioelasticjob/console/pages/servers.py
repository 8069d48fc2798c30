"""The hosts that jobs run on, over all jobs of a registry, and what can be done to one of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import Response

from aioelasticjob import operations
from aioelasticjob.console.watching.registry_watch import RegistrySnapshot
from aioelasticjob.console.web.frame import frame_pieces
from aioelasticjob.console.web.request import PageRequest, registry_of
from aioelasticjob.console.web.stream import Piece, Pieces, stream
from aioelasticjob.errors import ElasticJobError
from aioelasticjob.operations import HostStatus, OperationResult


@dataclass(frozen=True, slots=True)
class Action:
    """Something that may be done to a host in all jobs."""

    label: str
    do: Callable[..., Awaitable[OperationResult]]
    """Takes a session, the server, and who does it (``by``)."""
    outcome: str
    """What becomes of it; the question before it says so."""


ACTIONS: Final[Mapping[str, Action]] = {
    "pause": Action("Pause", operations.pause_server, "Its items stay there and are not run."),
    "resume": Action("Resume", operations.resume_server, "Its items are run again where nothing else is off."),
    "disable": Action("Disable", operations.disable_server, "Its items move to other servers."),
    "enable": Action("Enable", operations.enable_server, "Items move there again where nothing else is off."),
    "remove": Action(
        "Remove",
        # Who did it is left out: no worker is left there that could log it.
        lambda session, ip, by: operations.remove_server(session, ip),
        "All jobs forget this server and its flags.",
    ),
}


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
    ip = request.http.path_params["ip"]
    name = request.http.path_params["action"]
    action = _action(request)
    host = next((host for host in hosts(registry_of(request).snapshot.value) if host.ip == ip), None)
    if host is None:
        raise HTTPException(404, request.translate("No job knows this server."))
    return request.page("server-confirm.html", action=action, name=name, host=host, tab="servers")


async def act(request: PageRequest) -> Response:
    """Do something to a host in all jobs, and write down who did what."""
    ip = request.http.path_params["ip"]
    kind = request.http.path_params["action"]
    action = _action(request)
    session = registry_of(request).session
    before = await _read_facts(request, ip)  # what the pages show may be older
    async with request.audited(f"{kind} server", ip, before=before) as result:
        done = await action.do(session, ip, by=request.viewer.name)
        result.summary = done.summary
        result.after = await _read_facts(request, ip)
    return request.redirect(request.registry_url("servers"), request.translate.message(done.summary))


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
    host = next((host for host in operations.by_server(statuses) if host.ip == ip), None)
    if host is None:
        return {}
    return {
        "paused": host.paused,
        "disabled": host.disabled,
        "paused in": list(host.paused_in),
        "disabled in": list(host.disabled_in),
    }


def _action(request: PageRequest) -> Action:
    action = ACTIONS.get(request.http.path_params["action"])
    if action is None:
        raise HTTPException(404, request.translate("There is no such page."))
    return action
