"""Kinds of jobs that are declared rather than coded: the settings of each kind, and the function that runs it.

Kinds are found by name; packages add more by entry points ``aioelasticjob.kinds``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator
from pydantic.alias_generators import to_camel

from aioelasticjob.config.job import JobConfig
from aioelasticjob.config.mistakes import mistakes, unknown_setting
from aioelasticjob.config.types import NO_BYTES, has_bytes, parts_of
from aioelasticjob.errors import InvalidSetting, error_text
from aioelasticjob.ground.credentials import Secret, hide_all, hide_in_json
from aioelasticjob.ground.nesting import TOO_DEEP, is_too_deep
from aioelasticjob.host.plugins import load
from aioelasticjob.host.user_code import UserCode
from aioelasticjob.jobs.base import Handler
from aioelasticjob.jobs.inspection import is_async

CODED = ("SIMPLE", "DATAFLOW")
"""The kinds whose handler is given with the declaration."""
_BUILT_IN = {"http": "aioelasticjob.jobs.http", "script": "aioelasticjob.jobs.script"}


class Options(BaseModel):
    """Base of a kind's own settings; people write them in snake case, the registry has them in camel case."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        # people write numbers where text is needed: a port in the environment, a number in a header
        coerce_numbers_to_str=True,
    )

    @field_validator("*", mode="before")
    @classmethod
    def _is_neither_too_deep_nor_bytes(cls, value: Any, info: ValidationInfo) -> Any:
        if is_too_deep(value):
            raise ValueError(TOO_DEEP)
        parts = parts_of(cls.model_fields[info.field_name or ""])
        takes_plain_values = not {str, int, float, bool}.isdisjoint(parts)
        if has_bytes(value) and takes_plain_values and bytes not in parts:
            raise ValueError(NO_BYTES)
        return value


OptionsT = TypeVar("OptionsT", bound=BaseModel)


def _accept(options: BaseModel) -> None:
    """Accept all options."""


@dataclass(frozen=True, slots=True)
class Kind(Generic[OptionsT]):
    """A kind of job.

    Raises:
        InvalidSetting: ``options`` is no pydantic model, or has a setting that every job has.
    """

    options: type[OptionsT]
    """The kind's own settings: a pydantic model."""
    run: Callable[[Any, OptionsT], object]
    """Runs a job once, given a context and the present options: an async function, or a plain one, run in a thread."""
    check: Callable[[OptionsT], None] = _accept
    """Checks the host that declares a job, for instance that a script exists there.  Raises InvalidSetting."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Default settings of jobs of this kind, such as a timeout."""

    def __post_init__(self) -> None:
        if not (isinstance(self.options, type) and issubclass(self.options, BaseModel)):
            raise InvalidSetting("options", self.options, "must be a pydantic model: derive it from jobs.kinds.Options")
        for name in self.options.model_fields:
            if name in JobConfig.model_fields:
                raise InvalidSetting(name, self.options.__name__, "every job has a setting of this name: take another")

    def parse(self, options: Mapping[str, object]) -> OptionsT:
        """Return the options as a value.

        Raises:
            InvalidSetting: names the option, its value and what would be right.
        """
        try:
            with UserCode("the kind"):  # its validators are code of another package
                return self.options.model_validate(dict(options))
        except ValidationError as error:
            raise next(mistakes(error)) from None
        except InvalidSetting:
            raise
        except Exception as error:
            raise InvalidSetting("options", sorted(options), f"cannot be looked at: {error_text(error)}") from error

    def split(self, given: Mapping[str, object]) -> tuple[dict[str, object], dict[str, object]]:
        """Split settings into those that every job has and those of this kind.

        Raises:
            InvalidSetting: there is no such setting; names the nearest.
        """
        keys = dict[str, str]()  # the names of our settings, by each spelling
        for name, one in self.options.model_fields.items():
            keys[name] = name
            keys[one.alias or name] = name
        known = (*JobConfig.model_fields, *self.options.model_fields)
        common: dict[str, object] = {}
        own: dict[str, object] = {}
        for name, value in given.items():
            if name in keys:
                own[keys[name]] = value
            elif name in JobConfig.model_fields:
                common[name] = value
            else:
                raise unknown_setting(name, value, known)
        return common, own


def names() -> tuple[str, ...]:
    """Return the names of all declared kinds that this process knows."""
    added = {point.name.lower() for point in entry_points(group="aioelasticjob.kinds")}
    return tuple(sorted({*_BUILT_IN, *added}))


@cache
def find(name: str) -> Kind[Any]:
    """Return the kind of this name, in whatever case.

    Raises:
        InvalidSetting: there is none, or its package cannot be used.
    """
    wanted = name.lower()
    if wanted in _BUILT_IN:
        found: object = import_module(_BUILT_IN[wanted]).KIND
    else:
        points = {point.name.lower(): point for point in entry_points(group="aioelasticjob.kinds")}
        found = load("kind", name, points.get(wanted), names())
    if not isinstance(found, Kind):
        raise InvalidSetting("kind", name, f"its entry point leads to a {type(found).__name__}, not to a Kind")
    return found


def declared(kind: str, name: str, given: Mapping[str, object], *, look: bool = True) -> JobConfig:
    """Return the configuration of a job of a kind, from keywords for both the job and its kind.

    With ``look`` the kind also checks that this host can run the job.

    Raises:
        InvalidSetting: names the setting, its value and what would be right.
    """
    if not isinstance(kind, str):
        raise InvalidSetting("kind", kind, f"must be one of {', '.join(names())}")
    found = find(kind)
    common, own = found.split({**found.settings, **given})
    options = found.parse(own).model_dump(mode="json", by_alias=True, exclude_unset=True)
    config = JobConfig.build(job_name=name, job_type=kind.upper(), **common, options=options)
    if look:
        found.check(found.parse(config.options))
    return config


def configured(config: JobConfig, given: Mapping[str, object]) -> JobConfig:
    """Return a configuration with some settings replaced, which may be settings of its kind.

    Raises:
        InvalidSetting: names the setting, its value and what would be right.
    """
    if config.job_type in CODED:
        return config.changed(**given)
    kind = find(config.job_type)
    common, own = kind.split(given)
    options = kind.parse({**_named(kind, config.options), **own})
    return config.changed(**common, options=options.model_dump(mode="json", by_alias=True, exclude_unset=True))


def fits(config: JobConfig) -> None:
    """Check that the options are right for the job's kind, if this process knows the kind.

    Raises:
        InvalidSetting: names the option, its value and what would be right.
    """
    if config.job_type in CODED:
        if config.options:
            raise InvalidSetting("options", config.options, f"a {config.job_type} job has none")
        return
    try:
        kind = find(config.job_type)
    except InvalidSetting:
        return  # a process that only shows the job, such as a console, need not have the kind's package
    try:
        kind.parse(config.options)
    except InvalidSetting as mistake:
        raise InvalidSetting(f"options.{mistake.setting}", mistake.value, mistake.expected) from None


def without_secrets(job_type: object, options: object) -> object:
    """Return the options of a job without credentials and without what its kind marks as secret.

    Of a kind that this process does not know only the names of the options are left.
    """
    if not isinstance(job_type, str) or job_type in CODED:
        return hide_in_json(options)
    try:
        kind = find(job_type)
    except InvalidSetting:
        return hide_all(options)
    secret_names = frozenset(_secret_names(kind.options, set()))
    return hide_in_json(options, secret_names)


def handler(kind: Kind[Any]) -> Handler:
    """Return a handler for jobs of this kind; at each run it reads the options that hold then."""
    if is_async(kind.run):

        async def run(context: Any) -> None:
            await kind.run(context, kind.parse(context.options))  # type: ignore[misc]  # it is async

        return run

    def run_in_thread(context: Any) -> None:
        kind.run(context, kind.parse(context.options))

    return run_in_thread


def _secret_names(model: type[BaseModel], seen: set[type[BaseModel]]) -> Iterator[str]:
    """Yield the names of the settings that a model, or a model below it, marks as secret, in all their spellings."""
    seen.add(model)
    for name, one in model.model_fields.items():
        if any(isinstance(mark, Secret) for mark in one.metadata):
            yield from {name, one.alias or name, one.serialization_alias or name}
        for below in _models(one.annotation):
            if below not in seen:
                yield from _secret_names(below, seen)


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _named(kind: Kind[Any], options: Mapping[str, object]) -> dict[str, object]:
    """Return stored options under the names that people write, so that a replaced option is not there twice."""
    names = {one.alias or name: name for name, one in kind.options.model_fields.items()}
    return {names.get(key, key): value for key, value in options.items()}
