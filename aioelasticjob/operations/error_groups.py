"""Errors of runs that have failed, grouped by kind and place, so that a thousand failures are one line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from aioelasticjob.observers.missed import Count

LONGEST_KIND: Final = 80
"""Characters of a kind that are shown."""
_SEPARATOR: Final = re.compile(r"[\\/]")
_KIND: Final = re.compile(r"[A-Za-z_][\w.]*(?=:|$)")
_FRAME: Final = re.compile(r'File "([^"\n]+)", line \d+, in (\S+)')
_NOT_OWN: Final = re.compile(
    r"[\\/](site-packages|dist-packages|lib[\\/]python\d|aioelasticjob[\\/](running|jobs))[\\/.]"
)
"""Files of libraries and of this package.  The place of an error is the last function in any other file."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A run that has failed, with the kind and the place of its error."""

    run: str
    """The run's key in the event store."""
    job: str
    item: int
    began: float
    """In seconds since the epoch."""
    kind: str
    place: str


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """The failures of one job that have the same kind and place."""

    kind: str
    """The name of the exception; the run's outcome where there is none."""
    place: str
    """File and function; empty if they are not known."""
    first: float
    """When the first run that failed so began, in seconds since the epoch."""
    newest: str
    """The key of the newest run that failed so."""
    runs: tuple[tuple[int, float], ...]
    """The item and the beginning of each run that failed so within the last day, the newest first."""
    is_least: bool = False
    """Whether more runs may have failed so within the last day: only the newest failures are grouped."""

    @property
    def name(self) -> str:
        """Kind and place, which tell this error from others of the job."""
        return f"{self.kind} · {self.place}" if self.place else self.kind

    @property
    def count(self) -> Count:
        """How many runs failed so within the last day."""
        return Count(len(self.runs), self.is_least)


ErrorsByJob = Mapping[str, tuple[ErrorGroup, ...]]


def grouped(failures: Iterable[Failure], before: ErrorsByJob, *, is_least: bool = False) -> ErrorsByJob:
    """Group failures, the newest first, by job, kind and place; ``before`` tells when each group was first seen.

    ``is_least`` says that there are older failures, which are left out.
    """
    found: dict[str, dict[tuple[str, str], list[Failure]]] = {}
    for one in failures:
        found.setdefault(one.job, {}).setdefault((one.kind, one.place), []).append(one)
    errors = dict[str, tuple[ErrorGroup, ...]]()
    for job, groups in found.items():
        known = before.get(job, ())
        errors[job] = tuple(_group(runs, known, is_least) for runs in groups.values())
    return errors


def kind_of(failure: str | None, outcome: str) -> str:
    """Return the name of the exception that a failure's line begins with, else the outcome."""
    name = _KIND.match(failure or "")
    if name is None:
        return outcome
    return name[0].rpartition(".")[2][:LONGEST_KIND]


def place_of(stack: str) -> str:
    """Return the last function of the application that a stack names, as file and function; empty if it has none."""
    last_traceback = stack.rpartition("Traceback (most recent call last)")[2]
    frames = _FRAME.findall(last_traceback)
    if not frames:
        return ""
    own = [(file, function) for file, function in frames if not _NOT_OWN.search(file)]
    file, function = (own or frames)[-1]
    folder_and_name = re.split(_SEPARATOR, file)[-2:]
    return f"{'/'.join(folder_and_name)}, {function}"


def _group(runs: list[Failure], before: Iterable[ErrorGroup], is_least: bool) -> ErrorGroup:
    newest = runs[0]
    first = runs[-1].began
    for one in before:
        if (one.kind, one.place) == (newest.kind, newest.place):
            first = min(first, one.first)
    items = tuple((one.item, one.began) for one in runs)
    return ErrorGroup(newest.kind, newest.place, first, newest.run, items, is_least)
