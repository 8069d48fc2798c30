"""`aioelasticjob run module:app`, or `run --config jobs.yaml`: one process of an application."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from aioelasticjob.cli import FAILED, logs
from aioelasticjob.cli.terminal import out
from aioelasticjob.errors import ElasticJobError, InvalidSetting
from aioelasticjob.logging import logger

if TYPE_CHECKING:  # imported here, so that other commands do not wait for the import
    from aioelasticjob.app import ElasticJob


RegistryInPlace: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--registry",
        "-r",
        envvar="AIOELASTICJOB_REGISTRY",
        help="The registry to use in place of the one in the code or the file: zk://host:port,host:port/namespace.",
    ),
]

log = logger(__name__)


def run(
    context: typer.Context,
    app: Annotated[
        str | None, typer.Argument(metavar="[MODULE:APP]", help="Where the ElasticJob is, such as jobs:app.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A YAML or TOML file with settings, and with script and HTTP jobs.")
    ] = None,
    registry: RegistryInPlace = None,
    metrics: Annotated[
        str | None,
        typer.Option(metavar="[HOST:]PORT", help="Serve metrics for Prometheus at this address, under /metrics."),
    ] = None,
    exit_at_lease_end: Annotated[
        bool,
        typer.Option(
            "--exit-at-lease-end", help="Let this process be killed if a run goes on although its session may be over."
        ),
    ] = False,
    allow_created: Annotated[
        str | None,
        typer.Option(metavar="KINDS", help="Also run created jobs of these kinds, such as script,http."),
    ] = None,
    progress: Annotated[bool, typer.Option("--progress", help="Show how fast dataflow jobs' records flow.")] = False,
    log_level: Annotated[logs.LogLevel, typer.Option(help="The lowest level that is logged.")] = logs.LogLevel.INFO,
    log_format: Annotated[logs.LogFormat, typer.Option(help="Text for people, or JSON for programs.")] = (
        logs.LogFormat.TEXT
    ),
) -> None:
    """Run an application's jobs until SIGTERM or Ctrl-C; a second signal stops at once.

    The module is also looked for in the current directory.  Without a module, the jobs are those of the file.
    Variables such as AIOELASTICJOB_REGISTRY override the file and the code.
    """
    logs.set_up(log_level, log_format)
    typed = context.get_parameter_source("registry")
    kinds = () if allow_created is None else tuple(allow_created.split(","))
    address = registry if typed is not None and typed.name == "COMMANDLINE" else None
    found = application(app, config, address, kinds)
    if exit_at_lease_end:
        found.exit_at_lease_end()
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


def application(
    app: str | None, config: Path | None, registry: str | None = None, allow_created: Sequence[str] = ()
) -> ElasticJob:
    """Return the application, made from code, from a settings file, or from both; the environment overrides them.

    The address ``registry``, which the command line gives, overrides all of them.  ``allow_created`` are the kinds of
    which created jobs are run, too.

    Raises:
        InvalidSetting: there is none, it has no job, or a setting in the file or in the environment is wrong.
    """
    from aioelasticjob.app import ElasticJob

    if app is not None:
        found = _from_code(app, config, registry)
    elif config is not None:
        found = ElasticJob.from_settings(config, **({} if registry is None else {"registry": registry}))
    else:
        raise InvalidSetting("app", None, "write module:app, as jobs:app, or --config FILE, or both")
    found.allow_created(kind.strip() for kind in allow_created)
    if not (found.jobs or found.handlers):
        raise InvalidSetting("jobs", str(config), "the file declares no job: below jobs, give each a kind")
    return found


def _from_code(app: str, config: Path | None, registry: str | None) -> ElasticJob:
    from aioelasticjob.cli.target import load

    found = load(app, jobs_may_come=config is not None)
    in_code = found.address
    if config is not None or not found.is_configured:
        found.configure(config, registry=registry)
    elif registry is not None:  # the code has had the environment read, together with a file
        found.use_registry(registry)
    if found.address != in_code:
        source = "--registry" if registry is not None else _source_of_registry(config)
        text = "the registry is %s, by %s, and not %s, which is in the code of %s"
        about = {"registry": found.address, "source": source, "in_code": in_code, "app": app}
        log.info(text, found.address, source, in_code, app, extra=about)
    return found


def _source_of_registry(config: Path | None) -> str:
    from aioelasticjob.settings.environment import name_of  # here, so that other commands do not wait for the import

    return name_of("registry", os.environ) or str(config)
