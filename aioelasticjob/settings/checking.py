"""Checks settings as a whole: it finds every mistake, not only the first one, and the place of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, Field, PositiveInt
from pydantic.fields import FieldInfo

from aioelasticjob import error_handlers
from aioelasticjob.config.job import MAX_ITEMS, JobConfig
from aioelasticjob.config.links import checked_console_url
from aioelasticjob.config.mistakes import sifted, unknown_setting
from aioelasticjob.config.types import DURATION, Kinds, parts_of
from aioelasticjob.core import strategies
from aioelasticjob.cron import Cron
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.yaml_scalars import as_text
from aioelasticjob.jobs import executors, kinds
from aioelasticjob.observers.endpoint import where
from aioelasticjob.observers.settings import EventStoreSettings
from aioelasticjob.registry.addresses import Address
from aioelasticjob.registry.settings import ConnectionOptions
from aioelasticjob.settings.environment import may_be_secret, mistyped, name_of, of_jobs, tls_of
from aioelasticjob.settings.errors import Mistake, in_order
from aioelasticjob.settings.files import Keys, SettingsFile
from aioelasticjob.settings.placeholders import resolved

_SECTIONS = ("defaults", "jobs")
_NOT_HERE = {
    "job_name": "is the key that this stands below",
    "handler": "only jobs that are created in the registry name one",
    "job_type": "write kind: script, or kind: http; a job that is declared in code is what it is",
    "options": "write each of them beside the other settings",
}


class Application(BaseModel):
    """The settings at the top of a file, or in variables of their own; they mean the same as those of `ElasticJob`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    registry: str | None = None
    session_timeout: Annotated[float, DURATION] | None = None
    connection_timeout: Annotated[float, DURATION] | None = None
    base_sleep_time: Annotated[float, DURATION] | None = None
    max_sleep_time: Annotated[float, DURATION] | None = None
    max_retries: int | None = None
    max_request: int | None = None
    exit_at_lease_end: bool | None = None
    digest: Annotated[str | None, Field(repr=False)] = None
    digest_file: str | None = None
    sasl: Annotated[str | None, Field(repr=False)] = None
    sasl_file: str | None = None
    tls: Annotated[Any, Field(repr=False)] = None
    ip: str | None = None
    threads: PositiveInt | None = None
    processes: PositiveInt | None = None
    event_store: Annotated[str | None, Field(repr=False)] = None
    metrics: int | str | None = None
    console_url: str | None = None
    allow_created: Kinds | None = None
    overwrite: bool | None = None

    @property
    def given(self) -> dict[str, Any]:
        """The given settings, by the names of `ElasticJob`'s parameters; only the address is called ``registry``."""
        return self.model_dump(exclude_none=True)

    @property
    def connection(self) -> ConnectionOptions:
        """The given settings of the connection."""
        options = ConnectionOptions.__optional_keys__
        return cast(ConnectionOptions, {name: one for name, one in self.given.items() if name in options})


@dataclass(frozen=True, slots=True)
class JobSettings:
    """The settings of one job, or the defaults for all jobs: values by their Python names, and the place of each."""

    kind: str | None = None
    values: Mapping[str, object] = field(default_factory=dict)
    keys: Mapping[str, Keys] = field(default_factory=dict)


@dataclass(slots=True)
class SettingsCheck:
    """One check of a file and the environment; ``mistakes`` is complete after ``run``."""

    written: SettingsFile
    environment: Mapping[str, str]
    elsewhere: bool = False
    """Whether the jobs run on other hosts: then scripts and the event store are not looked at on this host."""
    application: Application = field(default_factory=Application)
    defaults: JobSettings = field(default_factory=JobSettings)
    jobs: dict[str, JobSettings] = field(default_factory=dict)
    _found: dict[Keys, Mistake] = field(default_factory=dict)
    _variables: dict[Keys, str] = field(default_factory=dict)

    @property
    def mistakes(self) -> tuple[Mistake, ...]:
        """All mistakes, in order."""
        return in_order([*self.written.mistakes, *self._found.values()])

    def mistake(self, keys: Keys, value: object, expected: str) -> Mistake:
        """Return a mistake with the place that a value comes from."""
        if expected == "field required":
            value, expected = None, "is missing"
        elif isinstance(value, bool | int | float) and "valid string" in expected:
            expected += ": put it in quotes"
        variable = next((self._variables[keys[:n]] for n in range(len(keys), 0, -1) if keys[:n] in self._variables), "")
        line = None if variable else self.written.line(keys)
        return Mistake(variable or self.written.file, line, ".".join(keys), value, expected)

    def run(self) -> None:
        """Check everything."""
        unresolved: list[tuple[Keys, str, str]] = []
        values = resolved(self.written.values, (), self.environment, unresolved)
        assert isinstance(values, dict)
        for keys, value, why in unresolved:
            self._note(keys, value, why)
        self._look_at_top({name: value for name, value in values.items() if name not in _SECTIONS})
        defaults = self._section(values, "defaults")
        if (kind := defaults.pop("kind", None)) is not None:
            self._note(("defaults", "kind"), kind, "write it below each job that is not declared in code")
        self.defaults = self._given(("defaults",), defaults, of_kinds=())
        self._look_at_settings("defaults", self.defaults)
        jobs = {name: self._mapping(("jobs", name), value) for name, value in self._section(values, "jobs").items()}
        self._take_variables(jobs)
        for name, settings in jobs.items():
            self.jobs[name] = self._given(("jobs", name), settings)
            self._look_at_settings(name, self._with_defaults(self.jobs[name]))

    def _note(self, keys: Keys, value: object, expected: str) -> None:
        if value is not None and may_be_secret(keys):
            value = "…"
        self._found.setdefault(keys, self.mistake(keys, value, expected))

    def _section(self, values: Mapping[str, object], name: str) -> dict[str, object]:
        return self._mapping((name,), values.get(name))

    def _mapping(self, keys: Keys, value: object) -> dict[str, object]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            self._note(keys, value, "must be a mapping, each setting on a line of its own below it")
            return {}
        return value

    def _look_at_top(self, given: Mapping[str, object]) -> None:
        known = (*Application.model_fields, *_SECTIONS)
        for name in given.keys() - Application.model_fields.keys():
            wrong = unknown_setting(name, given[name], known)
            self._note((name,), wrong.value, wrong.expected)
        for typed, near in mistyped(self.environment, Application.model_fields):
            self._found[(typed,)] = Mistake(typed, None, "", None, f"sets nothing; did you mean {near}?")
        variables = dict[str, str]()
        for name in Application.model_fields:
            if variable := name_of(name, self.environment):
                self._variables[(name,)] = variable
                variables[name] = self.environment[variable]
        fields = Application.model_fields
        are_text = {"tls", *(name for name, field in fields.items() if _is_text(field))}
        named = {name: as_text(one) if name in are_text else one for name, one in given.items() if name in fields}
        if tls := tls_of(self.environment):
            self._variables |= {("tls", name): variable for name, (variable, _) in tls.items()}
            before = named.get("tls")
            named["tls"] = {**(before if isinstance(before, dict) else {}), **{n: v for n, (_, v) in tls.items()}}
        found, right = sifted(Application, {**named, **variables})
        self.application = Application.model_validate(right)
        found += sifted(_address, {"address": self.application.registry, **self.application.connection})[0]
        if (metrics := self.application.metrics) is not None:
            found += sifted(lambda: where(metrics), {})[0]
        if (console_url := self.application.console_url) is not None:
            found += sifted(lambda: checked_console_url(console_url), {})[0]
        if (store := self.application.event_store) is not None and not self.elsewhere:
            found += sifted(lambda: EventStoreSettings.of(store), {})[0]
        for one in found:
            setting = "registry" if one.setting == "address" else one.setting
            self._note(tuple(setting.split(".")), one.value, one.expected)

    def _take_variables(self, jobs: dict[str, dict[str, object]]) -> None:
        names, known = set(jobs), dict(_spellings(kinds.names()))
        for variable in of_jobs(self.environment, names):
            if advice := variable.advice(names, known):
                self._found[(variable.name,)] = Mistake(variable.name, None, "", None, advice)
                continue
            self._variables[("jobs", variable.job, variable.setting)] = variable.name
            jobs.setdefault(variable.job, {})[variable.setting] = variable.value

    def _given(self, keys: Keys, settings: Mapping[str, object], of_kinds: Sequence[str] | None = None) -> JobSettings:
        """Return settings by their Python names, after a check of the names.

        A job that is declared in code may be of any kind, unless ``kind`` is given.
        """
        kind, found = settings.get("kind"), JobSettings()
        if kind is not None:
            try:
                if not isinstance(kind, str):
                    raise InvalidSetting("kind", kind, f"must be one of {', '.join(kinds.names())}")
                found = JobSettings(kind)
                kinds.find(kind)
            except InvalidSetting as wrong:
                self._note((*keys, "kind"), kind, wrong.expected)
                return found  # the settings of an unknown kind cannot be checked
        possible = kinds.names() if of_kinds is None else of_kinds
        spellings = dict(_spellings(possible if kind is None else (kind,)))
        values, places = dict[str, object](), dict[str, Keys]()
        for key, value in settings.items():
            name = spellings.get(key)
            if key == "kind":
                continue
            if name is None:
                self._note((*keys, key), value, unknown_setting(key, value, set(spellings.values())).expected)
            elif name in _NOT_HERE:
                self._note((*keys, key), value, _NOT_HERE[name])
            elif name in values:
                self._note((*keys, key), value, f"is the same setting as {places[name][-1]}")
            else:
                values[name], places[name] = _as_meant(name, value), (*keys, key)
        return JobSettings(kind, values, places)

    def _with_defaults(self, given: JobSettings) -> JobSettings:
        return JobSettings(given.kind, {**self.defaults.values, **given.values}, {**self.defaults.keys, **given.keys})

    def _look_at_settings(self, name: str, given: JobSettings) -> None:
        base: Keys = ("jobs", name)
        for one in _wrong_with(name, given, self.elsewhere):
            first, *deeper = one.setting.split(".")
            keys = base if first == "job_name" else given.keys.get(first, (*base, first))
            self._note((*keys, *deeper), one.value, one.expected)


def _wrong_with(name: str, given: JobSettings, elsewhere: bool) -> list[InvalidSetting]:
    """Return the errors in those of a job's settings whose names are right."""
    kind, common = None, {key: value for key, value in given.values.items() if key in JobConfig.model_fields}
    if given.kind is not None:
        with suppress(InvalidSetting):  # reported already
            kind = kinds.find(given.kind)
    # the other settings are in the code: what depends on them is checked when the application is loaded
    if kind is None:
        common = {"sharding_total_count": MAX_ITEMS, "monitor_execution": True, **common}
    wrong = [one for one in sifted(JobConfig, {"job_name": name})[0] if one.setting == "job_name"]
    found, right = sifted(partial(JobConfig, job_name="any"), common)
    wrong += found
    wrong += sifted(_named, {key: common[key] for key in _NAMED if isinstance(common.get(key), str)})[0]
    if kind is None:
        return wrong
    chosen = JobConfig.build(**{"job_name": "any", **right})
    if chosen.retry is not None and not elsewhere:  # a job in code may name exceptions that only its program can import
        wrong += sifted(chosen.retry.check_names, {})[0]
    wrong += sifted(lambda: error_handlers.check(chosen.error_handler, chosen.error_handler_options), {})[0]
    own = {key: value for key, value in given.values.items() if key in kind.options.model_fields}
    amiss, _ = sifted(kind.options, own)
    if not amiss and not elsewhere:
        amiss, _ = sifted(lambda: kind.check(kind.parse(own)), {})
    return wrong + amiss


def _as_meant(name: str, value: object) -> object:
    """Return the value of a job's setting, with text in place of numbers where text is meant, as it was written."""
    setting = JobConfig.model_fields.get(name)
    if setting is None:  # the settings of a kind turn numbers into text by themselves
        return value
    return as_text(value) if _is_text(setting) or name == "sharding_item_parameters" else value


def _is_text(setting: FieldInfo) -> bool:
    """Return whether a setting is text, or consists of texts."""
    parts = parts_of(setting)
    return str in parts and DURATION not in parts and not any(kind in parts for kind in (int, float, bool))


_NAMED = ("time_zone", "sharding_strategy", "error_handler", "executor")


def _named(
    time_zone: Any = "UTC",
    sharding_strategy: Any = "average-by-name",
    error_handler: Any = "log",
    executor: Any = "thread",
) -> None:
    """Check that a time zone, strategy, error handler or executor that is chosen by name exists."""
    Cron.parse("@daily", time_zone)  # a time zone is used only with a cron expression, which may be set elsewhere
    strategies.find(sharding_strategy)
    error_handlers.find(error_handler)
    executors.check(executor)


def _address(address: str | None = None, **options: Any) -> None:
    elsewhere = "zks://host" if options.get("tls") else "zk://host"  # where the address is in the code
    Address.parse(elsewhere if address is None else address, **options)


def _spellings(of_kinds: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each way to write a setting, with its Python name: the settings of every job, and those of some kinds."""
    for name, one in JobConfig.model_fields.items():
        yield from ((key, name) for key in _keys(name, one.alias, one.validation_alias, one.serialization_alias))
    for known in of_kinds:
        # a kind of another package that cannot be loaded; jobs of other kinds do not need it
        with suppress(InvalidSetting):
            for name, option in kinds.find(known).options.model_fields.items():
                yield from ((key, name) for key in _keys(name, option.alias))


def _keys(name: str, *aliases: object) -> Iterable[str]:
    """Return a setting's name and the other ways to write it."""
    several = [getattr(alias, "choices", [alias]) for alias in aliases if alias is not None]
    return {name, *(key for choices in several for key in choices if isinstance(key, str))}


__all__ = ["Application", "JobSettings", "SettingsCheck"]
