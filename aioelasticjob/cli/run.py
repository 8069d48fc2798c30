"""`aioelasticjob run module:app`, or `run --config jobs.yaml`: one process of an application."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aioelasticjob.cli import FAILED, logs
from aioelasticjob.cli.terminal import out
from aioelasticjob.errors import ElasticJobError, InvalidSetting

if TYPE_CHECKING:  # imported here, so that other commands do not wait for the import
    from aioelasticjob.app import ElasticJob


def run(
    app: Annotated[
        str | None, typer.Argument(metavar="[MODULE:APP]", help="Where the ElasticJob is, such as jobs:app.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A YAML or TOML file with settings, and with script and HTTP jobs.")
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(metavar="[HOST:]PORT", help="Serve metrics for Prometheus at this address, under /metrics."),
    ] = None,
    progress: Annotated[bool, typer.Option("--progress", help="Show how fast dataflow jobs' records flow.")] = False,
    log_level: Annotated[logs.LogLevel, typer.Option(help="The lowest level that is logged.")] = logs.LogLevel.INFO,
    log_format: Annotated[logs.LogFormat, typer.Option(help="Text for people, or JSON for programs.")] = (
        logs.LogFormat.TEXT
    ),
) -> None:
    """Run an application's jobs until SIGTERM or Ctrl-C; a second signal stops at once.

    The module is also looked for in the current directory.  Without a module, the jobs are those of the file.
    """
    logs.set_up(log_level, log_format)
    found = application(app, config)
    if metrics is not None:
        found.serve_metrics(metrics)
    if not progress:
        _run(found)
        return
    from aioelasticjob.cli.progress import progress as showing

    with showing(lambda: found.rates, out()):
        logs.set_up(log_level, log_format)  # set up again, so that log lines appear above the table
        _run(found)


def _run(app: ElasticJob) -> None:
    """Run the application; if a job has ended it with an error of its own, exit without a traceback."""
    try:
        app.run()
    except ElasticJobError:
        raise
    except Exception as error:
        if error is not app.ended_by:
            raise
        raise typer.Exit(FAILED) from None  # the log has the error with its stack, and the job that raised it


def application(app: str | None, config: Path | None) -> ElasticJob:
    """Return the application, made from code, from a settings file, or from both.

    Raises:
        InvalidSetting: there is none, or it has no job.
    """
    from aioelasticjob.app import ElasticJob
    from aioelasticjob.cli.target import load

    if app is None:
        if config is None:
            raise InvalidSetting("app", None, "write module:app, as jobs:app, or --config FILE, or both")
        found = ElasticJob.from_settings(config)
    else:
        found = load(app, jobs_may_come=config is not None)
        if config is not None:
            found.configure(config)
    if not found.jobs:
        raise InvalidSetting("jobs", str(config), "the file declares no job: below jobs, give each a kind")
    return found
