"""Actions on many jobs at once: the question before, the progress, and the report afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import anyio
from starlette.exceptions import HTTPException
from starlette.responses import Response

from aioelasticjob.console.actions.bulk_actions import BulkAction, JobResult
from aioelasticjob.console.actions.job_actions import ACTIONS, BULK
from aioelasticjob.console.pages.carrying_out import carry_out
from aioelasticjob.console.pages.job_query import JobQuery
from aioelasticjob.console.watching.registry_watch import RegistrySnapshot
from aioelasticjob.console.web.frame import frame_pieces
from aioelasticjob.console.web.request import PageRequest, registry_of, require, viewer_of
from aioelasticjob.console.web.stream import Piece, Pieces, stream
from aioelasticjob.errors import ElasticJobError

ANSWER_TIMEOUT: Final = 0.5
"""Seconds after which the page shows the progress of what has not ended yet."""
NAMED: Final = 10
"""Jobs that the question names."""
MOST: Final = 5000
"""Jobs of one bulk action."""
JOB: Final = "job:"
"""Begins the names of the fields that select a job."""


async def ask(request: PageRequest) -> Response:
    """Ask whether something is really meant for the jobs that were selected, or for all that the filter shows."""
    kind = _kind(request, request.form.get("action", ""))
    query = JobQuery.of(request.form)
    if request.form.get("scope") == "found":
        jobs = _found(request, query, kind)
    else:
        jobs = _selected(request, kind)
    back = request.registry_url("jobs", **query.address())
    if problem := _problem(request, jobs):
        return request.redirect(back, problem, error=True)
    return request.page(
        "bulk-confirm.html",
        kind=kind,
        action=ACTIONS[kind],
        meaning=BULK[kind],
        jobs=jobs,
        named=jobs[:NAMED],
        back=back,
        tab="jobs",
    )


async def act(request: PageRequest) -> Response:
    """Begin with it, and lead to its report, which shows the progress of what takes longer."""
    kind = _kind(request, request.http.path_params["action"])
    jobs = _selected(request, kind)
    if problem := _problem(request, jobs):
        return request.redirect(request.registry_url("jobs"), problem, error=True)
    bulk = BulkAction(request.viewer.name, registry_of(request).settings.name, kind, jobs)

    async def do(job: str) -> str:
        return (await carry_out(request, kind, job, {})).summary

    request.state.bulk_actions.start(bulk, do)
    with anyio.move_on_after(ANSWER_TIMEOUT):
        await bulk.ended.wait()
    return request.redirect(request.registry_url("jobs", "report", bulk.id))


async def report(request: PageRequest) -> Response:
    """Show what came of it for each job."""
    bulk = _bulk(request)
    return request.page("bulk.html", bulk=bulk, piece=_piece(request, bulk), action=ACTIONS[bulk.kind], tab="jobs")


async def live(request: PageRequest) -> Response:
    """Stream the progress, and the report at the end."""
    bulk = _bulk(request)

    async def render(_: RegistrySnapshot) -> Sequence[Piece]:
        return [*frame_pieces(request), Piece("bulk", _piece(request, bulk))]

    return stream(request, Pieces(render))


def _piece(request: PageRequest, bulk: BulkAction) -> str:
    results = list[tuple[str, JobResult]]()
    if bulk.ended.is_set():
        results = sorted(bulk.results.items(), key=lambda one: (one[1].error is None, one[0]))
    return request.render("bulk-report.html", bulk=bulk, results=results, sentence=lambda one: _sentence(request, one))


def _sentence(request: PageRequest, result: JobResult) -> str:
    if result.error is None:
        return request.translate.message(result.summary)
    if isinstance(result.error, ElasticJobError):
        return request.translate.error(result.error)
    return request.translate("something is wrong with the console itself; its log says what")


def _problem(request: PageRequest, jobs: Sequence[str]) -> str | None:
    """Return why nothing is done for so many jobs, or None."""
    if not jobs:
        return request.translate("No job is selected: nothing was done.")
    if len(jobs) > MOST:
        return request.translate("At most {most} jobs at once: nothing was done.", most=MOST)
    return None


def _selected(request: PageRequest, kind: str) -> list[str]:
    """Return the jobs that were selected; if one of them is not this person's to act on, all are refused."""
    names = sorted(name.removeprefix(JOB) for name in request.form if name.startswith(JOB))
    if not names:
        require(request, ACTIONS[kind].needs)
    for name in names:
        require(request, ACTIONS[kind].needs, viewer_of(request, name))
    return names


def _found(request: PageRequest, query: JobQuery, kind: str) -> list[str]:
    """Return the jobs that the filter shows and on which this person may act."""
    registry = registry_of(request)
    snapshot = registry.snapshot.value
    found = [status.name for status in query.found(snapshot, request.state.health_of(registry, snapshot))]
    allowed = [name for name in found if viewer_of(request, name).has(ACTIONS[kind].needs)]
    if not allowed:
        require(request, ACTIONS[kind].needs)
    return allowed


def _kind(request: PageRequest, kind: str) -> str:
    """Return what is to be done."""
    if kind not in BULK:
        raise HTTPException(404, request.translate("There is no such page."))
    return kind


def _bulk(request: PageRequest) -> BulkAction:
    """Return the bulk action that the page is about: only who has started it may see it."""
    found = request.state.bulk_actions.find(request.http.path_params["id"])
    if found is None or (found.who, found.registry) != (request.viewer.name, registry_of(request).settings.name):
        raise HTTPException(404, request.translate("This report is not kept any more. The audit log has it."))
    return found
