"""A job's configuration: checked when it is made; the registry holds it as JSON with Elastic-Job's camelCase keys."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache, cached_property, lru_cache
from typing import Annotated, Any, Literal

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from aioelasticjob.cron import Cron, DaylightSaving
from aioelasticjob.cron.crontab import ALIASES
from aioelasticjob.cron.zone import zone_named
from aioelasticjob.encoding import unencodable_text
from aioelasticjob.errors import ForeignData, InvalidSetting
from aioelasticjob.retry import Retry
from aioelasticjob.setting_errors import mistakes, never_fires, unknown_setting
from aioelasticjob.setting_sections import DATAFLOW, FAILURES, ITEMS, MORE, OWN, SAFETY, SCHEDULE, Label, Section
from aioelasticjob.setting_types import (
    AGES,
    DAY,
    DURATION,
    Alerts,
    Features,
    Interval,
    ItemParameters,
    Labels,
    Limit,
    Seconds,
    parts_of,
)

SWITCHES_FEATURE = "switches"  # it knows the nodes that switch off whole jobs, and servers in all jobs
FEATURES: frozenset[str] = frozenset({"requests", "retry", SWITCHES_FEATURE})
"""The features of the registry's format that this release knows: a job may require its workers to know some."""
MAX_ITEMS = 10_000
"""The most items of a job: each instance goes through all of them in one step of its loop (docs/why/items.md)."""
MAX_CONCURRENCY = 100_000
MAX_BATCH = 1_000_000
_REQUIRES: TypeAdapter[tuple[str, ...]] = TypeAdapter(Features)
_KEPT = object()
"""The context of a validation that keeps keys it does not know."""
_NAME = re.compile(r"[\w.-]{1,200}")
_KIND = re.compile(r"[A-Z][A-Z0-9_-]{0,99}")


class JobConfig(BaseModel):
    """All settings of a job; its instances share them through the registry."""

    model_config = ConfigDict(frozen=True, extra="allow", alias_generator=to_camel, populate_by_name=True)

    job_name: str
    job_type: str = "SIMPLE"
    """The kind of job: SIMPLE, DATAFLOW, SCRIPT, HTTP, or one of those that packages add."""
    options: Annotated[dict[str, JsonValue], OWN] = Field(default_factory=dict)
    """Settings that only this kind of job has, such as a script's command."""
    cron: Annotated[str | None, SCHEDULE] = None
    """Quartz (6 or 7 fields) or Unix (5 fields, @daily); None for a job that only runs when it is triggered."""
    time_zone: Annotated[str, SCHEDULE] = "UTC"
    dst: Annotated[Literal["cron", "quartz"], SCHEDULE, Label("When the clocks change")] = "cron"
    sharding_total_count: Annotated[int, ITEMS, Label("Number of items")] = Field(default=1, ge=1, le=MAX_ITEMS)
    sharding_item_parameters: Annotated[ItemParameters, ITEMS, Label("Parameters of items")] = Field(
        default_factory=dict
    )
    job_parameter: Annotated[str, ITEMS] = ""
    per: Annotated[Literal["item", "instance"], ITEMS, Label("One call per")] = "item"
    streaming: Annotated[bool, DATAFLOW] = Field(
        default=False,
        validation_alias=AliasChoices("streaming", "streamingProcess"),
        serialization_alias="streamingProcess",
    )
    """Dataflow: fetch again and again until there are no records, or an operator or the leader wants the run to end."""
    ordered: Annotated[bool, DATAFLOW] = False
    """Dataflow: the records of an item one after another, items side by side."""
    concurrency: Annotated[int, DATAFLOW] = Field(
        default=16,
        ge=1,
        le=MAX_CONCURRENCY,
        validation_alias=AliasChoices("concurrency", "concurrentDataProcessThreadCount"),
        serialization_alias="concurrency",
    )
    """Dataflow, unless ordered: calls of process at the same time, over all items held here."""
    batch_size: Annotated[Annotated[int, Field(ge=1, le=MAX_BATCH)] | None, DATAFLOW] = None
    """Dataflow: process takes a list of at most so many records; None for one record at a time."""
    prefetch: Annotated[bool | None, DATAFLOW] = None
    """Dataflow: fetch the next batch while one is in process; None: do so once fetch has saved an offset."""
    max_failures: Annotated[Annotated[int, Field(ge=0, le=AGES)] | None, DATAFLOW] = None
    """Dataflow: records of an item that may fail in one run before no more are fetched; None for any number."""
    record_timeout: Annotated[Limit | None, DATAFLOW, Label("Record timeout (seconds)")] = None
    """Dataflow: seconds that one call of process may take; None for no limit."""
    items_at_once: Annotated[Annotated[int, Field(ge=1, le=MAX_ITEMS)] | None, ITEMS, Label("Items at once")] = None
    """How many items of the job a process runs side by side; None for all that it holds."""
    failover: Annotated[bool, SAFETY] = False
    max_rescues: Annotated[int, SAFETY, Label("Give up after so many rescues")] = Field(default=3, ge=1, le=AGES)
    """Failover: rescues in a row that may be cut off like the run itself before the run is given up."""
    misfire: Annotated[bool, SCHEDULE] = True
    catch_up: Annotated[Seconds, SCHEDULE, Label("Catch up (seconds)")] = 0
    """A moment at which no instance was up is run once if it is no older than so many seconds; 0 is off."""
    monitor_execution: Annotated[bool, SAFETY] = True
    max_time_diff_seconds: Annotated[int, DURATION, SAFETY, Label("Clocks may differ (seconds)")] = Field(
        default=-1, ge=-1, le=AGES
    )
    sharding_strategy: Annotated[str, ITEMS] = Field(
        default="average",
        validation_alias=AliasChoices("sharding_strategy", "jobShardingStrategyType", "shardingStrategy"),
        serialization_alias="jobShardingStrategyType",
    )
    error_handler: Annotated[str, FAILURES] = Field(
        default="log",
        validation_alias=AliasChoices("error_handler", "jobErrorHandlerType", "errorHandler"),
        serialization_alias="jobErrorHandlerType",
    )
    error_handler_options: Annotated[dict[str, str], FAILURES] = Field(default_factory=dict)
    alert_on: Annotated[Alerts, FAILURES, Label("Call the error handler for")] = ("failed", "given-up")
    """What the error handler is called for: failed runs, runs that were given up, missed moments, no instance is up."""
    log_runs: Annotated[Literal["none", "failures", "ends", "all"], FAILURES, Label("Runs in the log")] = "failures"
    """Which runs are logged: none; failures, by the error handler; the end of each run as well; its beginning, too."""
    timeout: Annotated[Limit | None, SAFETY, Label("Timeout (seconds)")] = None
    """Seconds a run of an item may take, with all its attempts and the waits between them; None for no limit."""
    retry: Annotated[Retry | None, FAILURES] = None
    """How often a failing run is tried, under one lock; for dataflow jobs, a failing record; None for one attempt."""
    attempt_timeout: Annotated[Limit | None, FAILURES, Label("Attempt timeout (seconds)")] = None
    """Seconds one attempt may take; None for no limit but that of the run."""
    executor: str = "thread"
    """Where a plain function runs: ``thread``, ``process``, or one that a package adds; async ones run in the loop."""
    shutdown_timeout: Annotated[Seconds, SAFETY, Label("Shutdown timeout (seconds)")] = 30
    reconcile_interval: Annotated[Interval, Label("Reconcile interval (seconds)")] = 60
    """Seconds between two checks for what no change in the registry would show."""
    statistics_interval: Annotated[Interval, Label("Statistics interval (seconds)")] = Field(
        default=60,
        validation_alias=AliasChoices("statistics_interval", "processCountIntervalSeconds", "statisticsInterval"),
        serialization_alias="processCountIntervalSeconds",
    )
    """Seconds between two writes of the counts of a server's runs or records that succeeded and failed."""
    sharding_quiet: Annotated[
        float, Field(ge=0, le=60, allow_inf_nan=False), DURATION, Label("Quiet before sharding (seconds)")
    ] = 0.5
    server_retention: Annotated[Seconds, Label("Forget servers after (seconds)")] = 7 * DAY
    monitor_port: int = Field(default=-1, ge=-1, le=65_535)
    """Port on 127.0.0.1 that answers with the job's nodes as text; 0 picks a free one, -1 is off."""
    description: str = ""
    labels: Labels = Field(default_factory=dict)
    """What people group and find jobs by, such as ``{"team": "billing"}``; no run depends on it."""
    disabled: Annotated[bool, Label("New servers start disabled")] = False
    requires: Annotated[Features, Label("Requires features")] = ()
    """Features that a worker has to know to run the job; one that does not know them all joins and runs nothing."""
    overwrite: bool = Field(default=False, exclude=True)
    """Replace the registry's configuration by this one at start; never stored."""

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
        if not _KIND.fullmatch(kind):
            raise ValueError("must be a kind of job in capitals, such as SIMPLE, DATAFLOW, SCRIPT or HTTP")
        return kind

    @model_validator(mode="before")
    @classmethod
    def _has_no_booleans_for_numbers(cls, given: Any) -> Any:
        for name, value in given.items() if isinstance(given, dict) else ():
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
        if (odd := unencodable_text(settings)) is not None:
            name = next(name for name in settings if unencodable_text({name: settings[name]}) is not None)
            raise InvalidSetting(name, odd, "must be text that UTF-8 can spell")
        if self.cron is not None:
            schedule = _parsed(self.cron, self.time_zone, self.dst)
            if info.context is not _KEPT and schedule.never_fires:
                raise never_fires(self.cron)
        elif info.context is not _KEPT:
            zone_named(self.time_zone)
        for item in self.sharding_item_parameters:
            if not 0 <= item < self.sharding_total_count:
                count, given = self.sharding_total_count, dict(self.sharding_item_parameters)
                expected = f"item {item} is out of range: sharding_total_count = {count} allows 0 to {count - 1}"
                raise InvalidSetting("sharding_item_parameters", given, expected)
        if (contradiction := next(_contradictions(self), None)) is not None:
            raise contradiction
        for name, field in type(self).model_fields.items():
            if settings[name] != field.default and section_of(name).kind not in (None, self.job_type):
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
            found = json.loads(text)
            if not isinstance(found, dict):
                raise TypeError(f"{type(found).__name__} in place of an object")
            return cls.model_validate(found, context=_KEPT)
        except ValidationError as error:
            mistake = next(mistakes(error))
            place = f"{path}: {mistake.setting}"
            raise ForeignData(place, mistake.value, f"no job configuration: {mistake.expected}") from None
        except (ValueError, TypeError, RecursionError) as error:
            raise ForeignData(path, text[:80], f"no job configuration: {error}") from None

    def to_json(self) -> bytes:
        """Return the text stored in the registry."""
        if self.unknown:  # pydantic would change some values, such as NaN
            return json.dumps(self.as_json(), ensure_ascii=False, indent=1).encode()
        return self.model_dump_json(by_alias=True, exclude=self._hidden, indent=1).encode()

    def as_json(self) -> dict[str, Any]:
        """Return what the registry stores as JSON values, with the keys that this release does not know."""
        return {**self.model_dump(by_alias=True, mode="json", exclude=self._hidden), **self.unknown}

    @property
    def _hidden(self) -> set[str]:  # releases that are older than ``requires`` refuse a configuration that has it
        return {*self.unknown} if self.requires else {*self.unknown, "requires"}

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
        requires = self.requires or (required(stored) or ())
        if requires == self.requires and unknown.keys() <= self.unknown.keys():
            return self
        return self._rebuilt({**unknown, **self.unknown}, requires=requires)

    @cached_property
    def schedule(self) -> Cron | None:
        """The parsed schedule, None for a job that is only triggered."""
        return None if self.cron is None else _parsed(self.cron, self.time_zone, self.dst)

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
        try:
            return JobConfig.model_validate({**unknown, **self._as_settings(), **settings}, context=_KEPT)
        except ValidationError as error:
            raise next(mistakes(error)) from None

    def _as_settings(self) -> Mapping[str, object]:
        return {name: getattr(self, name) for name in type(self).model_fields}


def _contradictions(config: JobConfig) -> Iterator[InvalidSetting]:
    """Yield an error for each setting that is right by itself, but not beside another one."""
    if config.failover and not config.monitor_execution:
        yield InvalidSetting("failover", True, "needs monitor_execution = True, which is what finds orphans")
    if (catch_up := config.catch_up) and not config.monitor_execution:
        expected = "needs monitor_execution = True: its records show what was missed while no instance was up"
        yield InvalidSetting("catch_up", catch_up, expected)
    if (limit := config.attempt_timeout) is not None:
        if config.job_type == DATAFLOW.kind:
            expected = "a dataflow job retries single records: set record_timeout instead"
            yield InvalidSetting("attempt_timeout", limit, expected)
        if config.timeout is not None and limit > config.timeout:
            expected = f"must not exceed timeout = {config.timeout:g}, which bounds the whole run"
            yield InvalidSetting("attempt_timeout", limit, expected)
    if (items := config.items_at_once) is not None:
        if config.per == "instance":
            yield InvalidSetting("items_at_once", items, 'is for per = "item": here one call gets all items')
        if config.streaming:
            expected = "a streaming job runs all its items at once, or some would never begin: set concurrency"
            yield InvalidSetting("items_at_once", items, expected)


@cache
def section_of(name: str) -> Section:
    """Return the section of a form that shows a setting."""
    return next((one for one in JobConfig.model_fields[name].metadata if isinstance(one, Section)), MORE)


@cache
def label_of(name: str) -> str:
    """Return the text by which a form calls a setting."""
    labels = (one.text for one in JobConfig.model_fields[name].metadata if isinstance(one, Label))
    return next(labels, name.replace("_", " ").capitalize())


@cache
def _keys() -> frozenset[str]:
    """Return every key and name under which a stored configuration may have a setting."""
    return frozenset(key for name in JobConfig.model_fields for key in _keys_of(name))


@cache
def _numbers() -> frozenset[str]:
    """Return every key and name of a setting that is a number."""
    fields = JobConfig.model_fields.items()
    names = (name for name, field in fields if any(kind in parts_of(field) for kind in (int, float)))
    return frozenset(key for name in names for key in _keys_of(name))


def _keys_of(name: str) -> set[str]:
    field = JobConfig.model_fields[name]
    others = field.validation_alias.choices if isinstance(field.validation_alias, AliasChoices) else ()
    return {name, field.alias or name, *(key for key in others if isinstance(key, str))}


def _unknown(stored: bytes) -> dict[str, Any]:
    """Return the keys of a stored configuration, which may be invalid, that this release does not know."""
    try:
        found = json.loads(stored)
        others = {key: value for key, value in found.items() if key not in _keys()}
        return {key: value for key, value in others.items() if unencodable_text({key: value}) is None}
    except (ValueError, AttributeError, RecursionError):
        return {}


@lru_cache(maxsize=4096)
def required(stored: bytes) -> tuple[str, ...] | None:
    """Return the features that a stored configuration requires, even if its rest is invalid; None if unclear."""
    try:
        found = json.loads(stored)
        return _REQUIRES.validate_python(found.get("requires", ()))
    except (ValueError, AttributeError, RecursionError):
        return None


@lru_cache(maxsize=4096)
def _parsed(cron: str, time_zone: str, dst: DaylightSaving) -> Cron:
    """Parse a schedule; the result is cached, since it is needed for checking and for running."""
    return Cron.parse(cron, time_zone, dst)


def _ignored(key: str) -> str:
    short = key[:80] if key.isprintable() else ascii(key[:80])
    near = get_close_matches(key[:80], sorted(_keys() - {"overwrite"}), n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return f"the key {short!r} is not known here{hint}: it is kept and has no effect"
