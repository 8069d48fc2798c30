"""What the registry holds as the configuration of a job, which may make no sense: whether it may be replaced."""

from __future__ import annotations

from aioelasticjob.config.job import JobConfig, is_kind
from aioelasticjob.core.layout import Layout
from aioelasticjob.core.view import parse
from aioelasticjob.errors import ForeignData, InvalidSetting, JobConflict
from aioelasticjob.ground.encoding import json_object


def replaced_by(declared: JobConfig, data: bytes, layout: Layout) -> JobConfig | None:
    """Return the stored configuration that a declared one may replace; None if it cannot be used, whatever it is.

    This is the rule for a start with ``overwrite`` and for an import: the node belongs to this job, so what makes no
    sense is replaced like any other configuration.

    Raises:
        ForeignData: it says that it is the configuration of another job.
        JobConflict: it says that it is one of another kind of job.
    """
    try:
        stored = parse(data, layout)
    except InvalidSetting:
        see_this_job(data, layout)
        fields = json_object(data)
        kind = fields.get("jobType", fields.get("job_type"))
        handler = fields.get("handler")
        if isinstance(kind, str) and is_kind(kind):
            see_same_kind(declared, kind, handler)
        return None
    see_same_kind(declared, stored.job_type, stored.handler)
    return stored


def see_this_job(data: bytes, layout: Layout) -> None:
    """Check that a configuration does not say that it is another job's.  What names no job is this one's.

    Raises:
        ForeignData: it names another job.
    """
    fields = json_object(data)
    name = fields.get("jobName", fields.get("job_name"))
    if isinstance(name, str) and name != layout.job:
        raise ForeignData(layout.config, name, f"the job's name is {layout.job} and never changes")


def see_same_kind(declared: JobConfig, stored: str, handler: object) -> None:
    """Check that a job is declared, or created, as the registry has it: as the same kind, and with the same handler.

    Raises:
        JobConflict: it is not.
    """
    what = ""
    if stored != declared.job_type:
        what = f"is already a {stored} job in this namespace: choose another name"
    elif handler != declared.handler:
        what = f"{_origin(handler)} in this namespace: choose another name"
    if what:
        raise JobConflict("job_name", declared.job_name, what)


def _origin(handler: object) -> str:
    """Return where a job comes from, which names this handler, or none."""
    return (
        "is already a job that code declares" if handler is None else f"was already created for the handler {handler}"
    )
