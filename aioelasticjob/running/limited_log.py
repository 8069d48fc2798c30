"""Warnings that can repeat: the first is written at once, then one a minute, which says how many were left out."""

from __future__ import annotations

import logging
from asyncio import get_running_loop
from dataclasses import dataclass

INTERVAL = 60.0
"""Seconds between two lines of the same kind."""


@dataclass(slots=True)
class _Written:
    at: float
    """When the last line was written, by the loop's clock."""
    left_out: int = 0
    """How many lines of the same kind were left out since then."""


class LimitedLog:
    """Writes the warnings of one job, at most one of each kind in ``INTERVAL`` seconds."""

    def __init__(self, log: logging.Logger, job: str) -> None:
        self._log, self._job = log, job
        self._written: dict[str, _Written] = {}

    def warning(self, kind: str, message: str, **extra: object) -> None:
        """Write a warning, unless one of its kind was written less than ``INTERVAL`` ago; then it is counted."""
        now, last = get_running_loop().time(), self._written.get(kind)
        if last is not None and now < last.at + INTERVAL:
            last.left_out += 1
            return
        self._written[kind] = _Written(now)
        more = (
            f" ({last.left_out} such lines were left out before this one)" if last is not None and last.left_out else ""
        )
        self._log.warning("%s: %s%s", self._job, message, more, extra={"job": self._job, **extra})
