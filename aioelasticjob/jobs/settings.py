"""The settings of jobs as types, so that an editor offers their names and types, and a type checker knows mistakes.

What they mean is written beside the fields of `JobConfig`, `Script` and `Request`; tests hold them equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypedDict

from pydantic import JsonValue

from aioelasticjob.durations import Duration
from aioelasticjob.jobs.listeners import Listener
from aioelasticjob.retry import Retry
from aioelasticjob.setting_types import Alert


class CommonSettings(TypedDict, total=False):
    """The settings that jobs of every kind take as keywords."""

    cron: str | None
    time_zone: str
    dst: Literal["cron", "quartz"]
    sharding_total_count: int
    sharding_item_parameters: Mapping[int, str] | str
    job_parameter: str
    per: Literal["item", "instance"]
    failover: bool
    max_rescues: int
    misfire: bool
    catch_up: Duration
    monitor_execution: bool
    max_time_diff_seconds: Duration
    sharding_strategy: str
    error_handler: str
    error_handler_options: Mapping[str, str]
    alert_on: Sequence[Alert] | str
    log_runs: Literal["none", "failures", "ends", "all"]
    timeout: Duration | None
    items_at_once: int | None
    executor: str
    shutdown_timeout: Duration
    reconcile_interval: Duration
    statistics_interval: Duration
    sharding_quiet: Duration
    server_retention: Duration
    monitor_port: int
    description: str
    labels: Mapping[str, str] | str
    disabled: bool
    requires: Sequence[str] | str
    overwrite: bool


class JobSettings(CommonSettings, total=False):
    """The settings of every job but dataflow jobs, which try single records again."""

    retry: Retry | None
    attempt_timeout: Duration | None


class DataflowSettings(CommonSettings, total=False):
    """The settings of dataflow jobs besides ``retry``, which is an argument of its own."""

    streaming: bool
    ordered: bool
    concurrency: int
    batch_size: int | None
    prefetch: bool | None
    max_failures: int | None
    record_timeout: Duration | None


class ScriptSettings(JobSettings, total=False):
    """The settings of script jobs besides the command."""

    shell: bool
    pass_context: bool
    directory: str | None
    environment: Mapping[str, str]
    exit_codes: Sequence[int]
    encoding: str
    grace: Duration
    listeners: Iterable[Listener]


class RequestSettings(JobSettings, total=False):
    """The settings of HTTP jobs besides the address."""

    method: str
    headers: Mapping[str, str]
    environment_headers: Mapping[str, str]
    body: JsonValue
    pass_context: Literal["header", "body", "none"]
    context_header: str
    expected_status: int | str | Sequence[int | str]
    follow_redirects: bool
    verify_tls: bool
    listeners: Iterable[Listener]
