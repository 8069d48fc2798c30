"""New job: choose a handler that is there, and fill in the form that follows from its schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from anyio import move_on_after
from starlette.responses import Response

from aioelasticjob import operations
from aioelasticjob.config.job import JobConfig
from aioelasticjob.console.pages.fields import Field, field_of
from aioelasticjob.console.pages.schema_fields import SchemaField, fields_of, typed_value
from aioelasticjob.console.web.request import PageRequest, registry_of
from aioelasticjob.core.handlers import HandlerProcess
from aioelasticjob.errors import ElasticJobError, InvalidSetting
from aioelasticjob.operations.settings import settings_from

SETTINGS: Final = ("cron", "every", "time_zone", "sharding_total_count", "description", "labels")
"""The settings that the form offers; the others are changed on the job's page."""
SEEN_WITHIN: Final = 5.0
"""Seconds that the console may take to see a job that it has created."""
OWN_TEXT: Final = "job_parameter"
"""The field of a parameter that may be any text."""


@dataclass(frozen=True, slots=True)
class HandlerForm:
    """What the form asks for besides the settings that every job has."""

    handler: str
    fields: Sequence[SchemaField]
    is_kind: bool
    """Whether the fields are the options of a kind of job, and not the job's parameter."""
    schemas: int
    """How many different schemas processes have published; the form is that of the first."""

    @classmethod
    def of(cls, handler: str, processes: Sequence[HandlerProcess]) -> HandlerForm:
        """Return the form for a handler that these processes have."""
        options = [one.options for one in processes if one.options is not None]
        schemas = options or [one.schema for one in processes if one.schema is not None]
        different = list[dict[str, Any]]()
        for one in schemas:
            if one not in different:
                different.append(one)
        fields = fields_of(different[0]) if different else []
        return cls(handler, fields, bool(options), len(different))


async def page(request: PageRequest) -> Response:
    """Show the handlers that are there, or the form of the one that was chosen."""
    return await _page(request, request.http.query_params.get("handler", ""))


async def create(request: PageRequest) -> Response:
    """Create a job as the form says."""
    form = request.form
    handler = form.get("handler", "")
    name = form.get("name", "").strip()
    session = registry_of(request).session
    try:
        found = HandlerForm.of(handler, await operations.handler_processes(session, handler))
        settings = _settings(form, found)
        async with request.audited("create", name, asked={"handler": handler, **settings}) as outcome:
            done = await operations.create(session, name, settings, handler=handler, by=request.viewer.name)
            outcome.summary = done.summary
    except InvalidSetting as mistake:
        return await _page(request, handler, 400, request.translate.error(mistake), mistake.setting)
    except ElasticJobError as error:
        return await _page(request, handler, 400, request.translate.error(error))
    with move_on_after(SEEN_WITHIN):  # otherwise the job's page would say that there is no such job
        await registry_of(request).snapshot.until(lambda now: name in now.jobs)
    return request.redirect(request.registry_url("job", name), request.translate.message(done.summary))


def _settings(form: Mapping[str, str], found: HandlerForm) -> dict[str, object]:
    """Return the settings that a form gives, without those that were left empty."""
    given = {name: form[name] for name in SETTINGS if form.get(name, "").strip()}
    settings = settings_from(given)
    if found.is_kind:
        settings["options"] = typed_value(form, found.fields)
    elif found.fields:
        settings["job_parameter"] = typed_value(form, found.fields)
    elif form.get(OWN_TEXT):
        settings["job_parameter"] = form[OWN_TEXT]
    return settings


async def _page(
    request: PageRequest, handler: str, status: int = 200, problem: str = "", setting: str = ""
) -> Response:
    session = registry_of(request).session
    form = None
    if handler:
        form = HandlerForm.of(handler, await operations.handler_processes(session, handler))
    return request.page(
        "new-job.html",
        status,
        handlers=await operations.handlers(session),
        wanted=form,
        common=_common_fields(),
        kept=request.form,
        problem=problem,
        setting=setting,
        tab="jobs",
    )


def _common_fields() -> list[Field]:
    """Return the fields of the settings that every job has, with the defaults."""
    config = JobConfig(job_name="new")
    return [field_of(config, name) for name in SETTINGS]
