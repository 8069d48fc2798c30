"""`aioelasticjob demo`: one job over several processes, doing real work while one of them is killed."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from anyio import CancelScope, create_task_group, open_signal_receiver
from rich.console import Console

from aioelasticjob.cli.terminal import out
from aioelasticjob.errors import InvalidSetting, unwrapped
from aioelasticjob.host.signals import stopping_signals

if TYPE_CHECKING:  # imported here, so that other commands do not wait for the import
    from aioelasticjob.demo.check import IndexCheck
    from aioelasticjob.demo.cluster import DemoOptions

EXCLUDED_DIRECTORIES = ("site-packages", "dist-packages")
"""Directories below the standard library's that do not belong to it."""
MOST_WORKERS, MOST_ITEMS = 20, 60


def demo(
    kill: Annotated[
        bool, typer.Option("--kill", help="Kill a worker midway with kill -9, and start another one later.")
    ] = False,
    directory: Annotated[
        Path | None, typer.Option(help="What to index; by default the running Python's standard library.")
    ] = None,
    database: Annotated[
        Path | None, typer.Option(help="Where the index goes and stays; by default a temporary file.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, max=MOST_WORKERS, help="Worker processes.")] = 3,
    items: Annotated[int, typer.Option(min=1, max=MOST_ITEMS, help="Shares that the files are split into.")] = 6,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the database and the processes' logs.")] = False,
) -> None:
    """Show a job at work: an embedded server, three workers, six items, every file of a directory indexed once.

    At the end the index is checked against the directory; the exit code is 1 if it is not right.
    """
    from aioelasticjob.demo.cluster import DemoOptions

    with _workplace(keep) as place:
        plan = DemoOptions(
            directory=os.path.abspath(directory or sysconfig.get_path("stdlib")),
            database=os.path.abspath(database or place / "index.db"),
            logs=place,
            excluded=EXCLUDED_DIRECTORIES if directory is None else (),
            workers=workers,
            items=items,
            kill=kill,
        )
        _check_options(plan)
        console = out()
        ended_by, verdict = asyncio.run(_show(plan, console))
        if verdict is None:
            console.print("stopped; every process has ended", style="dim")
            raise typer.Exit(128 + (ended_by or signal.SIGINT))
        _print_check(console, verdict)
        if keep or database is not None:
            console.print(f"index: {plan.database}" + (f", logs: {place}" if keep else ""), style="dim", soft_wrap=True)
    raise typer.Exit(0 if verdict.right else 1)


async def _show(plan: DemoOptions, console: Console) -> tuple[int | None, IndexCheck | None]:
    """Run the demonstration; a signal ends all processes in order.  Return the signal, or the result of the check."""
    from aioelasticjob.demo.screen import screen
    from aioelasticjob.demo.show import show

    ended_by, verdict = None, None
    with unwrapped(), CancelScope() as everything:
        async with create_task_group() as tasks:

            async def listen() -> None:
                nonlocal ended_by
                with open_signal_receiver(*stopping_signals()) as signals:
                    async for number in signals:
                        ended_by = ended_by or number
                        everything.cancel()

            tasks.start_soon(listen)
            with screen(console) as shown:
                verdict = await show(plan, shown)
            tasks.cancel_scope.cancel()
    return ended_by, verdict


@contextmanager
def _workplace(keep: bool) -> Iterator[Path]:
    """Yield a directory for the logs and the database; it is kept on request, or if something went wrong."""
    from aioelasticjob.demo.cluster import Stalled
    from aioelasticjob.demo.processes import ProcessEnded

    place = Path(tempfile.mkdtemp(prefix="aioelasticjob-demo-"))
    try:
        yield place
    except (ProcessEnded, Stalled):
        keep = True  # the logs say why, so they are kept
        raise
    finally:
        if not keep:
            shutil.rmtree(place, ignore_errors=True)


def _check_options(plan: DemoOptions) -> None:
    if not os.path.isdir(plan.directory):
        raise InvalidSetting("directory", plan.directory, "is no directory")
    if not os.path.isdir(os.path.dirname(plan.database)):
        raise InvalidSetting("database", plan.database, "lies in a directory that does not exist")
    above = os.path.join(os.path.realpath(plan.directory), "")
    for setting, path in (("database", plan.database), ("logs", str(plan.logs))):
        if os.path.realpath(path).startswith(above):
            raise InvalidSetting(
                setting, path, "lies below the directory that is indexed: name another place (TMPDIR for the logs)"
            )


def _print_check(console: Console, verdict: IndexCheck) -> None:
    first, *rest = verdict.lines()
    mark, style = ("✓", "green") if verdict.right else ("✗", "bold red")
    console.print(f"{mark} {first}", style=style, markup=False, soft_wrap=True)
    for line in rest:
        console.print(f"  {line}", markup=False, soft_wrap=True)
