"""`aioelasticjob jobs`, `job NAME` and `watch`: the present state of jobs, and its changes."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence, Set
from functools import partial
from typing import Annotated, TypeAlias

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from aioelasticjob import operations
from aioelasticjob.cli import completion
from aioelasticjob.cli.describe import job_as_json
from aioelasticjob.cli.job_lists import JobList, Order, attention_table
from aioelasticjob.cli.job_tree import job_tree
from aioelasticjob.cli.registry import RegistryOptions, on_a_registry
from aioelasticjob.cli.schedule import duration_text
from aioelasticjob.cli.tables import TextTable
from aioelasticjob.cli.terminal import out, write_json
from aioelasticjob.cli.watching import Watch
from aioelasticjob.clock import SystemClock
from aioelasticjob.core.pauses import Pause
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.plural import counted
from aioelasticjob.ground.times import moment, time_text
from aioelasticjob.model import Record
from aioelasticjob.observers.missed import Count, total_of
from aioelasticjob.operations import InstanceStatus, ItemStatus, JobStatus, ProcessStatus
from aioelasticjob.operations.attention import missed_of
from aioelasticjob.operations.observed_runs import new_missed
from aioelasticjob.operations.queries import items_text
from aioelasticjob.operations.status import STATES
from aioelasticjob.registry.session import Session

Name: TypeAlias = Annotated[str, typer.Argument(help="The job's name.", autocompletion=completion.jobs)]
AnyName: TypeAlias = Annotated[
    str | None, typer.Argument(help="The job's name; without it, all jobs.", autocompletion=completion.jobs)
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
WithLabels: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--label", "-l", help="Only jobs with this label: NAME=VALUE, or NAME; may be given again."),
]
WithStates: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--state", help=f"Only jobs in this state; may be given again: {', '.join(STATES)}."),
]
Attention: TypeAlias = Annotated[
    bool, typer.Option("--attention", help="Only jobs that need attention, and why, the worst first.")
]
Sort: TypeAlias = Annotated[Order | None, typer.Option("--sort", help="The order of the jobs.", show_default=False)]
Wide: TypeAlias = Annotated[
    bool, typer.Option("--wide", help="Show every column in full, however narrow the terminal is.")
]
AsTree: TypeAlias = Annotated[bool, typer.Option("--tree", help="Show which job follows which.")]
Live: TypeAlias = Annotated[bool, typer.Option("--watch", "-w", help="Stay, and show every change.")]

NEEDS_ATTENTION = 4
"""The exit code of ``jobs --attention`` if there is a job that needs it."""
STATE_STYLES = {
    "running": "green",
    "faulty": "red",
    "foreign": "yellow",
    "nobody there": "yellow",
    "nobody able": "red",
    "clock differs": "red",
    "calendar missing": "red",
    "switched off": "yellow",
    "partly off": "yellow",
    "never fires": "red",
}


@on_a_registry
def jobs(
    where: RegistryOptions,
    label: WithLabels = None,
    state: WithStates = None,
    attention: Attention = False,
    sort: Sort = None,
    wide: Wide = False,
    tree: AsTree = False,
    watch: Live = False,
    as_json: AsJson = False,
) -> None:
    """List the jobs of a namespace.

    With --attention it lists those that need it, and the exit code is 4 if there are any.
    """
    if tree and (attention or as_json):
        raise InvalidSetting("tree", True, "cannot be combined with --attention or --json")
    listed = JobList(
        labels=[operations.label_in(one) for one in label or ()],
        states=state or (),
        order=sort or (Order.WORST if attention else Order.NAME),
        attention=attention,
        wide=wide,
        tree=tree,
    )

    def as_values(found: tuple[JobStatus, ...]) -> list[dict[str, object]]:
        return listed.as_values(found, SystemClock().now())

    if watch:
        said = as_values if as_json else None
        Watch(operations.watch_all, partial(_list, listed), said, _problems_of_all).show(where)
        return
    now = SystemClock().now()
    found, processes = where.look(lambda session: _read_all(session, now))
    now = _registry_time(now, processes)
    found = tuple(status.at(now) for status in found)
    chosen = listed.chosen(found, now)
    if as_json:
        write_json([one.as_json(processes) for one in chosen])
    elif chosen:
        out(wide=wide).print(Group(_list(listed, found, now), *_problems_of_all(found, processes)))
    else:
        out().print(f"{listed.nothing} in {where.address}", style="dim", markup=False)
    if attention and chosen:
        raise typer.Exit(NEEDS_ATTENTION)


@on_a_registry
def job(where: RegistryOptions, name: Name, watch: Live = False, as_json: AsJson = False) -> None:
    """Show one job: its settings, who leads, which instance holds and runs which item."""
    if watch:
        _follow(where, name, as_json)
        return
    now = SystemClock().now()
    status, processes = where.look(lambda session: _read_one(session, name, now))
    now = _registry_time(now, processes)
    status = status.at(now)
    if as_json:
        write_json(job_as_json(status, processes))
    else:
        out().print(Group(_picture(status, now), *_problems_of_job(status, processes)))


@on_a_registry
def watch(where: RegistryOptions, name: AnyName = None, as_json: AsJson = False) -> None:
    """Stay and show every change: of all jobs, or of one. The same as --watch after jobs and job."""
    if name is not None:
        _follow(where, name, as_json)
    else:
        every_job = JobList()

        def as_values(found: tuple[JobStatus, ...]) -> list[dict[str, object]]:
            return every_job.as_values(found, SystemClock().now())

        said = as_values if as_json else None
        Watch(operations.watch_all, partial(_list, every_job), said, _problems_of_all).show(where)


async def _read_all(session: Session, now: float) -> tuple[tuple[JobStatus, ...], tuple[ProcessStatus, ...]]:
    return await operations.jobs(session, now=now), await operations.processes(session)


async def _read_one(session: Session, name: str, now: float) -> tuple[JobStatus, tuple[ProcessStatus, ...]]:
    return await operations.job(session, name, now=now), await operations.processes(session)


def _registry_time(now: float, processes: Iterable[ProcessStatus]) -> float:
    """Return the registry's time: ``now`` is this host's, and a process here may say that its clock is wrong."""
    here = socket.gethostname()
    differences = (one.problems.clock_differs for one in processes if one.host == here)
    return now - next((seconds for seconds in differences if seconds is not None), 0.0)


def _problems_of_all(_: object, processes: Iterable[ProcessStatus]) -> list[Text]:
    """Return a line for each thing that a process cannot do at present."""
    return [Text(f"{one.name}: {said}", style="yellow") for one in processes for said in one.problems.sentences()]


def _problems_of_job(status: JobStatus, processes: Iterable[ProcessStatus]) -> list[Text]:
    """Return the same for the processes in which a job has an instance."""
    return _problems_of_all(status, operations.processes_of(status, processes))


def _follow(where: RegistryOptions, name: str, as_json: bool) -> None:
    said = job_as_json if as_json else None
    Watch(lambda session: operations.watch(session, name), _picture, said, _problems_of_job).show(where)


def _list(listed: JobList, found: Sequence[JobStatus], now: float) -> RenderableType:
    chosen = listed.chosen(found, now)
    if listed.attention:
        return attention_table(chosen, wide=listed.wide)
    if listed.tree:
        return job_tree([one.status for one in chosen], partial(_line, now=now))
    return _table([one.status for one in chosen], now, wide=listed.wide)


def _table(found: Sequence[JobStatus], now: float, *, wide: bool) -> RenderableType:
    titles = "Job", "Kind", "Schedule", ">Items", ">Instances", "State", "Last run", "Next fire"
    labels = ("Labels",) if any(status.config.labels for status in found) else ()
    spare = "Kind", *labels, "Instances", "Last run", "Items"
    table = TextTable(*titles, *labels, whole=("Job", "State"), spare=spare, wide=wide)
    for status in found:
        config = status.config
        table.add(
            Text(config.job_name, style="bold"),
            "" if status.foreign else config.job_type.lower(),
            Text(_schedule(status)),
            "" if status.foreign else f"{config.sharding_total_count:,}",
            str(len(status.instances)),
            Text(_state(status), style=STATE_STYLES.get(status.state, "")),
            _newest(status, now),
            _next(status, now),
            *([Text(_labels(status))] if labels else []),
        )
    blocked = [Text(f"{status.name}: {line}", style="red") for status in found for line in _blocked(status)]
    return Group(table, *blocked) if blocked else table


def _line(status: JobStatus, now: float) -> Text:
    """Return a job as a line of the tree."""
    line = Text(status.name, style="bold")
    line.append(f"  {_schedule(status)}  ", style="not bold dim")
    line.append(_state(status), style=f"not bold {STATE_STYLES.get(status.state, '')}")
    for said in _problems_and_waiting(status, now):
        line.append("  ").append_text(said)
    return line


def _blocked(status: JobStatus) -> list[str]:
    """Return a sentence for each lock that somebody has made by hand: it names the node, and what to do."""
    made = "somebody has made that lock by hand"
    return [f"item {one.item} does not run until you remove {one.blocked_by}: {made}" for one in status.blocked]


def _labels(status: JobStatus) -> str:
    return ", ".join(f"{name}={value}" for name, value in status.config.labels.items())


def _state(status: JobStatus) -> str:
    """Return a job's state in a word, and whatever is unusual about it."""
    odd = ((status.orphans, "orphaned"), (status.blocked, "blocked"))
    found = [status.state, *(f"{len(items):,} {word}" for items, word in odd if items)]
    missed = total_of(missed_of(status))
    if missed.number:
        found.append(_missed(missed))
    return ", ".join(found)


def _missed(count: Count) -> str:
    """Return how many moments were missed, as far as the newest write of the records reports."""
    at_least = "at least " if count.is_least else ""
    return f"missed {at_least}{counted(count.number, 'moment')}"


def pause_text(pause: Pause, now: float, what: str = "the whole job was paused") -> str:
    """Return a sentence about a pause, by default that of a whole job."""
    by = f" by {pause.by}" if pause.by else ""
    ago = duration_text(max(0.0, now - pause.since))
    end = "it is resumed" if not pause.ends else time_text(moment(pause.until))
    note = f" ({pause.note})" if pause.note else ""
    return f"{what}{by} {ago} ago: nothing is run until {end}{note}"


def _picture(status: JobStatus, now: float) -> RenderableType:
    config = status.config
    kind = "another program's" if status.foreign else config.job_type.lower()
    title = Text(config.job_name, style="bold").append(f"  {kind} job, ", style="not bold")
    lines: list[RenderableType] = [title.append(_state(status), style=f"not bold {STATE_STYLES.get(status.state, '')}")]
    if status.pause is not None:
        lines.append(Text(pause_text(status.pause, now), style="yellow"))
    if status.fault is not None:
        lines.append(Text(status.fault, style="red"))
    lines += [Text(f"config: {sentence}", style="yellow") for sentence in status.ignored]
    if config.handler is not None:
        lines.append(Text(f"created for the handler {config.handler}"))
    if config.description:
        lines.append(Text(config.description))
    if config.labels:
        lines.append(Text(f"labels {_labels(status)}"))
    if not status.foreign:
        schedule = status.schedule
        if schedule is not None:
            said = f"{schedule.expression}  {schedule.describe()}"
        else:
            said = "no moments yet" if config.after else "on demand only"
        lines += [Text(said), *_following(status, now)]
    if status.next_fire is not None:
        lines.append(Text("next fire ").append_text(_next(status, now)))
    elif missing := status.missing_calendars:
        text = f"a calendar is missing ({operations.listed(missing)}): the job runs nothing until there is one"
        lines.append(Text(text, style="red"))
    elif status.state == "never fires":
        lines.append(Text("the schedule names no moment of any year, so the job never runs by itself", style="red"))
    elif status.state == "finished":
        lines.append(Text("the schedule has no further moment: the job runs only when it is triggered"))
    if status.succeeded or status.failed:
        counts = counted(status.succeeded, "record" if config.job_type == "DATAFLOW" else "run")
        lines.append(Text(f"in the last interval {counts} succeeded and {status.failed:,} failed"))
    lines += [Text(), _instances(status, now), *_unable(status), *_refusing(status), *_declared_otherwise(status)]
    lines.append(_items(status, now) if status.items else Text("no items assigned yet", style="dim"))
    lines += [Text(line, style="red") for line in _blocked(status)]
    for server in status.servers:
        if server.flags:
            lines.append(Text(f"server {server.ip} {server.host} is {' and '.join(server.flags)}", style="yellow"))
    return Group(*lines)


def _following(status: JobStatus, now: float) -> list[Text]:
    """Return lines that say which jobs a job follows, and for whose items it waits."""
    if not status.config.after:
        return []
    outcome = "ended" if status.config.after_outcome == "any" else "completed"
    first = Text(f"runs each moment once it has {outcome} in {', '.join(status.config.after)}")
    return [first, *_problems_and_waiting(status, now)]


def _problems_and_waiting(status: JobStatus, now: float) -> list[Text]:
    """Return lines that say why a job cannot follow another one, and for whose items it waits."""
    problems = [one for one in status.upstreams if one.problem]
    lines = [Text(f"it cannot follow {one.job}: {one.problem}", style="red") for one in problems]
    if status.waiting_moment is not None:
        waits = [f"{items_text(one.waits_for)} of {one.job}" for one in status.upstreams if one.waits_for]
        ago = duration_text(max(0.0, now - status.waiting_moment.timestamp()))
        at = f"{time_text(status.waiting_moment)}, {ago} ago"
        lines.append(Text(f"waits for {' and '.join(waits) or 'its upstreams'} to end the moment {at}", style="yellow"))
    return lines


def _unable(status: JobStatus) -> list[Text]:
    """Return a line for each instance that runs nothing because its process cannot use the configuration."""
    return [
        Text(f"{one.id} runs nothing, because its process cannot use the configuration: {one.unusable}", style="red")
        for one in status.instances
        if one.unusable
    ]


def _refusing(status: JobStatus) -> list[Text]:
    """Return a line for each instance that refuses all runs because of its host's clock."""
    limit = f"max_time_diff_seconds is {status.config.max_time_diff_seconds}"
    return [
        Text(
            f"{one.id} refuses all runs: the clock of {one.host or one.ip} is {abs(seconds)} s "
            f"{'ahead of' if seconds > 0 else 'behind'} the registry's, and {limit}",
            style="yellow",
        )
        for one in status.instances
        if (seconds := one.clock_differs) is not None
    ]


def _declared_otherwise(status: JobStatus) -> list[Text]:
    """Return a line for each instance whose process declares settings otherwise, and one if the handlers differ."""
    lines = [
        Text(f"{one.id} declares otherwise than the registry: {', '.join(one.differs)}", style="yellow")
        for one in status.instances
        if one.differs
    ]
    if handlers := status.differing_handlers:
        lines.append(Text(f"the instances run different handlers: {', '.join(handlers)}", style="yellow"))
    if found := status.zone_databases:
        text = f"the instances have different rules for {status.config.time_zone}: {', '.join(found)}"
        lines.append(Text(text, style="yellow"))
    return lines


def _instances(status: JobStatus, now: float) -> RenderableType:
    if status.lacks_handler:
        return Text(f"no instance is there: no process has the handler {status.config.handler}", style="yellow")
    if not status.instances:
        return Text("no instance is there", style="yellow")
    titles = "Instance", "Host", ">Process", "Holds", "Runs", "Here for", "State"
    table = TextTable(*titles, whole=("Instance", "State"), spare=("Host", "Process", "Here for"))
    for one in status.instances:
        table.add(
            Text(one.id),
            Text(one.host),
            str(one.pid or ""),
            _numbers(one.holds),
            _numbers(one.runs),
            duration_text(max(0.0, now - one.joined.timestamp())),
            _role(status, one),
        )
    return table


def _role(status: JobStatus, one: InstanceStatus) -> Text:
    if one.leaving:
        return Text("leaving", style="yellow")
    if one.lacks:
        return Text(f"lacks {operations.listed(one.lacks, 3)}", style="red")
    if one.unusable:
        return Text("cannot use the configuration", style="red")
    closed = status.paused or any(server.ip == one.ip and server.flags for server in status.servers)
    return Text("switched off", style="yellow") if closed else Text("leads" if one.leads else "", style="bold")


def _items(status: JobStatus, now: float) -> TextTable:
    titles = ">Item", "Parameter", "Held by", "Running", "Last run", "State"
    table = TextTable(*titles, whole=("Held by",), spare=("Parameter",))
    gone = status.gone_holders
    for item in status.items:
        table.add(
            str(item.item),
            item.parameter or "",
            Text(item.holder or "nobody", style="" if item.holder else "yellow"),
            _running(item, now),
            _last(item, now) if status.config.monitor_execution else Text("not recorded", style="dim"),
            Text(", ".join(_marks(item, gone)), style="yellow"),
        )
    return table


def _running(item: ItemStatus, now: float) -> Text:
    if item.run is None:
        return Text("·", style="dim")
    where = "" if item.run.instance == item.holder else f" on {item.run.instance}"
    return Text(f"for {duration_text(max(0.0, now - item.run.since.timestamp()))}{where}", style="green")


def _last(item: ItemStatus, now: float) -> Text:
    record = item.record
    if record is None or not record.begun:
        return Text("never", style="dim")
    return Text("·", style="dim") if item.run is not None and _is_open(record) else _end(item, record, now)


def _newest(status: JobStatus, now: float) -> Text:
    """Return how the newest run of a job has ended; while it goes on, for how long."""
    if not status.config.monitor_execution:
        return Text("not recorded", style="dim")
    record = status.last
    item = next((one for one in status.items if one.record is record), None)
    if item is None or record is None:
        return Text("")
    if item.run is not None:
        return Text(f"running for {duration_text(max(0.0, now - item.run.since.timestamp()))}", style="green")
    return _end(item, record, now)


def _end(item: ItemStatus, record: Record, now: float) -> Text:
    if item.run is None and _is_open(record):
        return Text(f"cut off, begun {duration_text(max(0.0, now - record.begun / 1000))} ago", style="red")
    return _outcome(record, now)


def _is_open(record: Record) -> bool:
    return not record.completed and not record.outcome


def _outcome(record: Record, now: float) -> Text:
    if not record.completed_at:
        return Text("")
    ago, took = max(0.0, now - record.completed_at / 1000), max(0, record.completed_at - record.begun)
    if not record.outcome:  # the next run has begun
        return Text(f"ended {duration_text(ago)} ago")
    style = "" if record.outcome == "completed" else "red"
    said = Text(record.outcome, style=style).append(f" {duration_text(ago)} ago ({took:,} ms)", style="default")
    return said.append(f": {record.error}", style=style) if record.error else said


def _marks(item: ItemStatus, gone: Set[str]) -> list[str]:
    rescued = "" if item.rescuer is None else f"rescued by {item.rescuer}"
    missed = total_of(new_missed({}, [item]))
    marks = (
        ("its instance is gone", item.holder in gone),
        ("disabled", item.disabled),
        ("blocked", item.blocked_by),
        ("waits for a rescuer", item.orphaned),
        (rescued, rescued),
        (_missed(missed), missed.number),
        (f"offset {_short(item.offset or '')}", item.offset is not None),
    )
    return [word for word, holds in marks if holds]


def _short(text: str) -> str:
    return text if len(text) <= 30 else f"{text[:30]}… ({len(text):,} characters)"


def _schedule(status: JobStatus) -> str:
    config = status.config
    if status.foreign:
        return ""
    if config.after:
        return f"after {', '.join(config.after)}"
    if config.schedule is None:
        return "on demand"
    zone = f"  {config.time_zone}" if config.schedule.uses_zone and config.time_zone != "UTC" else ""
    return f"{config.schedule.expression}{zone}"


def _next(status: JobStatus, now: float) -> Text:
    if status.next_fire is None:
        return Text("")
    wait = duration_text(max(0.0, status.next_fire.timestamp() - now))
    return Text(time_text(status.next_fire)).append(f"  in {wait}", style="dim")


def _numbers(items: tuple[int, ...]) -> str:
    return operations.listed(items) if items else "·"
