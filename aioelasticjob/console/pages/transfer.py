"""Export and import of settings.  An import is previewed job by job, and written as it was previewed or not at all."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final, Literal

from starlette.responses import Response

from aioelasticjob import operations
from aioelasticjob.console.users.permissions import DEFINING_SETTINGS, Permission
from aioelasticjob.console.web.request import PageRequest, registry_of, require, viewer_of
from aioelasticjob.errors import ElasticJobError
from aioelasticjob.operations import ImportedJob

EFFECTS: Final = ("new", "replaced", "unchanged", "refused")


async def export(request: PageRequest) -> Response:
    """Hand out configurations as a file: all, or one job's."""
    name = request.http.query_params.get("job")
    form: Literal["json", "yaml"] = "yaml" if request.http.query_params.get("as") == "yaml" else "json"
    async with request.audited("export", name or ""):
        text = await operations.export_jobs(registry_of(request).session, [name] if name else None, form=form)
    kind = "application/json" if form == "json" else "application/yaml"
    headers = {"Content-Disposition": f'attachment; filename="jobs.{form}"'}
    return Response(text, media_type=kind, headers=headers)


async def page(request: PageRequest) -> Response:
    """Show where configurations come in and go out."""
    return _page(request)


async def import_jobs(request: PageRequest) -> Response:
    """Preview an import; write it, all or none, if the preview that was seen is still right."""
    session = registry_of(request).session
    form = request.form
    text = form.get("text", "")
    overwrite = form.get("overwrite") == "1"
    try:
        jobs = await operations.preview_import(session, text, overwrite=overwrite)
        _require_all_needed(request, jobs)
        if form.get("seen") != _digest(jobs):
            changed = "seen" in form
            return _page(request, 409 if changed else 200, jobs=jobs, changed=changed)
        asked = {"jobs": len(jobs), "overwrite": overwrite}
        async with request.audited("import", asked=asked, before=_facts(jobs, 0)) as outcome:
            done = await operations.import_jobs(session, text, overwrite=overwrite, by=request.viewer.name)
            outcome.summary = done.summary
            outcome.after = _facts(jobs, 1)
    except ElasticJobError as error:
        return _page(request, 400, problem=request.translate.error(error))
    return request.redirect(request.registry_url("jobs"), request.translate.message(done.summary))


def _page(
    request: PageRequest,
    status: int = 200,
    *,
    jobs: Sequence[ImportedJob] = (),
    changed: bool = False,
    problem: str = "",
) -> Response:
    effects = {effect: sum(job.effect == effect for job in jobs) for effect in EFFECTS}
    return request.page(
        "transfer.html",
        status,
        text=request.form.get("text", ""),
        overwrite=request.form.get("overwrite") == "1",
        jobs=jobs,
        effects=effects,
        seen=_digest(jobs),
        changed=changed,
        problem=problem,
        tab="jobs",
    )


def _require_all_needed(request: PageRequest, jobs: Sequence[ImportedJob]) -> None:
    """Refuse an import that says what runs, unless this person may say so for each of its jobs."""
    for job in jobs:
        if job.effect == "new" or DEFINING_SETTINGS & job.changes.keys():
            require(request, Permission.DEFINE, viewer_of(request, job.name))


def _digest(jobs: Sequence[ImportedJob]) -> str:
    """Return what stands for a preview: another one has another digest."""
    return hashlib.sha256(repr(jobs).encode()).hexdigest()


def _facts(jobs: Sequence[ImportedJob], side: Literal[0, 1]) -> dict[str, object]:
    """Return the settings that an import changes, for the audit log: those before it, or those after it."""
    found: dict[str, object] = {}
    for job in jobs:
        if job.effect == "new":
            found[job.name] = "new" if side else "not there"
        changes = {f"{job.name}: {name}": values[side] for name, values in job.changes.items()}
        found |= {name: "" if value is None else str(value) for name, value in changes.items()}
    return found
