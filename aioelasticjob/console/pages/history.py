"""The history: the event store's runs with filters, and the page of one run with its states and its failure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final
from zoneinfo import ZoneInfo

from starlette.exceptions import HTTPException
from starlette.responses import Response

from aioelasticjob.console.drawing.timeline import SPANS
from aioelasticjob.console.pages.history_pieces import OUTCOMES, HistoryPieces, asked_of, field_text
from aioelasticjob.console.watching.registry_watch import RegistrySnapshot
from aioelasticjob.console.web import frame
from aioelasticjob.console.web.frame import frame_pieces
from aioelasticjob.console.web.request import PageRequest, registry_of
from aioelasticjob.console.web.stream import Piece, Pieces, stream
from aioelasticjob.errors import ElasticJobError, InvalidSetting
from aioelasticjob.events import fence_of
from aioelasticjob.model import FireSource

STATES: Final = {
    "TASK_STAGING": "staged",
    "TASK_RUNNING": "running",
    "TASK_ATTEMPT_FAILED": "attempt failed",
    "TASK_FINISHED": "completed",
    "TASK_ERROR": "failed",
    "TASK_TIMED_OUT": "timed out",
    "TASK_KILLED": "cancelled",
    "TASK_HANDED_OVER": "handed over",
    "TASK_RESCUED": "rescued",
    "TASK_MISFIRED": "misfired",
}
"""Words for the states of the trace; keys of the catalogue."""


async def page(request: PageRequest) -> Response:
    """Show runs, newest first."""
    asked = asked_of(request)
    store = registry_of(request).store
    context: dict[str, object] = {
        "asked": asked,
        "ranges": _ranges(request),
        "outcomes": OUTCOMES,
        "sources": tuple(FireSource),
        "stored": store is not None,
        "runs": None,
        "problem": "",
        "tab": "history",
    }
    if store is None:
        return request.page("history.html", **context)
    query = request.http.query_params
    try:
        pieces = HistoryPieces(request, store.answering(), asked)
        runs = await pieces.runs(query.get("after") or None, query.get("before") or None)
        context |= {"runs": runs, "counts": await pieces.counts()}
        return request.page("history.html", **context)
    except ElasticJobError as error:
        status = 400 if isinstance(error, InvalidSetting) else 503
        return request.page(
            "history.html", status, **{**context, "runs": None, "problem": request.translate.error(error)}
        )


async def live(request: PageRequest) -> Response:
    """Stream the newest runs that the page's address asks for, and their counts."""
    store = registry_of(request).store
    if store is None:
        return await frame.live(request)
    pieces = HistoryPieces(request, store.store, asked_of(request))

    async def render(_: RegistrySnapshot) -> Sequence[Piece]:
        found = frame_pieces(request)
        with suppress(ElasticJobError):  # the event store does not answer, which the frame says
            store.answering()
            found += await pieces.newest()
        return found

    return stream(request, Pieces(render))


async def run(request: PageRequest) -> Response:
    """Show one run."""
    store = registry_of(request).store
    details = None if store is None else await store.answering().run(request.http.path_params["run"])
    if details is None:
        raise HTTPException(404, request.translate("There is no such run."))
    job = registry_of(request).snapshot.value.jobs.get(details.run.job)
    fence = fence_of(details.run.task_id)
    return request.page(
        "run.html", details=details, run=details.run, states=STATES, job=job, fence=fence, tab="history"
    )


def _ranges(request: PageRequest) -> Mapping[str, str]:
    """Return when the stretches of time to choose from begin, as the form's field has it, by their names."""
    now = request.state.clock.now()
    zone = ZoneInfo(request.viewer.zone)
    return {name: field_text((now - size) // 60 * 60, zone) for name, size in SPANS.items()}
