"""A job's settings: a form, what a change would do, the change; whoever comes second is told.  Export and import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from starlette.responses import Response

from aioelasticjob import operations
from aioelasticjob.console.fields import given, sections, text_of
from aioelasticjob.console.visit import Visit
from aioelasticjob.errors import ElasticJobError, InvalidSetting
from aioelasticjob.operations import ChangedMeanwhile, JobStatus
from aioelasticjob.registry.session import Session


@dataclass(frozen=True, slots=True)
class Attempt:
    """A form that was sent and not saved."""

    kept: Mapping[str, str] = field(default_factory=dict)
    """What somebody typed, which stays."""
    problem: str = ""
    setting: str = ""
    """The setting that is wrong."""
    meanwhile: bool = False
    """Whether somebody else has changed the settings since the form was opened."""


async def page(visit: Visit) -> Response:
    """Show the settings, to look at or to change."""
    _, status = await _read(visit)
    return _form(visit, status)


async def preview(visit: Visit) -> Response:
    """Show what the form as it stands would do: a piece of the page."""
    session, status = await _read(visit)
    context: dict[str, object] = {"job": status, "problem": "", "setting": "", "preview": None}
    try:
        changes = _empty_as_none(given(visit.form, status.config))
        now = visit.console.clock.now()
        context["preview"] = await operations.preview(session, status.name, changes, now=now)
    except InvalidSetting as mistake:
        context |= {"problem": str(mistake), "setting": mistake.setting}
    except ElasticJobError as error:
        context["problem"] = str(error)
    return visit.page("preview.html", **context)


async def save(visit: Visit) -> Response:
    """Change the settings, unless somebody else has meanwhile."""
    session, status = await _read(visit)
    version = visit.form.get("version", "")
    try:
        seen = int(version)
    except ValueError:
        raise InvalidSetting("version", version[:40], "a whole number") from None
    changes = _empty_as_none(given(visit.form, status.config))
    before = {name: _told(getattr(status.config, name, None)) for name in changes}
    deed = visit.deed("change settings", status.name, asked=changes, before=before)
    try:
        async with visit.console.audit.doing(deed) as result:
            done = await operations.configure(session, status.name, changes, version=seen)
            after = await operations.job(session, status.name, now=visit.console.clock.now())
            result.summary = done.summary
            result.after = {name: _told(getattr(after.config, name, None)) for name in changes}
    except ChangedMeanwhile:
        return _form(visit, status, 409, Attempt(visit.form, meanwhile=True))
    except InvalidSetting as mistake:
        return _form(visit, status, 400, Attempt(visit.form, str(mistake), mistake.setting))
    return visit.go(visit.here("job", status.name), done.summary)


async def export(visit: Visit) -> Response:
    """Hand out configurations as a file: all, or one job's."""
    assert visit.registry is not None
    name = visit.request.query_params.get("job")
    form: Literal["json", "yaml"] = "yaml" if visit.request.query_params.get("as") == "yaml" else "json"
    text = await operations.export_jobs(visit.registry.session, [name] if name else None, form=form)
    kind = "application/json" if form == "json" else "application/yaml"
    headers = {"Content-Disposition": f'attachment; filename="jobs.{form}"'}
    return Response(text, media_type=kind, headers=headers)


async def transfer(visit: Visit) -> Response:
    """Show where configurations come in and go out."""
    return visit.page("transfer.html", text="", problem="", tab="jobs")


async def take_in(visit: Visit) -> Response:
    """Write configurations into the registry, all or none."""
    assert visit.registry is not None
    text, overwrite = visit.form.get("text", ""), visit.form.get("overwrite") == "1"
    asked = {"characters": len(text), "overwrite": overwrite}
    try:
        async with visit.console.audit.doing(visit.deed("import", asked=asked)) as result:
            done = await operations.import_jobs(visit.registry.session, text, overwrite=overwrite)
            result.summary = done.summary
    except ElasticJobError as error:
        return visit.page("transfer.html", 400, text=text, problem=str(error), tab="jobs")
    return visit.go(visit.here("jobs"), done.summary)


async def _read(visit: Visit) -> tuple[Session, JobStatus]:
    assert visit.registry is not None
    session = visit.registry.session
    now = visit.console.clock.now()
    return session, await operations.job(session, visit.request.path_params["job"], now=now)


def _form(visit: Visit, status: JobStatus, code: int = 200, attempt: Attempt | None = None) -> Response:
    """Show the form, with what came of an attempt to save it."""
    tried = attempt or Attempt()
    theirs = _theirs(tried.kept, status) if tried.meanwhile else {}
    shown = sections(status.config, masked=not visit.operator)
    return visit.page("settings.html", code, job=status, sections=shown, tried=tried, theirs=theirs, tab="jobs")


def _theirs(kept: Mapping[str, str], status: JobStatus) -> Mapping[str, tuple[str, str]]:
    """Return where the form and the registry differ now: what is there, and what was typed."""
    return {name: (text_of(status.config, name), typed) for name, typed in given(kept, status.config).items()}


def _empty_as_none(changes: Mapping[str, str]) -> dict[str, object]:
    """Read emptied objects as empty ones: a form has no other way to say so."""
    objects = ("options", "error_handler_options", "sharding_item_parameters")
    return {name: {} if name in objects and not text.strip() else text for name, text in changes.items()}


def _told(value: object) -> object:
    return value if isinstance(value, str | int | float | bool | dict | None) else str(value)
