"""A job's settings: the form, the preview of a change and the change itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from starlette.responses import Response

from aioelasticjob import operations
from aioelasticjob.config.job import JobConfig
from aioelasticjob.console.pages.fields import base_of, sections, text_of, typed_changes
from aioelasticjob.console.users.permissions import DEFINING_SETTINGS, needed_to_change
from aioelasticjob.console.web.request import PageRequest, registry_of, require
from aioelasticjob.errors import ElasticJobError, InvalidSetting
from aioelasticjob.ground.whole_numbers import whole_number
from aioelasticjob.operations import ChangedMeanwhile, JobStatus
from aioelasticjob.registry.session import Session


@dataclass(frozen=True, slots=True)
class RejectedForm:
    """A form that was sent and could not be saved."""

    kept: Mapping[str, str] = field(default_factory=dict)
    """What somebody typed, which stays."""
    problem: str = ""
    setting: str = ""
    """The setting that is wrong."""
    meanwhile: bool = False
    """Whether somebody else has changed the settings since the form was opened."""


@dataclass(frozen=True, slots=True)
class ThreeValues:
    """A setting that somebody has changed since the form was opened, as texts of the form."""

    before: str
    """What the registry held when the form was opened."""
    there: str
    """What it holds now."""
    typed: str | None
    """What this person typed; None if they left it as it was."""


async def page(request: PageRequest) -> Response:
    """Show the settings, to look at or to change; of a configuration that is refused, what is wrong with it."""
    _, status = await _read(request)
    return _form(request, status)


async def preview(request: PageRequest) -> Response:
    """Show what the form as it stands would do: a piece of the page."""
    session, status = await _read(request)
    context: dict[str, object] = {"job": status, "problem": "", "setting": "", "preview": None}
    try:
        changes = _empty_as_none(typed_changes(request.form, status.config))
        now = request.state.clock.now()
        context["preview"] = await operations.preview(session, status.name, changes, now=now)
    except InvalidSetting as mistake:
        context |= {"problem": request.translate.error(mistake), "setting": mistake.setting}
    except ElasticJobError as error:
        context["problem"] = request.translate.error(error)
    return request.page("preview.html", **context)


async def save(request: PageRequest) -> Response:
    """Change the settings, unless somebody else has meanwhile."""
    session, status = await _read(request)
    version = request.form.get("version", "")
    seen = whole_number(version)
    if seen is None:
        raise InvalidSetting("version", version[:40], "a whole number")
    changes = _empty_as_none(typed_changes(request.form, status.config))
    for permission in sorted(needed_to_change(changes)):
        require(request, permission)
    before = {name: _json_value(getattr(status.config, name, None)) for name in changes}
    try:
        async with request.audited("change settings", status.name, asked=changes, before=before) as result:
            done = await operations.configure(session, status.name, changes, version=seen, by=request.viewer.name)
            after = await operations.job(session, status.name, now=request.state.clock.now())
            result.summary = done.summary
            result.after = {name: _json_value(getattr(after.config, name, None)) for name in changes}
    except ChangedMeanwhile:
        return _form(request, status, 409, RejectedForm(request.form, meanwhile=True))
    except InvalidSetting as mistake:
        rejected = RejectedForm(request.form, request.translate.error(mistake), mistake.setting)
        return _form(request, status, 400, rejected)
    return request.redirect(request.registry_url("job", status.name), request.translate.message(done.summary))


async def _read(request: PageRequest) -> tuple[Session, JobStatus]:
    session = registry_of(request).session
    now = request.state.clock.now()
    status = await operations.job(session, request.http.path_params["job"], now=now)
    return session, status


def _form(request: PageRequest, status: JobStatus, code: int = 200, attempt: RejectedForm | None = None) -> Response:
    """Show the form, with what came of an attempt to save it; no form if the settings would not be the job's."""
    rejected = attempt or RejectedForm()
    kept = rejected.kept
    three: Mapping[str, ThreeValues] = {}
    if rejected.meanwhile:
        three = _compared(kept, status.config)
        kept = typed_changes(kept, status.config)
    shown = sections(status.config, masked=not request.viewer.sees_credentials)
    return request.page(
        "settings.html",
        code,
        job=status,
        sections=shown,
        rejected=rejected,
        kept=kept,
        three=three,
        defining=DEFINING_SETTINGS,
        tab="jobs",
    )


def _compared(form: Mapping[str, str], config: JobConfig) -> dict[str, ThreeValues]:
    """Return the settings that this person has changed, or somebody else since the form was opened."""
    typed = typed_changes(form, config)
    found = {}
    for name in JobConfig.model_fields:
        there = text_of(config, name)
        before = base_of(form, name, there)
        if name in typed or there != before:
            found[name] = ThreeValues(before, there, typed.get(name))
    return found


def _empty_as_none(changes: Mapping[str, str]) -> dict[str, object]:
    """Read emptied objects as empty ones: a form has no other way to say so."""
    objects = ("options", "error_handler_options", "sharding_item_parameters", "links")
    found: dict[str, object] = dict(changes)
    for name in objects:
        if name in changes and not changes[name].strip():
            found[name] = {}
    return found


def _json_value(value: object) -> object:
    return value if isinstance(value, str | int | float | bool | dict | None) else str(value)
