"""Durations as people write them: seconds, text such as ``5m``, or a timedelta."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TypeAlias

Duration: TypeAlias = float | str | timedelta
"""A duration as people write it."""
TYPED = 'must be a number of seconds, text such as "90s", "5m" or "1h 30m"'
"""What is right where only text can be given, as on the command line."""
EXPECTED = f"{TYPED}, or a timedelta"
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400}
_PART = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ms|s|min|m|h|d)\s*")


def as_seconds(given: object) -> object:
    """Return a duration in seconds; a value that is neither text nor a timedelta is returned as it is.

    Raises:
        ValueError: the text is no duration, or the value is a boolean, or too large for a float.
    """
    if isinstance(given, bool):
        raise ValueError(EXPECTED)
    if isinstance(given, timedelta):
        return given.total_seconds()
    if isinstance(given, int):
        try:
            float(given)
        except OverflowError:
            raise ValueError(EXPECTED) from None
    if isinstance(given, str):
        return _read(given)
    return given


def _read(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        pass
    total = 0.0
    end = 0
    while end < len(text):
        part = _PART.match(text, end)
        if part is None:
            raise ValueError(EXPECTED)
        number, unit = part.groups()
        total += float(number) * _UNITS[unit]
        end = part.end()
    if not end:
        raise ValueError(EXPECTED)
    return total
