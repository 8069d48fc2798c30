"""The log of a process that a command runs: on stderr, for people or for programs."""

from __future__ import annotations

import logging
import sys
from enum import StrEnum

from aioelasticjob.logging import formatter


class LogLevel(StrEnum):
    """The levels of logging."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """The forms of a log line."""

    TEXT = "text"
    JSON = "json"


def set_up(level: LogLevel, form: LogFormat = LogFormat.TEXT) -> None:
    """Write this process's log to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(form.value))
    logging.basicConfig(level=level.value.upper(), handlers=[handler], force=True)
