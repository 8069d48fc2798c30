"""Where people read: stdout for what was asked for, stderr for what went wrong."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from datetime import datetime

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""What a terminal obeys rather than shows, but for tabs and the ends of lines."""


class Screen(Console):
    """A console whose reader's terminal is moved by nobody's text: a failure may hold what moves its cursor."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render as ever; what only pretends to be text is shown by a sign."""
        for segment in super().render(renderable, options):
            if segment.control or not _CONTROL.search(segment.text):
                yield segment
            else:
                yield Segment(_CONTROL.sub(_sign, segment.text), segment.style)


def out() -> Console:
    """Return the console for results; made when it is needed, so that it finds the stdout of then."""
    return Screen(highlight=False, soft_wrap=not sys.stdout.isatty())


def complain(message: str) -> None:
    """Write one line to stderr, whatever is in the message."""
    line = " ".join(message.split())
    console = Screen(stderr=True, highlight=False, soft_wrap=True)
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


def _sign(found: re.Match[str]) -> str:
    code = ord(found[0])
    return chr(0x2400 + code) if code < 0x20 else "␡" if code == 0x7F else "\N{REPLACEMENT CHARACTER}"
