"""`aioelasticjob servers` and `server IP`: the present state of the hosts that jobs run on."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from aioelasticjob import operations
from aioelasticjob.cli import completion
from aioelasticjob.cli.describe import host_as_json, server_as_json
from aioelasticjob.cli.jobs import STATE_STYLES, AsJson, Live, pause_text
from aioelasticjob.cli.registry import RegistryOptions, on_a_registry
from aioelasticjob.cli.schedule import duration_text
from aioelasticjob.cli.tables import TextTable
from aioelasticjob.cli.terminal import out, write_json
from aioelasticjob.cli.watching import Watch
from aioelasticjob.clock import SystemClock
from aioelasticjob.ground.plural import counted
from aioelasticjob.ground.times import moment, time_text
from aioelasticjob.operations import HostStatus, JobOnServer, JobStatus, RunOnServer, ServerDetails
from aioelasticjob.operations.servers import EVERYWHERE

Address: TypeAlias = Annotated[str, typer.Argument(help="The server's address.", autocompletion=completion.servers)]
PAUSED_EVERYWHERE = f"paused{EVERYWHERE}"
SHOWN = 3
"""How many items and runs of a job its row names at most."""


@on_a_registry
def servers(where: RegistryOptions, watch: Live = False, as_json: AsJson = False) -> None:
    """List the servers of a namespace, and which of them are paused or disabled."""
    if watch:
        Watch(operations.watch_all, _servers, _hosts if as_json else None).show(where)
        return
    now = SystemClock().now()
    found = where.look(lambda session: operations.jobs(session, now=now))
    if as_json:
        write_json(_hosts(found))
    elif operations.by_server(found):
        out().print(_servers(found, now))
    else:
        out().print(f"no servers in {where.address}", style="dim", markup=False)


@on_a_registry
def server(where: RegistryOptions, ip: Address, as_json: AsJson = False) -> None:
    """Show one server: each of its jobs with items, instances, counts and flags there, and what runs there now."""
    now = SystemClock().now()
    found = where.look(lambda session: operations.server(session, ip, now=now))
    if as_json:
        write_json(server_as_json(found))
    else:
        out().print(_details(found, now))


def _hosts(found: tuple[JobStatus, ...]) -> list[dict[str, object]]:
    return [host_as_json(host) for host in operations.by_server(found)]


def _servers(found: tuple[JobStatus, ...], now: float) -> RenderableType:
    table = TextTable("Server", "Host", ">Jobs", ">Instances", ">Items", "")
    for host in operations.by_server(found):
        table.add(
            Text(host.ip),
            Text(host.host),
            f"{len(host.jobs):,}",
            f"{host.instances:,}",
            f"{host.holds:,}",
            Text("; ".join(_said(host)), style="yellow"),
        )
    return table


def _said(host: HostStatus) -> list[str]:
    words = (("disabled", host.disabled, host.disabled_in), ("paused", host.paused, host.paused_in))
    everywhere = [f"{word} in all jobs" for word, said, _ in words if said]
    if host.pause is not None:
        until = "" if not host.pause.ends else f" until {time_text(moment(host.pause.until))}"
        everywhere[-1] += f"{until} ({host.pause.note})" if host.pause.note else until
    return everywhere + [f"{word} by itself in {operations.listed(jobs, 5)}" for word, _, jobs in words if jobs]


def _details(server: ServerDetails, now: float) -> RenderableType:
    host = server.host
    counts = counted(len(server.jobs), "job"), counted(host.instances, "instance"), counted(host.holds, "item")
    title = Text(f"{host.ip} {host.host}".strip(), style="bold").append(f"  {', '.join(counts)}", style="not bold")
    lines: list[RenderableType] = [title]
    if host.pause is not None:
        lines.append(Text(pause_text(host.pause, now, "the server was paused in all jobs"), style="yellow"))
    others = [(flag, at) for flag, at in server.flags if flag != PAUSED_EVERYWHERE]
    lines += [Text(f"{flag} since {_since(at.timestamp(), now)}", style="yellow") for flag, at in others]
    if server.succeeded or server.failed:
        lines.append(
            Text(f"in the last interval {counted(server.succeeded, 'run')} succeeded and {server.failed:,} failed")
        )
    lines.append(Text(f"{counted(len(server.runs), 'item')} running now" if server.runs else "nothing runs here now"))
    titles = "Job", "State", ">Instances", "Holds", "Runs now", ">Succeeded", ">Failed", "Switched off here"
    table = TextTable(*titles, whole=("Job", "State"), spare=("Instances", "Succeeded", "Failed"))
    for job in server.jobs:
        table.add(
            Text(job.name, style="bold"),
            Text(job.state, style=STATE_STYLES.get(job.state, "")),
            f"{len(job.instances):,}",
            Text(operations.listed(job.items, SHOWN) if job.items else "·"),
            Text(operations.listed([_run(run, now) for run in job.runs], SHOWN) if job.runs else "·", style="green"),
            _count(job.server.succeeded),
            _count(job.server.failed),
            _off(job, now),
        )
    return Group(*lines, table)


def _run(run: RunOnServer, now: float) -> str:
    return f"{run.item} for {duration_text(max(0.0, now - run.since.timestamp()))}"


def _off(job: JobOnServer, now: float) -> Text:
    said = [f"{flag} since {_since(at.timestamp(), now)}" for flag, at in operations.flags_of(job.server)]
    return Text("; ".join(said), style="yellow")


def _since(at: float, now: float) -> str:
    return f"{time_text(moment(at))} ({duration_text(max(0.0, now - at))} ago)"


def _count(number: int | None) -> str:
    return "·" if number is None else f"{number:,}"
