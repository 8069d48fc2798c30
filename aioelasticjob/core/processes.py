"""What a process cannot do at present, as its node ``~processes/{id}`` says it: for people, and for alerts.

The node is there only while there is something to say.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from aioelasticjob.core.layout import PROCESSES, child
from aioelasticjob.core.records import MAX_MILLISECONDS
from aioelasticjob.ground.encoding import json_object, number
from aioelasticjob.ground.plural import counted
from aioelasticjob.ground.times import moment, time_text
from aioelasticjob.model import instance_id
from aioelasticjob.registry.transaction import Create, Delete, Op, Set
from aioelasticjob.registry.tree import Node

CLOCK_CHANGE: Final = 1.0
"""Seconds by which the difference of the clocks must change before it is noted anew: clocks drift all the time."""
COUNT_CHANGE: Final = 0.1
"""The part by which a number of events must change before it is noted anew: it changes with every run."""
MOST_REFUSED: Final = 5
"""Kinds of requests that are noted."""
LONGEST_REASON: Final = 300
"""Characters of a reason that are noted."""


@dataclass(frozen=True, slots=True)
class UnwrittenEvents:
    """Events that wait because the event store does not take them."""

    since: float
    """The oldest of them has waited since then, in seconds since the epoch, by the registry's clock."""
    why: str
    waiting: int


@dataclass(frozen=True, slots=True)
class LostEvents:
    """Events that the event store will never have."""

    number: int
    first: float
    """When the first of them came, in seconds since the epoch."""
    last: float
    """When the last of them came."""


@dataclass(frozen=True, slots=True)
class RefusedToProcess:
    """One kind of request that the registry refuses to a process, in one job or in several."""

    what: str
    """The purpose of the request, as in "to settle items"."""
    why: str
    since: float
    """When it was first refused, in seconds since the epoch."""
    job: str
    """One of the jobs."""
    jobs: int
    """In how many jobs it is refused."""


@dataclass(frozen=True, slots=True)
class ProcessProblems:
    """What a process cannot do at present; false if it can do everything."""

    event_store: UnwrittenEvents | None = None
    lost: LostEvents | None = None
    """The events that the process has lost of late."""
    clock_differs: float | None = None
    """By how many seconds its host's clock is ahead of the registry's, if its jobs use the registry's for that."""
    refused: tuple[RefusedToProcess, ...] = ()

    def __bool__(self) -> bool:
        return self != NO_PROBLEMS

    def as_json(self) -> dict[str, object]:
        """Return the problems as keys of the node, and of ``/health``; without what there is no problem with."""
        found: dict[str, object] = {}
        if self.event_store is not None:
            store = self.event_store
            found["eventStore"] = {"since": store.since, "why": store.why, "waiting": store.waiting}
        if self.lost is not None:
            found["lost"] = {"events": self.lost.number, "first": self.lost.first, "last": self.lost.last}
        if self.clock_differs is not None:
            found["clockDiffers"] = self.clock_differs
        if self.refused:
            found["refused"] = [
                {"what": one.what, "why": one.why, "since": one.since, "job": one.job, "jobs": one.jobs}
                for one in self.refused
            ]
        return found

    def sentences(self) -> tuple[str, ...]:
        """Return one sentence for each problem, for lists and for messages."""
        said = list[str]()
        if (store := self.event_store) is not None:
            waiting = counted(store.waiting, "event")
            said.append(f"its event store has not been written since {_at(store.since)}, {waiting} wait: {store.why}")
        if (lost := self.lost) is not None:
            number = counted(lost.number, "event")
            said.append(f"the event store lacks {number} from {_at(lost.first)} to {_at(lost.last)}, which are lost")
        if (seconds := self.clock_differs) is not None:
            side = "ahead of" if seconds > 0 else "behind"
            said.append(f"its clock is {abs(seconds):g} s {side} the registry's, so its jobs use the registry's time")
        for one in self.refused:
            jobs = one.job if one.jobs == 1 else f"{one.job} and {counted(one.jobs - 1, 'more job')}"
            said.append(f"the registry has refused it {one.what} since {_at(one.since)} ({jobs}): {one.why}")
        return tuple(said)


NO_PROBLEMS: Final = ProcessProblems()


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """A process that cannot do something, as its node says."""

    id: str
    ip: str
    host: str
    pid: int
    incarnation: int
    """Its session with the registry: that of all its instances."""
    problems: ProcessProblems

    @property
    def name(self) -> str:
        """The process as it is shown."""
        return f"process {self.pid} on {self.host or self.ip}"


@dataclass(frozen=True, slots=True)
class Author:
    """The process that writes a note of itself, in one session."""

    ip: str
    host: str
    pid: int
    incarnation: int

    @property
    def id(self) -> str:
        """The name of the process's nodes in this session."""
        session = self.incarnation & 0xFFFF_FFFF_FFFF_FFFF  # ZooKeeper's ids may be below 0
        return instance_id(self.ip, self.pid, f"{session:x}")

    @property
    def path(self) -> str:
        """The node that says what the process cannot do."""
        return child(PROCESSES, self.id)


def renewal(author: Author, parent: Node | None, node: Node | None, problems: ProcessProblems) -> list[Op]:
    """Return the transaction after which the process's node says its problems; without a problem there is no node."""
    if not problems:
        return [] if node is None else [Delete(author.path, node.stat.version)]
    about = {"ip": author.ip, "host": author.host, "pid": author.pid, **problems.as_json()}
    data = json.dumps(about).encode()
    if node is not None:
        return [Set(author.path, data, node.stat.version)]
    above = [Create(PROCESSES)] if parent is None else []
    return [*above, Create(author.path, data, ephemeral=True)]


def is_news(noted: ProcessProblems, now: ProcessProblems) -> bool:
    """Whether the problems differ so much from those that were noted that they have to be noted anew."""
    return not (
        _is_close(noted.clock_differs, now.clock_differs)
        and _is_same_trouble(noted.event_store, now.event_store)
        and _is_same_loss(noted.lost, now.lost)
        and _kinds(noted.refused) == _kinds(now.refused)
    )


def refused_in(jobs: Mapping[str, Iterable[tuple[str, str, float]]]) -> tuple[RefusedToProcess, ...]:
    """Return what is refused to a process, given for each job what, why, and since when; the oldest first."""
    found = dict[str, RefusedToProcess]()
    for job, refusals in jobs.items():
        for what, why, since in refusals:
            known = found.get(what)
            if known is None:
                found[what] = RefusedToProcess(what, why[:LONGEST_REASON], since, job, 1)
            else:
                first = min(known.since, since)
                found[what] = RefusedToProcess(what, known.why, first, known.job, known.jobs + 1)
    return tuple(sorted(found.values(), key=lambda one: (one.since, one.what))[:MOST_REFUSED])


def process_status(id: str, node: Node) -> ProcessStatus:
    """Return what a node says of a process.

    What somebody has written there by hand is left out if it makes no sense.
    """
    said = json_object(node.data)
    pid = said.get("pid")
    problems = ProcessProblems(
        event_store=_read_store(said.get("eventStore")),
        lost=_read_lost(said.get("lost")),
        clock_differs=number(said.get("clockDiffers")),
        refused=_read_refused(said.get("refused")),
    )
    return ProcessStatus(
        id=id,
        ip=_text(said.get("ip")),
        host=_text(said.get("host")),
        pid=pid if isinstance(pid, int) else 0,
        incarnation=node.stat.ephemeral_owner,
        problems=problems,
    )


def _read_store(said: Any) -> UnwrittenEvents | None:
    if not isinstance(said, dict):
        return None
    since = _time(said.get("since"))
    if since is None:
        return None
    return UnwrittenEvents(since, _text(said.get("why")), int(number(said.get("waiting")) or 0))


def _read_lost(said: Any) -> LostEvents | None:
    if not isinstance(said, dict):
        return None
    first = _time(said.get("first"))
    last = _time(said.get("last"))
    if first is None or last is None:
        return None
    return LostEvents(int(number(said.get("events")) or 0), first, last)


def _read_refused(said: Any) -> tuple[RefusedToProcess, ...]:
    found = list[RefusedToProcess]()
    for one in said if isinstance(said, list) else ():
        since = _time(one.get("since")) if isinstance(one, dict) else None
        if since is not None:
            jobs = int(number(one.get("jobs")) or 1)
            found.append(
                RefusedToProcess(_text(one.get("what")), _text(one.get("why")), since, _text(one.get("job")), jobs)
            )
    return tuple(found)


def _is_close(noted: float | None, now: float | None) -> bool:
    if noted is None or now is None:
        return noted is now
    return abs(now - noted) <= CLOCK_CHANGE


def _is_same_trouble(noted: UnwrittenEvents | None, now: UnwrittenEvents | None) -> bool:
    if noted is None or now is None:
        return noted is now
    is_same_time = abs(now.since - noted.since) <= CLOCK_CHANGE
    return is_same_time and now.why == noted.why and _is_same_number(noted.waiting, now.waiting)


def _is_same_loss(noted: LostEvents | None, now: LostEvents | None) -> bool:
    if noted is None or now is None:
        return noted is now
    return _is_same_number(noted.number, now.number)


def _is_same_number(noted: int, now: int) -> bool:
    return abs(now - noted) <= COUNT_CHANGE * noted


def _kinds(refused: Iterable[RefusedToProcess]) -> list[tuple[str, int]]:
    """Return what is refused in how many jobs; the newest reason, and small differences of times, are no news."""
    return [(one.what, one.jobs) for one in refused]


def _time(value: object) -> float | None:
    """Return a time that can be shown; None if there is none."""
    seconds = number(value)
    return seconds if seconds is not None and 0 <= seconds <= MAX_MILLISECONDS / 1000 else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _at(seconds: float) -> str:
    return time_text(moment(seconds))
