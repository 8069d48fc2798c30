"""The settings of jobs as types, so that an editor offers their names and types, and a type checker knows mistakes.

An editor shows the text below a setting when the pointer is on its keyword.  Settings and texts are those of the models
`JobConfig`, `Script` and `Request`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Literal, TypedDict
from zoneinfo import ZoneInfo

from pydantic import JsonValue

from aioelasticjob.config.durations import Duration
from aioelasticjob.config.retry import Retry
from aioelasticjob.config.types import Alert
from aioelasticjob.jobs.listeners import Listener


class CommonSettings(TypedDict, total=False):
    """The settings that jobs of every kind take as keywords."""

    # CommonSettings: written by python -m tests.generate
    cron: str | Sequence[str] | None
    """A schedule of Quartz (6 or 7 fields) or crontab (5 fields, `@daily`); several as a list, or as one text with `;`
    between them. With none of `cron`, `every`, `at` and `after` the job runs only when triggered. A schedule without
    any moment, such as the 30th of February, is refused; written into the registry by hand it is shown as never fires.
    If all moments are over, the job is shown as finished."""
    every: Duration | None
    """In place of `cron`: an interval of at least 1 second. The moments are `start_at`, or else the beginning of 1970
    in UTC, and then one after each interval. Elapsed time counts, so nothing happens when the clocks change."""
    at: str | date | Sequence[str | date]
    """In place of `cron`: a moment, or a list of some, such as `"2026-12-24T18:00"`. One without an offset is meant in
    `time_zone`. At most 1,000."""
    after: Sequence[str] | str
    """In place of `cron`: the name of a job that this one follows, or a list of some. Its moments are those of that
    job, or those that all of them have, and each is run once they have ended it. Needs `monitor_execution`; not with
    `jitter`, `calendar`, `start_at` or `end_at`. At most 20."""
    after_outcome: Literal["completed", "any"]
    """What a job that follows others waits for: `"completed"`: a moment that they have missed, or whose run has not
    completed, is missed here as well; `"any"`: it is run as soon as it has ended there."""
    time_zone: str | ZoneInfo
    """An IANA name such as `Europe/Berlin`, or `GMT+8`. Code may give a `ZoneInfo` that has such a name."""
    dst: Literal["cron", "quartz"]
    """What happens when the clocks change: `"cron"`, as cron does it, or `"quartz"`, as Quartz does it."""
    start_at: str | date | None
    """The schedule has no moment before this one. A time without an offset is meant in `time_zone`."""
    end_at: str | date | None
    """The schedule has no moment after this one. A time without an offset is meant in `time_zone`."""
    jitter: Duration
    """Delays the runs of each moment by up to so many seconds, each by another time, so that not all jobs begin in the
    same second; less than the time until the next moment. The delay follows from the job's name and the moment, so it
    is the same in all instances. 0 is off."""
    calendar: str | Sequence[str]
    """The name of a calendar, or a list of some: on their days the job does not run. The calendars are in the registry;
    while one of them is missing, the job runs nothing."""
    calendar_mode: Literal["skip", "next", "previous"]
    """What becomes of the moments on days of a calendar: with `"skip"` they are left out, with `"next"` and
    `"previous"` they move to the next or previous open day, to the same local time, at most 31 days. Moments that fall
    together are one."""
    sharding_total_count: int
    """The number of items, 1 to 10,000. By default one slow item delays the others on its process."""
    sharding_item_parameters: Mapping[int, str] | str
    """A text for each item: `{0: "Beijing"}`, or `"0=Beijing,1=Shanghai"`."""
    job_parameter: str | Mapping[str, object]
    """A text for all items; a mapping becomes JSON."""
    per: Literal["item", "instance"]
    """`"item"`: one call for each item; `"instance"`: one call for all items that the instance holds. If handlers
    cannot take what the registry's value gives them, the declared value is used."""
    items_at_once: int | None
    """How many items of the job a process runs side by side, 1 to 10,000; `None` is all that it holds. Not with
    `per="instance"` or `streaming`."""
    independent_items: bool
    """With `True` the next moment of an item waits only for that item; with `False` one slow item delays the others on
    its process. Not with `per="instance"` or `streaming`."""
    failover: bool
    """If an instance dies during a run, another instance runs the item again at once. Needs `monitor_execution`."""
    max_rescues: int
    """Failover: how many rescues in a row may be cut off before a run is given up; at least 1."""
    misfire: bool
    """What happens to moments that came during a run or an outage of the registry: with `True` the newest is run once
    afterwards, with `False` none."""
    catch_up: Duration
    """If no instance was up at a scheduled moment, the first one that comes back runs it once, if it is at most so many
    seconds ago; 0 is off. Moments that are not run are reported. Needs `monitor_execution`."""
    monitor_execution: bool
    """Claim and settle each run in the registry. Without it there is no lock, no record, no failover and no fence."""
    max_time_diff_seconds: Duration
    """Refuse to run while this host's clock and the registry's differ by more than so many seconds; -1 is no limit. If
    they differ by more than a second, the registry's clock is used."""
    sharding_strategy: str
    """How items are assigned: `average-by-name`, `average`, `odevity`, `round-robin`, `single-balance`, `sticky`, or
    your own."""
    error_handler: str
    """What happens to a failure: `log`, `ignore`, `raise`, `email`, `webhook`, `dingtalk`, `wecom`, or your own."""
    error_handler_options: Mapping[str, str]
    """The options of the error handler, text by name."""
    alert_on: Sequence[Alert] | str
    """What the error handler is called for. By workers: for runs that `failed` or were `given-up`, and for moments that
    were `missed`. By `aioelasticjob alert`: `nobody-there`, `nobody-leads`, `failing`, `misfiring`, `late`,
    `writes-refused`, `config-unusable`, `clock-differs`; it also says when they, and `given-up`, are over. A list, or
    text such as `"failed,missed"`. A failed run for which the error handler is not called is logged."""
    must_end_within: Duration | None
    """A moment is `late` if its run has not ended on all items so long after it came, at least 0.001 s; `None` is no
    limit. Needs `monitor_execution`; not with `streaming`."""
    must_start_within: Duration | None
    """The same for moments that have not begun on all items."""
    log_runs: Literal["none", "failures", "ends", "all"]
    """Which runs the log has: `"none"`; `"failures"`: those that failed, were cancelled or cut off; `"ends"`, also one
    line for each run with its items, source, duration and outcome; `"all"`, also one line when a run begins. With
    `"none"` the error handler `log` is silent."""
    timeout: Duration | None
    """Seconds that the run of an item may take, with all its attempts and the waits between them, at least 0.001;
    `None` is no limit."""
    executor: str
    """Where a plain function runs: `"thread"`; `"process"`, which can be cancelled; or one of your own. An `async def`
    always runs in the event loop, and cannot have `"process"`. If handlers cannot be sent to processes, the declared
    value is used."""
    shutdown_timeout: Duration
    """Seconds that running items may go on when the job leaves; then they are cut off."""
    reconcile_interval: Duration
    """Seconds between two checks of everything, even if nothing has changed in the registry; 1 to 86,400."""
    statistics_interval: Duration
    """Seconds between two writes of the counts of runs, or of a dataflow's records, that succeeded and failed; 1 to
    86,400."""
    sharding_quiet: Duration
    """Items are assigned when no instance has joined or left for so many seconds, 0 to 60."""
    server_retention: Duration
    """The nodes of a server that had no instance for so many seconds (up to a quarter more) and has no flag are
    removed."""
    monitor_port: int
    """Port on 127.0.0.1 that answers with a dump of the job; 0 picks a free one and logs it, -1 is off. If another
    process has the port, the job runs all the same, and the port is tried again."""
    description: str
    """What the job is for, for people."""
    labels: Mapping[str, str] | str
    """Texts by which people group and find jobs: `{"team": "billing"}`, or `"team=billing,tier=gold"`. The console and
    `jobs --label` filter by them."""
    links: Mapping[str, str] | str
    """Addresses for people, by what is found there: `{"runbook": "https://wiki.example.org/{job}"}`, or
    `"runbook=https://…"`. `{job}`, `{run_id}` and `{task_id}` are filled in. The console shows them on the pages of the
    job and of its runs, and messages have them; one that needs a run is left out elsewhere."""
    disabled: bool
    """Servers that join the job for the first time are disabled until an operator enables them."""
    requires: Sequence[str] | str
    """Features of the registry's format that a worker has to know to run the job, a list of text. A worker that lacks
    one runs nothing and says what it lacks. Left out of `config` while it is empty."""
    overwrite: bool | None
    """At the start, replace the registry's configuration by the code's, also one that makes no sense; never stored.
    With `None` it is done if the application has `overwrite=True`."""


class JobSettings(CommonSettings, total=False):
    """The settings of every job but dataflow jobs, which try single records again."""

    # JobSettings: written by python -m tests.generate
    retry: Retry | None
    """How often a run that fails is tried: a `Retry`, or outside of code a mapping with any of `attempts`, `backoff`,
    `on` and `longest`; `None` is one attempt. In a dataflow each record is tried again."""
    attempt_timeout: Duration | None
    """Seconds that one attempt may take, at least 0.001 and not more than `timeout`; `None` is no limit. Dataflow jobs
    have `record_timeout` instead."""


class DataflowSettings(CommonSettings, total=False):
    """The settings of dataflow jobs besides ``retry``, which is an argument of its own."""

    # DataflowSettings: written by python -m tests.generate
    streaming: bool
    """Dataflow: fetch again and again until there are no records, or until an operator or the leader wants the run to
    end."""
    ordered: bool
    """Dataflow: process the records of an item one after another, and the items side by side."""
    concurrency: int
    """Dataflow, unless ordered: how many calls of `process` run at the same time, over all items that the instance
    holds, 1 to 100,000."""
    batch_size: int | None
    """Dataflow: `process` takes a list of at most so many records, 1 to 1,000,000; with `None` it takes one record."""
    prefetch: bool | None
    """Dataflow: fetch the next batch while one is in process; with `None`, as soon as `fetch` has saved an offset."""
    max_failures: int | None
    """Dataflow: if more than so many records of an item fail in one run, the run has failed and fetches no more; `None`
    is no limit."""
    record_timeout: Duration | None
    """Dataflow: seconds that one call of `process` may take, at least 0.001; `None` is no limit. Waiting for a free
    thread or process does not count."""


class ScriptSettings(JobSettings, total=False):
    """The settings of script jobs besides the command."""

    listeners: Iterable[Listener]
    """What is called before and after the runs."""

    # ScriptSettings: written by python -m tests.generate
    shell: bool
    """Give the string to `/bin/sh` as it is."""
    pass_context: bool
    """Append the context as JSON, as the last argument (`$1` with `shell`). The environment has it in any case."""
    directory: str | None
    """The directory in which the script runs; `None` is the current directory of the process."""
    environment: Mapping[str, str]
    """Environment variables that are added to those of the process."""
    exit_codes: Sequence[int]
    """The exit codes that mean success."""
    encoding: str
    """The encoding of its output; invalid bytes become U+FFFD."""
    grace: Duration
    """Seconds between SIGTERM and SIGKILL when the run is cut off; fewer if the session may end before that."""


class RequestSettings(JobSettings, total=False):
    """The settings of HTTP jobs besides the address."""

    listeners: Iterable[Listener]
    """What is called before and after the runs."""

    # RequestSettings: written by python -m tests.generate
    method: str
    """The method of the request."""
    headers: Mapping[str, str]
    """The headers of the request."""
    environment_headers: Mapping[str, str]
    """Maps a header to the environment variable with its value. The variable is read where the job runs, so a secret is
    not stored in the registry."""
    body: JsonValue
    """The body; a string is sent as it is, anything else as JSON."""
    pass_context: Literal["header", "body", "none"]
    """Where the context is sent, as the JSON that a script gets: `"header"`, `"body"` or `"none"`."""
    context_header: str
    """The name of the header with the context; the default is that of ElasticJob 3."""
    expected_status: int | str | Sequence[int | str]
    """The statuses that mean success: `204`, `"2xx"`, or a list of these."""
    follow_redirects: bool
    """Whether redirects are followed."""
    verify_tls: bool
    """Whether the server's certificate is checked; with `False`, any certificate is accepted."""
