"""The promises on the bare tree, judged at every transaction and every handler's first step.

The judge sees what no instance sees: the whole tree before and after, and who wrote.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf

from aioelasticjob.core import records
from aioelasticjob.core.layout import ItemPaths, Layout
from aioelasticjob.core.request_runs import waiting_items
from aioelasticjob.core.requests import Request, decode_progress
from aioelasticjob.core.rules import RuleInput, decide, wanted_assignment
from aioelasticjob.core.view import JobView
from aioelasticjob.engine.missed_reports import OF_REQUESTS
from aioelasticjob.events import Misfired
from aioelasticjob.jobs.context import ItemContext
from aioelasticjob.model import GIVEN_UP, SCHEDULED, FireSource, Outcome, Record, VersionedRecord
from aioelasticjob.registry.tree import Node
from tests.simulation.bare.process import Process
from tests.simulation.bare.registry import BareRegistry, Before

LAG = 3.0
"""Seconds by which the view of an instance may be out of date."""
ITEMS = 12
"""Items there may ever be."""
REPORTED_ONCE = "each miss is reported once"


@dataclass(frozen=True)
class Report:
    """A report that an item has missed a moment."""

    instance: str
    why: str
    cut_off: str
    """The instance whose run was cut off, if that is what it says."""


@dataclass(eq=False)
class Judge:
    """Collects what breaks a promise; ``views`` are all the job's views there were, with the transactions they show."""

    registry: BareRegistry
    layout: Layout
    views: list[tuple[int, JobView]]
    processes: dict[int, Process] = field(default_factory=dict)
    """By session, all there ever were."""
    names: dict[int, str] = field(default_factory=dict)
    """Of the instances, by session."""
    decided_on: dict[int, JobView] = field(default_factory=dict)
    """The view that the newest claim of each session was decided on."""
    broken: list[str] = field(default_factory=list)
    steps: Mapping[str, int] = field(default_factory=dict)
    """The milliseconds between two moments of each schedule that the job may have."""
    say: Callable[[str], None] = lambda _text: None
    asked: list[Request] = field(default_factory=list)
    """The requests that were made."""
    cancelled: set[tuple[int, int]] = field(default_factory=set)
    """Items and fences of the runs that somebody has cancelled."""
    times: list[float] = field(default_factory=list)
    """When each view began, in seconds since the epoch."""
    reported: dict[tuple[int, int], list[Report]] = field(default_factory=lambda: defaultdict(list))
    """The reports about each item and moment."""
    runs: int = 0
    rescues: int = 0
    _taken_over: dict[tuple[int, int], set[str]] = field(default_factory=lambda: defaultdict(set))
    """The instances that were gone when others took over their promises to report an item and moment."""
    _open: dict[int, dict[Process, int]] = field(default_factory=dict)
    """The sessions of the runs under way, by item and process."""
    _fences: dict[int, int] = field(default_factory=dict)
    _slots: set[tuple[int, int]] = field(default_factory=set)
    _ran: set[tuple[int, int]] = field(default_factory=set)
    """The items and scheduled moments that were run, also those that were only run by a rescuer."""
    _requested: set[tuple[str, int, int]] = field(default_factory=set)
    _ended: dict[int, int] = field(default_factory=dict)
    """For each item, the fence of the last run whose handler ended by itself."""
    _graceful: set[str] = field(default_factory=set)
    _leader: int = 0
    _meddled: int = 0
    """When the mark that asks for an assignment was last removed by hand."""
    _answered: int = 0
    """When the last assignment but one was written to last: the newest was decided on after that."""
    _items: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        paths = {item: self.layout.item(item) for item in range(ITEMS)}
        self._items = {
            path: item
            for item, one in paths.items()
            for path in (one.running, one.execution, one.sharding, one.instance, one.orphan, one.failover)
        }

    def break_(self, promise: str, text: str) -> None:
        """Note that a promise was broken."""
        self.broken.append(f"{promise}: {text}")
        self.say(f"!!! {promise}: {text}")

    def observe(self, session: int, before: Before) -> None:
        """Judge a transaction; session 0 is an operator, who may do as he likes."""
        if not session:
            if self.layout.necessary in before:
                self._meddled = self.registry.zxid
            return
        elected, now = self.layout.epoch in before, self.registry.nodes
        for path in before:
            name = path.removeprefix(f"{self.layout.instances}/")
            if name != path and path in now and now[path].stat.ephemeral_owner == session:
                self.names[session] = name
                if (named := json.loads(now[path].data or b"{}").get("incarnation", session)) != session:
                    self.break_("instances are of their session", f"{name}, of {named}, was made in {session}")
        if elected:
            self._leader = session
        sharding = before.get(self.layout.sharding)
        if sharding is not None and self.layout.processing in before:  # of an assignment in parts this is the first
            self._answered = sharding.stat.mzxid
        if self.layout.host in before and self.layout.host in now and not elected:
            self.break_("election", f"session {session} took the seat without raising the epoch")
        for item in {self._items[path] for path in before if path in self._items}:
            for promise, text in self._judge_item(session, item, before):
                self.break_(promise, f"item {item}, session {session}: {text}")
        self._judge_requests(session, before)
        if session != self._leader and (wrongly := [path for path in before if self._is_leaders(path, before)]):
            self.break_("a deposed leader writes nothing", f"session {session} wrote {wrongly}")
        if before.get(self.layout.necessary) is not None and self.layout.necessary not in now:
            self._judge_assignment(before[self.layout.necessary])

    def _judge_requests(self, session: int, before: Before) -> None:
        """An item goes on with a request only by a claim: each moment once, oldest first."""
        for path, was in before.items():
            name, _, item = path.removeprefix(f"{self.layout.requests}/").partition("/")
            node = self.registry.nodes.get(path)
            if not path.startswith(self.layout.requests) or not item or node is None:
                continue
            last, now = 0 if was is None else decode_progress(was.data).moment, decode_progress(node.data).moment
            lock, locked = self.layout.item(int(item)).running, before.get(self.layout.item(int(item)).running)
            if now < last or (now == last and decode_progress(node.data) == decode_progress(was.data)):  # type: ignore[union-attr]
                self.break_("each item of a request runs once", f"{name}: item {item} went back from {last} to {now}")
            if now > last and (locked is not None or lock not in before):
                self.break_("each item of a request runs once", f"{name}: item {item} went on to {now} without a claim")
            ended = self.layout.item(int(item)).execution in before  # the run was cut off, and its holder ends it
            if now == last and not (session == self._leader or locked is not None or ended):
                self.break_("each item of a request runs once", f"{name}: item {item} ended without a settlement")

    def _is_leaders(self, path: str, before: Before) -> bool:
        """Whether only the leader writes this node, and somebody did."""
        was, now = before[path], self.registry.nodes.get(path)
        if path == self.layout.processing:
            return now is not None
        if path in self._items and path in (self.layout.item(self._items[path]).instance,):
            return True
        if path in self._items and path == self.layout.item(self._items[path]).sharding:
            return was is None or now is None
        return path == self.layout.necessary and now is None

    def _judge_item(self, session: int, item: int, before: Before) -> Iterator[tuple[str, str]]:
        paths, now = self.layout.item(item), self.registry.nodes
        was = {path: before.get(path, now.get(path)) for path in (paths.running, paths.execution, paths.orphan)}
        runner, ran = now.get(paths.running), was[paths.running]
        if runner is not None and ran is None:
            yield from self._judge_claim(session, paths, was)
        if ran is not None and runner is not ran and ran.stat.ephemeral_owner != session:
            yield "running is its owner's", f"{ran.data!r} lost it"
        record = now.get(paths.execution)
        owns = any(one is not None and one.stat.ephemeral_owner == session for one in (runner, ran))
        changed = record is not None and (was[paths.execution] is None or was[paths.execution].data != record.data)  # type: ignore[union-attr]
        accounts = changed and runner is None and ran is None and self._is_holder(session, paths)
        settled = changed and _record(record).begun == _record(was[paths.execution]).begun  # no claim was given back
        if settled and _record(record).outcome == Outcome.STOPPED != _record(was[paths.execution]).outcome:
            fence = _fence(ran, was[paths.orphan], was[paths.execution])
            if (item, fence) not in self.cancelled:
                yield "only cancelled runs are stopped", f"nobody has cancelled the run of fence {fence}"
        if record is not None and _record(record).outcome in (GIVEN_UP, Outcome.STOPPED):
            self._ran.add((item, _record(record).moment))  # also if it was cancelled before its handler began
        by_leader = session == self._leader and _record(record).outcome in (GIVEN_UP, Outcome.STOPPED)
        if changed and not (owns or accounts or by_leader):
            yield "records are their runner's", "it wrote the record without holding the item"
        if changed:
            yield from _judge_account(_record(was[paths.execution]), _record(record))
            self._note_taken_over(item, _record(was[paths.execution]), _record(record))
        if was[paths.orphan] is None and paths.orphan in now:
            yield from self._judge_mark(session, paths, was)
        if paths.orphan in now and paths.failover in now:
            yield "a rescue takes the mark", "the item waits for a rescuer and has one"
        if paths.sharding not in now and (runner is not None or ran is not None):
            yield "nothing that runs is pruned", "the item is gone, and runs"

    def _is_holder(self, session: int, paths: ItemPaths) -> bool:
        """Whether the writer is the instance that the item is assigned to."""
        return _text(self.registry.nodes.get(paths.instance)) == self.names.get(session)

    def _judge_claim(self, session: int, paths: ItemPaths, was: Mapping[str, Node | None]) -> Iterator[tuple[str, str]]:
        now, me = self.registry.nodes, self.names.get(session, "nobody who has joined")
        runner = now[paths.running]
        if runner.data.decode() != me or runner.stat.ephemeral_owner != session:
            yield "claims are of their session", f"{runner.data!r} claimed in the session of {me}"
        record, last = _record(now.get(paths.execution)), _record(was[paths.execution])
        if record.source == FireSource.FAILOVER:
            if was[paths.orphan] is None or _text(now.get(paths.failover)) != me:
                yield "a rescue takes the mark", "it was rescued without a mark"
            if last.completed or not last.begun:
                yield "one rescue", f"its run of {last.moment} was rescued and has an end"
            elif last.moment != record.moment:
                yield "one rescue", f"its run of {last.moment} was cut off, and {record.moment} is rescued"
            return
        if _text(now.get(paths.instance)) != me:
            yield "claims are assigned", f"it is assigned to {_text(now.get(paths.instance))!r}"
        if record.source in SCHEDULED and record.slot <= last.slot:
            yield "one run per slot", f"{record.slot} was claimed after {last.slot}"
        view = self.decided_on.get(session)
        if view is not None and view.config.failover and last.begun and not last.completed:
            yield "every orphan is rescued", f"its run of {last.slot} was cut off and forgotten"

    def _judge_mark(self, session: int, paths: ItemPaths, was: Mapping[str, Node | None]) -> Iterator[tuple[str, str]]:
        ran, record = was[paths.running], _record(self.registry.nodes.get(paths.execution))
        if record.completed:
            yield "only orphans are marked", "its run is completed"
        if ran is not None and ran.stat.ephemeral_owner == session:
            if self._ended.get(int(paths.sharding.rpartition("/")[2])) == ran.stat.czxid:
                yield "a graceful stop is no crash", "its handler had ended, and it was handed over"
            return
        if ran is not None:
            yield "only orphans are marked", "it runs"
        if session != self._leader:
            yield "a deposed leader writes nothing", "an orphan was marked"
        if record.instance in self._graceful and not record.outcome:
            yield "a graceful stop is no crash", f"{record.instance} left and was marked"

    def _judge_assignment(self, mark: Node | None) -> None:
        """An assignment that removes the mark answers the job as it was at some time since the mark was last made.

        Unless a hand removed the mark after the assignment was decided on: one that is made again looks like the first,
        versions and all, and is removed in its place.  Nothing is lost by that, for the mark only says sooner what the
        leader sees anyway: as long as the assignment is not the strategy's, it makes the mark again.

        Which servers are switched off in all jobs is followed apart from the job, so what the leader knows of it may be
        older than the mark: as soon as it knows more, it makes the mark again.
        """
        assert mark is not None
        if self._meddled >= self._answered:
            return
        now = {item: _text(self.registry.nodes.get(self.layout.item(item).instance)) for item in range(ITEMS)}
        given = {item: holder for item, holder in now.items() if holder}
        since = [n for n, (zxid, _) in enumerate(self.views) if zxid >= mark.stat.mzxid]
        views = [view for _, view in self.views[since[0] if since else -1 :]]
        known = (replace(view, common=at.common) for _, at in reversed(self.views) for view in views)
        if not any(view.eligible and wanted_assignment(view) == given for view in known):
            self.break_("assignments answer the newest question", f"{given} was decided on before the mark was made")

    def begin(self, process: Process, run: ItemContext, incarnation: int) -> None:
        """Judge a handler's first step, in the session that its item was claimed in."""
        self.runs += 1
        item, source, slot, fence = run.item, run.source, run.fire.slot, run.fence
        self.rescues += source is FireSource.FAILOVER
        others = self._open.setdefault(item, {})
        if rivals := [one.id for one, session in others.items() if one is not process and _lives(one, session)]:
            self.break_("one runner", f"item {item} begins at {process.id} and runs at {rivals}")
        if fence <= self._fences.get(item, -1):
            self.break_("fences grow", f"item {item}: {fence} after {self._fences[item]}")
        if source in SCHEDULED and (item, slot) in self._slots:
            self.break_("one run per slot", f"item {item} runs {slot} again")
        if source in SCHEDULED:
            self._slots.add((item, slot))
        if run.fire.requested is None:
            self._ran.add((item, slot))
        if (requested := run.fire.requested) is not None and source is not FireSource.FAILOVER:
            if (requested.id, item, slot) in self._requested:
                self.break_("each item of a request runs once", f"{requested.id}: item {item} runs {slot} again")
            self._requested.add((requested.id, item, slot))
        self._fences[item] = max(fence, self._fences.get(item, -1))
        others[process] = incarnation

    def end(self, process: Process, item: int, outcome: str) -> None:
        """Note that a handler is over."""
        self._open.get(item, {}).pop(process, None)
        if outcome != "cut off":
            self._ended[item] = self._fences[item]

    def report(self, event: Misfired) -> None:
        """Judge a report of missed moments: each is made once.

        It may be made by two instances if one of them was gone, and its promise was taken over: its successor cannot
        know whether it has made the report.  If it was only slow, it makes the report after its successor.
        """
        if event.why in OF_REQUESTS:
            return
        me = event.instance
        for item in event.items:
            for moment in _meant(event.first, event.slot, event.moments):
                known = self.reported[item, moment]
                alike = [one for one in known if one.cut_off == event.cut_off]
                gone = self._taken_over[item, moment]
                alike = [one for one in alike if one.instance == me or gone.isdisjoint({one.instance, me})]
                if alike:
                    promise = "each run that was cut off is reported once" if event.cut_off else REPORTED_ONCE
                    self.break_(promise, f"item {item}, {moment}: {event.why}; {alike[0].why}")
                if (item, moment) in self._slots and not event.cut_off:
                    self.break_("what is reported was not run", f"item {item}, {moment}: {event.why}")
                known.append(Report(me, event.why, event.cut_off))

    def _note_taken_over(self, item: int, was: Record, now: Record) -> None:
        """Note the promises of instances that are gone which a record repeats in the name of another one."""
        promised = {replace(one, by="", at=0): one.by for one in was.owing}
        for one in now.owing:
            by = promised.get(replace(one, by="", at=0), one.by)
            if by != one.by and self.layout.instance(by) not in self.registry.nodes:
                for moment in _meant(one.first, one.last, one.count):
                    self._taken_over[item, moment].add(by)

    def killed(self, process: Process) -> None:
        """Note that all of a process's handlers are over."""
        for runs in self._open.values():
            runs.pop(process, None)

    def left(self, process: Process) -> None:
        """Judge a graceful leaver at the end of its session."""
        session = process.session.incarnation
        self._graceful.add(process.id)
        items = [item for path, item in self._items.items() if path == self.layout.item(item).running]
        for item in items:
            node = self.registry.nodes.get(self.layout.item(item).running)
            if node is not None and node.stat.ephemeral_owner == session:
                self.break_("a graceful stop is no crash", f"{process.id} left item {item} running")

    def at_peace(self, view: JobView, moment: int, present: list[Process]) -> None:
        """Judge what everything has come to, when nothing more happens."""
        nodes, layout = self.registry.nodes, self.layout
        if sorted(view.instances) != sorted(process.id for process in present):
            self.break_("convergence", f"instances are {sorted(view.instances)}, {len(present)} processes are up")
        if not view.staying:
            return
        if view.leader not in view.staying or view.assignment != wanted_assignment(view) or not view.assignment_stands:
            self.break_("convergence", f"{view.leader} leads, {dict(view.assignment)} is assigned")
        cut_off = dict[int, VersionedRecord]()
        for item in range(ITEMS):
            paths = layout.item(item)
            record = _record(nodes.get(paths.execution))
            if item >= view.config.sharding_total_count:
                stale = [paths.sharding, paths.execution, paths.orphan]
            else:
                stale = [paths.running, paths.failover]
                stale += [paths.orphan] if view.active else []
                cut_off |= self._judge_record(view, item, record, moment)
            if paths.disabled not in nodes and (left := [path for path in stale if path in nodes]):
                self.break_("convergence", f"{left} are still there")
        for request in view.requests:
            waiting = [item for item in waiting_items(view, request) if item not in view.resting_items]
            if waiting and request.is_open:
                self.break_("every request is answered", f"{request}: items {waiting} wait")
            if not waiting and not request.closed and view.config.failover and not view.resting_items:
                self.break_("every request ends", f"{request} is not closed")
        for process in present:
            rule_input = RuleInput(view, process.id, tick=True, time=self.registry.now, cut_off=cut_off)
            if effects := decide(rule_input):
                self.break_("silence", f"{process.id} still wants {effects}")

    def _lost(self, item: int, until: int) -> Iterator[int]:
        """Yield the moments of an item that were neither run nor reported, though nobody had switched it off."""
        made = int(self.registry.nodes[self.layout.item(item).sharding].stat.mtime * 1000)
        for moment in self._moments(made, until):
            is_known = (item, moment) in self._ran or self.reported.get((item, moment))
            if not is_known and not self._was_off(item, moment / 1000):
                yield moment

    def _moments(self, after: int, until: int) -> Iterator[int]:
        """Yield the moments of the schedules that the leader has noted, each of them while it was in force."""
        for period in self.views[-1][1].schedules.periods:
            assert period.schedule is not None
            start, end = max(after, period.since), min(until, period.until)
            step = self.steps[period.schedule.expression]
            yield from range(start - start % step + step, end + 1, step)

    def _was_off(self, item: int, moment: float) -> bool:
        """Whether an item was switched off, or did not exist, at a moment or shortly before or after it.

        Its holder may learn late that it is switched on again, and excuses what came until it does.
        """
        ends = [*self.times[1:], inf]
        for (_, view), begins, ended in zip(self.views, self.times, ends, strict=True):
            if begins > moment + 1 or ended < moment - LAG:
                continue
            holder = view.instances.get(view.assignment.get(item, ""))
            is_disabled = holder is not None and view.is_disabled(holder.ip)
            if (
                is_disabled
                or item in view.resting_items
                or item not in view.items
                or item >= view.config.sharding_total_count
            ):
                return True
        return False

    def _judge_record(self, view: JobView, item: int, record: Record, moment: int) -> dict[int, VersionedRecord]:
        if item in view.disabled_items:
            return {}
        cut_off = record.begun > 0 and not record.completed
        if cut_off and view.config.failover and view.active:
            self.break_("every orphan is rescued", f"item {item}: {record}")
        if item not in view.resting_items:
            for lost in self._lost(item, moment):
                self.break_("nothing is lost", f"item {item}: nobody has run {lost}, or reported it: {record}")
        return {item: VersionedRecord(record, 0, 0)} if cut_off and view.config.failover else {}


def _judge_account(was: Record, now: Record) -> Iterator[tuple[str, str]]:
    """Judge what a write does to the time up to which an item is accounted for, and to the last moment claimed.

    Only a claim that is given back lowers them.
    """
    is_given_back = now.slot < was.slot and now.accounted == was.slot - 1
    if now.accounted < was.accounted and not is_given_back:
        yield "accounts only grow", f"from {was.accounted} to {now.accounted}"
    if now.slot < was.slot and not is_given_back:
        yield "accounts only grow", f"the last moment claimed went back from {was.slot} to {now.slot}"


def _meant(first: int, last: int, count: int) -> range:
    """Return the moments that a report or a promise means."""
    step = (last - first) // (count - 1) if count > 1 else 1000
    return range(first, last + 1, step)


def _lives(process: Process, incarnation: int) -> bool:
    """Whether a handler may still act: not if its session is over, which it knows before the registry does."""
    session = process.session
    return process.body.alive and not session.over and session.incarnation == incarnation


def _fence(running: Node | None, orphan: Node | None, record: Node | None) -> int:
    """Return the fence of an item's run: its lock has it, or the mark of who handed it over, or else its record."""
    if running is not None:
        return running.stat.czxid
    handed_over = 0 if orphan is None else (records.decode_mark(orphan.data) or (0, "", 0))[2]
    return handed_over or (0 if record is None else record.stat.mzxid)


def _record(node: Node | None) -> Record:
    return (None if node is None else records.decode(node.data)) or Record()


def _text(node: Node | None) -> str:
    return "" if node is None else node.data.decode()
