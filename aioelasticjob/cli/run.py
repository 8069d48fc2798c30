"""`aioelasticjob run module:app`: one process of an application."""

from __future__ import annotations

from typing import Annotated

import typer

from aioelasticjob.cli import logs
from aioelasticjob.cli.target import load


def run(
    app: Annotated[str, typer.Argument(metavar="MODULE:APP", help="Where the ElasticJob is, as jobs:app.")],
    log_level: Annotated[logs.LogLevel, typer.Option(help="The least that is logged.")] = logs.LogLevel.INFO,
) -> None:
    """Run an application's jobs until SIGTERM or Ctrl-C; a second signal stops at once.

    The module is looked for in the current directory too.
    """
    logs.set_up(log_level)
    load(app).run()
