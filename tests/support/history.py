"""What happened in a cluster, simulated or real, as somebody sees it who sees everything: plain values in order.

Times are true times: seconds since the epoch by a clock that nobody's skew touches.  Moments of a schedule (``slot``)
are milliseconds, as everywhere else.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import TypeAlias, TypeVar

from aioelasticjob.core.pauses import pause_in
from aioelasticjob.events import JobEvent
from aioelasticjob.model import FireSource
from aioelasticjob.registry.tree import Node, Stat

E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class Phase:
    """The cluster enters a part of the script: ``joining``, ``calm``, ``chaos``, ``recovery``."""

    at: float
    name: str


@dataclass(frozen=True, slots=True)
class Started:
    """A process begins."""

    at: float
    process: str
    host: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """A process ends: ``crashed``, ``left``, or with an error."""

    at: float
    process: str
    host: str
    how: str


@dataclass(frozen=True, slots=True)
class Held:
    """A process is paused, or goes on again."""

    at: float
    process: str
    paused: bool
    suspended: bool = False
    """Whether its whole machine was, monotonic clock and kernel included."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something is broken at ``hosts``, or mended; ``over`` tells which.  Momentary faults are both at once."""

    at: float
    kind: str
    hosts: tuple[str, ...]
    over: bool = False
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Begun:
    """A handler was called for an item."""

    at: float
    run: int
    process: str
    host: str
    instance: str
    job: str
    item: int
    slot: int
    source: FireSource
    fence: int
    skew: float
    """Seconds by which this process's clock is ahead of the true one."""
    offset: str | None = None
    """The item's checkpoint as the handler was given it."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A handler has been told that its checkpoint is saved."""

    at: float
    run: int
    path: str
    value: str


@dataclass(frozen=True, slots=True)
class Finished:
    """A handler is over: ``completed``, ``failed``, ``cut off`` or, with its process, ``crashed``."""

    at: float
    run: int
    how: str


@dataclass(frozen=True, slots=True)
class Drained:
    """The handler of a streaming job has found no more records of a run of an item."""

    at: float
    job: str
    item: int
    run: str


@dataclass(frozen=True, slots=True)
class Attempted:
    """A handler was called, for the first time in a run or once more."""

    at: float
    run: int
    number: int


@dataclass(frozen=True, slots=True)
class AttemptOver:
    """A call of a handler in a run that may have several is over: ``completed``, ``failed`` or ``cut off``."""

    at: float
    run: int
    number: int
    how: str


@dataclass(frozen=True, slots=True)
class Reported:
    """A job reported an event."""

    at: float
    process: str
    host: str
    event: JobEvent


@dataclass(frozen=True, slots=True)
class Change:
    """One node after a transaction; ``data`` is None when it is gone."""

    path: str
    data: bytes | None
    created: bool = False
    owner: int = 0


@dataclass(frozen=True, slots=True)
class Written:
    """A transaction of one session, as the registry committed it; ``ending`` if it is the session's own end."""

    at: float
    zxid: int
    session: int
    changes: tuple[Change, ...]
    ending: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """The registry answered a write with an error that is not about what the write asked for."""

    at: float
    host: str
    """Where the write came from."""
    session: int
    code: int
    applied: bool
    """Whether the write was carried out all the same."""
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Repeated:
    """A session has sent the same request so often within a second that it gets into the history."""

    at: float
    host: str
    session: int
    op: int
    """What kind of request it is, as the protocol numbers them."""
    times: int


@dataclass(frozen=True, slots=True)
class ClockSet:
    """The wall clock of a host, the registry's included, is ``ahead`` seconds ahead of the true time from now on."""

    at: float
    host: str
    ahead: float


@dataclass(frozen=True, slots=True)
class Raised:
    """Code of the users' raised an error on purpose; ``where`` says which code, as ``handler`` or ``before``."""

    at: float
    process: str
    host: str
    job: str
    where: str
    error: str


@dataclass(frozen=True, slots=True)
class Called:
    """A listener was called: ``before``, ``after``, ``once before`` or ``once after``."""

    at: float
    process: str
    instance: str
    job: str
    which: str
    slot: int
    source: FireSource
    run: str = ""
    """The name of the run, which tells a run for a request from the scheduled run of the same moment."""


@dataclass(frozen=True, slots=True)
class Nonsense:
    """Somebody wrote data that makes no sense, or a node where none belongs; ``gone`` when it was removed."""

    at: float
    path: str
    data: bytes
    gone: bool = False


Entry: TypeAlias = (
    Phase
    | Started
    | Stopped
    | Held
    | Fault
    | Begun
    | Saved
    | Drained
    | Attempted
    | AttemptOver
    | Finished
    | Reported
    | Written
    | Refusal
    | Repeated
    | ClockSet
    | Raised
    | Called
    | Nonsense
)


class History:
    """The list while it is being written.  ``now`` tells the true time."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.entries: list[Entry] = []
        self._open: dict[int, str] = {}
        self._stopped: set[str] = set()
        self._runs = 0
        self._sealed = False

    def note(self, entry: Entry) -> None:
        """Add an entry, unless the history is closed."""
        if not self._sealed:
            self.entries.append(entry)

    def begin(self, make: Callable[[float, int], Begun]) -> int:
        """Note that a handler was called; return the number of the run."""
        self._runs += 1
        begun = make(self.now(), self._runs)
        self.note(begun)
        self._open[begun.run] = begun.process
        return begun.run

    def finish(self, run: int, how: str) -> None:
        """Note that a handler is over, once."""
        if self._open.pop(run, None) is not None:
            self.note(Finished(self.now(), run, how))

    def stop(self, process: str, host: str, how: str) -> None:
        """Note that a process has ended, once: the dead are unwound, and what they say then means nothing."""
        if process not in self._stopped:
            self._stopped.add(process)
            self.note(Stopped(self.now(), process, host, how))

    def crash(self, process: str, host: str) -> None:
        """Note that a process is dead, and every handler in it."""
        self.stop(process, host, "crashed")
        for run in [run for run, where in self._open.items() if where == process]:
            self.finish(run, "crashed")

    def seal(self) -> None:
        """Take no more notes: what follows is the end of the simulated world, not of its inhabitants."""
        self._sealed = True


def of_kind(entries: Sequence[Entry], kind: type[E]) -> Iterator[E]:
    """Yield the entries of one kind."""
    return (entry for entry in entries if isinstance(entry, kind))


class Nodes:
    """The registry's nodes over time, rebuilt from what was written."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._changes: dict[str, tuple[list[float], list[bytes | None]]] = {}
        for written in of_kind(entries, Written):
            for change in written.changes:
                times, values = self._changes.setdefault(change.path, ([], []))
                times.append(written.at)
                values.append(change.data)
        self._end_pauses()

    def _end_pauses(self) -> None:
        """Let the flag of a pause be gone from the time on at which the pause ends by itself: so it is read."""
        for path, (times, values) in self._changes.items():
            if not path.endswith("/paused"):
                continue
            following = [*times[1:], inf]
            for at, data, end in zip(list(times), list(values), following, strict=True):
                until = inf if not data else pause_in(Node.of(data, Stat.of((1, 1), (at, at), 0))).until
                if at < until < end:
                    place = bisect_right(times, until)
                    times.insert(place, until)
                    values.insert(place, None)

    def at(self, path: str, when: float) -> bytes | None:
        """Return a node's data at a time; None if there was no such node."""
        times, values = self._changes.get(path, ([], []))
        place = bisect_right(times, when)
        return values[place - 1] if place else None

    def over(self, path: str, start: float, end: float) -> list[bytes | None]:
        """Return all values a node had from ``start`` to ``end``, oldest first."""
        times, values = self._changes.get(path, ([], []))
        first, last = bisect_right(times, start), bisect_right(times, end)
        return [values[first - 1] if first else None, *values[first:last]]

    def changes(self, path: str) -> list[tuple[float, bytes | None]]:
        """Return when a node got which value."""
        times, values = self._changes.get(path, ([], []))
        return list(zip(times, values, strict=True))

    def children(self, path: str, when: float) -> list[str]:
        """Return the names below a node at a time, sorted."""
        prefix = path + "/"
        names = (known.removeprefix(prefix) for known in self._changes if known.startswith(prefix))
        return sorted(name for name in names if "/" not in name and self.at(prefix + name, when) is not None)

    def ever(self, path: str) -> list[str]:
        """Return the names that ever were below a node, sorted."""
        prefix = path + "/"
        names = (known.removeprefix(prefix) for known in self._changes if known.startswith(prefix))
        return sorted(name for name in names if "/" not in name)


def came_and_went(written: Written, job: str) -> Iterator[tuple[str, bool]]:
    """Yield the instances of a job that a transaction adds or removes, and whether it removes them."""
    for change in written.changes:
        parent, _, name = change.path.rpartition("/")
        if parent == f"/{job}/instances" and (change.created or change.data is None):
            yield name, change.data is None
