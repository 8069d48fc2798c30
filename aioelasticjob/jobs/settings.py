"""The settings of jobs as types, so that an editor offers their names and types, and a type checker knows mistakes.

An editor shows the text below a setting when the pointer is on its keyword.  Tests hold names, types and texts equal to
those of `JobConfig`, `Script` and `Request`.
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
    """Quartz (6 or 7 fields) or Unix (5 fields, @daily); None for a job that only runs when it is triggered."""
    time_zone: str
    """An IANA name such as Europe/Berlin, or GMT+8."""
    dst: Literal["cron", "quartz"]
    """What happens when the clocks change: as in cron, or as in Quartz."""
    sharding_total_count: int
    """The number of items, 1 to 10,000."""

    sharding_item_parameters: Mapping[int, str] | str
    """A text for each item: ``{0: "Beijing"}``, or ``"0=Beijing,1=Shanghai"``."""
    job_parameter: str
    """A text for all items."""
    per: Literal["item", "instance"]
    """``item``: one call for each item; ``instance``: one call for all items that the instance holds."""
    failover: bool
    """Whether another instance runs an item again at once if an instance dies during its run."""
    max_rescues: int
    """Failover: rescues in a row that may be cut off like the run itself before the run is given up."""
    misfire: bool
    """Whether the newest moment that came during a run or an outage of the registry is run once afterwards."""
    catch_up: Duration
    """A moment at which no instance was up is run once if it is no older than so many seconds; 0 is off."""
    monitor_execution: bool
    """Whether each run is claimed and settled in the registry; without it there is no lock, record or failover."""
    max_time_diff_seconds: Duration
    """Refuse to run while this host's clock and the registry's differ by more; -1 is no limit."""
    sharding_strategy: str
    """How items are assigned: average, odevity, round-robin, single-balance, sticky, or one of your own."""
    error_handler: str
    """What happens to a failure: log, ignore, raise, email, webhook, dingtalk, wecom, or one of your own."""
    error_handler_options: Mapping[str, str]
    """The options of the error handler, text by name."""
    alert_on: Sequence[Alert] | str
    """What the error handler is called for: failed runs, runs that were given up, missed moments, no instance is up."""
    log_runs: Literal["none", "failures", "ends", "all"]
    """Which runs are logged: none; failures, by the error handler; the end of each run as well; its beginning, too."""
    timeout: Duration | None
    """Seconds a run of an item may take, with all its attempts and the waits between them; None for no limit."""
    items_at_once: int | None
    """How many items of the job a process runs side by side; None for all that it holds."""
    executor: str
    """Where a plain function runs: ``thread``, ``process``, or one that a package adds; async ones run in the loop."""
    shutdown_timeout: Duration
    """Seconds that runs may still take when the process stops; then they are cut off."""
    reconcile_interval: Duration
    """Seconds between two checks for what no change in the registry would show."""
    statistics_interval: Duration
    """Seconds between two writes of the counts of a server's runs or records that succeeded and failed."""
    sharding_quiet: Duration
    """Seconds without an instance that joins or leaves, after which items are assigned."""
    server_retention: Duration
    """Seconds after which the nodes of a server without an instance are removed."""
    monitor_port: int
    """Port on 127.0.0.1 that answers with the job's nodes as text; 0 picks a free one, -1 is off."""
    description: str
    """What the job is for, for people."""
    labels: Mapping[str, str] | str
    """What people group and find jobs by, such as ``{"team": "billing"}``; no run depends on it."""
    disabled: bool
    """Whether servers that join the job for the first time are disabled until an operator enables them."""
    requires: Sequence[str] | str
    """Features that a worker has to know to run the job; one that does not know them all joins and runs nothing."""
    overwrite: bool
    """Replace the registry's configuration by this one at start; never stored."""


class JobSettings(CommonSettings, total=False):
    """The settings of every job but dataflow jobs, which try single records again."""

    retry: Retry | None
    """How often a failing run is tried, under one lock; for dataflow jobs, a failing record; None for one attempt."""
    attempt_timeout: Duration | None
    """Seconds one attempt may take; None for no limit but that of the run."""


class DataflowSettings(CommonSettings, total=False):
    """The settings of dataflow jobs besides ``retry``, which is an argument of its own."""

    streaming: bool
    """Dataflow: fetch again and again until there are no records, or an operator or the leader wants the run to end."""
    ordered: bool
    """Dataflow: the records of an item one after another, items side by side."""
    concurrency: int
    """Dataflow, unless ordered: calls of process at the same time, over all items held here."""
    batch_size: int | None
    """Dataflow: process takes a list of at most so many records; None for one record at a time."""
    prefetch: bool | None
    """Dataflow: fetch the next batch while one is in process; None: do so once fetch has saved an offset."""
    max_failures: int | None
    """Dataflow: records of an item that may fail in one run before no more are fetched; None for any number."""
    record_timeout: Duration | None
    """Dataflow: seconds that one call of process may take; None for no limit."""


class ScriptSettings(JobSettings, total=False):
    """The settings of script jobs besides the command."""

    shell: bool
    """Whether the string is given to ``/bin/sh`` as it is."""
    pass_context: bool
    """Whether the context is the last argument, as JSON (``$1`` with a shell); the environment has it in any case."""
    directory: str | None
    """The script's working directory; by default that of this process."""
    environment: Mapping[str, str]
    """Environment variables in addition to those of this process."""
    exit_codes: Sequence[int]
    """The exit codes that mean success."""
    encoding: str
    """The encoding of its output; invalid bytes become U+FFFD."""
    grace: Duration
    """Seconds between SIGTERM and SIGKILL when the run is cut off; fewer if the session may end before that."""
    listeners: Iterable[Listener]
    """What is called before and after the runs."""


class RequestSettings(JobSettings, total=False):
    """The settings of HTTP jobs besides the address."""

    method: str
    """The method of the request."""
    headers: Mapping[str, str]
    """The headers of the request."""
    environment_headers: Mapping[str, str]
    """Environment variables by header, read by the process that runs the job: so a secret stays out of the registry."""
    body: JsonValue
    """The body; a string is sent as it is, anything else as JSON."""
    pass_context: Literal["header", "body", "none"]
    """Whether the context is sent as JSON, in the body or in a header."""
    context_header: str
    """The header for the context; the default is the name that Elastic-Job 3 uses."""
    expected_status: int | str | Sequence[int | str]
    """The statuses that mean success: ``204``, ``"2xx"``, or a list of such."""
    follow_redirects: bool
    """Whether redirects are followed."""
    verify_tls: bool
    """Whether the server's certificate is checked."""
    listeners: Iterable[Listener]
    """What is called before and after the runs."""
