"""A job's part of the registry as a plain value, and who answers what the state of its items asks: nothing waits."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, field

from aioelasticjob.config.job import JobConfig
from aioelasticjob.core import records
from aioelasticjob.core.account import JobState, Past
from aioelasticjob.core.commands import (
    AnyReport,
    ClaimItems,
    ClaimResult,
    Command,
    ReadItems,
    Report,
    Steps,
    WriteAccounts,
)
from aioelasticjob.core.effects import parts
from aioelasticjob.core.items import Found, Lock
from aioelasticjob.core.layout import Layout
from aioelasticjob.core.schedules import scheduling
from aioelasticjob.core.view import JobView
from aioelasticjob.model import Claim, ClockReading, Fire, FireSource, Outcome, Record, VersionedRecord
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
    records: dict[int, VersionedRecord] = field(default_factory=dict)
    """The record of each item that has one; ``write`` writes it."""
    locks: dict[int, Lock] = field(default_factory=dict)
    """The items that are locked, and who holds their locks."""
    unheard: float = 0.0
    outages: list[tuple[float, float]] = field(default_factory=list)
    """The start and end of each outage of the registry."""
    refusals: list[tuple[float, float]] = field(default_factory=list)
    """The start and end of each span in which the registry refused what a run needs."""
    reports: list[Report] = field(default_factory=list)
    done: list[Command | AnyReport] = field(default_factory=list)
    refused: list[type[Command]] = field(default_factory=list)
    """The commands that cannot be performed, each once."""
    schedules: list[dict[str, object]] = field(default_factory=list)
    """Those that the leader has noted, the newest last."""
    at_once: int = 1000
    """How many records one transaction writes."""
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

    # What happens in the registry.

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

    def write(self, item: int, record: Record) -> VersionedRecord:
        """Write an item's record."""
        self.zxid += 1
        before = self.records.get(item)
        version = 0 if before is None or before.version is None else before.version + 1
        written = self.records[item] = VersionedRecord(record, version, self.zxid)
        return written

    def record(self, item: int = 0) -> Record:
        """Return an item's record; an empty one if it has none."""
        seen = self.records.get(item)
        return Record() if seen is None else seen.record

    def ran(self, item: int, second: float, instance: str = OTHER, **fields: object) -> None:
        """Write the record of a run that began at its moment and is over."""
        moment = int((BEGIN + second) * 1000)
        known: dict[str, object] = {"begun": moment, "completed_at": moment + 100, "accounted": moment}
        self.write(item, Record(**{"slot": moment, "source": "SCHEDULE", "instance": instance, **known, **fields}))  # type: ignore[arg-type]

    def was_cut_off(self, item: int, second: float, instance: str = OTHER, **fields: object) -> None:
        """Write the record of a run that was cut off."""
        self.ran(item, second, instance, **{"completed": False, "completed_at": 0, **fields})

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

    # What the instance sees and does.

    def reading(self) -> ClockReading:
        """Return what the clocks show."""
        return ClockReading(
            BEGIN + self.now,
            self.now,
            -self.ahead,
            outages=self.ages(self.outages),
            zxid=self.zxid,
            unheard=self.unheard,
        )

    def ages(self, spans: list[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
        """Return how many seconds ago each span began and ended."""
        return tuple((self.now - began, self.now - ended) for began, ended in spans)

    def show_clocks(self, state: JobState) -> None:
        """Tell the state what the clocks show, and when the registry has refused requests."""
        state.clock.take(self.reading())
        state.refusals = self.ages(self.refusals)

    def state(self, up_since: float = -3600) -> JobState:
        """Return the state of an instance that has just come up."""
        return JobState(ME, self.view(), self.reading(), Past(BEGIN + up_since))

    def see(self, state: JobState, view: JobView | None = None) -> None:
        """Show a view, or the nodes as they are now, and do what is commanded."""
        newest = state.view if state.view.tree == Tree(self.nodes) and state.held else self.view()
        self.show_clocks(state)
        self.perform(state, state.see(view or newest))

    def leave(self, state: JobState) -> None:
        """Let the instance leave."""
        self.show_clocks(state)
        self.perform(state, state.leave(self.view()))

    def perform(self, state: JobState, steps: Steps[None]) -> None:
        """Do what is commanded, until the end or until a command is refused."""
        answer = None
        with closing(steps), suppress(StopIteration):
            while True:
                command = steps.send(answer)
                self.take_reports(state)
                self.done.append(command)
                if type(command) in self.refused:
                    self.refused.remove(type(command))
                    return
                answer = self.answer(command)
        self.take_reports(state)

    def take_reports(self, state: JobState) -> None:
        """Take the reports, in their order."""
        self.done += state.reports
        self.reports += (report for report in state.reports if isinstance(report, Report))
        state.reports.clear()

    def answer(self, command: Command) -> object:
        """Do what is commanded."""
        match command:
            case ReadItems(items, are_recorded):
                return {item: self.found(item) for item in sorted(items)} if are_recorded else {}
            case WriteAccounts():
                return self.account(command)
            case _:
                return None

    def found(self, item: int) -> Found:
        """Return what is read of an item."""
        seen = self.records.get(item) or VersionedRecord(Record(), None)
        return Found(seen, self.locks.get(item, Lock.FREE))

    def is_in_force(self, view: JobView) -> bool:
        """Whether the assignment and the schedules are still those of a view."""
        newest = self.view()
        return (view.sharding_version, view.schedule_version) == (newest.sharding_version, newest.schedule_version)

    def account(self, command: WriteAccounts) -> dict[int, VersionedRecord] | None:
        """Write accounts as the registry does: each transaction whole or not at all."""
        if not self.is_in_force(command.view):
            return None
        written = dict[int, VersionedRecord]()
        for items in parts(sorted(command.records), self.at_once):
            if all(self.found(item).seen.version == command.records[item][0].version for item in items):
                written |= {item: self.write(item, command.records[item][1]) for item in items}
        return written

    def take(self, command: ClaimItems, items: Iterable[int] | None = None) -> ClaimResult:
        """Write a claim of all of its items, or of some, as the registry does."""
        chosen = sorted(command.wanted if items is None else items)
        before = {item: command.before[item].record for item in chosen}
        if not command.view.config.monitor_execution:
            assumed = {item: VersionedRecord(command.wanted[item], None) for item in chosen}
            return ClaimResult(Claim(command.fire, ME, 1, assumed, before, is_recorded=False))
        is_rescue = command.fire.source is FireSource.FAILOVER
        if not (is_rescue or self.is_in_force(command.view)):
            return ClaimResult(stale=True)
        for item, one in command.settling.items():
            del self.locks[item]
            self.write(item, one.record.record)
        for item in chosen:
            if self.found(item).seen.version != command.before[item].version or item in self.locks:
                return ClaimResult(renewed=frozenset(chosen))
        self.locks |= dict.fromkeys(chosen, Lock.OURS)
        written = {item: self.write(item, command.wanted[item]) for item in chosen}
        return ClaimResult(Claim(command.fire, ME, 1, written, before))

    def claim(
        self, state: JobState, items: Collection[int], slot: int, source: FireSource = FireSource.SCHEDULE
    ) -> Claim | None:
        """Let the instance claim items for a moment, in milliseconds; the result is None if the registry refuses it."""
        command, promised = state.claim(state.view, Fire(slot, source), {item: state.items[item] for item in items})
        taken = self.take(command)
        state.read_again(taken.renewed)
        if taken.claim is not None:
            state.claimed(taken.claim, promised)
        self.take_reports(state)
        return taken.claim

    def begin(self, state: JobState) -> Claim:
        """Let the instance claim what is due now."""
        due = state.due()
        source = FireSource.MISFIRE if due.late or state.is_catch_up(state.timeline.newest) else FireSource.SCHEDULE
        claim = self.claim(state, due.items, state.timeline.newest, source)
        assert claim is not None
        return claim

    def settle(self, state: JobState, claim: Claim, *, left_open: bool = False) -> None:
        """Let the instance end a run."""
        state.ended(self.end(claim, left_open=left_open), claim)
        self.take_reports(state)

    def end(self, claim: Claim, *, left_open: bool = False) -> dict[int, VersionedRecord]:
        """Write the settlement of a claim, and return the records as it has written them."""
        written = dict[int, VersionedRecord]()
        for item, seen in claim.items.items():
            ended = records.ended(seen, Outcome.COMPLETED, int((BEGIN + self.now) * 1000)).record
            if left_open:
                ended = records.left_open(ended)
            self.locks.pop(item, None)
            written[item] = self.write(item, ended) if claim.is_recorded else VersionedRecord(ended, None)
        return written

    def reported(self, item: int = 0) -> list[tuple[int, int, str]]:
        """Return the first and the last moment of each report of an item, in seconds since ``BEGIN``, and why."""
        found = [report for report in self.reports if item in report.items]
        return [(one.passed.first // 1000 - BEGIN, one.passed.last // 1000 - BEGIN, one.why) for one in found]


def _kept(stat: Stat) -> tuple[int, float, int]:
    return stat.czxid, stat.ctime, stat.version + 1
