"""Output of commands: results go to stdout, errors go to stderr."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from aioelasticjob.cli import stdout
from aioelasticjob.logging import json_text, printable


class SafeConsole(Console):
    """A console that replaces control characters by signs: a job's text must not control the reader's terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render as usual, but replace control characters by visible signs."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        """Raise the error, which Rich handles here: its own `SystemExit` leaves a task group as a traceback."""
        raise


def out(*, wide: bool = False) -> Console:
    """Return the console for results; it is made at each call, so that it uses the present stdout.

    If it is ``wide``, lines that are longer than those of the terminal are not cut.
    """
    return SafeConsole(highlight=False, emoji=False, soft_wrap=wide or not stdout().isatty())


def print_error(message: str) -> None:
    """Write a message to stderr as one line; line ends in it are replaced."""
    _print_line("[bold red]error:[/]", message)


def print_warning(message: str) -> None:
    """Write a message to stderr as an error is written; the command goes on."""
    _print_line("[bold yellow]warning:[/]", message)


def _print_line(kind: str, message: str) -> None:
    line = " ".join(message.split())
    console = SafeConsole(stderr=True, highlight=False, emoji=False, soft_wrap=True)
    console.print(kind, end=" ")
    console.print(line.encode(errors="backslashreplace").decode(), markup=False)


def write_json(value: object, *, line: bool = False) -> None:
    """Write a value as JSON, on request as one line; times are in ISO 8601."""
    print(json_text(value, indent=None if line else 2, default=_text), file=stdout(), flush=line)


def confirm(question: str, *, sure: bool) -> None:
    """Ask before something is destroyed, unless the caller is ``sure``; without an answer the command is aborted."""
    if not sure:
        typer.confirm(printable(question), abort=True, err=True)


def _text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
