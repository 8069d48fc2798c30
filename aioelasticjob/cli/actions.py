"""`pause`, `resume`, `disable`, `enable`, `shutdown`, `remove`: the actions of operators."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, TypeAlias

import typer

from aioelasticjob import operations
from aioelasticjob.cli import completion
from aioelasticjob.cli.describe import done_as_json
from aioelasticjob.cli.jobs import AsJson, Name
from aioelasticjob.cli.registry import RegistryOptions, on_a_registry
from aioelasticjob.cli.terminal import confirm, out, write_json
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.operations import OperationResult
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
    typer.Argument(help="The job's name; without it --server is meant in all jobs.", autocompletion=completion.jobs),
]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@on_a_registry
def pause(where: RegistryOptions, name: JobOrNone = None, server: Server = None, as_json: AsJson = False) -> None:
    """Pause a job on all its servers or on one, or a server in all jobs: nothing is run there until it is resumed."""
    if name is None:
        ip = _needed(server)
        _do(where, lambda session: operations.pause_server(session, ip), as_json)
    else:
        _do(where, lambda session: operations.pause(session, name, server=server), as_json)


@on_a_registry
def resume(where: RegistryOptions, name: JobOrNone = None, server: Server = None, as_json: AsJson = False) -> None:
    """Resume what was paused."""
    if name is None:
        ip = _needed(server)
        _do(where, lambda session: operations.resume_server(session, ip), as_json)
    else:
        _do(where, lambda session: operations.resume(session, name, server=server), as_json)


@on_a_registry
def disable(
    where: RegistryOptions, name: JobOrNone = None, server: Server = None, item: Item = None, as_json: AsJson = False
) -> None:
    """Disable a job, a job on one server, one item, or a server in all jobs: it stays off until it is enabled."""
    if name is None:
        ip = _needed(server, item)
        _do(where, lambda session: operations.disable_server(session, ip), as_json)
    else:
        _do(where, lambda session: operations.disable(session, name, server=server, item=item), as_json)


@on_a_registry
def enable(
    where: RegistryOptions, name: JobOrNone = None, server: Server = None, item: Item = None, as_json: AsJson = False
) -> None:
    """Enable what was disabled."""
    if name is None:
        ip = _needed(server, item)
        _do(where, lambda session: operations.enable_server(session, ip), as_json)
    else:
        _do(where, lambda session: operations.enable(session, name, server=server, item=item), as_json)


@on_a_registry
def shutdown(
    where: RegistryOptions, name: Name, instance: Instance = None, yes: Yes = False, as_json: AsJson = False
) -> None:
    """Let instances leave a job once their runs have ended; a new start of their processes brings them back."""
    confirm(f"Let {instance or 'all instances'} leave {name}?", sure=yes)
    _do(where, lambda session: operations.shut_down(session, name, instance=instance), as_json)


@on_a_registry
def remove(
    where: RegistryOptions,
    name: JobOrNone = None,
    server: Server = None,
    force: Annotated[bool, typer.Option(help="Also while instances are there.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Remove everything that the registry holds of a job; or remove a server from all jobs."""
    if name is not None and server is not None:
        raise InvalidSetting("server", server, "give either a job or a server")
    if name is None:
        ip = _needed(server)
        confirm(f"Forget the server {ip} in all jobs, and what was said about it?", sure=yes)
        _do(where, lambda session: operations.remove_server(session, ip), as_json)
    else:
        confirm(f"Remove {name} with its settings, records and offsets?", sure=yes)
        _do(where, lambda session: operations.remove(session, name, force=force), as_json)


def _do(where: RegistryOptions, act: Callable[[Session], Awaitable[OperationResult]], as_json: bool) -> None:
    print_result(where.look(act), as_json=as_json)


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
