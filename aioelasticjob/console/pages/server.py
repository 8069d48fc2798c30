"""One server: its jobs with their items, instances, counts and flags there, and what runs there now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import Response

from aioelasticjob import operations
from aioelasticjob.console.watching.health import Health
from aioelasticjob.console.watching.registry_watch import RegistrySnapshot
from aioelasticjob.console.web.frame import frame_pieces, gone_piece
from aioelasticjob.console.web.request import PageRequest, registry_of
from aioelasticjob.console.web.stream import Piece, PieceFeed, PieceGroup, row_id, stream
from aioelasticjob.ground.whole_numbers import whole_number
from aioelasticjob.operations import JobOnServer, ServerDetails

PAGE: Final = 100
"""Jobs on a page."""
RUNS_SHOWN: Final = 50
"""How many runs are listed at the top: those that have run longest."""


async def page(request: PageRequest) -> Response:
    """Show a server."""
    registry = registry_of(request)
    snapshot = registry.snapshot.value
    pieces = _ServerPieces(request)
    found = operations.server_details(snapshot.jobs.values(), pieces.ip)
    if found is None:
        raise HTTPException(404, request.translate("No job knows this server."))
    group = pieces.jobs(snapshot, found)
    html = {piece.target: piece.html for piece in pieces.whole(found)}
    html[group.target] = group.whole(group.parts)
    return request.page("server.html", ip=pieces.ip, page=pieces.page, pieces=html, tab="servers")


async def live(request: PageRequest) -> Response:
    """Stream what changes on a server's page."""
    return stream(request, _ServerFeed(request))


class _ServerPieces:
    """The live pieces of a server's page."""

    def __init__(self, request: PageRequest) -> None:
        self._request = request
        self.ip = str(request.http.path_params["ip"])
        self.page = whole_number(request.http.query_params.get("page", ""), digits=7) or 1
        self._rows: dict[str, tuple[object, Piece]] = {}
        """By job, the values that its row was rendered from, and the row."""

    def whole(self, server: ServerDetails) -> list[Piece]:
        """Return the pieces that are sent whole."""
        render = self._request.render
        return [
            Piece("server-head", render("server-head.html", server=server)),
            Piece("server-runs", render("server-runs.html", runs=server.runs, most=RUNS_SHOWN)),
        ]

    def jobs(self, snapshot: RegistrySnapshot, server: ServerDetails) -> PieceGroup:
        """Return the rows of the jobs on this page, of which only those are sent that have changed."""
        request = self._request
        pages = max(1, -(-len(server.jobs) // PAGE))  # rounded up
        page = min(self.page, pages)
        first = (page - 1) * PAGE
        health = request.state.health_of(registry_of(request), snapshot).of
        shown = server.jobs[first : first + PAGE]
        labels = {job.name: snapshot.jobs[job.name].config.labels for job in shown}
        rows = [self._row(job, health[job.name], labels[job.name]) for job in shown]
        context = {"ip": self.ip, "page": page, "pages": pages}

        def whole(parts: Sequence[Piece]) -> str:
            return request.render("server-jobs.html", parts=parts, **context)

        return PieceGroup("server-jobs", rows, whole, pages)

    def _row(self, job: JobOnServer, health: Health, labels: Mapping[str, str]) -> Piece:
        may_operate = self._request.viewer.on(labels).may_operate
        looks = (job, health, may_operate)
        kept = self._rows.get(job.name)
        if kept is None or kept[0] != looks:
            row = row_id(job.name)
            flags = operations.flags_of(job.server)
            html = self._request.render(
                "server-job.html", id=row, job=job, health=health, flags=flags, may_operate=may_operate
            )
            kept = self._rows[job.name] = looks, Piece(row, html)
        return kept[1]


class _ServerFeed(PieceFeed):
    """What one open page of a server has been sent."""

    def __init__(self, request: PageRequest) -> None:
        super().__init__()
        self._request = request
        self._pieces = _ServerPieces(request)

    async def changes(self, snapshot: RegistrySnapshot) -> Sequence[Piece]:
        """Return the pieces that have changed."""
        request = self._request
        sent = self._sent
        sent.has_more = False
        found = [piece for piece in frame_pieces(request) if sent.differs(piece)]
        server = operations.server_details(snapshot.jobs.values(), self._pieces.ip)
        if server is not None:
            found += [piece for piece in self._pieces.whole(server) if sent.differs(piece)]
            group = self._pieces.jobs(snapshot, server)
            size = sum(len(piece.html) for piece in found)
            return [*found, *sent.changed_parts(group, size)]
        if snapshot.read:
            text = request.translate("No job knows this server.")
            label = request.translate("To the servers")
            head = gone_piece(request, "server-head", text, "servers", label)
            if sent.differs(head):
                found.append(head)
        return found
