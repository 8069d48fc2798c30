"""The hosts that jobs run on, over all jobs of a registry, and what can be done to one of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import Response

from aioelasticjob import operations
from aioelasticjob.console.live import Picture
from aioelasticjob.console.stream import Piece, Pieces, stream
from aioelasticjob.console.visit import Visit
from aioelasticjob.operations import HostStatus, OperationResult
from aioelasticjob.registry.session import Session


@dataclass(frozen=True, slots=True)
class Action:
    """Something that may be done to a host in all jobs."""

    label: str
    do: Callable[[Session, str], Awaitable[OperationResult]]
    outcome: str
    """What becomes of it; the question before it says so."""


ACTIONS: Final[Mapping[str, Action]] = {
    "pause": Action("Pause", operations.pause_server, "Its items stay there and are not run."),
    "resume": Action("Resume", operations.resume_server, "Its items are run again where nothing else is off."),
    "disable": Action("Disable", operations.disable_server, "Its items move to other servers."),
    "enable": Action("Enable", operations.enable_server, "Items move there again where nothing else is off."),
    "remove": Action("Remove", operations.remove_server, "It is forgotten, and what was said about it."),
}


async def page(visit: Visit) -> Response:
    """Show the hosts."""
    assert visit.registry is not None
    picture = visit.registry.picture.value
    pieces = {piece.target: piece.html for piece in await _render(visit)(picture)}
    return visit.page("servers.html", pieces=pieces, picture=picture, tab="servers")


async def live(visit: Visit) -> Response:
    """Stream what changes among them."""
    return stream(visit, Pieces(_render(visit)))


async def confirm(visit: Visit) -> Response:
    """Ask whether something is really meant, and name the jobs that it concerns and what runs there."""
    assert visit.registry is not None
    ip, name, action = visit.request.path_params["ip"], visit.request.path_params["action"], _action(visit)
    host = next((host for host in hosts(visit.registry.picture.value) if host.ip == ip), None)
    if host is None:
        raise HTTPException(404, visit.words("No job knows this server."))
    return visit.page("server-confirm.html", action=action, name=name, host=host, tab="servers")


async def act(visit: Visit) -> Response:
    """Do something to a host in all jobs, and write down who did what."""
    assert visit.registry is not None
    ip, deed, action = visit.request.path_params["ip"], visit.request.path_params["action"], _action(visit)
    session = visit.registry.session
    before = _facts(hosts(visit.registry.picture.value), ip)
    async with visit.console.audit.doing(visit.deed(f"{deed} server", ip, before=before)) as result:
        done = await action.do(session, ip)
        statuses = await operations.jobs(session, now=visit.console.clock.now())
        result.summary, result.after = done.summary, _facts(operations.by_server(statuses), ip)
    return visit.go(visit.here("servers"), done.summary)


def hosts(picture: Picture) -> Sequence[HostStatus]:
    """Return the hosts of all jobs."""
    return operations.by_server(picture.jobs.values())


def _render(visit: Visit) -> Callable[[Picture], Awaitable[Sequence[Piece]]]:
    async def render(picture: Picture) -> Sequence[Piece]:
        state = Piece("state", visit.render("state.html", picture=picture))
        return [state, Piece("servers", visit.render("servers-list.html", hosts=hosts(picture), picture=picture))]

    return render


def _facts(found: Sequence[HostStatus], ip: str) -> Mapping[str, object]:
    host = next((host for host in found if host.ip == ip), None)
    if host is None:
        return {}
    return {
        "paused": host.paused,
        "disabled": host.disabled,
        "paused in": list(host.paused_in),
        "disabled in": list(host.disabled_in),
    }


def _action(visit: Visit) -> Action:
    action = ACTIONS.get(visit.request.path_params["action"])
    if action is None:
        raise HTTPException(404, visit.words("There is no such page."))
    return action
