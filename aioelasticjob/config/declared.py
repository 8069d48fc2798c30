"""The settings of a job, each written once: type, bounds, default, section, label and meaning.

The text below a setting is Markdown, with links as on the page ``docs/reference/settings.md``.  The command ``python -m
tests.generate`` writes that page's table and the types in ``jobs/settings.py``.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, JsonValue
from pydantic.alias_generators import to_camel

from aioelasticjob.config.retry import Retry
from aioelasticjob.config.sections import DATAFLOW, FAILURES, ITEMS, MORE, OWN, SAFETY, SCHEDULE, Label, Section
from aioelasticjob.config.types import (
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
    ZoneName,
    parts_of,
)

MAX_ITEMS = 10_000
"""The most items of a job: each instance goes through all of them in one step of its loop (docs/why/running.md)."""
MAX_CONCURRENCY = 100_000
MAX_BATCH = 1_000_000


class DeclaredSettings(BaseModel):
    """All settings of a job; `JobConfig` adds what checks, reads and writes them."""

    model_config = ConfigDict(frozen=True, extra="allow", alias_generator=to_camel, populate_by_name=True)

    job_name: str
    """1 to 200 letters, digits, `_`, `-`, `.`. The decorator's argument is `name`; its default is the function's
    name."""
    job_type: str = "SIMPLE"
    """The kind: `SIMPLE`, `DATAFLOW`, `SCRIPT`, `HTTP`, or [your own](../how-to/own-kind.md). It follows from how
    the job is declared."""
    options: Annotated[dict[str, JsonValue], OWN] = Field(default_factory=dict)
    """The settings that only this kind of job has, as an object: a [script](../how-to/script-and-http.md)'s
    `command`, a request's `url`, …"""
    cron: Annotated[str | None, SCHEDULE] = None
    """A [schedule](schedules.md) of Quartz (6 or 7 fields) or crontab (5 fields, `@daily`). `None`: the job runs
    only when triggered. A schedule without any moment, such as the 30th of February, is refused; written into the
    registry by hand it is shown as never fires. If all moments are over, the job is shown as finished."""
    time_zone: Annotated[ZoneName, SCHEDULE] = "UTC"
    """An IANA name such as `Europe/Berlin`, or `GMT+8`. Code may give a `ZoneInfo` that has such a name."""
    dst: Annotated[Literal["cron", "quartz"], SCHEDULE, Label("When the clocks change")] = "cron"
    """What happens when the clocks change: `"cron"`, as cron does it, or `"quartz"`, as Quartz does it
    ([why](../why/cron.md))."""
    sharding_total_count: Annotated[int, ITEMS, Label("Number of items")] = Field(default=1, ge=1, le=MAX_ITEMS)
    """The number of items, 1 to 10,000 ([why](../why/running.md#at-most-10000-items))."""
    sharding_item_parameters: Annotated[ItemParameters, ITEMS, Label("Parameters of items")] = Field(
        default_factory=dict
    )
    """A text for each item: `{0: "Beijing"}`, or `"0=Beijing,1=Shanghai"`."""
    job_parameter: Annotated[str, ITEMS] = ""
    """A text for all items."""
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
    """What the error handler is called for: runs that `failed` or were `given-up`, moments that were `missed`, and
    [`nobody-there`](../how-to/failures.md#what-else-is-an-error-handler-called-for). A list, or text such as
    `"failed,missed"`. A failed run for which the error handler is not called is logged."""
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
    disabled: Annotated[bool, Label("New servers start disabled")] = False
    """Servers that join the job for the first time are disabled until an operator enables them."""
    requires: Annotated[Features, Label("Requires features")] = ()
    """Features of the registry's format that a worker has to know to run the job, a list of text. A worker that
    lacks one runs nothing and [says what it lacks](../why/format.md). Left out of `config` while it is empty."""
    overwrite: bool | None = Field(default=None, exclude=True)
    """At the start, replace the registry's configuration by the code's,
    [also one that makes no sense](../how-to/change-settings.md#replace-the-settings-at-the-start); never stored. With
    `None` it is done if the [application](application.md) has `overwrite=True`."""


@cache
def section_of(name: str) -> Section:
    """Return the section of a form that shows a setting."""
    for one in DeclaredSettings.model_fields[name].metadata:
        if isinstance(one, Section):
            return one
    return MORE


@cache
def label_of(name: str) -> str:
    """Return the text by which a form calls a setting: the one beside it, else its name, and its unit."""
    field = DeclaredSettings.model_fields[name]
    for one in field.metadata:
        if isinstance(one, Label):
            return one.text
    label = name.replace("_", " ").capitalize()
    if DURATION in parts_of(field):
        label += " (seconds)"
    return label
