"""Logs for people: one line for each record, with the fields that it carries."""

from __future__ import annotations

import logging
import sys
from enum import StrEnum

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class LogLevel(StrEnum):
    """The levels of logging."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class FieldFormatter(logging.Formatter):
    """``12:00:01.250 WARNING report: item 2 missed the run of …: the last run was still going on  job=report``."""

    default_msec_format = "%s.%03d"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """Return the line; a traceback, if there is one, follows it."""
        fields = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        said = " ".join(f"{name}={_shown(value)}" for name, value in fields.items())
        record.message = " ⏎ ".join(record.message.splitlines())
        line = f"{self.formatTime(record, self.datefmt)} {record.levelname:<7} {record.message}"
        return f"{line}  {said}" if said else line

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        """Return the local time with milliseconds."""
        return f"{super().formatTime(record, datefmt)}.{record.msecs:03.0f}"


def set_up(level: LogLevel) -> None:
    """Write this process's log to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(FieldFormatter())
    logging.basicConfig(level=level.value.upper(), handlers=[handler], force=True)


def _shown(value: object) -> str:
    text = ",".join(map(str, value)) if isinstance(value, list | tuple | set | frozenset) else str(value)
    return repr(text) if not text or any(mark.isspace() or mark in "='\"" for mark in text) else text
