"""Write what follows from the settings of jobs, after one has changed: ``python -m tests.generate``.

These are types for editors and tables of the documentation.  Each begins below a line that names it, and ends with an
empty line or with the file.  A test compares them.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from aioelasticjob.config.job import JobConfig, section_of
from aioelasticjob.config.meanings import meanings, without_links
from aioelasticjob.config.sections import DATAFLOW
from aioelasticjob.config.types import DURATION, Alert, parts_of
from aioelasticjob.jobs.http import Request
from aioelasticjob.jobs.script import Script

ROOT = Path(__file__).resolve().parent.parent
FILES = ("aioelasticjob/jobs/settings.py", "docs/reference/settings.md", "docs/how-to/script-and-http.md")
"""The files that have such parts."""
PART = re.compile(r"^(.*?(\w+): written by python -m tests\.generate.*\n\n?)(?:.+\n)*", re.MULTILINE)
NO_KEYWORDS = {"job_name", "job_type", "handler", "options", "command", "url"}
"""Settings that are arguments of their own, or that follow from how a job is declared."""
NOT_FOR_DATAFLOW = {"retry", "attempt_timeout"}
TYPES = {
    "job_parameter": "str | Mapping[str, object]",
    "expected_status": "int | str | Sequence[int | str]",
    "time_zone": "str | ZoneInfo",
    "cron": "str | Sequence[str] | None",
    "at": "str | date | Sequence[str | date]",
    "start_at": "str | date | None",
    "end_at": "str | date | None",
    "calendar": "str | Sequence[str]",
}
"""The types of settings that may be written in more ways than their models tell."""


def main() -> None:
    for path in FILES:
        (ROOT / path).write_text(up_to_date(path))


def up_to_date(path: str) -> str:
    """Return a file with its parts as they follow from the settings now."""
    now, text = parts(), (ROOT / path).read_text()
    return PART.sub(lambda found: found[1] + now[found[2]], text)


def parts() -> dict[str, str]:
    """Return all parts by their names.

    Raises:
        ValueError: a setting has no text below it.
    """
    every = JobConfig.model_fields.keys()
    of_dataflow = {name for name in every if section_of(name) is DATAFLOW}
    return {
        "CommonSettings": keywords(JobConfig, every - of_dataflow - NOT_FOR_DATAFLOW),
        "JobSettings": keywords(JobConfig, NOT_FOR_DATAFLOW),
        "DataflowSettings": keywords(JobConfig, of_dataflow),
        "ScriptSettings": keywords(Script, Script.model_fields),
        "RequestSettings": keywords(Request, Request.model_fields),
        **{model.__name__: table(model) for model in (JobConfig, Script, Request)},
    }


def keywords(model: type[BaseModel], names: Iterable[str]) -> str:
    """Return settings as the keys of a ``TypedDict``, each with its text without links."""
    lines = []
    for name, text in meanings(model).items():
        if name in {*names} - NO_KEYWORDS:
            lines.append(f"{name}: {type_of(name, model.model_fields[name])}")
            shown = without_links(text)
            lines += textwrap.wrap(f'"""{shown}"""', 116, break_long_words=False, break_on_hyphens=False)
    return textwrap.indent("\n".join(lines), "    ") + "\n"


def table(model: type[BaseModel]) -> str:
    """Return settings as a table of the documentation; those of every job with their keys in the registry."""
    with_key = model is JobConfig
    columns = ["setting", *(["key"] if with_key else []), "default", "meaning"]
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    for name, text in meanings(model).items():
        field = model.model_fields[name]
        key = "–" if field.exclude else f"`{field.serialization_alias}`"
        default = repr(field.get_default(call_default_factory=True)).replace("'", '"')
        cells = [f"`{name}`", *([key] if with_key else []), "–" if field.is_required() else f"`{default}`", text]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def type_of(name: str, field: FieldInfo) -> str:
    """Return the type of what people may write for a setting, as source."""
    text = TYPES.get(name, spelt(field.annotation))
    if DURATION in parts_of(field):
        return re.sub(r"\b(int|float)\b", "Duration", text)
    also_text = name not in TYPES and any(isinstance(one, BeforeValidator) for one in field.metadata)
    return f"{text} | str" if also_text else text


def spelt(hint: Any) -> str:
    """Return a type as source: any mapping or sequence where the model holds a certain one."""
    origin, inside = get_origin(hint), [one for one in get_args(hint) if one is not Ellipsis]
    if hint == Alert:
        return "Alert"
    if origin is Annotated:
        return spelt(inside[0])
    if origin is Literal:
        return f"Literal[{', '.join(map(json.dumps, inside))}]"
    if origin in (Union, UnionType):
        return " | ".join(map(spelt, inside))
    if origin in (dict, list, tuple):
        return f"{'Mapping' if origin is dict else 'Sequence'}[{', '.join(map(spelt, inside))}]"
    return "None" if hint is NoneType else str(hint.__name__)


if __name__ == "__main__":
    main()
