"""What worker processes write down about their runs, read as a history: the entries that a simulation has, too.

All processes are on one machine, so there is one true time: the machine's steady clock, moved to the epoch once.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aioelasticjob import ItemContext
from aioelasticjob.events import Ended, Misfired, fence_of
from aioelasticjob.model import FireSource, Outcome
from tests.support.history import Attempted, Begun, Entry, Fault, Finished, Reported

HOST = "127.0.0.1"
START = "start"
"""The kind of fault that lasts from when a worker is started until all its jobs have joined."""
CUT_OFF = "cut off"
GAVE_WAY = "gave way"
"""How the run of a stream ends that was asked for no more records, and left its moment open to whoever goes on."""
ENDS = {
    Outcome.COMPLETED: "completed",
    Outcome.FAILED: "failed",
    Outcome.TIMED_OUT: "failed",
    Outcome.STOPPED: "failed",
    Outcome.CANCELLED: CUT_OFF,
}
"""How a run ends by its outcome, if its handler has not noted its end."""


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

    def started(self) -> None:
        """Note that all jobs of this process have joined."""
        self._write("started")

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

    def outcome(self, ended: Ended) -> None:
        """Note how the instance says that a run ended, at the time of its event: it is read some time later.

        The id of a run that was not claimed has its moment in place of a fence, so nothing tells it from other runs.
        """
        fence = fence_of(ended.task_id)
        if fence == ended.slot:
            return
        at = self._clock.now() - (time.time() - ended.at)
        facts = {"job": ended.job, "instance": ended.instance, "item": ended.item, "slot": ended.slot}
        facts |= {"source": ended.source.value, "fence": fence}
        self._write("outcome", at=at, outcome=ended.outcome.value, **facts)

    def _write(self, what: str, **facts: object) -> None:
        line = {"what": what, "at": self._clock.now(), "process": self._process, **facts}
        os.write(self._file, json.dumps(line).encode() + b"\n")


def read(path: Path) -> list[Entry]:
    """Return what the workers wrote, in the order of time; runs are numbered over all processes.

    Handlers say when a run begins and ends.  The instance says what came of it, and that counts where the handler
    cannot know it: a run was cut off before its handler noted anything, or together with the process of its handler; or
    a generator was closed, because its run was cut off or because the stream gave way.
    """
    *texts, _ = path.read_text().split("\n") if path.exists() else [""]  # the last line may be under way
    lines = list(map(json.loads, texts))
    history = _History({_claim(line): Outcome(line["outcome"]) for line in lines if line["what"] == "outcome"})
    for line in lines:
        history.take(line)
    return history.entries()


class _History:
    """The entries that follow from lines.

    A further attempt of a run belongs to the run, which ends with its last attempt.  A stream that gave way goes on in
    another run of the same moment, which counts as the rescue of the first one.
    """

    def __init__(self, outcomes: Mapping[tuple[object, ...], Outcome]) -> None:
        self._outcomes = outcomes
        self._entries: list[Entry] = []
        self._runs: dict[tuple[object, ...], int] = {}
        """The number of the newest run of each claim."""
        self._calls: dict[tuple[str, int | str], int] = {}
        """The number of the run of each call of a handler, by its process and the number or name that it has there."""
        self._first: dict[int, dict[str, Any]] = {}
        """The first line of each run."""
        self._finished: dict[int, Finished] = {}
        self._open: set[tuple[str, int, int]] = set()
        """Moments of items that a stream has left open."""

    def take(self, line: dict[str, Any]) -> None:
        """Take the next line."""
        match line["what"]:
            case "begin":
                self._calls[line["process"], line["run"]] = self._begin(line)
            case "end":
                self._end(self._calls[line["process"], line["run"]], line["at"], line["how"])
            case "outcome":
                run = self._runs[_claim(line)] if _claim(line) in self._runs else self._begin(line)
                if run not in self._finished:
                    self._end(run, line["at"], ENDS[Outcome(line["outcome"])])
            case "started":
                self._entries.append(Fault(line["at"], START, (line["process"],), over=True))
            case "misfire":
                self._entries.append(Reported(line["at"], line["process"], HOST, _misfired(line)))

    def entries(self) -> list[Entry]:
        """Return the entries in the order of time."""
        return sorted([*self._entries, *self._finished.values()], key=lambda entry: entry.at)

    def _begin(self, line: dict[str, Any]) -> int:
        claim, attempt = _claim(line), line.get("attempt", 1)
        if attempt > 1 and claim in self._runs:
            self._finished.pop(self._runs[claim], None)
            self._entries.append(Attempted(line["at"], self._runs[claim], attempt))
            return self._runs[claim]
        run = self._runs[claim] = len(self._first) + 1
        self._first[run], begun = line, _begun(line, run)
        self._entries.append(replace(begun, source=FireSource.FAILOVER) if _moment(line) in self._open else begun)
        self._open.discard(_moment(line))
        return run

    def _end(self, run: int, at: float, how: str) -> None:
        outcome = self._outcomes.get(_claim(self._first[run]))
        if how in (GAVE_WAY, CUT_OFF) and outcome is not None:
            # a stream that fetches nothing for long is cut off, and has given way all the same
            how = GAVE_WAY if outcome is Outcome.COMPLETED else ENDS[outcome]
        self._finished[run] = Finished(at, run, how)
        if how == GAVE_WAY:
            self._open.add(_moment(self._first[run]))


def _moment(line: dict[str, Any]) -> tuple[str, int, int]:
    return line["job"], line["item"], line["slot"]


def _claim(line: dict[str, Any]) -> tuple[object, ...]:
    return line["job"], line["item"], line["fence"], line["instance"]


def _begun(line: dict[str, Any], number: int) -> Begun:
    place = line["process"], HOST, line["instance"]
    what = line["job"], line["item"], line["slot"], FireSource(line["source"])
    return Begun(line["at"], number, *place, *what, line["fence"], skew=0.0)


def _misfired(line: dict[str, Any]) -> Misfired:
    given = {name: line[name] for name in ("job", "instance", "first", "slot", "moments", "why", "cut_off")}
    return Misfired(items=tuple(line["items"]), **given)
