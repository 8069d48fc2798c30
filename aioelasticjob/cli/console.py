"""Where people read: stdout for what was asked for, stderr for what went wrong."""

from __future__ import annotations

import json
import sys
from datetime import datetime

import typer
from rich.console import Console


def out() -> Console:
    """Return the console for results; made when it is needed, so that it finds the stdout of then."""
    return Console(highlight=False, soft_wrap=not sys.stdout.isatty())


def complain(message: str) -> None:
    """Write one line to stderr, whatever is in the message."""
    line = " ".join(message.split())
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print("[bold red]error:[/]", end=" ")
    console.print(line.encode(errors="backslashreplace").decode(), markup=False)


def write_json(value: object, *, line: bool = False) -> None:
    """Write a value for programs, on request as one line; times in ISO 8601."""
    print(json.dumps(value, ensure_ascii=False, indent=None if line else 2, default=_text), flush=line)


def make_sure(question: str, *, sure: bool) -> None:
    """Ask before something is destroyed, unless that was said already; no answer is no."""
    if not sure:
        typer.confirm(question, abort=True, err=True)


def _text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
