"""The frame of every page: the registries in the header, and the banner that says which of them is lost."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response

from aioelasticjob.console.watching.registry_watch import RegistrySnapshot
from aioelasticjob.console.web.request import PageRequest
from aioelasticjob.console.web.stream import Piece, Pieces, stream


def frame_pieces(request: PageRequest) -> list[Piece]:
    """Return the pieces of the frame that change while a page is open."""
    return [Piece("state", request.render("state.html")), Piece("switch", request.render("switch.html"))]


def gone_piece(request: PageRequest, target: str, text: str, back: str, label: str) -> Piece:
    """Return the piece that replaces a page's head when its job or server is no longer in the registry."""
    return Piece(
        target, request.render("gone.html", target=target, text=text, back=request.registry_url(back), label=label)
    )


async def live(request: PageRequest) -> Response:
    """Stream the changes of the frame, for pages of which nothing else is live."""

    async def render(_: RegistrySnapshot) -> Sequence[Piece]:
        return frame_pieces(request)

    return stream(request, Pieces(render))
