"""`aioelasticjob jobs` and `aioelasticjob job NAME`: what is where, now."""

from __future__ import annotations

from typing import Annotated, Literal

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from aioelasticjob import operations
from aioelasticjob.cli.console import out, write_json
from aioelasticjob.cli.cron import in_words
from aioelasticjob.cli.describe import job_as_json, summary_as_json
from aioelasticjob.cli.registry import DEFAULT, Digest, Patience, Registry, look
from aioelasticjob.clock import SystemClock
from aioelasticjob.operations import InstanceStatus, ItemStatus, JobStatus

AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]

_STATES = {"running": "green", "faulty": "red", "nobody there": "yellow", "switched off": "yellow"}


def jobs(registry: Registry = DEFAULT, digest: Digest = None, timeout: Patience = 5, as_json: AsJson = False) -> None:
    """List the jobs of a namespace."""
    now = SystemClock().now()
    found = look(registry, digest, timeout, lambda session: operations.jobs(session, now=now))
    if as_json:
        write_json([summary_as_json(status) for status in found])
    elif found:
        out().print(_list(found, now))
    else:
        out().print(f"no jobs in {registry}", style="dim", markup=False)


def job(
    name: Annotated[str, typer.Argument(help="The job's name.")],
    registry: Registry = DEFAULT,
    digest: Digest = None,
    timeout: Patience = 5,
    as_json: AsJson = False,
) -> None:
    """Show one job: its settings, who leads, which instance holds and runs which item."""
    now = SystemClock().now()
    status = look(registry, digest, timeout, lambda session: operations.job(session, name, now=now))
    if as_json:
        write_json(job_as_json(status))
    else:
        _show(out(), status, now)


def _list(found: tuple[JobStatus, ...], now: float) -> Table:
    table = _table("Job", "Kind", "Schedule", ">Items", ">Instances", "State", "Next fire")
    for status in found:
        config = status.config
        table.add_row(
            Text(config.job_name, style="bold"),
            config.job_type.lower(),
            Text(_schedule(status)),
            f"{config.sharding_total_count:,}",
            str(len(status.instances)),
            Text(status.state, style=_STATES.get(status.state, "")),
            _next(status, now),
        )
    return table


def _show(console: Console, status: JobStatus, now: float) -> None:
    config = status.config
    title = Text(config.job_name, style="bold").append(f"  {config.job_type.lower()} job, ", style="not bold")
    console.print(title.append(status.state, style=f"not bold {_STATES.get(status.state, '')}"))
    if status.fault is not None:
        console.print(Text(status.fault, style="red"))
    if config.description:
        console.print(Text(config.description))
    sentence = "on demand only" if config.schedule is None else f"{config.cron}  {config.schedule.describe()}"
    console.print(Text(sentence))
    if status.next_fire is not None:
        console.print(Text("next fire ").append_text(_next(status, now)))
    console.print()
    _show_instances(console, status, now)
    console.print(_items(status, now) if status.items else Text("no items assigned yet", style="dim"))
    for server in status.servers:
        words = [word for word, said in (("disabled", server.disabled), ("paused", server.paused)) if said]
        if words:
            console.print(Text(f"server {server.ip} {server.host} is {' and '.join(words)}", style="yellow"))


def _show_instances(console: Console, status: JobStatus, now: float) -> None:
    if not status.instances:
        console.print(Text("no instance is there", style="yellow"))
        return
    table = _table("Instance", "Host", ">Process", "Holds", "Runs", "Here for", "")
    for one in status.instances:
        table.add_row(
            Text(one.id),
            Text(one.host),
            str(one.pid or ""),
            _numbers(one.holds),
            _numbers(one.runs),
            in_words(max(0.0, now - one.joined.timestamp())),
            _role(status, one),
        )
    console.print(table)


def _role(status: JobStatus, one: InstanceStatus) -> Text:
    closed = any(server.ip == one.ip and (server.disabled or server.paused) for server in status.servers)
    return Text("switched off", style="yellow") if closed else Text("leads" if one.leads else "", style="bold")


def _items(status: JobStatus, now: float) -> Table:
    table = _table(">Item", "Parameter", "Held by", "Running", "Last run", "")
    for item in status.items:
        table.add_row(
            str(item.item),
            Text(item.parameter or ""),
            Text(item.holder or "nobody", style="" if item.holder else "yellow"),
            _running(item, now),
            _last(item, now),
            Text(", ".join(_marks(item)), style="yellow"),
        )
    return table


def _running(item: ItemStatus, now: float) -> Text:
    if item.run is None:
        return Text("·", style="dim")
    where = "" if item.run.instance == item.holder else f" on {item.run.instance}"
    return Text(f"for {in_words(max(0.0, now - item.run.since.timestamp()))}{where}", style="green")


def _last(item: ItemStatus, now: float) -> Text:
    record = item.record
    if record is None or not record.begun:
        return Text("never", style="dim")
    if not record.completed and not record.outcome:
        if item.run is not None:
            return Text("·", style="dim")
        return Text(f"cut off, begun {in_words(max(0.0, now - record.begun / 1000))} ago", style="red")
    ago, took = max(0.0, now - record.completed_at / 1000), max(0, record.completed_at - record.begun)
    style = "" if record.outcome == "completed" else "red"
    return Text(record.outcome, style=style).append(f" {in_words(ago)} ago ({took:,} ms)", style="default")


def _marks(item: ItemStatus) -> list[str]:
    rescued = "" if item.rescuer is None else f"rescued by {item.rescuer}"
    marks = (
        ("disabled", item.disabled),
        ("waits for a rescuer", item.orphaned),
        (rescued, rescued),
        ("misfired", item.misfired),
    )
    return [word for word, holds in marks if holds]


def _schedule(status: JobStatus) -> str:
    config = status.config
    if config.cron is None:
        return "on demand"
    return config.cron if config.time_zone == "UTC" else f"{config.cron}  {config.time_zone}"


def _next(status: JobStatus, now: float) -> Text:
    if status.next_fire is None:
        return Text("")
    wait = in_words(max(0.0, status.next_fire.timestamp() - now))
    return Text(f"{status.next_fire:%Y-%m-%d %H:%M:%S}").append(f"  in {wait}", style="dim")


def _numbers(items: tuple[int, ...]) -> str:
    return ", ".join(map(str, items)) or "·"


def _table(*columns: str) -> Table:
    """Return an empty table; a column whose title begins with ``>`` holds numbers."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim")
    for column in columns:
        numbers, named = column.startswith(">"), column in ("Instance", "Held by")  # a name is for copying: whole
        justify: Literal["left", "right"] = "right" if numbers else "left"
        table.add_column(column.removeprefix(">"), justify=justify, overflow="fold", no_wrap=named)
    return table
