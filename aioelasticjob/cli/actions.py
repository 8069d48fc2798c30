"""`pause`, `resume`, `disable`, `enable`, `shutdown`, `remove`: the actions of operators."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated, TypeAlias

import typer

from aioelasticjob import operations
from aioelasticjob.cli import completion
from aioelasticjob.cli.describe import done_as_json
from aioelasticjob.cli.jobs import AsJson, Name
from aioelasticjob.cli.operator_name import operator_name
from aioelasticjob.cli.registry import RegistryOptions, on_a_registry
from aioelasticjob.cli.terminal import confirm, out, write_json
from aioelasticjob.clock import SystemClock
from aioelasticjob.config.durations import EXPECTED, TYPED, as_seconds
from aioelasticjob.cron.zone import typed_time
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.plural import counted
from aioelasticjob.ground.times import moment
from aioelasticjob.operations import SERVER_ACTIONS, HostStatus, OperationResult, ServerAction, consequences
from aioelasticjob.registry.session import Session

Instance: TypeAlias = Annotated[
    str | None, typer.Option(help="Only this instance, by its id.", autocompletion=completion.instances)
]
Server: TypeAlias = Annotated[
    str | None, typer.Option(help="Only this server, by its address.", autocompletion=completion.servers)
]
Item: TypeAlias = Annotated[int | None, typer.Option(help="Only this sharding item.", min=0)]
JobOrNone: TypeAlias = Annotated[
    str | None,
    typer.Argument(
        help="The job's name; without it, --server means that server in all jobs.", autocompletion=completion.jobs
    ),
]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@on_a_registry
def pause(
    where: RegistryOptions,
    name: JobOrNone = None,
    server: Server = None,
    until: Annotated[
        str | None, typer.Option(help="When it ends by itself: 2h, or 2026-01-31T08:00 (in UTC, if it names no zone).")
    ] = None,
    note: Annotated[str, typer.Option(help="Why, for those who see it.")] = "",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Pause a job, a job on one server, or a server in all jobs: nothing is run there, and all items stay there."""
    end = None if until is None else _end(until)
    if name is None:
        _do_to_server(where, SERVER_ACTIONS["pause"], server, yes, as_json, note=note, until=end)
        return
    by = operator_name()
    with as_typed(until=("until", until)):
        _do(
            where,
            lambda session: operations.pause(session, name, server=server, by=by, note=note, until=end),
            as_json,
        )


def _end(text: str) -> datetime:
    """Return the end of a pause that somebody has typed: a time, or how long it lasts."""
    try:
        seconds = as_seconds(text)
    except ValueError:
        return typed_time("until", text, UTC, "how long, such as 2h; or a time, such as 2026-01-31T08:00")
    if not isinstance(seconds, int | float):
        raise InvalidSetting("until", text, TYPED)
    return moment(SystemClock().now() + seconds)


@on_a_registry
def resume(
    where: RegistryOptions, name: JobOrNone = None, server: Server = None, yes: Yes = False, as_json: AsJson = False
) -> None:
    """Resume what was paused; what is off for another reason stays off."""
    if name is None:
        _do_to_server(where, SERVER_ACTIONS["resume"], server, yes, as_json)
    else:
        _do(where, lambda session: operations.resume(session, name, server=server, by=operator_name()), as_json)


def _switch(help: str, on_server: ServerAction, act: Callable[..., Awaitable[OperationResult]]) -> Callable[..., None]:
    """Return a command that disables or enables: both take the same options."""

    def command(
        where: RegistryOptions,
        name: JobOrNone = None,
        server: Server = None,
        item: Item = None,
        yes: Yes = False,
        as_json: AsJson = False,
    ) -> None:
        if name is None:
            _do_to_server(where, on_server, _needed(server, item), yes, as_json)
        else:
            _do(where, lambda session: act(session, name, server=server, item=item, by=operator_name()), as_json)

    command.__doc__ = help
    return on_a_registry(command)


disable = _switch(
    "Disable a server, in one job or in all: its items move. Or disable one item, or a whole job, which pauses it.",
    SERVER_ACTIONS["disable"],
    operations.disable,
)
enable = _switch(
    "Enable what was disabled. What is switched off in another way as well stays off.",
    SERVER_ACTIONS["enable"],
    operations.enable,
)


@on_a_registry
def shutdown(
    where: RegistryOptions, name: Name, instance: Instance = None, yes: Yes = False, as_json: AsJson = False
) -> None:
    """Let instances leave a job once their runs have ended; a new start of their processes brings them back."""
    who = f"the instance {instance} of" if instance else "all instances of"
    confirm(f"{consequences.SHUT_DOWN} Shut down {who} {name}?", sure=yes)
    _do(where, lambda session: operations.shut_down(session, name, instance=instance, by=operator_name()), as_json)


@on_a_registry
def remove(
    where: RegistryOptions,
    name: JobOrNone = None,
    server: Server = None,
    force: Annotated[bool, typer.Option(help="Remove the job even while instances are there.")] = False,
    limit: Annotated[
        str | None,
        typer.Option("--within", help="How long the instances of a created job may take to leave, such as 2m."),
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Remove everything that the registry holds of a job; or remove a server from all jobs."""
    if name is not None and server is not None:
        raise InvalidSetting("server", server, "give either a job or a server")
    if name is None:
        _do_to_server(where, SERVER_ACTIONS["remove"], server, yes, as_json)
    else:
        seconds = None if limit is None else _seconds(limit)
        confirm(f"{consequences.REMOVE} Remove {name}?", sure=yes)
        _do(where, lambda session: _remove(session, name, force, seconds), as_json)


async def _remove(session: Session, name: str, force: bool, seconds: float | None) -> OperationResult:
    """Remove a job; of one that was created, the instances leave first."""
    by = operator_name()
    if not force and await operations.is_created(session, name):
        return await operations.remove_created(session, name, timeout=seconds, by=by)
    return await operations.remove(session, name, force=force, by=by)


def _seconds(text: str) -> float:
    try:
        seconds = as_seconds(text)
    except ValueError:
        seconds = None
    if not isinstance(seconds, int | float) or not seconds > 0:
        raise InvalidSetting("within", text, TYPED)
    return seconds


def _do_to_server(
    where: RegistryOptions,
    action: ServerAction,
    server: str | None,
    sure: bool,
    as_json: bool,
    **options: object,
) -> None:
    """Do something to a server in all jobs, after a question that names the jobs and what runs there."""
    ip = _needed(server)
    if not sure:
        now = SystemClock().now()
        found = where.look(lambda session: operations.jobs(session, now=now))
        confirm(_question(action, operations.host_of(found, ip), ip), sure=False)
    _do(where, lambda session: action.do(session, ip, by=operator_name(), **options), as_json)


def _question(action: ServerAction, host: HostStatus | None, ip: str) -> str:
    if host is None:
        return f"No job knows {ip}. {action.label} it in all jobs?"
    jobs, held = counted(len(host.jobs), "job"), counted(host.holds, "item")
    known = f"{ip} is known to {jobs} ({operations.listed(host.jobs)}) and holds {held}."
    runs = f"Running there now, and not interrupted: {operations.listed(host.runs)}."
    return f"{known} {runs} {action.outcome} {action.label} it in all jobs?"


def _do(where: RegistryOptions, act: Callable[[Session], Awaitable[OperationResult]], as_json: bool) -> None:
    print_result(where.look(act), as_json=as_json)


@contextmanager
def as_typed(**options: tuple[str, str | None]) -> Iterator[None]:
    """Name settings that are wrong by their options, with the values as they were typed."""
    try:
        yield
    except InvalidSetting as error:
        option, given = options.get(error.setting, (error.setting, None))
        if given is None:
            raise
        raise InvalidSetting(option, given, error.expected.replace(EXPECTED, TYPED)) from None


def print_result(done: OperationResult, *, as_json: bool) -> None:
    """Print what an action did."""
    if as_json:
        write_json(done_as_json(done))
    else:
        out().print(done.summary, markup=False, style="" if done.changed else "dim")


def _needed(server: str | None, item: int | None = None) -> str:
    if server is None or item is not None:
        raise InvalidSetting("name", None, "name a job; or a server that is meant in all jobs, by --server")
    return server
