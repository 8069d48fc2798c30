"""A history of a simulated cluster, arranged for those who judge it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from math import inf
from typing import Any, TypeVar

from aioelasticjob.config.job import JobConfig
from aioelasticjob.events import Misfired, Refused
from aioelasticjob.model import Record
from aioelasticjob.schedules.calendars import Calendar, calendar_in
from tests.simulation.judges.eras import Era
from tests.simulation.written import decode_record, dismissed, is_as_before
from tests.support.history import (
    Begun,
    Entry,
    Fault,
    Finished,
    Held,
    Nodes,
    Phase,
    Refusal,
    Reported,
    Started,
    Stopped,
    Written,
    came_and_went,
    of_kind,
)

REGISTRY = "10.0.0.1"
"""Where the registry runs."""
PROMPT = 2.0
"""Seconds within which an undisturbed instance does what is due: less than a tick, which mends all in the end."""
RESENT = 8.0
"""Seconds that a request may be on its way when packets get lost: it was decided on what was true before."""
KNOWN = 0.25
"""Seconds within which an undisturbed instance knows what the registry has."""
Span = tuple[float, float]
E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken."""

    rule: str
    at: float
    text: str

    def line(self, origin: float) -> str:
        """Return it as a line, with seconds since ``origin``."""
        return f"{self.at - origin:.3f} {self.rule}: {self.text}"


@dataclass(frozen=True, slots=True)
class ObservedRun:
    """A handler's run of one item, whole."""

    begun: Begun
    end: float
    how: str

    def __str__(self) -> str:
        return f"run {self.begun.run} in {self.begun.process}"


@dataclass(frozen=True)
class Facts:
    """What follows from a history without judging it; all times are true times."""

    entries: Sequence[Entry]
    by_job: dict[str, JobFacts] = field(default_factory=dict)
    troubles: dict[str, Mapping[str, list[Span]]] = field(default_factory=dict)
    _by_kind: dict[type[object], Sequence[Any]] = field(default_factory=dict)

    def of_kind(self, kind: type[E]) -> Sequence[E]:
        """Return the entries of one kind."""
        if (found := self._by_kind.get(kind)) is None:
            found = self._by_kind[kind] = list(of_kind(self.entries, kind))
        return found

    @cached_property
    def nodes(self) -> Nodes:
        """The registry's nodes over time."""
        return Nodes(self.entries)

    @cached_property
    def end(self) -> float:
        """When the history ends."""
        return self.entries[-1].at if self.entries else 0.0

    @cached_property
    def jobs(self) -> tuple[str, ...]:
        """The jobs there were."""
        found = {change.path for written in self.of_kind(Written) for change in written.changes}
        return tuple(sorted(path[1:-7] for path in found if path.endswith("/config") and path.count("/") == 2))

    @cached_property
    def runs(self) -> tuple[ObservedRun, ...]:
        """All runs in the order in which they began; one that is not over ends with the history."""
        ends = {entry.run: entry for entry in self.of_kind(Finished)}
        last = Finished(inf, 0, "going on")
        return tuple(
            ObservedRun(one, min(self.end, ends.get(one.run, last).at), ends.get(one.run, last).how)
            for one in self.of_kind(Begun)
        )

    @cached_property
    def runs_of(self) -> Mapping[tuple[str, int], list[ObservedRun]]:
        """The runs of each item of each job."""
        found: dict[tuple[str, int], list[ObservedRun]] = {}
        for run in self.runs:
            found.setdefault((run.begun.job, run.begun.item), []).append(run)
        return found

    @cached_property
    def incarnations(self) -> Mapping[str, int]:
        """The session in which each instance registered."""
        found: dict[str, int] = {}
        for written in self.of_kind(Written):
            for change in written.changes:
                if change.created and "/instances/" in change.path:
                    found.setdefault(change.path.rpartition("/")[2], written.session)
        return found

    @cached_property
    def gone(self) -> Mapping[str, tuple[float, bool]]:
        """When the node of each instance was removed, and whether the instance did that itself, because it left."""
        found: dict[str, tuple[float, bool]] = {}
        for written in self.of_kind(Written):
            for change in written.changes:
                parent, _, name = change.path.rpartition("/")
                if parent.endswith("/instances") and change.data is None:
                    left = self.incarnations.get(name) == written.session and not written.ending
                    found[name] = written.at, left
        return found

    def alive(self, instance: str, until: float) -> bool:
        """Say whether the process that an instance lived in went on until then: a session outlives its process."""
        host, joined = instance.partition("@-@")[0], inf
        for written in self.of_kind(Written):
            if any(change.created and change.path.endswith(f"/instances/{instance}") for change in written.changes):
                joined = min(joined, written.at)
        stops = self.of_kind(Stopped)
        return not any(stopped.host == host and joined <= stopped.at <= until for stopped in stops)

    @cached_property
    def given_back(self) -> frozenset[tuple[int, str]]:
        """The transactions (zxid) that give a claim back: they put an item's record (path) back as it was before."""
        before, last, found = dict[str, Record | None](), dict[str, Record | None](), set[tuple[int, str]]()
        for written in self.of_kind(Written):
            removed = {change.path for change in written.changes if change.data is None}
            for change in written.changes:
                if change.path.split("/")[2:-1] == ["execution"] and change.data is not None:
                    record = decode_record(change.data)
                    if f"{change.path}/running" in removed and is_as_before(record, before.get(change.path)):
                        found.add((written.zxid, change.path))
                    before[change.path], last[change.path] = last.get(change.path, Record()), record
        return frozenset(found)

    @cached_property
    def calm(self) -> tuple[Span, ...]:
        """The spans in which nothing is broken and nothing is recovering."""
        phases = list(self.of_kind(Phase))
        return tuple((one.at, following.at) for one, following in pairwise(phases) if one.name == "calm")

    @cached_property
    def paused(self) -> Mapping[str, list[Span]]:
        """When each process was asleep."""
        found: dict[str, list[Span]] = {}
        for held in self.of_kind(Held):
            spans = found.setdefault(held.process, [])
            if held.paused:
                spans.append((held.at, inf))
            elif spans:
                spans[-1] = (spans[-1][0], held.at)
        return found

    @cached_property
    def wakes(self) -> Mapping[str, list[float]]:
        """When the machine of each process woke from a suspension."""
        found: dict[str, list[float]] = {}
        for held in self.of_kind(Held):
            if held.suspended and not held.paused:
                found.setdefault(held.process, []).append(held.at)
        return found

    @cached_property
    def living(self) -> Mapping[str, str]:
        """The processes that are up at the end, and their hosts."""
        found: dict[str, str] = {}
        for entry in self.entries:
            if isinstance(entry, Started):
                found[entry.process] = entry.host
            elif isinstance(entry, Stopped):
                found.pop(entry.process, None)
        return found

    @cached_property
    def ended_by_hand(self) -> Mapping[int, float]:
        """When each session ended that was ended behind its owner's back: that one, and no other of its host."""
        hosts = {session: name.partition("@-@")[0] for name, session in self.incarnations.items()}
        faults = self.of_kind(Fault)  # a registry that sleeps answers late
        asked = [(one.hosts[0], one.at, one.at + RESENT) for one in faults if one.kind == "expire" and not one.over]
        found: dict[int, float] = {}
        for written in self.of_kind(Written):
            host = hosts.get(written.session, "")
            if written.ending and any(one == host and start <= written.at <= end for one, start, end in asked):
                found.setdefault(written.session, written.at)
        return found

    @cached_property
    def claimed(self) -> Mapping[tuple[str, int, int], float]:
        """When each item was claimed, by job, item and fence."""
        found: dict[tuple[str, int, int], float] = {}
        for written in self.of_kind(Written):
            for change in written.changes:
                if change.created and change.path.endswith("/running"):
                    _, job, _, item, _ = change.path.split("/")
                    found[job, int(item), written.zxid] = written.at
        return found

    @cached_property
    def leaving(self) -> Mapping[str, float]:
        """When each process was asked to leave, and each instance that was asked by itself."""
        found: dict[str, float] = {}
        there: dict[str, str] = {}
        for entry in self.entries:
            if isinstance(entry, Started):
                there[entry.host] = entry.process
            elif isinstance(entry, Fault) and entry.kind == "leave" and not entry.over:
                found.setdefault(entry.detail or there.get(entry.hosts[0], ""), entry.at)
            elif isinstance(entry, Written):
                for name in dismissed(entry, self.incarnations):
                    found.setdefault(name, entry.at)
        return found

    def troubled(self, host: str, start: float, end: float, *, but: str = "") -> bool:
        """Say whether anything was broken at a host at any time from ``start`` to ``end``, ``but`` for one kind."""
        if but not in self.troubles:
            self.troubles[but] = self._trouble(but)
        return any(one <= end and other >= start for one, other in self.troubles[but].get(host, ()))

    def undisturbed(self, host: str, start: float, end: float, *, but: str = "") -> bool:
        """Say whether a host and the registry were in order, and the host's writes taken, from ``start`` to ``end``."""
        if any(start <= at <= end for at in self.refused.get(host, ())):
            return False
        return not (self.troubled(host, start, end, but=but) or self.troubled(REGISTRY, start, end))

    def knows_since(self, host: str, at: float) -> float:
        """Return since when a host knew at ``at`` what the registry had: what was written later it may not go by yet.

        While a host or the registry is in trouble, that is since before the trouble began.
        """
        since, found = at - KNOWN, True
        self.troubled(host, at, at)
        spans = [*self.troubles[""].get(host, ()), *self.troubles[""].get(REGISTRY, ())]
        while found:
            earlier = [one for one, other in spans if one <= at and other >= since - RESENT and one - KNOWN < since]
            found, since = bool(earlier), min([since, *(one - KNOWN for one in earlier)])
        return since

    def heard_before(self, host: str, at: float) -> float:
        """Return when the trouble began that may keep the registry's news from a host at ``at``; else ``at``.

        After a trouble the host has to connect again.  If the next trouble begins before it could, the two are one.
        """
        self.troubled(host, at, at)
        spans = [*self.troubles[""].get(host, ()), *self.troubles[""].get(REGISTRY, ())]
        since = at
        while (earlier := min((one for one, other in spans if one < since <= other + PROMPT), default=since)) < since:
            since = earlier
        return since - KNOWN if since < at else at

    @cached_property
    def refused(self) -> Mapping[str, list[float]]:
        """When the registry refused a write of each host for a reason that lay with the registry."""
        found: dict[str, list[float]] = {}
        for refusal in self.of_kind(Refusal):
            found.setdefault(refusal.host, []).append(refusal.at)
        return found

    def _trouble(self, but: str) -> Mapping[str, list[Span]]:
        """Return when something was broken at each host."""
        found: dict[str, list[Span]] = {}
        depth: dict[str, int] = {}
        forgotten = Counter[str]()
        for entry in self.entries:
            if isinstance(entry, Fault) and entry.kind != but:
                for host in entry.hosts:
                    _deepen(found.setdefault(host, []), depth, host, entry)
                    if entry.kind == "half-open":
                        forgotten[host] += -1 if entry.over else 1
            elif isinstance(entry, Phase) and entry.name == "recovery":
                for host, spans in found.items():
                    if spans and spans[-1][1] == inf:  # nobody mends a connection that was forgotten on the way
                        spans[-1] = (spans[-1][0], entry.at + (RESENT if forgotten[host] else 0.0))
                depth.clear()
        return found

    def job(self, name: str) -> JobFacts:
        """Return what is known of one job."""
        if name not in self.by_job:
            self.by_job[name] = JobFacts(self, name)
        return self.by_job[name]


@dataclass(frozen=True, slots=True)
class ItemEnd:
    """How an item has ended a moment, and when that was written."""

    at: float
    outcome: str
    """The outcome of the moment's run; empty if there was none."""


@dataclass(frozen=True)
class JobFacts:
    """What a history says about one job."""

    facts: Facts
    name: str
    _ends: dict[tuple[int, int], ItemEnd | None] = field(default_factory=dict)

    def end_of(self, item: int, slot: int) -> ItemEnd | None:
        """Return how an item has ended a moment, by its record; None if it has not."""
        if (item, slot) not in self._ends:
            found = None
            for at, record in self.records_of(item):
                if record.accounted >= slot and (record.slot != slot or record.completed):
                    found = ItemEnd(at, record.outcome if record.slot == slot else "")
                    break
            self._ends[item, slot] = found
        return self._ends[item, slot]

    def records_of(self, item: int) -> Iterator[tuple[float, Record]]:
        """Yield the records of an item, and when each was written."""
        for at, data in self.facts.nodes.changes(f"/{self.name}/execution/{item}"):
            record = decode_record(data) if data else None
            if record is not None:
                yield at, record

    @cached_property
    def eras(self) -> tuple[Era, ...]:
        """The configurations that held, one after the other; nonsense leaves the one before standing."""
        writes = self.facts.nodes.changes(f"/{self.name}/config")
        ends = [at for at, _ in writes[1:]] + [self.facts.end]
        return tuple(Era.of(at, end, data, self.name) for (at, data), end in zip(writes, ends, strict=False) if data)

    @cached_property
    def followed(self) -> tuple[Era, ...]:
        """The schedules that instances followed, one after the other, each with the items that there were then."""
        notes = self.facts.nodes.changes(f"/{self.name}/leader/schedule")
        spans = pairwise([(-inf, None), *notes, (inf, None)])
        parts = [
            era.noted(at, until, note, self.contents)
            for (at, note), (until, _) in spans
            for era in self.eras
            if era.start < until and at < era.end
        ]
        found = list[Era]()
        for era in parts:
            if found and found[-1].end == era.start and found[-1].is_like(era):
                found[-1] = found[-1].until(era.end)
            else:
                found.append(era)
        return tuple(found)

    @cached_property
    def contents(self) -> Mapping[str, Calendar]:
        """The contents of calendars that leaders have kept for the job, by their hashes."""
        prefix = f"/{self.name}/leader/schedule/"
        found = dict[str, Calendar]()
        for written in self.facts.of_kind(Written):
            for change in written.changes:
                calendar = calendar_in(change.data) if change.data and change.path.startswith(prefix) else None
                if calendar is not None:
                    found[calendar.hash] = calendar
        return found

    def configs(self, start: float, end: float) -> list[JobConfig]:
        """Return the configurations that held at any time from ``start`` to ``end``."""
        return [era.config for era in self.eras if era.start <= end and era.end >= start]

    def is_recorded(self, start: float, end: float) -> bool:
        """Whether runs were recorded all the time from ``start`` to ``end``."""
        return all(era.is_recorded for era in self.followed if era.start <= end and era.end >= start)

    @cached_property
    def runs_by(self) -> Mapping[str, list[ObservedRun]]:
        """The runs of each instance."""
        found: dict[str, list[ObservedRun]] = {}
        for run in self.facts.runs:
            if run.begun.job == self.name:
                found.setdefault(run.begun.instance, []).append(run)
        return found

    @cached_property
    def begun(self) -> Mapping[tuple[int, int], float]:
        """When each moment (item, slot) was first begun."""
        found: dict[tuple[int, int], float] = {}
        for run in self.facts.runs:
            if run.begun.job == self.name:
                found.setdefault((run.begun.item, run.begun.slot), run.begun.at)
        return found

    @cached_property
    def reports(self) -> Mapping[tuple[int, int], list[Reported]]:
        """By moment (item, slot), the reports that it passed without a run."""
        found: dict[tuple[int, int], list[Reported]] = {}
        for report in self.facts.of_kind(Reported):
            event = report.event
            if isinstance(event, Misfired) and event.job == self.name:
                for slot in {slot for era in self.followed for slot in era.passed(event.first, event.slot)}:
                    for item in event.items:
                        found.setdefault((item, slot), []).append(report)
        return found

    @cached_property
    def refusals(self) -> tuple[Reported, ...]:
        """Who said when that nothing is run at the moment."""
        reported = self.facts.of_kind(Reported)
        return tuple(one for one in reported if isinstance(one.event, Refused) and one.event.job == self.name)

    @cached_property
    def manned(self) -> tuple[Span, ...]:
        """When there was always a process that had joined, or at least the node of one that was dead already."""
        there, joined, until = dict[str, str](), dict[str, float](), dict[str, float]()
        owners = dict[str, str]()
        for entry in self.facts.entries:
            if isinstance(entry, Started):
                there[entry.host] = entry.process
            elif isinstance(entry, Stopped) and entry.process in joined:
                until[entry.process] = max(entry.at, until.get(entry.process, 0.0))
            elif isinstance(entry, Written):
                for name, gone in came_and_went(entry, self.name):
                    process = owners.setdefault(name, there.get(name.partition("@-@")[0], name))
                    joined.setdefault(process, entry.at)
                    if gone and process in until:
                        until[process] = entry.at
        spans: list[Span] = []
        for start, end in sorted((start, until.get(process, inf)) for process, start in joined.items()):
            if spans and start <= spans[-1][1]:
                spans[-1] = spans[-1][0], max(end, spans[-1][1])
            else:
                spans.append((start, end))
        return tuple(spans)

    @cached_property
    def vacant(self) -> tuple[Span, ...]:
        """When no instance was registered, once there had been one."""
        spans, there = list[Span](), set[str]()
        for written in self.facts.of_kind(Written):
            for name, gone in came_and_went(written, self.name):
                (there.discard if gone else there.add)(name)
                if not there:
                    spans.append((written.at, inf))
                elif spans and spans[-1][1] == inf:
                    spans[-1] = spans[-1][0], written.at
        return tuple(spans)


def _deepen(spans: list[Span], depth: dict[str, int], host: str, fault: Fault) -> None:
    """Count a fault in or out; only the last one out ends the trouble."""
    depth[host] = max(0, depth.get(host, 0) + (-1 if fault.over else 1))
    if not fault.over and depth[host] == 1:
        spans.append((fault.at, inf))
    elif fault.over and depth[host] == 0 and spans:
        spans[-1] = (spans[-1][0], fault.at)
