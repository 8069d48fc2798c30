"""Durations on the command line: seconds, or text such as ``5m``."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

import typer

from aioelasticjob.config.durations import TYPED, as_seconds


def seconds_from(least: float) -> Callable[[str | float], float]:
    """Return what reads the value of an option as seconds, and refuses fewer than ``least``."""

    def duration(given: str | float) -> float:
        found: object
        try:
            found = as_seconds(given)
        except ValueError:
            found = None
        if not isinstance(found, int | float) or not isfinite(found) or found < least:
            raise typer.BadParameter(f"{TYPED}, at least {least:g} s")
        return float(found)

    return duration
