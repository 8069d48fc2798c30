"""A job's configuration: checked when it is made; the registry holds it as JSON with Elastic-Job's camelCase keys.

Each setting is written once: type, bounds, default, section, label and meaning.  The text below a setting is Markdown,
with links as on the page ``docs/reference/settings.md``.  The command ``python -m tests.generate`` writes that page's
table and the types in ``jobs/settings.py``.
"""

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
    PrivateAttr,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from aioelasticjob.config.mistakes import mistakes, never_fires, unknown_setting
from aioelasticjob.config.retry import Retry
from aioelasticjob.config.sections import DATAFLOW, FAILURES, ITEMS, MORE, OWN, SAFETY, SCHEDULE, Label, Section
from aioelasticjob.config.types import (
    AGES,
    DAY,
    DURATION,
    NO_BYTES,
    Alerts,
    CalendarNames,
    Expressions,
    Features,
    Interval,
    ItemParameters,
    JobNames,
    Labels,
    Limit,
    Links,
    Parameter,
    Repetition,
    Seconds,
    Time,
    Times,
    ZoneName,
    has_bytes,
    parts_of,
)
from aioelasticjob.cron.crontab import ALIASES
from aioelasticjob.cron.zone import zone_named
from aioelasticjob.errors import ForeignData, InvalidSetting
from aioelasticjob.ground.encoding import json_object, unencodable_text
from aioelasticjob.ground.nesting import TOO_DEEP, is_too_deep, read_json
from aioelasticjob.schedules import Schedule, ScheduleSettings, schedule_of
from aioelasticjob.schedules.calendars import Calendar, CalendarMode
from aioelasticjob.schedules.settings import KEYS

MAX_ITEMS = 10_000
"""The most items of a job: each instance goes through all of them in one step of its loop (docs/why/running.md)."""
MAX_CONCURRENCY = 100_000
MAX_BATCH = 1_000_000
FEATURES: frozenset[str] = frozenset()
"""The features of the registry's format that this release knows: a job may require its workers to know some.

There is none until 0.1.0 is out, since no release lacks anything that another one has.
"""
SCHEDULING: frozenset[str] = frozenset(KEYS)
"""The settings that decide the job's moments."""
_REQUIRES: TypeAdapter[tuple[str, ...]] = TypeAdapter(Features)
_KEPT = object()
"""The context of a validation that keeps keys it does not know."""
_NAME = re.compile(r"[\w.-]{1,200}")
_KIND = re.compile(r"[A-Z][A-Z0-9_-]{0,99}")


class JobConfig(BaseModel):
    """All settings of a job; its instances share them through the registry."""

    model_config = ConfigDict(frozen=True, extra="allow", alias_generator=to_camel, populate_by_name=True)

    job_name: str
    """1 to 200 letters, digits, `_`, `-`, `.`. The decorator's argument is `name`; its default is the function's
    name."""
    job_type: str = "SIMPLE"
    """The kind: `SIMPLE`, `DATAFLOW`, `SCRIPT`, `HTTP`, or [your own](../how-to/own-kind.md). It follows from how
    the job is declared."""
    handler: str | None = None
    """The [handler](../how-to/created-jobs.md) that a created job names: every process that has it runs the job. It is
    given when the job is created, and never changes. Left out of `config` for jobs that code declares."""
    options: Annotated[dict[str, JsonValue], OWN] = Field(default_factory=dict)
    """The settings that only this kind of job has, as an object: a [script](../how-to/script-and-http.md)'s
    `command`, a request's `url`, …"""
    cron: Annotated[Expressions | None, SCHEDULE] = None
    """A [schedule](schedules.md) of Quartz (6 or 7 fields) or crontab (5 fields, `@daily`); several as a list, or as
    one text with `;` between them. With none of `cron`, `every`, `at` and `after` the job runs only when triggered. A
    schedule without any moment, such as the 30th of February, is refused; written into the registry by hand it is
    shown as never fires. If all moments are over, the job is shown as finished."""
    every: Annotated[Repetition | None, SCHEDULE] = None
    """In place of `cron`: [an interval](schedules.md#intervals) of at least 1 second. The moments are `start_at`, or
    else the beginning of 1970 in UTC, and then one after each interval. Elapsed time counts, so nothing happens when
    the clocks change."""
    at: Annotated[Times, SCHEDULE, Label("Single moments")] = ()
    """In place of `cron`: [a moment](schedules.md#single-moments), or a list of some, such as `"2026-12-24T18:00"`. One
    without an offset is meant in `time_zone`. At most 1,000."""
    after: Annotated[JobNames, SCHEDULE, Label("After these jobs")] = ()
    """In place of `cron`: the name of [a job that this one follows](../how-to/followers.md), or a list of some. Its
    moments are those of that job, or those that all of them have, and each is run once they have ended it. Needs
    `monitor_execution`; not with `jitter`, `calendar`, `start_at` or `end_at`.
    At most 20."""
    after_outcome: Annotated[Literal["completed", "any"], SCHEDULE, Label("After which outcome")] = "completed"
    """What a job that follows others waits for: `"completed"`: a moment that they have missed, or whose run has not
    completed, is missed here as well; `"any"`: it is run as soon as it has ended there."""
    time_zone: Annotated[ZoneName, SCHEDULE] = "UTC"
    """An IANA name such as `Europe/Berlin`, or `GMT+8`. Code may give a `ZoneInfo` that has such a name."""
    dst: Annotated[Literal["cron", "quartz"], SCHEDULE, Label("When the clocks change")] = "cron"
    """What happens when the clocks change: `"cron"`, as cron does it, or `"quartz"`, as Quartz does it
    ([why](../why/cron.md))."""
    start_at: Annotated[Time | None, SCHEDULE] = None
    """The schedule has no moment before this one. A time without an offset is meant in `time_zone`."""
    end_at: Annotated[Time | None, SCHEDULE] = None
    """The schedule has no moment after this one. A time without an offset is meant in `time_zone`."""
    jitter: Annotated[Seconds, SCHEDULE] = 0
    """[Delays the runs of each moment](schedules.md#jitter) by up to so many seconds, each by another time, so that not
    all jobs begin in the same second; less than the time until the next moment. The delay follows from the job's name
    and the moment, so it is the same in all instances. 0 is off."""
    calendar: Annotated[CalendarNames, SCHEDULE, Label("Calendars")] = ()
    """The name of a [calendar](../how-to/calendars.md), or a list of some: on their days the job does not run. The
    calendars are in the registry; while one of them is missing, the job runs nothing."""
    calendar_mode: Annotated[CalendarMode, SCHEDULE, Label("On closed days")] = "skip"
    """What becomes of the moments on days of a calendar: with `"skip"` they are left out, with `"next"` and
    `"previous"` they move to the next or previous open day, to the same local time, at most 31 days. Moments that fall
    together are one."""
    sharding_total_count: Annotated[int, ITEMS, Label("Number of items")] = Field(default=1, ge=1, le=MAX_ITEMS)
    """The number of items, 1 to 10,000 ([why](../why/running.md#at-most-10000-items)). By default [one slow item delays
    the others on its process](../how-to/independent-items.md)."""
    sharding_item_parameters: Annotated[ItemParameters, ITEMS, Label("Parameters of items")] = Field(
        default_factory=dict
    )
    """A text for each item: `{0: "Beijing"}`, or `"0=Beijing,1=Shanghai"`."""
    job_parameter: Annotated[Parameter, ITEMS] = ""
    """A text for all items; a mapping becomes JSON."""
    per: Annotated[Literal["item", "instance"], ITEMS, Label("One call per")] = "item"
    """`"item"`: one call for each item; `"instance"`: one call for all items that the instance holds. If handlers
    cannot take what the registry's value gives them, the declared value is used."""
    streaming: Annotated[bool, DATAFLOW] = Field(
        default=False,
        validation_alias=AliasChoices("streaming", "streamingProcess"),
        serialization_alias="streamingProcess",
    )
    """[Dataflow](../how-to/dataflow.md): fetch again and again until there are no records, or until an operator or the
    leader [wants the run to end](../how-to/dataflow.md#when-a-stream-ends)."""
    ordered: Annotated[bool, DATAFLOW] = False
    """Dataflow: process the records of an item one after another, and the items side by side."""
    concurrency: Annotated[int, DATAFLOW] = Field(
        default=16,
        ge=1,
        le=MAX_CONCURRENCY,
        validation_alias=AliasChoices("concurrency", "concurrentDataProcessThreadCount"),
        serialization_alias="concurrency",
    )
    """Dataflow, unless ordered: how many calls of `process` run at the same time, over all items that the instance
    holds, 1 to 100,000."""
    batch_size: Annotated[Annotated[int, Field(ge=1, le=MAX_BATCH)] | None, DATAFLOW] = None
    """Dataflow: `process` takes a list of at most so many records, 1 to 1,000,000; with `None` it takes one record."""
    prefetch: Annotated[bool | None, DATAFLOW] = None
    """Dataflow: fetch the next batch while one is in process; with `None`, as soon as `fetch` has saved an offset."""
    max_failures: Annotated[Annotated[int, Field(ge=0, le=AGES)] | None, DATAFLOW] = None
    """Dataflow: if more than so many records of an item fail in one run, the run has failed and fetches no more;
    `None` is no limit."""
    record_timeout: Annotated[Limit | None, DATAFLOW] = None
    """Dataflow: seconds that one call of `process` may take, at least 0.001; `None` is no limit. Waiting for a free
    thread or process does not count."""
    items_at_once: Annotated[Annotated[int, Field(ge=1, le=MAX_ITEMS)] | None, ITEMS] = None
    """How many items of the job a process [runs side by side](../how-to/retries.md#how-long-it-may-take), 1 to 10,000;
    `None` is all that it holds. Not with `per="instance"` or `streaming`."""
    independent_items: Annotated[bool, ITEMS, Label("Items do not wait for each other")] = False
    """With `True` the next moment of an item waits only for [that item](../how-to/independent-items.md); with `False`
    one slow item delays the others on its process. Not with `per="instance"` or `streaming`."""
    failover: Annotated[bool, SAFETY] = False
    """If an instance dies during a run, another instance runs the item again at once. Needs `monitor_execution`."""
    max_rescues: Annotated[int, SAFETY, Label("Give up after so many rescues")] = Field(default=3, ge=1, le=AGES)
    """Failover: how many rescues in a row may be cut off before a run is [given
    up](../how-to/failures.md#a-run-that-is-given-up); at least 1."""
    misfire: Annotated[bool, SCHEDULE] = True
    """What happens to moments that came during a run or an outage of the registry: with `True` the newest is run once
    afterwards, with `False` none."""
    catch_up: Annotated[Seconds, SCHEDULE] = 0
    """If no instance was up at a scheduled moment, the first one that comes back runs it once, if it is at most so
    many seconds ago; 0 is off. Moments that are not run are [reported](events.md). Needs `monitor_execution`."""
    monitor_execution: Annotated[bool, SAFETY] = True
    """Claim and settle each run in the registry. Without it there is no lock, no record, no failover and no fence."""
    max_time_diff_seconds: Annotated[int, DURATION, SAFETY, Label("Clocks may differ (seconds)")] = Field(
        default=-1, ge=-1, le=AGES
    )
    """Refuse to run while this host's clock and the registry's differ by more than so many seconds; -1 is no limit. If
    they differ by more than a second, the registry's clock is used."""
    sharding_strategy: Annotated[str, ITEMS] = Field(
        default="average-by-name",
        validation_alias=AliasChoices("sharding_strategy", "jobShardingStrategyType", "shardingStrategy"),
        serialization_alias="jobShardingStrategyType",
    )
    """[How items are assigned](../how-to/strategy.md): `average-by-name`, `average`, `odevity`, `round-robin`,
    `single-balance`, `sticky`, or your own."""
    error_handler: Annotated[str, FAILURES] = Field(
        default="log",
        validation_alias=AliasChoices("error_handler", "jobErrorHandlerType", "errorHandler"),
        serialization_alias="jobErrorHandlerType",
    )
    """What happens to a failure: `log`, `ignore`, `raise`, `email`, `webhook`, `dingtalk`, `wecom`, or
    [your own](../how-to/failures.md)."""
    error_handler_options: Annotated[dict[str, str], FAILURES] = Field(default_factory=dict)
    """The options of the error handler, text by name."""
    alert_on: Annotated[Alerts, FAILURES, Label("Call the error handler for")] = ("failed", "given-up")
    """What the error handler is called for. By workers: for runs that `failed` or were `given-up`, and for moments that
    were `missed`. By [`aioelasticjob alert`](../how-to/alerts.md#kinds): `nobody-there`, `nobody-leads`, `failing`,
    `misfiring`, `late`, `writes-refused`, `config-unusable`, `clock-differs`; it also says when they, and `given-up`,
    are over. A list, or text such as `"failed,missed"`. A failed run for which the error handler is not called is
    logged."""
    must_end_within: Annotated[Limit | None, FAILURES] = None
    """A moment is [`late`](../how-to/alerts.md#late) if its run has not ended on all items so long after it came, at
    least 0.001 s; `None` is no limit. Needs `monitor_execution`; not with `streaming`."""
    must_start_within: Annotated[Limit | None, FAILURES] = None
    """The same for moments that have not begun on all items."""
    log_runs: Annotated[Literal["none", "failures", "ends", "all"], FAILURES, Label("Runs in the log")] = "failures"
    """Which runs the log has: `"none"`; `"failures"`: those that failed, were cancelled or cut off; `"ends"`, also
    one line for each run with its items, source, duration and outcome; `"all"`, also one line when a run begins.
    With `"none"` the error handler `log` is silent."""
    timeout: Annotated[Limit | None, SAFETY] = None
    """Seconds that the run of an item may take, with all its attempts and the waits between them, at least 0.001;
    `None` is no limit."""
    retry: Annotated[Retry | None, FAILURES] = None
    """[How often a run that fails is tried](../how-to/retries.md): a `Retry`, or outside of code a mapping with any
    of `attempts`, `backoff`, `on` and `longest`; `None` is one attempt. In a dataflow each record is tried
    again."""
    attempt_timeout: Annotated[Limit | None, FAILURES] = None
    """Seconds that one attempt may take, at least 0.001 and not more than `timeout`; `None` is no limit. Dataflow
    jobs have `record_timeout` instead."""
    executor: str = "thread"
    """Where a plain function runs: `"thread"`; `"process"`, [which can be cancelled](../how-to/blocking.md); or
    [one of your own](../how-to/blocking.md#in-an-executor-of-your-own). An `async def` always runs in the event
    loop, and cannot have `"process"`. If handlers cannot be sent to processes, the declared value is used."""
    shutdown_timeout: Annotated[Seconds, SAFETY] = 30
    """Seconds that running items may go on when the job leaves; then they are cut off."""
    reconcile_interval: Interval = 60
    """Seconds between two checks of everything, even if nothing has changed in the registry; 1 to 86,400."""
    statistics_interval: Interval = Field(
        default=60,
        validation_alias=AliasChoices("statistics_interval", "processCountIntervalSeconds", "statisticsInterval"),
        serialization_alias="processCountIntervalSeconds",
    )
    """Seconds between two writes of the counts of runs, or of a dataflow's records, that succeeded and failed; 1 to
    86,400."""
    sharding_quiet: Annotated[
        float, Field(ge=0, le=60, allow_inf_nan=False), DURATION, Label("Quiet before sharding (seconds)")
    ] = 0.5
    """Items are assigned when no instance has joined or left for so many seconds, 0 to 60."""
    server_retention: Annotated[Seconds, Label("Forget servers after (seconds)")] = 7 * DAY
    """The nodes of a server that had no instance for so many seconds (up to a quarter more) and has no flag are
    removed."""
    monitor_port: int = Field(default=-1, ge=-1, le=65_535)
    """Port on 127.0.0.1 that answers with a [dump of the job](../how-to/dump.md); 0 picks a free one and logs it,
    -1 is off. If another process has the port, the job runs all the same, and the port is tried again."""
    description: str = ""
    """What the job is for, for people."""
    labels: Labels = Field(default_factory=dict)
    """Texts by which people group and find jobs: `{"team": "billing"}`, or `"team=billing,tier=gold"`. [The
    console](../how-to/console.md) and [`jobs --label`](command-line.md) filter by them."""
    links: Links = Field(default_factory=dict)
    """Addresses for people, by what is found there: `{"runbook": "https://wiki.example.org/{job}"}`, or
    `"runbook=https://…"`. `{job}`, `{run_id}` and `{task_id}` are filled in. The console shows them on the pages of the
    job and of its runs, and [messages](../how-to/failures.md) have them; one that needs a run is left out elsewhere."""
    disabled: Annotated[bool, Label("New servers start disabled")] = False
    """Servers that join the job for the first time are disabled until an operator enables them."""
    requires: Annotated[Features, Label("Requires features")] = ()
    """Features of the registry's format that a worker has to know to run the job, a list of text. A worker that
    lacks one runs nothing and [says what it lacks](../why/format.md). Left out of `config` while it is empty."""
    overwrite: bool | None = Field(default=None, exclude=True)
    """At the start, replace the registry's configuration by the code's,
    [also one that makes no sense](../how-to/change-settings.md#replace-the-settings-at-the-start); never stored. With
    `None` it is done if the [application](application.md) has `overwrite=True`."""

    # the contents of the calendars that the job names, by their names, as far as they are known: no setting
    _calendars: Mapping[str, Calendar] = PrivateAttr(default_factory=dict)

    @field_validator("job_name")
    @classmethod
    def _is_a_node_name(cls, name: str) -> str:
        if len(name.split()) in (5, 6, 7) or name in ALIASES:
            raise ValueError("is a schedule: give it as cron")
        if not _NAME.fullmatch(name) or set(name) <= {"."} or name == "zookeeper":
            raise ValueError("must be 1 to 200 letters, digits, '_', '-' or '.', and not 'zookeeper'")
        return name

    @field_validator("handler")
    @classmethod
    def _names_a_handler(cls, handler: str | None) -> str | None:
        if handler is not None and not is_handler_name(handler):
            raise ValueError("must be 1 to 200 letters, digits, '_', '-' or '.'")
        return handler

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
        if self.schedule is None and info.context is not _KEPT:
            zone_named(self.time_zone)
        if self.schedule is not None and info.context is not _KEPT and self.schedule.never_fires:
            raise never_fires(self.schedule)
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
        hidden = {*self.unknown}
        if not self.requires:  # releases that are older than ``requires`` refuse a configuration with it
            hidden.add("requires")
        if self.handler is None:
            hidden.add("handler")
        return hidden

    @property
    def unknown(self) -> Mapping[str, Any]:
        """The keys of the stored configuration that this release does not know, with their values."""
        return self.model_extra or {}

    @property
    def ignored(self) -> tuple[str, ...]:
        """One sentence for each key that this release does not know, for logs and for the console."""
        return tuple(_ignored(key) for key in self.unknown)

    def naming(self, handler: str | None) -> JobConfig:
        """Return this configuration for a handler, unless it names one already or none is given."""
        return self if handler is None or self.handler is not None else self.changed(handler=handler)

    def in_place_of(self, stored: bytes) -> JobConfig:
        """Return this configuration with what has to be kept of the stored one that it replaces.

        These are the keys that this release does not know, and the job's ``requires`` unless this one sets it.
        """
        unknown = _unknown(stored)
        requires = self.requires or required(stored) or ()
        if requires == self.requires and unknown.keys() <= self.unknown.keys():
            return self
        return self._rebuilt({**unknown, **self.unknown}, requires=requires)

    @property
    def is_created(self) -> bool:
        """Whether the job was created in the registry: no code declares it, and the processes with its handler run it.

        No process writes the configuration of such a job when it joins, or compares it with a declaration.
        """
        return self.handler is not None

    @cached_property
    def schedule_settings(self) -> ScheduleSettings:
        """The settings that decide the job's moments."""
        known = [self._calendars.get(name) for name in self.calendar]
        contents = tuple("" if one is None else one.hash for one in known)
        return ScheduleSettings(**{name: getattr(self, name) for name in SCHEDULING}, contents=contents)

    @cached_property
    def schedule(self) -> Schedule | None:
        """The schedule, None for a job that is only triggered."""
        return schedule_of(self.schedule_settings, self.job_name, self.contents)

    @property
    def contents(self) -> Mapping[str, Calendar]:
        """The contents of the calendars that the job names, by their hashes, as far as they are known."""
        return {one.hash: one for one in self._calendars.values()}

    def with_calendars(self, known: Mapping[str, Calendar]) -> JobConfig:
        """Return this configuration with the contents of the calendars that it names: its schedule heeds them."""
        chosen = {name: known[name] for name in self.calendar if name in known}
        if chosen == self._calendars:
            return self
        copy = self.model_copy()
        copy.__dict__.pop("schedule", None)
        copy.__dict__.pop("schedule_settings", None)
        copy._calendars = chosen
        return copy

    def changed(self, **settings: object) -> JobConfig:
        """Return a validated copy with some settings replaced."""
        for name in settings:
            if name not in type(self).model_fields:
                raise unknown_setting(name, settings[name], type(self).model_fields)
        changed = self._rebuilt(self.unknown, **settings)
        if "time_zone" in settings:
            zone_named(changed.time_zone)
        if settings.keys() & SCHEDULING and changed.schedule is not None and changed.schedule.never_fires:
            raise never_fires(changed.schedule)
        return changed

    def _rebuilt(self, unknown: Mapping[str, Any], **settings: object) -> JobConfig:
        merged = {**unknown, **self._as_settings(), **settings}
        try:
            return JobConfig.model_validate(merged, context=_KEPT)
        except ValidationError as error:
            raise next(mistakes(error)) from None

    def _as_settings(self) -> Mapping[str, object]:
        return {name: getattr(self, name) for name in type(self).model_fields}


@cache
def section_of(name: str) -> Section:
    """Return the section of a form that shows a setting."""
    for one in JobConfig.model_fields[name].metadata:
        if isinstance(one, Section):
            return one
    return MORE


@cache
def label_of(name: str) -> str:
    """Return the text by which a form calls a setting: the one beside it, else its name, and its unit."""
    field = JobConfig.model_fields[name]
    for one in field.metadata:
        if isinstance(one, Label):
            return one.text
    label = name.replace("_", " ").capitalize()
    if DURATION in parts_of(field):
        label += " (seconds)"
    return label


def is_handler_name(name: str) -> bool:
    """Whether a handler can have this name."""
    return _NAME.fullmatch(name) is not None and not set(name) <= {"."}


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
    if config.after:
        yield from _beside_after(config)
    limit = config.attempt_timeout
    if limit is not None:
        if config.job_type == DATAFLOW.kind:
            expected = "a dataflow job retries single records: set record_timeout instead"
            yield InvalidSetting("attempt_timeout", limit, expected)
        if config.timeout is not None and limit > config.timeout:
            expected = f"must not exceed timeout = {config.timeout:g}, which bounds the whole run"
            yield InvalidSetting("attempt_timeout", limit, expected)
    for name in ("must_end_within", "must_start_within"):
        within = getattr(config, name)
        if within is None:
            continue
        if config.streaming:
            yield InvalidSetting(name, within, "a streaming job ends when its records end, so no moment of it is late")
        if not config.monitor_execution:
            expected = "needs monitor_execution = True: its records show which moments have begun and ended"
            yield InvalidSetting(name, within, expected)
    if config.independent_items and config.per == "instance":
        expected = 'is for per = "item": one call for all items cannot end for some of them'
        yield InvalidSetting("independent_items", True, expected)
    if config.independent_items and config.streaming:
        expected = "a streaming job has one run for all its items, which goes on: leave streaming out"
        yield InvalidSetting("independent_items", True, expected)
    items = config.items_at_once
    if items is not None:
        if config.per == "instance":
            yield InvalidSetting("items_at_once", items, 'is for per = "item": here one call gets all items')
        if config.streaming:
            expected = "a streaming job runs all its items at once, or some would never begin: set concurrency"
            yield InvalidSetting("items_at_once", items, expected)


def _beside_after(config: JobConfig) -> Iterator[InvalidSetting]:
    """Yield an error for each setting that contradicts the following of other jobs."""
    for name in config.after:
        if name == config.job_name:
            yield InvalidSetting("after", name, "must be other jobs: a job cannot follow itself")
        elif not _NAME.fullmatch(name):
            yield InvalidSetting("after", name, "must be names of jobs: letters, digits, '_', '-' or '.'")
    for name in ("cron", "every", "at", "start_at", "end_at", "jitter", "calendar"):
        value = getattr(config, name)
        if value != JobConfig.model_fields[name].default:
            expected = f"there is after as well: a job that follows others has their moments, so leave {name} out"
            yield InvalidSetting(name, value, expected)
    if not config.monitor_execution:
        expected = "needs monitor_execution = True: its records show which moments it has run"
        yield InvalidSetting("after", config.after, expected)


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


def _ignored(key: str) -> str:
    short = key[:80] if key.isprintable() else ascii(key[:80])
    near = get_close_matches(key[:80], sorted(_keys() - {"overwrite"}), n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return f"the key {short!r} is not known here{hint}: it is kept and has no effect"
