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


ACTIONS: Final[Mapping[str, Action]] = {
    "pause": Action("Pause", operations.pause_server),
    "resume": Action("Resume", operations.resume_server),
    "disable": Action("Disable", operations.disable_server),
    "enable": Action("Enable", operations.enable_server),
    "remove": Action("Remove", operations.remove_server),
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


async def act(visit: Visit) -> Response:
    """Do something to a host in all jobs, and write down who did what."""
    assert visit.registry is not None
    ip, deed = visit.request.path_params["ip"], visit.request.path_params["action"]
    action = ACTIONS.get(deed)
    if action is None:
        raise HTTPException(404, visit.words("There is no such page."))
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
    return {} if host is None else {"paused in": list(host.paused_in), "disabled in": list(host.disabled_in)}
