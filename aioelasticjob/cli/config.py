"""`aioelasticjob config check`: says whether a settings file is right, and which lines are wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from aioelasticjob.cli.terminal import out, print_error, write_json
from aioelasticjob.clock import SystemClock
from aioelasticjob.ground.times import moment, time_text

if TYPE_CHECKING:  # imported here, so that other commands do not wait for the import
    from aioelasticjob.app import ElasticJob
    from aioelasticjob.config.job import JobConfig
    from aioelasticjob.settings import Mistake, Settings

config = typer.Typer(name="config", help="Look at settings files.", no_args_is_help=True, add_completion=False)


@config.callback()
def group() -> None:
    """Look at settings files."""


@config.command()
def check(
    file: Annotated[Path, typer.Argument(help="A YAML or TOML file.")],
    app: Annotated[
        str | None, typer.Option(metavar="MODULE:APP", help="The application that the file is for, with its code.")
    ] = None,
    elsewhere: Annotated[
        bool, typer.Option("--elsewhere", help="The jobs run on other hosts: leave out scripts and event store.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Explain every mistake in a settings file, and in the environment, with its line; the exit code is 1 then."""
    from aioelasticjob.cli.target import load
    from aioelasticjob.settings import examine

    settings, mistakes = examine(file, elsewhere=elsewhere)
    code = None if app is None or mistakes else load(app, jobs_may_come=True)
    if code is not None:
        mistakes = _beside(code, file)
    if json:
        write_json([{**asdict(one), "value": None if one.value is None else str(one.value)} for one in mistakes])
    elif mistakes:
        for mistake in mistakes:
            out().print(str(mistake).encode(errors="backslashreplace").decode(), markup=False, soft_wrap=True)
        print_error(f"{len(mistakes)} {'mistake' if len(mistakes) == 1 else 'mistakes'} in {file}")
    else:
        _tell(file, settings, code)
    raise typer.Exit(1 if mistakes else 0)


def _beside(app: ElasticJob, file: Path) -> tuple[Mistake, ...]:
    """Return the mistakes that show when a file and an application's code are taken together."""
    from aioelasticjob.settings import WrongSettings, examine

    try:
        app.configure(file)
        examine(file)[0].all_declared([job.job_name for job in app.jobs])
    except WrongSettings as wrong:
        return wrong.mistakes
    return ()


def _tell(file: Path, settings: Settings, code: ElasticJob | None) -> None:
    """Show a right file as what it means: with code, all jobs as they will run."""
    given = settings.application.registry if code is None else code.address
    registry = given or "none given: it comes from AIOELASTICJOB_REGISTRY, or from code"
    out().print(f"{file} is right; registry: {registry}", markup=False, soft_wrap=True)
    rows = list(_of_file(settings) if code is None else _of_all(settings, code))
    if not rows:
        return
    table = Table(box=None, pad_edge=False)
    for title in ("Job", "Kind", *([] if code is None else ["From"]), "Schedule", "Next fire"):
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*row)
    out().print(table)
    in_code = [name for name, kind in settings.jobs.items() if kind is None]
    if in_code and code is None:
        out().print(_unchecked(in_code), markup=False, soft_wrap=True)


def _of_file(settings: Settings) -> Iterator[tuple[str, ...]]:
    """Yield a row for each job that has settings in the file; of those in code no more is known."""
    for name, kind in settings.jobs.items():
        yield (name, "in code") if kind is None else (name, kind, *_schedule(settings.declared(name, look=False)))


def _of_all(settings: Settings, code: ElasticJob) -> Iterator[tuple[str, ...]]:
    """Yield a row for each job of an application that has taken its settings: where it is declared, when it runs."""
    for config in code.jobs:
        place = "code" if settings.jobs.get(config.job_name) is None else "file"
        yield config.job_name, config.job_type.lower(), place, *_schedule(config)


def _schedule(config: JobConfig) -> tuple[str, str]:
    """Return a job's schedule and its next moment, as text."""
    if config.schedule is None:
        return "when triggered", ""
    if config.calendar:
        return config.schedule.expression, f"by {', '.join(config.calendar)} in the registry"
    upcoming = config.schedule.next_to_come(moment(SystemClock().now()))
    return config.schedule.expression, time_text(upcoming) if upcoming else "no further moment"


def _unchecked(names: list[str]) -> str:
    """Say which jobs of a file need code, and how to check the file together with it."""
    return (
        f"not checked: whether code declares {', '.join(names)}, which the file gives no kind, and whether the settings"
        " of both go together. Check that with --app MODULE:APP. Without code, `run` refuses the file."
    )
