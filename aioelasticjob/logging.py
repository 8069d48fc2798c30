"""Logs for people and for programs: a formatter for each, and one line that switches INFO on where a server has not.

An error that a handler of the program's log raises goes no further than ``logger``, by which this package logs.

Under uvicorn, gunicorn or a plain script nothing shows INFO, and only the message of a warning:
``aioelasticjob.logging.enable()`` shows this package's log on stderr, whatever the program does with its own.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

from aioelasticjob.ground.nesting import TOO_DEEP, is_too_deep
from aioelasticjob.ground.times import moment, time_text

Form: TypeAlias = Literal["text", "json"]
LOGGER = "aioelasticjob"
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_CONTROL = re.compile(r"\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""Control characters, except tabs and line ends."""


@dataclass(frozen=True, slots=True)
class OutsideText:
    """Text that has control characters, as the argument of a record: for people, and as it was."""

    shown: str
    text: str

    def __str__(self) -> str:
        return self.shown


class TextFormatter(logging.Formatter):
    """``2026-11-20T12:00:01.250+01:00 WARNING report: item 2 missed the run of …: …  job=report``."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and the traceback below it; an error's text must not control the reader's terminal."""
        return printable(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """Return the line; a traceback, if there is one, follows it."""
        said = " ".join(f"{name}={_shown(value)}" for name, value in fields(record).items())
        record.message = " ⏎ ".join(record.message.splitlines())
        line = f"{self.formatTime(record, self.datefmt)} {record.levelname:<7} {record.message}"
        return f"{line}  {said}" if said else line

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        """Return the local time with its date, milliseconds and offset."""
        return time_text(moment(record.created).astimezone(), milliseconds=True)


class JsonFormatter(logging.Formatter):
    """One JSON object in a line: ``time``, ``level``, ``logger``, ``message``, the record's fields, and ``stack``."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        entry: dict[str, object] = {
            "time": time_text(moment(record.created), milliseconds=True),
            "level": record.levelname,
            "logger": record.name,
            "message": _as_it_was(record),
        }
        entry |= {name: value for name, value in fields(record).items() if name not in entry}
        if record.exc_info:
            entry["stack"] = self.formatException(record.exc_info)
        return json_text(entry, default=_as_json)


def logger(name: str) -> logging.Logger:
    """Return a logger whose ``handle`` shows what handlers and filters raise on stderr, as ``logging`` does elsewhere.

    Otherwise a handler that fails, say because it sends records to a service that is down, would end the application.
    Messages have visible signs for control characters, whichever formatter a handler has.
    """
    log = logging.getLogger(name)
    if getattr(log.handle, "func", None) is not _handled_here:
        log.handle = partial(_handled_here, log.handle)  # type: ignore[method-assign]
    return log


def handled(handle: Callable[[logging.LogRecord], object], record: logging.LogRecord) -> None:
    """Have a logger's ``handle`` take a record; what handlers and filters raise is shown on stderr."""
    try:
        handle(record)
    except Exception:
        _failing.handleError(record)


def _handled_here(handle: Callable[[logging.LogRecord], object], record: logging.LogRecord) -> None:
    try:
        message = record.getMessage()
    except Exception:  # the arguments do not fit the message: each handler says so
        message = ""
    if _CONTROL.search(message):
        record.msg, record.args = "%s", (OutsideText(printable(message), message),)
    handled(handle, record)


def enable(level: int | str = logging.INFO, form: Form = "text") -> None:
    """Show this package's log, from ``level`` on, on stderr; a second call replaces the first."""
    log = logging.getLogger(LOGGER)
    for handler in [one for one in log.handlers if isinstance(one, _Handler)]:
        log.removeHandler(handler)
    handler = _Handler(sys.stderr)
    handler.setFormatter(formatter(form))
    log.addHandler(handler)
    log.setLevel(level)
    log.propagate = False  # else a program that shows the root's log, too, would show each line twice


def formatter(form: Form) -> logging.Formatter:
    """Return the formatter for people, or the one for programs."""
    return JsonFormatter() if form == "json" else TextFormatter()


def fields(record: logging.LogRecord) -> dict[str, object]:
    """Return the fields that a record carries besides those of every record."""
    found = ((name, value) for name, value in vars(record).items() if name not in _STANDARD)
    return {name: TOO_DEEP if is_too_deep(value) else value for name, value in found}


class _Handler(logging.StreamHandler):  # type: ignore[type-arg]  # the class is generic in stubs only
    """The handler that ``enable`` has added."""


_failing = logging.Handler()


def printable(text: str) -> str:
    """Return a text with a visible sign for each control character: a terminal would execute it, and not show it."""
    return _CONTROL.sub(_sign, text)


def output_line(line: str) -> OutsideText:
    """Return a line of a program's output; if it overwrites itself, as progress bars do, its last state is shown."""
    states = [state for state in line.split("\r") if state]
    return OutsideText(printable(states[-1]) if states else "", line)


def json_text(value: object, *, indent: int | None = None, default: Callable[[object], object] | None = None) -> str:
    """Return a value as JSON that a terminal can show: ``json`` itself has escapes for some control characters only."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=default)
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _as_it_was(record: logging.LogRecord) -> str:
    match record.args:
        case (OutsideText(text=text),):
            return text
        case _:
            return record.getMessage()


def _sign(found: re.Match[str]) -> str:
    code = ord(found[0])
    return chr(0x2400 + code) if code < 0x20 else "␡" if code == 0x7F else "\N{REPLACEMENT CHARACTER}"


def _shown(value: object) -> str:
    text = ",".join(map(str, value)) if isinstance(value, list | tuple | set | frozenset) else str(value)
    return repr(text) if not text or any(mark.isspace() or mark in "='\"" for mark in text) else text


def _as_json(value: object) -> object:
    return sorted(value, key=str) if isinstance(value, set | frozenset) else str(value)
