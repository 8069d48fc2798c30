"""What worker processes did, line by line in one file, and the promises that such a file must bear out.

The jobs fire every second, so slots are counted in seconds.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Literal

from aioelasticjob.model import SCHEDULED

What = Literal["begin", "end", "cut", "misfire"]
HANDED_OVER = 3.0
"""Seconds between two slots of an item, of which one was run by its old holder and one by its new one.

If they are more, as on a busy machine, the new holder has to report them."""


@dataclass(frozen=True, slots=True)
class Line:
    """Something that happened in a worker; ``at`` is the machine's monotonic clock, the same for all processes."""

    what: What
    pid: int
    at: float
    instance: str = ""
    item: int = -1
    slot: float = 0.0
    source: str = ""
    fence: int = 0


class JournalWriter:
    """Appends lines, each with one write, so that processes cannot tear each other's apart."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, what: What, **facts: object) -> None:
        line = {"what": what, "pid": os.getpid(), "at": time.monotonic(), **facts}
        os.write(self._file, json.dumps(line).encode() + b"\n")


@dataclass(frozen=True, slots=True)
class JournalRun:
    """One run of one item: from its first line to its last, or to the end of its process."""

    first: Line
    last: Line | None
    until: float
    """When it can no longer have been running; infinity while it may."""


@dataclass
class WorkerEvents:
    """What a test did to processes, by pid, in the machine's monotonic clock."""

    killed: dict[int, float] = field(default_factory=dict)
    stopped: dict[int, tuple[float, float]] = field(default_factory=dict)
    """When a process was paused and went on."""


def read(path: Path) -> list[Line]:
    """Return all lines in the order in which they were written; one without its end is being written."""
    if not path.exists():
        return []
    whole, _, _ = path.read_text().rpartition("\n")
    return [Line(**json.loads(text)) for text in whole.splitlines()]


def runs(lines: list[Line], fates: WorkerEvents) -> dict[int, list[JournalRun]]:
    """Return every item's runs in the order in which they began."""
    found: dict[int, list[JournalRun]] = defaultdict(list)
    open_runs: dict[tuple[str, int], Line] = {}
    for line in lines:
        if line.what == "misfire":
            continue
        key = line.instance, line.item
        if line.what == "begin":
            assert key not in open_runs, f"{line} begins within {open_runs[key]}"
            open_runs[key] = line
        else:
            first = open_runs.pop(key)
            found[line.item].append(JournalRun(first, line, _over(first, line.at, fates)))
    for (_, item), first in open_runs.items():
        found[item].append(JournalRun(first, None, _over(first, inf, fates)))
    return {item: sorted(of_item, key=lambda run: run.first.at) for item, of_item in found.items()}


def check(lines: list[Line], fates: WorkerEvents) -> Mapping[int, list[JournalRun]]:
    """Hold the journal to the promises; return every item's runs.

    One runner: no run begins before the one before it is over.  One run per slot.  Fences grow with every claim.
    Nothing lost: between two runs at one instance no slot is missing, unless the instance has reported a misfire.
    """
    found = runs(lines, fates)
    for item, of_item in found.items():
        for one, following in pairwise(of_item):
            assert one.until <= following.first.at, f"two runners of item {item}: {one} and {following}"
            assert one.first.fence < following.first.fence, f"the fence does not grow: {one} and {following}"
        scheduled = [run.first.slot for run in of_item if run.first.source in SCHEDULED]
        assert len(scheduled) == len(set(scheduled)), f"a slot of item {item} was run twice: {sorted(scheduled)}"
        _nothing_lost(of_item, [line for line in lines if line.what == "misfire"], fates)
    _nothing_begins_after_a_pause(lines, found, fates)
    return found


def _over(first: Line, last: float, fates: WorkerEvents) -> float:
    """A dead process runs nothing, and a stopped one nothing that anybody could meet, until it goes on."""
    stopped, _ = fates.stopped.get(first.pid, (inf, inf))
    if first.at < stopped < last:
        last = stopped
    return min(last, fates.killed.get(first.pid, inf))


def _nothing_lost(of_item: list[JournalRun], misfires: list[Line], fates: WorkerEvents) -> None:
    for one, following in pairwise(of_item):
        before, after = one.first, following.first
        missing = after.slot - before.slot - 1
        reported = [m for m in misfires if m.pid == after.pid and before.slot < m.slot <= after.slot]
        if before.instance != after.instance:
            # a rescuer stands in for a holder that was killed or stopped
            rescued = before.source == "FAILOVER" and (fates.killed or fates.stopped)
            left_alone = before.pid in fates.killed or before.pid in fates.stopped or rescued
            told = left_alone or reported or missing < HANDED_OVER
            assert told, f"{missing} slots lost in handing over: {one}, {following}"
        elif missing > 0:
            assert reported, f"{missing} slots lost without a word: {one}, {following}"


def _nothing_begins_after_a_pause(
    lines: list[Line], found: Mapping[int, list[JournalRun]], fates: WorkerEvents
) -> None:
    """A process that went on after its session's end is a new instance; the old one may only end what it had begun."""
    for pid, (stopped, resumed) in fates.stopped.items():
        old = {line.instance for line in lines if line.pid == pid and line.instance and line.at < stopped}
        for line in lines:
            if line.pid != pid or line.at < resumed or line.instance not in old:
                continue
            assert line.what != "begin", f"a paused instance began something after its session's end: {line}"
            later = [run.first for run in found[line.item] if stopped < run.first.at < line.at]
            assert all(run.fence > line.fence for run in later), f"a zombie's fence is not the smaller one: {line}"
