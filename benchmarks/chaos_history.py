"""What the workers of a chaos run wrote down, as the simulation's history: the same entries, the same judges.

All processes are on one machine, so there is one true time: the machine's steady clock, moved to the epoch once.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

from aioelasticjob import ItemContext
from aioelasticjob.events import Misfired
from aioelasticjob.model import FireSource
from tests.simulation.history import Attempted, Begun, Entry, Finished, Held, Reported, Stopped, of_kind

HOST = "127.0.0.1"
GAVE_WAY = "gave way"
"""How the run of a stream ends that was asked for no more records, because somebody else goes on."""
WAKING = 0.5
"""Seconds a handler may need, once its process goes on, to learn that it was cut off while it slept."""


@dataclass(frozen=True, slots=True)
class TrueTime:
    """The machine's steady clock, as seconds since the epoch: nobody steps it, and all processes read the same."""

    epoch: float

    @classmethod
    def of_this_machine(cls) -> TrueTime:
        """Set it by the wall clock, once for all processes of a run."""
        return cls(time.time() - time.monotonic())

    def now(self) -> float:
        """Return the true time."""
        return time.monotonic() + self.epoch


class Pen:
    """Appends a process's lines to the file that all share, each with one write, so that nobody tears another's."""

    def __init__(self, path: Path, process: str, clock: TrueTime) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._process, self._clock, self._runs = process, clock, 0

    def begin(self, context: ItemContext) -> int:
        """Note that a handler was called; return the number of the run in this process."""
        self._runs += 1
        self._write(
            "begin",
            run=self._runs,
            job=context.job_name,
            instance=context.instance,
            item=context.item,
            slot=context.fire.slot,
            source=context.source.value,
            fence=context.fence,
        )
        return self._runs

    def end(self, run: int, how: str) -> None:
        """Note that a handler is over: ``completed`` or ``cut off``."""
        self._write("end", run=run, how=how)

    def misfire(self, event: Misfired) -> None:
        """Note that moments were reported as passed over."""
        facts = {
            "first": event.first,
            "slot": event.slot,
            "items": event.items,
            "moments": event.moments,
            "why": event.why,
        }
        self._write("misfire", job=event.job, instance=event.instance, cut_off=event.cut_off, **facts)

    def _write(self, what: str, **facts: object) -> None:
        line = {"what": what, "at": self._clock.now(), "process": self._process, **facts}
        os.write(self._file, json.dumps(line).encode() + b"\n")


def read(path: Path) -> list[Entry]:
    """Return what the workers wrote, in the order of time; runs are numbered over all processes.

    A further attempt of a run belongs to the run, which ends with its last attempt.  A stream that gave way goes on in
    another run of the same moment, which counts as the rescue of the first one.
    """
    entries: list[Entry] = []
    runs: dict[tuple[object, ...], int] = {}
    numbers: dict[tuple[str, int | str], int] = {}
    finished: dict[int, Finished] = {}
    moments: dict[int, tuple[object, ...]] = {}
    open_moments: set[tuple[object, ...]] = set()
    for text in path.read_text().splitlines() if path.exists() else ():
        line = json.loads(text)
        what, at, process = line["what"], line["at"], line["process"]
        if what == "begin":
            claim = line["job"], line["item"], line["fence"], line["instance"]
            attempt = line.get("attempt", 1)
            if attempt > 1 and claim in runs:
                numbers[process, line["run"]] = runs[claim]
                finished.pop(runs[claim], None)
                entries.append(Attempted(at, runs[claim], attempt))
                continue
            number = runs[claim] = numbers[process, line["run"]] = len(numbers) + 1
            moment = moments[number] = line["job"], line["item"], line["slot"]
            begun = _begun(line, number)
            entries.append(replace(begun, source=FireSource.FAILOVER) if moment in open_moments else begun)
        elif what == "end":
            number = numbers[process, line["run"]]
            finished[number] = Finished(at, number, line["how"])
            if line["how"] == GAVE_WAY:
                open_moments.add(moments[number])
        else:
            entries.append(Reported(at, process, HOST, _misfired(line)))
    return sorted([*entries, *finished.values()], key=lambda entry: entry.at)


def _begun(line: dict[str, Any], number: int) -> Begun:
    place = line["process"], HOST, line["instance"]
    what = line["job"], line["item"], line["slot"], FireSource(line["source"])
    return Begun(line["at"], number, *place, *what, line["fence"], skew=0.0)


def _misfired(line: dict[str, Any]) -> Misfired:
    given = {name: line[name] for name in ("job", "instance", "first", "slot", "moments", "why", "cut_off")}
    return Misfired(items=tuple(line["items"]), **given)


@dataclass(frozen=True, slots=True)
class Arranged:
    """A whole history, ready to be judged."""

    entries: tuple[Entry, ...]
    tails: tuple[float, ...]
    """Seconds that handlers that were cut off went on after their process had woken up, those within ``WAKING``."""


def arrange(journal: Sequence[Entry], deeds: Iterable[Entry]) -> Arranged:
    """Add what was done to the processes: the dead run nothing, and whoever wakes up is given a moment to notice.

    That moment does not count as running.  It cannot be helped: nothing in a process can act before the process does.
    What a handler writes then is refused by its fence.
    """
    done = list(deeds)
    wakings = _wakings(done)
    begun = {one.run: one for one in of_kind(journal, Begun)}
    finished = {one.run for one in of_kind(journal, Finished)}
    stopped = {one.process: one.at for one in of_kind(done, Stopped)}
    entries, tails = list(done), list[float]()
    for entry in journal:
        if isinstance(entry, Finished):
            woken = _woken(begun[entry.run], entry.at, wakings)
            if woken is not None:
                if entry.how == "cut off":
                    tails.append(entry.at - woken)
                entry = replace(entry, at=woken)
        entries.append(entry)
    for run, one in begun.items():
        if run not in finished and one.process in stopped:
            entries.append(Finished(max(one.at, stopped[one.process]), run, "crashed"))
    return Arranged(tuple(sorted(entries, key=lambda entry: entry.at)), tuple(tails))


def _wakings(deeds: Sequence[Entry]) -> Mapping[str, list[tuple[float, float]]]:
    """Return when each process was paused and went on."""
    found: dict[str, list[tuple[float, float]]] = {}
    for held in of_kind(deeds, Held):
        spans = found.setdefault(held.process, [])
        if held.paused:
            spans.append((held.at, inf))
        else:
            spans[-1] = (spans[-1][0], held.at)
    return found


def _woken(begun: Begun, end: float, wakings: Mapping[str, list[tuple[float, float]]]) -> float | None:
    """Return when the process of a run woke up, if the run ended right then."""
    for asleep, awake in wakings.get(begun.process, ()):
        if begun.at < asleep and awake <= end <= awake + WAKING:
            return awake
    return None
