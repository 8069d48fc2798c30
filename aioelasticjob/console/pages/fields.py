"""A job's settings as the fields of a form: made from what stands beside each setting, so a new one has its field."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from types import NoneType
from typing import Final, Literal, get_args, get_origin

from aioelasticjob.config.job import JobConfig, label_of, section_of
from aioelasticjob.config.meanings import meanings, without_links
from aioelasticjob.config.retry import Retry
from aioelasticjob.config.sections import DATAFLOW, FAILURES, ITEMS, MORE, OWN, SAFETY, SCHEDULE, Section
from aioelasticjob.ground.credentials import hide_in_json
from aioelasticjob.jobs import executors
from aioelasticjob.jobs.kinds import without_secrets
from aioelasticjob.operations.settings import UNCHANGEABLE

SECTIONS: Final[Sequence[Section]] = (SCHEDULE, ITEMS, SAFETY, FAILURES, DATAFLOW, OWN, MORE)
"""The form's parts, in their order."""
BASE: Final = "was:"
"""Begins the name of a hidden field that says what the form showed of a setting when it was opened."""
_LONG: Final = ("description", "sharding_item_parameters", "error_handler_options", "options", "links")
_PAIRS: Final = ("sharding_item_parameters", "labels")
"""Settings that are shown as pairs, such as ``team=billing, tier=gold``."""
_FOUND_BY_NAME: Final[Mapping[str, Callable[[], Sequence[str]]]] = {
    "sharding_strategy": lambda: sorted(point.name for point in entry_points(group="aioelasticjob.strategies")),
    "error_handler": lambda: sorted(point.name for point in entry_points(group="aioelasticjob.error_handlers")),
    "executor": executors.names,
}


@dataclass(frozen=True, slots=True)
class Field:
    """One setting in a form."""

    name: str
    value: str
    kind: str
    """``text``, ``number``, ``long``, ``switch`` or ``choice``."""
    choices: Sequence[str] = ()
    """The only values of a choice; suggestions for a text."""
    optional: bool = False

    @property
    def label(self) -> str:
        """The setting's name in words; a key of the catalogue."""
        return label_of(self.name)

    @property
    def help(self) -> str:
        """What the setting means; a key of the catalogue."""
        return without_links(meanings(JobConfig).get(self.name, "")).replace("`", "")


def sections(config: JobConfig, *, masked: bool = False) -> list[tuple[str, list[Field]]]:
    """Return the form for a configuration; ``masked`` shows no credentials."""
    if masked:
        config = without_credentials(config)
    found: dict[Section, list[Field]] = {section: [] for section in SECTIONS}
    for name in JobConfig.model_fields:
        section = section_of(name)
        if name in UNCHANGEABLE or section.kind not in (None, config.job_type):
            continue
        if section is OWN and not config.options:
            continue
        found[section].append(field_of(config, name))
    return [(section.title, fields) for section, fields in found.items() if fields]


def field_of(config: JobConfig, name: str) -> Field:
    """Return the field of one setting."""
    annotation = JobConfig.model_fields[name].annotation
    kinds = set(get_args(annotation)) or {annotation}
    optional = NoneType in kinds
    value = text_of(config, name)
    if get_origin(annotation) is Literal:
        return Field(name, value, "choice", get_args(annotation))
    if bool in kinds:
        if optional:
            return Field(name, value, "choice", ("", "true", "false"), True)
        return Field(name, value, "switch")
    if name in _LONG:
        return Field(name, value, "long")
    if any(_is_number(kind) for kind in kinds):
        return Field(name, value, "number", optional=optional)
    names = _FOUND_BY_NAME[name]() if name in _FOUND_BY_NAME else ()
    return Field(name, value, "text", tuple(names), optional)


def _is_number(kind: object) -> bool:
    """Whether a type is that of numbers, also with bounds, as ``Annotated[int, …]``."""
    if kind in (int, float):
        return True
    bounded = get_args(kind)
    return bool(bounded) and bounded[0] in (int, float)


def without_credentials(config: JobConfig) -> JobConfig:
    """Return a configuration to look at: it has no credentials, and need not be a valid one."""
    hidden = dict[str, object]()
    for name in JobConfig.model_fields:
        value = getattr(config, name)
        if isinstance(value, str | dict):
            hidden[name] = hide_in_json(value)
    hidden["options"] = without_secrets(config.job_type, config.options)
    return config.model_copy(update=hidden)


def text_of(config: JobConfig, name: str) -> str:
    """Return a setting as a form shows it."""
    value = getattr(config, name)
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    if name in _PAIRS and not any("," in text for text in value.values()):
        return ", ".join(f"{item}={text}" for item, text in value.items())
    if isinstance(value, tuple):
        return ", ".join(value)
    if isinstance(value, Retry):
        return json.dumps(value.as_json(), ensure_ascii=False)
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False, indent=1) if value else ""
    return str(value)


def typed_changes(form: Mapping[str, str], config: JobConfig) -> dict[str, str]:
    """Return the settings that were changed in a form since it was opened; others are not this person's."""
    found = {}
    for name in JobConfig.model_fields:
        if name in UNCHANGEABLE or name not in form:
            continue
        text = _one_newline(form[name])
        if text != base_of(form, name, text_of(config, name)):
            found[name] = text
    return found


def base_of(form: Mapping[str, str], name: str, present: str) -> str:
    """Return what a form showed of a setting when it was opened; ``present`` if it does not say so."""
    return _one_newline(form.get(f"{BASE}{name}", present))


def _one_newline(text: str) -> str:
    return text.replace("\r\n", "\n")  # browsers send two characters
