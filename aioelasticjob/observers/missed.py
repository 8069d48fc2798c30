"""Reports of missed moments as the event store keeps them: how many moments a report stands for, and why.

Everywhere missed moments are counted in one unit: a moment that two items have missed counts twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from aioelasticjob.events import MOMENTS_COUNTED
from aioelasticjob.ground.whole_numbers import whole_number

MISSED: Final = "TASK_MISFIRED"
"""The state of a report of missed moments in the status trace."""
_SEVERAL: Final = re.compile(r"(?:at least )?(\d+) × (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Count:
    """A number of things, which may be a lower bound."""

    number: int = 0
    is_least: bool = False
    """Whether there may be more than ``number``."""

    def __add__(self, other: Count) -> Count:
        return Count(self.number + other.number, self.is_least or other.is_least)


NOTHING_COUNTED: Final = Count()


@dataclass(frozen=True, slots=True)
class MissedMoments:
    """Moments of one job that its items have missed for one reason; they may be of several reports."""

    count: Count
    why: str
    first: float
    """When the oldest of the reports was made, in seconds since the epoch."""
    last: float
    """When the newest of the reports was made, in seconds since the epoch."""


def count_of(moments: int, items: int = 1) -> Count:
    """Return how many moments a report stands for that counts ``moments`` moments of each of some items."""
    return Count(moments * items, moments >= MOMENTS_COUNTED)


def total_of(missed: Iterable[MissedMoments]) -> Count:
    """Return how many moments were missed altogether."""
    return sum((one.count for one in missed), NOTHING_COUNTED)


def message_of(moments: int, why: str) -> str:
    """Return the message of a report in the status trace."""
    if moments == 1:
        return why
    at_least = "at least " if moments >= MOMENTS_COUNTED else ""
    return f"{at_least}{moments} × {why}"


def read_message(message: str) -> tuple[int, str]:
    """Return how many moments a message of the status trace stands for, and why they were missed."""
    found = _SEVERAL.fullmatch(message)
    moments = None if found is None else whole_number(found[1])
    if found is None or moments is None:
        return 1, message
    return moments, found[2]
