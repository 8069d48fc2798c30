"""A snapshot of a demonstration as a value, and the progress of its files."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from aioelasticjob.demo.database import open_index
from aioelasticjob.demo.files import share, walk
from aioelasticjob.demo.processes import ProcessState

RELIST_AFTER = 3.0
"""Seconds without a new file after which the directory is listed again: files may have been removed."""


@dataclass(frozen=True, slots=True)
class Worker:
    """One worker process."""

    name: str
    pid: int
    state: ProcessState
    joined: bool
    leads: bool


@dataclass(frozen=True, slots=True)
class Item:
    """One item: who holds and runs it, by the workers' names, and how far its files are."""

    item: int
    holder: str | None
    runner: str | None
    seconds: float
    """Since when it runs."""
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class LogEntry:
    """Something that happened; ``seconds`` after the beginning."""

    seconds: float
    text: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of the demonstration at one moment."""

    title: str
    seconds: float
    done: int
    total: int
    workers: tuple[Worker, ...]
    items: tuple[Item, ...]
    log_entries: tuple[LogEntry, ...]

    @property
    def complete(self) -> bool:
        """Whether every file is in the database."""
        return self.done >= self.total

    def held_by(self, worker: str) -> tuple[int, ...]:
        """Return the items of a worker."""
        return tuple(item.item for item in self.items if item.holder == worker)

    def run_by(self, worker: str) -> tuple[int, ...]:
        """Return the items that a worker is running."""
        return tuple(item.item for item in self.items if item.runner == worker)


@dataclass(slots=True)
class FileProgress:
    """How many files there are and how many are done, by item.  ``measure`` blocks: call it in a thread."""

    directory: str
    excluded: Collection[str]
    database: str
    items: int
    totals: Mapping[int, int] = field(default_factory=Counter)
    done: Mapping[int, int] = field(default_factory=Counter)
    newest: float = field(default_factory=time.monotonic)
    """When the last file came in, by the monotonic clock."""
    _there: set[str] = field(default_factory=set)
    _seen: set[str] = field(default_factory=set)
    _row: int = 0
    _listed: float = 0.0

    @property
    def total(self) -> int:
        """How many files there are."""
        return len(self._there)

    def has_seen(self, path: str) -> bool:
        """Whether a file was below the directory when it was last listed."""
        return path in self._there

    def list(self) -> None:
        """List the files of the directory."""
        self._there = set(walk(self.directory, self.excluded))
        self._listed = time.monotonic()
        self._count()

    def measure(self) -> None:
        """Count the files that are new in the database."""
        with open_index(self.database) as index:
            rows = index.newer(self._row)
        now = time.monotonic()
        if rows:
            self._row, _ = rows[-1]
            self.newest = now
            self._seen.update(path for _, path in rows)
            self._count()
        elif self._there - self._seen and now - max(self.newest, self._listed) > RELIST_AFTER:
            self.list()

    def _count(self) -> None:
        self.totals = Counter(share(path, self.items) for path in self._there)
        self.done = Counter(share(path, self.items) for path in self._there & self._seen)


def plural(items: Collection[int]) -> str:
    """Name some items: ``item 3``, ``items 1, 2 and 4``."""
    *others, last = [str(item) for item in sorted(items)]
    if not others:
        return f"item {last}"
    return f"items {', '.join(others)} and {last}"


def shortened(path: str, width: int) -> str:
    """Return the end of a path that is too long to be shown."""
    home = os.path.expanduser("~")
    if home != "/" and path.startswith(home + os.sep):
        path = "~" + path.removeprefix(home)
    if len(path) <= width:
        return path
    return "…" + path[1 - width :]
