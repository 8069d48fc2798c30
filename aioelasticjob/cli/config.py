"""`aioelasticjob config check`: says whether a settings file is right, and which lines are wrong."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from aioelasticjob.cli.terminal import out, print_error, write_json
from aioelasticjob.clock import SystemClock, moment

if TYPE_CHECKING:  # imported here, so that other commands do not wait for the import
    from aioelasticjob.app import ElasticJob
    from aioelasticjob.settings import Mistake, Settings

config = typer.Typer(name="config", help="Look at settings files.", no_args_is_help=True)


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
        bool, typer.Option("--elsewhere", help="The jobs run on other hosts: do not look for their scripts here.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Explain every mistake in a settings file, and in the environment, with its line; the exit code is 1 then."""
    from aioelasticjob.cli.target import load
    from aioelasticjob.settings import examine

    settings, mistakes = examine(file, elsewhere=elsewhere)
    if app is not None and not mistakes:
        mistakes = _beside(load(app, jobs_may_come=True), file)
    if json:
        write_json([{**asdict(one), "value": None if one.value is None else str(one.value)} for one in mistakes])
    elif mistakes:
        for mistake in mistakes:
            out().print(str(mistake).encode(errors="backslashreplace").decode(), markup=False, soft_wrap=True)
        print_error(f"{len(mistakes)} {'mistake' if len(mistakes) == 1 else 'mistakes'} in {file}")
    else:
        _tell(file, settings, with_code=app is not None)
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


def _tell(file: Path, settings: Settings, *, with_code: bool) -> None:
    registry = settings.application.registry or "none given: it comes from AIOELASTICJOB_REGISTRY, or from code"
    out().print(f"{file} is right; registry: {registry}", markup=False, soft_wrap=True)
    if not settings.jobs:
        return
    table = Table(box=None, pad_edge=False)
    for title in ("job", "kind", "schedule", "next"):
        table.add_column(title, overflow="fold")
    for name, kind in settings.jobs.items():
        declared = None if kind is None else settings.declared(name, look=False)
        cron = None if declared is None else declared.schedule
        upcoming = None if cron is None else cron.next_after(moment(SystemClock().now()))
        shown = "when triggered" if declared is not None and cron is None else ""
        table.add_row(
            name, kind or "in code", (declared and declared.cron) or shown, upcoming.isoformat() if upcoming else ""
        )
    out().print(table)
    in_code = [name for name, kind in settings.jobs.items() if kind is None]
    if in_code and not with_code:
        out().print(_unchecked(in_code), markup=False, soft_wrap=True)


def _unchecked(names: list[str]) -> str:
    """Say which jobs of a file need code, and how to check the file together with it."""
    return (
        f"not checked: whether code declares {', '.join(names)}, which the file gives no kind, and whether the settings"
        " of both go together. Check that with --app MODULE:APP. Without code, `run` refuses the file."
    )
