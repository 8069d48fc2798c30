"""A job's configuration: checked when it is made; the registry holds it as JSON with Elastic-Job's camelCase keys."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache, cached_property, lru_cache
from typing import Any

from pydantic import AliasChoices, TypeAdapter, ValidationError, ValidationInfo, field_validator, model_validator

from aioelasticjob.config.declared import DeclaredSettings, section_of
from aioelasticjob.config.mistakes import mistakes, never_fires, unknown_setting
from aioelasticjob.config.sections import DATAFLOW
from aioelasticjob.config.types import NO_BYTES, Features, has_bytes, parts_of
from aioelasticjob.cron import Cron, DaylightSaving
from aioelasticjob.cron.crontab import ALIASES
from aioelasticjob.cron.zone import zone_named
from aioelasticjob.errors import ForeignData, InvalidSetting
from aioelasticjob.ground.encoding import json_object, unencodable_text
from aioelasticjob.ground.nesting import TOO_DEEP, is_too_deep, read_json

FEATURES: frozenset[str] = frozenset()
"""The features of the registry's format that this release knows: a job may require its workers to know some.

There is none until 0.1.0 is out, since no release lacks anything that another one has.
"""
_REQUIRES: TypeAdapter[tuple[str, ...]] = TypeAdapter(Features)
_KEPT = object()
"""The context of a validation that keeps keys it does not know."""
_NAME = re.compile(r"[\w.-]{1,200}")
_KIND = re.compile(r"[A-Z][A-Z0-9_-]{0,99}")


class JobConfig(DeclaredSettings):
    """All settings of a job; its instances share them through the registry."""

    @field_validator("job_name")
    @classmethod
    def _is_a_node_name(cls, name: str) -> str:
        if len(name.split()) in (5, 6, 7) or name in ALIASES:
            raise ValueError("is a schedule: give it as cron")
        if not _NAME.fullmatch(name) or set(name) <= {"."} or name == "zookeeper":
            raise ValueError("must be 1 to 200 letters, digits, '_', '-' or '.', and not 'zookeeper'")
        return name

    @field_validator("job_type")
    @classmethod
    def _is_the_name_of_a_kind(cls, kind: str) -> str:
        # only a process that runs the job has to know its kind; one that only shows it need not
        if not is_kind(kind):
            raise ValueError("must be a kind of job in capitals, such as SIMPLE, DATAFLOW, SCRIPT or HTTP")
        return kind

    @model_validator(mode="before")
    @classmethod
    def _is_not_too_deep_and_has_no_bytes_and_no_booleans_for_numbers(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        for name, value in given.items():
            if is_too_deep(value):
                raise InvalidSetting(name, value, TOO_DEEP)
            if has_bytes(value):
                raise InvalidSetting(name, value, NO_BYTES)
            if isinstance(value, bool) and name in _numbers():
                raise InvalidSetting(name, value, "must be a number, not True or False")
        return given

    @model_validator(mode="after")
    def _settings_agree(self, info: ValidationInfo) -> JobConfig:
        for name, value in self.unknown.items():
            if name in _keys():
                raise InvalidSetting(name, value, "is there already under its other name: leave one of them out")
            if info.context is not _KEPT:
                raise unknown_setting(name, value, type(self).model_fields)
        settings = {**self._as_settings(), **self.unknown}
        odd = unencodable_text(settings)
        if odd is not None:
            wrong = [name for name, value in settings.items() if unencodable_text({name: value}) is not None]
            raise InvalidSetting(wrong[0], odd, "must be text that UTF-8 can spell")
        if self.cron is not None:
            schedule = parsed_cron(self.cron, self.time_zone, self.dst)
            if info.context is not _KEPT and schedule.never_fires:
                raise never_fires(self.cron)
        elif info.context is not _KEPT:
            zone_named(self.time_zone)
        for item in self.sharding_item_parameters:
            if not 0 <= item < self.sharding_total_count:
                count = self.sharding_total_count
                given = dict(self.sharding_item_parameters)
                expected = f"item {item} is out of range: sharding_total_count = {count} allows 0 to {count - 1}"
                raise InvalidSetting("sharding_item_parameters", given, expected)
        contradiction = next(_contradictions(self), None)
        if contradiction is not None:
            raise contradiction
        for name, field in type(self).model_fields.items():
            is_of_this_kind = section_of(name).kind in (None, self.job_type)
            if settings[name] != field.default and not is_of_this_kind:
                raise InvalidSetting(name, settings[name], "is for jobs declared with @app.dataflow")
        return self

    @classmethod
    def build(cls, **settings: Any) -> JobConfig:
        """Return a configuration from keyword settings.

        Raises:
            InvalidSetting: naming the setting, its value and what would be right.
        """
        for name in settings:
            if name not in cls.model_fields:
                raise unknown_setting(name, settings[name], cls.model_fields)
        try:
            return cls.model_validate(settings)
        except ValidationError as error:
            raise next(mistakes(error)) from None

    @classmethod
    def from_json(cls, text: bytes, path: str) -> JobConfig:
        """Return the configuration that ``path`` holds; keys that this release does not know are kept as they are.

        Raises:
            ForeignData: what is there is no configuration of ours.
        """
        try:
            found = read_json(text)
            if not isinstance(found, dict):
                raise TypeError(f"{type(found).__name__} in place of an object")
            return cls.model_validate(found, context=_KEPT)
        except ValidationError as error:
            mistake = next(mistakes(error))
            place = f"{path}: {mistake.setting}"
            raise ForeignData(place, mistake.value, f"no job configuration: {mistake.expected}") from None
        except (ValueError, TypeError) as error:
            raise ForeignData(path, text[:80], f"no job configuration: {error}") from None

    @classmethod
    def from_settings(cls, **settings: Any) -> JobConfig:
        """Return a configuration from settings that the registry holds, by their names, as `from_json` reads them.

        Raises:
            ValidationError: settings are wrong; it has all of them that are wrong by themselves.
        """
        return cls.model_validate(settings, context=_KEPT)

    def to_json(self) -> bytes:
        """Return the text stored in the registry."""
        if self.unknown:  # pydantic would change some values, such as NaN
            return json.dumps(self.as_json(), ensure_ascii=False, indent=1).encode()
        return self.model_dump_json(by_alias=True, exclude=self._hidden, indent=1).encode()

    def as_json(self) -> dict[str, Any]:
        """Return what the registry stores as JSON values, with the keys that this release does not know."""
        known = self.model_dump(by_alias=True, mode="json", exclude=self._hidden)
        return {**known, **self.unknown}

    @property
    def _hidden(self) -> set[str]:
        if self.requires:
            return {*self.unknown}
        return {*self.unknown, "requires"}  # releases that are older than ``requires`` refuse a configuration with it

    @property
    def unknown(self) -> Mapping[str, Any]:
        """The keys of the stored configuration that this release does not know, with their values."""
        return self.model_extra or {}

    @property
    def ignored(self) -> tuple[str, ...]:
        """One sentence for each key that this release does not know, for logs and for the console."""
        return tuple(_ignored(key) for key in self.unknown)

    def in_place_of(self, stored: bytes) -> JobConfig:
        """Return this configuration with what has to be kept of the stored one that it replaces.

        These are the keys that this release does not know, and the job's ``requires`` unless this one sets it.
        """
        unknown = _unknown(stored)
        requires = self.requires or required(stored) or ()
        if requires == self.requires and unknown.keys() <= self.unknown.keys():
            return self
        return self._rebuilt({**unknown, **self.unknown}, requires=requires)

    @cached_property
    def schedule(self) -> Cron | None:
        """The parsed schedule, None for a job that is only triggered."""
        if self.cron is None:
            return None
        return parsed_cron(self.cron, self.time_zone, self.dst)

    def changed(self, **settings: object) -> JobConfig:
        """Return a validated copy with some settings replaced."""
        for name in settings:
            if name not in type(self).model_fields:
                raise unknown_setting(name, settings[name], type(self).model_fields)
        changed = self._rebuilt(self.unknown, **settings)
        if "time_zone" in settings:
            zone_named(changed.time_zone)
        if "cron" in settings and changed.schedule is not None and changed.schedule.never_fires:
            raise never_fires(changed.cron)
        return changed

    def _rebuilt(self, unknown: Mapping[str, Any], **settings: object) -> JobConfig:
        merged = {**unknown, **self._as_settings(), **settings}
        try:
            return JobConfig.model_validate(merged, context=_KEPT)
        except ValidationError as error:
            raise next(mistakes(error)) from None

    def _as_settings(self) -> Mapping[str, object]:
        return {name: getattr(self, name) for name in type(self).model_fields}


def is_kind(kind: str) -> bool:
    """Whether a kind of job can have this name."""
    return _KIND.fullmatch(kind) is not None


def settings_of(stored: bytes) -> dict[str, object]:
    """Return the settings of a stored configuration, which may be wrong, by their Python names.

    Keys that this release does not know are there as well, as they are.
    """
    names = {key: name for name in JobConfig.model_fields for key in _keys_of(name)}
    known = {names[key]: value for key, value in json_object(stored).items() if key in names}
    return {**_unknown(stored), **known}


def tolerates(config: JobConfig, skew: float) -> bool:
    """Whether the job runs while this host's clock is so many seconds ahead of the registry's, or behind."""
    return config.max_time_diff_seconds < 0 or abs(skew) <= config.max_time_diff_seconds


def _contradictions(config: JobConfig) -> Iterator[InvalidSetting]:
    """Yield an error for each setting that is right by itself, but not beside another one."""
    if config.failover and not config.monitor_execution:
        yield InvalidSetting("failover", True, "needs monitor_execution = True, which is what finds orphans")
    if config.catch_up and not config.monitor_execution:
        expected = "needs monitor_execution = True: its records show what was missed while no instance was up"
        yield InvalidSetting("catch_up", config.catch_up, expected)
    limit = config.attempt_timeout
    if limit is not None:
        if config.job_type == DATAFLOW.kind:
            expected = "a dataflow job retries single records: set record_timeout instead"
            yield InvalidSetting("attempt_timeout", limit, expected)
        if config.timeout is not None and limit > config.timeout:
            expected = f"must not exceed timeout = {config.timeout:g}, which bounds the whole run"
            yield InvalidSetting("attempt_timeout", limit, expected)
    items = config.items_at_once
    if items is not None:
        if config.per == "instance":
            yield InvalidSetting("items_at_once", items, 'is for per = "item": here one call gets all items')
        if config.streaming:
            expected = "a streaming job runs all its items at once, or some would never begin: set concurrency"
            yield InvalidSetting("items_at_once", items, expected)


@cache
def _keys() -> frozenset[str]:
    """Return every key and name under which a stored configuration may have a setting."""
    return frozenset(key for name in JobConfig.model_fields for key in _keys_of(name))


@cache
def _numbers() -> frozenset[str]:
    """Return every key and name of a setting that is a number."""
    found = set[str]()
    for name, field in JobConfig.model_fields.items():
        parts = parts_of(field)
        if int in parts or float in parts:
            found |= _keys_of(name)
    return frozenset(found)


def _keys_of(name: str) -> set[str]:
    field = JobConfig.model_fields[name]
    found = {name, field.alias or name}
    if isinstance(field.validation_alias, AliasChoices):
        found.update(key for key in field.validation_alias.choices if isinstance(key, str))
    return found


def _unknown(stored: bytes) -> dict[str, Any]:
    """Return the keys of a stored configuration, which may be invalid, that this release does not know."""
    try:
        found = read_json(stored)
        others = dict[str, Any]()
        for key, value in found.items():
            if key not in _keys() and unencodable_text({key: value}) is None:
                others[key] = value
        return others
    except (ValueError, AttributeError):
        return {}


@lru_cache(maxsize=4096)
def required(stored: bytes) -> tuple[str, ...] | None:
    """Return the features that a stored configuration requires, even if its rest is invalid; None if unclear."""
    try:
        found = read_json(stored)
        return _REQUIRES.validate_python(found.get("requires", ()))
    except (ValueError, AttributeError):
        return None


@lru_cache(maxsize=4096)
def parsed_cron(cron: str, time_zone: str, dst: DaylightSaving) -> Cron:
    """Parse a schedule; the result is cached, since it is needed for checking and for running."""
    return Cron.parse(cron, time_zone, dst)


def _ignored(key: str) -> str:
    short = key[:80] if key.isprintable() else ascii(key[:80])
    near = get_close_matches(key[:80], sorted(_keys() - {"overwrite"}), n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return f"the key {short!r} is not known here{hint}: it is kept and has no effect"
