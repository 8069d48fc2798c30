"""The log lines of a soak at WARNING or above: each needs a cause, something that was done shortly before it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf
from typing import Final

from benchmarks.chaos_stage import LEAVING, RECOVERED
from tests.simulation.history import Entry, Fault, Started, Stopped, of_kind

LINE: Final = re.compile(
    r"(?:(?P<day>\d{4}-\d\d-\d\d) )?(?P<time>\d\d:\d\d:\d\d)[.,](?P<ms>\d{3}) "
    r"(?:(?P<logger>[\w.]+) )?(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) +(?P<text>.*)"
)
UNFORMATTED: Final = re.compile(r"Traceback|Warning\b|Error\b|Exception\b|^(WARNING|ERROR|CRITICAL):")
"""Marks a line that does not come from a logger, as of an interpreter that ends, and yet is a complaint."""
START: Final = "start"
END: Final = "end"
BUSY: Final = "busy"
"""Further kinds: a worker starts; a worker ends; a process had to wait for a processor."""
STARTING: Final = 15.0
"""Seconds in which a worker starts."""
BEFORE: Final = 1.0
"""Seconds by which a process may notice something before its deed is noted: clocks are read one after the other."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line at WARNING or above."""

    at: float
    """Seconds since the epoch; for an unformatted line those of the line before it, 0 if there is none."""
    source: str
    level: str
    text: str

    def __str__(self) -> str:
        return f"{self.source}: {self.level} {self.text}"


@dataclass(frozen=True, slots=True)
class Cause:
    """Lines that match come from deeds of these kinds, while they last and somewhat longer; without kinds always."""

    name: str
    pattern: str
    kinds: tuple[str, ...] = ()
    longer: float = RECOVERED

    def explains(self, line: LogLine, deeds: Sequence[DeedSpan]) -> bool:
        """Say whether this is why the line was written."""
        if not re.search(self.pattern, line.text):
            return False
        near = (deed for deed in deeds if deed.kind in self.kinds)
        return not self.kinds or any(one.start - BEFORE <= line.at <= one.stop + self.longer for one in near)


@dataclass(frozen=True, slots=True)
class DeedSpan:
    """When something of a kind was done, and when it was mended."""

    kind: str
    start: float
    stop: float


@dataclass(slots=True)
class Examined:
    """The lines, explained or not."""

    explained: Counter[str] = field(default_factory=Counter)
    """How many lines each cause explains."""
    unexplained: list[LogLine] = field(default_factory=list)


def complaints(text: str, source: str, start: float) -> Iterator[LogLine]:
    """Yield the lines at WARNING or above of a log that begins at ``start``, in seconds since the epoch.

    What follows a line without a time of its own, such as a stack, belongs to that line.
    """
    at, before = 0.0, False
    for line in text.splitlines():
        if found := LINE.match(line):
            at, before = _time(found, start), True
            if found["level"] not in ("DEBUG", "INFO"):
                yield LogLine(at, source, found["level"], found["text"])
        elif not before and UNFORMATTED.search(line):
            yield LogLine(at, source, "UNFORMATTED", line)


def _time(found: re.Match[str], start: float) -> float:
    first = datetime.fromtimestamp(start)
    day = found["day"] or f"{first:%Y-%m-%d}"
    at = datetime.fromisoformat(f"{day} {found['time']}.{found['ms']}")
    if not found["day"] and at < first - timedelta(hours=1):  # it has become another day since
        at += timedelta(days=1)
    return at.timestamp()


def deed_spans(entries: Sequence[Entry]) -> list[DeedSpan]:
    """Return what was done, and from when to when; what was not mended lasts for ever."""
    begun: dict[tuple[str, str], float] = {}
    found: list[DeedSpan] = []
    for fault in of_kind(entries, Fault):
        key = fault.kind, fault.detail
        if not fault.over:
            begun[key] = fault.at
        elif key in begun:
            found.append(DeedSpan(fault.kind, begun.pop(key), fault.at))
    found += [DeedSpan(kind, start, inf) for (kind, _), start in begun.items()]
    found += [DeedSpan(START, one.at, one.at + STARTING) for one in of_kind(entries, Started)]
    return found + [DeedSpan(END, one.at - LEAVING, one.at) for one in of_kind(entries, Stopped)]


def examine(lines: Sequence[LogLine], deeds: Sequence[DeedSpan], causes: Sequence[Cause]) -> Examined:
    """Look for the cause of each line."""
    found = Examined()
    for line in lines:
        cause = next((one for one in causes if one.explains(line, deeds)), None)
        if cause is None:
            found.unexplained.append(line)
        else:
            found.explained[cause.name] += 1
    return found
