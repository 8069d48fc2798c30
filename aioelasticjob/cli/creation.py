"""`aioelasticjob create`: jobs that are created in the registry for a handler."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aioelasticjob import operations
from aioelasticjob.cli import completion
from aioelasticjob.cli.actions import as_typed, print_result
from aioelasticjob.cli.jobs import AsJson
from aioelasticjob.cli.operator_name import operator_name
from aioelasticjob.cli.registry import RegistryOptions, on_a_registry
from aioelasticjob.cli.settings import pairs, read_text
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.operations.settings import settings_from


@on_a_registry
def create(
    where: RegistryOptions,
    name: Annotated[str | None, typer.Argument(help="The new job's name; left out with --from.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SETTING=VALUE…]", help="Such as cron='0 0 3 * * ?'.", autocompletion=completion.settings
        ),
    ] = None,
    handler: Annotated[
        str | None,
        typer.Option(help="The handler that runs it; with --from, that of jobs that name none."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--from", help="Create the jobs of a file, JSON or YAML as export writes it; - is stdin."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create a job, or those of a file, for a handler: every process that has the handler runs them."""
    by = operator_name()
    if file is not None:
        if name is not None:
            raise InvalidSetting("name", name, "give either a name or --from")
        text = read_text(file)
        with as_typed(**{"import": ("from", str(file))}):
            done = where.look(
                lambda session: operations.create_all(session, text, handler=handler, by=by), creates=True
            )
    else:
        if name is None or handler is None:
            raise InvalidSetting("handler", handler, "name a job and its --handler, or give --from FILE")
        given = settings_from(pairs(settings or []))
        done = where.look(lambda session: operations.create(session, name, given, handler=handler, by=by), creates=True)
    print_result(done, as_json=as_json)
