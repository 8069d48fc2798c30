"""The log lines of a soak at WARNING or above: each needs a cause, something that was done shortly before it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf
from typing import Final

from tests.chaos.stage import RECOVERED
from tests.support.history import Entry, Fault, of_kind

LINE: Final = re.compile(
    r"(?:(?P<day>\d{4}-\d\d-\d\d)[ T])?(?P<time>\d\d:\d\d:\d\d)[.,](?P<ms>\d{3})(?P<offset>[+-]\d\d:\d\d)? "
    r"(?:(?P<logger>[\w.]+) )?(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) +(?P<text>.*)"
)
UNFORMATTED: Final = re.compile(r"Traceback|Warning\b|Error\b|Exception\b|^(WARNING|ERROR|CRITICAL):")
"""Marks a line that does not come from a logger, as of an interpreter that ends, and yet is a problem."""
BUSY: Final = "busy"
BUSY_MEMBER: Final = "busy-member"
"""Further kinds: a worker, the console or the server, or a member, had to wait for a processor."""
MOMENT: Final = re.compile(r"(?:the run of |runs \()(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?[+-]\d\d:\d\d)")
"""The run that a line is about, or the first one of several."""
BEFORE: Final = 1.0
"""Seconds by which a process may notice something before its action is noted: clocks are read one after the other."""
RUNS_ON: Final = 2.0
"""Seconds after which a process that was given a processor again has written what it noticed meanwhile."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line at WARNING or above."""

    at: float
    """Seconds since the epoch; for an unformatted line those of the line before it, 0 if there is none."""
    process: str
    """The process that wrote it, by its name in the history."""
    level: str
    text: str

    @property
    def since(self) -> float:
        """When what the line tells of began: with the moment of the run that it names, if any."""
        found = MOMENT.search(self.text)
        return self.at if found is None else min(self.at, datetime.fromisoformat(found[1]).timestamp())

    def __str__(self) -> str:
        return f"{datetime.fromtimestamp(self.at):%H:%M:%S.%f} {self.process}: {self.level} {self.text}"


@dataclass(frozen=True, slots=True)
class Cause:
    """Lines that match come from actions of these kinds, while they last and somewhat longer; without kinds always."""

    name: str
    pattern: str
    own: tuple[str, ...] = ()
    """Kinds of actions that explain only lines of the process to which they were done."""
    anyones: tuple[str, ...] = ()
    """Kinds of actions that explain lines of every process."""
    longer: float = RECOVERED
    becomes: str = ""
    """The kind of action that such a line itself stands for, once it is explained: what it says has consequences."""

    def explains(self, line: LogLine, actions: Sequence[ActionSpan]) -> bool:
        """Say whether this is why the line was written."""
        if not re.search(self.pattern, f"{line.level} {line.text}"):
            return False
        if not (self.own or self.anyones):
            return True
        near = (one for one in actions if one.start - BEFORE <= line.at and line.since <= one.stop + self.longer)
        return any(one.kind in self.anyones or (one.kind in self.own and one.process == line.process) for one in near)


@dataclass(frozen=True, slots=True)
class ActionSpan:
    """What was done to a process, from when to when; a worker that was restarted counts as its former process."""

    kind: str
    process: str
    start: float
    stop: float


@dataclass(slots=True)
class Examined:
    """The lines, explained or not."""

    explained: Counter[str] = field(default_factory=Counter)
    """How many lines each cause explains."""
    unexplained: list[LogLine] = field(default_factory=list)


def problem_lines(text: str, process: str, start: float) -> Iterator[LogLine]:
    """Yield the lines at WARNING or above of a log that begins at ``start``, in seconds since the epoch.

    What follows a line without a time of its own, such as a stack, belongs to that line.
    """
    at, before = 0.0, False
    for line in text.splitlines():
        if found := LINE.match(line):
            at, before = _time(found, start), True
            if found["level"] not in ("DEBUG", "INFO"):
                yield LogLine(at, process, found["level"], found["text"])
        elif not before and UNFORMATTED.search(line):
            yield LogLine(at, process, "UNFORMATTED", line)


def _time(found: re.Match[str], start: float) -> float:
    first = datetime.fromtimestamp(start)
    day = found["day"] or f"{first:%Y-%m-%d}"
    at = datetime.fromisoformat(f"{day} {found['time']}.{found['ms']}{found['offset'] or ''}")
    if not found["day"] and at < first - timedelta(hours=1):  # it has become another day since
        at += timedelta(days=1)
    return at.timestamp()


def action_spans(entries: Sequence[Entry]) -> list[ActionSpan]:
    """Return what was done, and from when to when; what was not mended lasts until it is done again, or for ever."""
    begun: dict[tuple[str, str], Fault] = {}
    found: list[ActionSpan] = []
    for fault in of_kind(entries, Fault):
        process = fault.hosts[0]
        key = fault.kind, process.partition(".")[0]  # the action on a worker is mended by the next process in its seat
        if (first := begun.pop(key, None)) is not None:
            found.append(ActionSpan(fault.kind, first.hosts[0], first.at, fault.at))
        if not fault.over:
            begun[key] = fault
    return found + [ActionSpan(kind, one.hosts[0], one.at, inf) for (kind, _), one in begun.items()]


def examine(lines: Sequence[LogLine], actions: Sequence[ActionSpan], causes: Sequence[Cause]) -> Examined:
    """Look for the cause of each line; first for the lines that are causes of others."""
    found = Examined()
    known = list(actions)
    for cause in causes:
        if cause.becomes:
            explained = (line for line in lines if cause.explains(line, actions))
            known += [ActionSpan(cause.becomes, line.process, line.at, line.at) for line in explained]
    for line in lines:
        cause = next((one for one in causes if one.explains(line, known)), None)
        if cause is None:
            found.unexplained.append(line)
        else:
            found.explained[cause.name] += 1
    return found
