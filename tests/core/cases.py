"""A job's part of the registry as a plain value, and who answers what the state of its items asks: nothing waits."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace

from aioelasticjob.config.job import JobConfig
from aioelasticjob.core.commands import (
    AnyReport,
    Command,
    MarkMissed,
    ReadAccounted,
    ReadItems,
    Report,
    WriteAccounted,
)
from aioelasticjob.core.entries import NO_MARK, AccountedMoment, MissedMark
from aioelasticjob.core.layout import Layout
from aioelasticjob.core.schedules import scheduling
from aioelasticjob.core.state import Past
from aioelasticjob.core.step import JobState
from aioelasticjob.core.view import JobView
from aioelasticjob.model import ClockReading, Record, VersionedRecord
from aioelasticjob.registry.tree import Node, Stat, Tree
from tests.support.stats import stat

ME, OTHER = "10.0.0.1@-@1", "10.0.0.2@-@1"
LAYOUT = Layout("job")
BEGIN = 1_000_000_000
"""Where the time begins, in seconds since the epoch; the schedules of a minute begin there."""


@dataclass
class Case:
    """The nodes of one job with two instances, the time in seconds since ``BEGIN``, and what was reported."""

    config: JobConfig
    now: float = 0.5
    nodes: dict[str, Node] = field(default_factory=dict)
    records: dict[int, Record] = field(default_factory=dict)
    marks: dict[int, MissedMark] = field(default_factory=dict)
    running: set[int] = field(default_factory=set)
    """Items that another instance runs."""
    outages: list[tuple[float, float]] = field(default_factory=list)
    """The start and end of each outage of the registry."""
    refusals: list[tuple[float, float]] = field(default_factory=list)
    """The start and end of each span in which the registry refused what a run needs."""
    reports: list[Report] = field(default_factory=list)
    done: list[Command | AnyReport] = field(default_factory=list)
    refused: list[type[Command]] = field(default_factory=list)
    """The commands that cannot be performed, each once."""
    accounted: AccountedMoment = field(default_factory=lambda: AccountedMoment(0, 0))
    """Up to which moment an instance was up, if the job keeps no records."""
    schedules: list[dict[str, object]] = field(default_factory=list)
    """Those that the leader has noted, the newest last."""
    stats: dict[int, Stat] = field(default_factory=dict)
    """The metadata of records."""
    ahead: float = 0.0
    """Seconds by which the registry's clock is ahead."""
    zxid: int = 0

    @classmethod
    def of(cls, items: int = 1, cron: str = "* * * * * ?", ahead: float = 0.0, **settings: object) -> Case:
        config = JobConfig.build(job_name="job", sharding_total_count=items, cron=cron, **settings)
        case = cls(config, ahead=ahead)
        case.put(LAYOUT.config, case.config.to_json())
        case.note()
        case.put(LAYOUT.instance(OTHER), json.dumps({"upSince": BEGIN - 3600}).encode(), owner=2)
        case.put(LAYOUT.instance(ME), json.dumps({"upSince": BEGIN - 3600}).encode(), owner=1)
        case.put(LAYOUT.host, OTHER.encode(), owner=2)
        case.put(LAYOUT.sharding)
        for item in range(items):
            case.put(LAYOUT.item(item).sharding)
            case.put(LAYOUT.item(item).instance, ME.encode())
        return case

    def put(self, path: str, data: bytes = b"", owner: int = 0) -> None:
        """Write a node."""
        self.zxid += 1
        before, at = self.nodes.get(path), BEGIN + self.now + self.ahead
        made, ctime, version = (self.zxid, at, 0) if before is None else _kept(before.stat)
        new = stat(czxid=made, mzxid=self.zxid, ctime=ctime, mtime=at, version=version, ephemeral_owner=owner)
        self.nodes[path] = Node.of(data, new)

    def drop(self, path: str) -> None:
        """Remove a node, if it is there."""
        self.nodes.pop(path, None)

    def give(self, item: int, holder: str) -> None:
        """Assign an item."""
        self.put(LAYOUT.sharding)
        self.put(LAYOUT.item(item).instance, holder.encode())

    def configure(self, **changes: object) -> None:
        """Change the configuration; the leader notes the schedule."""
        self.config = self.config.changed(**changes)
        self.put(LAYOUT.config, self.config.to_json())
        self.note()

    def note(self) -> None:
        """Note the schedule in force, and those before it."""
        if not self.schedules or not scheduling(self.config).items() <= self.schedules[-1].items():
            self.schedules.append({**scheduling(self.config), "since": int((BEGIN + self.now + self.ahead) * 1000)})
            *former, newest = self.schedules
            self.put(LAYOUT.schedule, json.dumps({**newest, "former": former}).encode())

    def view(self) -> JobView:
        """Return the nodes as they are now."""
        return JobView(LAYOUT, Tree(self.nodes, self.zxid), self.config)

    def reading(self) -> ClockReading:
        """Return what the clocks show."""
        return ClockReading(BEGIN + self.now, self.now, -self.ahead, outages=self.ages(self.outages), zxid=self.zxid)

    def ages(self, spans: list[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
        """Return how many seconds ago each span began and ended."""
        return tuple((self.now - began, self.now - ended) for began, ended in spans)

    def show_clocks(self, state: JobState) -> None:
        """Tell the state what the clocks show, and when the registry has refused requests."""
        state.clock.take(self.reading())
        state.missed.refusals = self.ages(self.refusals)

    def state(self, up_since: float = -3600) -> JobState:
        """Return the state of an instance that has just come up."""
        return JobState(ME, self.view(), self.reading(), Past(BEGIN + up_since))

    def tell(self, state: JobState, fact: Callable[[], object]) -> None:
        """Tell a fact, and take the reports."""
        self.show_clocks(state)
        fact()
        self.take_reports(state)

    def see(self, state: JobState, view: JobView | None = None) -> None:
        """Show a view, or the nodes as they are now, and do what is commanded."""
        newest = state.view if state.view.tree == Tree(self.nodes) and state.held else self.view()
        self.show_clocks(state)
        steps, answer = state.see(view or newest), None
        with closing(steps), suppress(StopIteration):
            while True:
                command = steps.send(answer)
                self.take_reports(state)
                self.done.append(command)
                if type(command) in self.refused:
                    self.refused.remove(type(command))
                    return
                answer = self.answer(state, command)
        self.take_reports(state)

    def take_reports(self, state: JobState) -> None:
        """Take the reports, in their order."""
        self.done += state.reports
        self.reports += (report for report in state.reports if isinstance(report, Report))
        state.reports.clear()

    def answer(self, state: JobState, command: Command) -> object:
        """Do what is commanded."""
        match command:
            case ReadItems():
                for item in command.records:
                    self.learn(state, item)
                return command.records & self.running
            case MarkMissed():
                return self.mark(state, command)
            case ReadAccounted():
                return self.accounted
            case WriteAccounted():
                self.accounted = AccountedMoment(command.until, command.version + 1)
                return True

    def learn(self, state: JobState, number: int) -> None:
        """Let an instance read an item's record and mark."""
        item, record = state.items[number], self.records.get(number)
        item.seen = VersionedRecord(Record(), None) if record is None else VersionedRecord(record, 0)
        item.stat = self.stats.get(number)
        item.mark = self.marks.get(number, NO_MARK)

    def mark(self, state: JobState, command: MarkMissed) -> frozenset[int] | None:
        """Mark what items missed, unless the view is old."""
        if command.view.sharding_version != self.nodes[LAYOUT.sharding].stat.version:
            return None
        self.zxid += 1
        for number, said in command.said.items():
            state.items[number].mark = mark = said.joined(self.marks.get(number, NO_MARK))
            self.marks[number] = replace(mark, zxid=self.zxid)
        return frozenset(command.said)

    def claim(self, state: JobState, items: frozenset[int], slot: int) -> None:
        """Let an instance begin a run of items."""
        for number in items:
            last = state.items[number].record.ahead  # a moment that a record which was lowered had claimed
            ahead = last if last > slot else 0
            begun = Record(slot, "CRON", ME, begun=int((BEGIN + self.now) * 1000), completed=False, ahead=ahead)
            self.records[number], state.items[number].seen = begun, VersionedRecord(begun, 0)

    def settle(self, state: JobState, items: frozenset[int]) -> None:
        """Let an instance end a run of items."""
        for number in items:
            self.records[number] = ended = replace(self.records[number], completed=True)
            state.items[number].seen = VersionedRecord(ended, 0)

    def reported(self, item: int = 0) -> list[tuple[int, int, str]]:
        """Return the first and the last moment of each report of an item, in seconds since ``BEGIN``, and why."""
        found = [report for report in self.reports if item in report.items]
        return [(one.passed.first // 1000 - BEGIN, one.passed.last // 1000 - BEGIN, one.why) for one in found]


def _kept(stat: Stat) -> tuple[int, float, int]:
    return stat.czxid, stat.ctime, stat.version + 1
