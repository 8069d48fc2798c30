"""Judges the history of a chaos run, in the manner of Jepsen's analysis of the Chronos scheduler (aphyr.com, 2015).

Every scheduled moment of every item is a target.  A target is met by exactly one run that begins within its window:
not before the moment, and not after a newer one of the same item has begun.  A target without a run must be matched
with a report of misfire that names it, and what an instance reports it has not run on time, nor reported before.  A run
that was cut off must be rescued, or reported where failover is off.  On top of that hold the judges of the simulation:
one runner, one run per slot, fences that grow.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from aioelasticjob.config.job import JobConfig
from aioelasticjob.events import Misfired
from aioelasticjob.ground.times import moment
from aioelasticjob.model import GIVEN_UP, SCHEDULED, FireSource
from tests.simulation.facts import Facts, ObservedRun, Violation
from tests.simulation.judges.invariants import fences_grow, one_run_per_slot, one_runner
from tests.support.history import Entry, Reported
from tests.support.worker_journal import GAVE_WAY

EARLY = 0.05
"""Seconds by which a run may seem to begin before its moment: the wall clock is slewed, the steady one is not."""

SETTLED = ("completed", "failed")
"""How a run ends that nobody has to make up for."""


@dataclass(frozen=True, slots=True)
class Span:
    """The part of a history whose moments are judged, in true seconds."""

    start: float
    stop: float


@dataclass(frozen=True, slots=True)
class Excuse:
    """Somebody took away what some promises to a job, or to one of its items, rest on; they need not hold so long."""

    kind: str
    job: str
    start: float
    """When it was taken away.  The excuse also covers what was still open for an item then: its last run, and since."""
    stop: float
    rules: frozenset[str]
    item: int | None = None
    """None for all items."""

    def covers(self, violation: Violation, facts: Facts) -> bool:
        """Say whether a broken promise is one of those."""
        place = re.match(r"(.+)/(\d+)[: ]", violation.text)
        return (
            place is not None
            and violation.rule in self.rules
            and violation.at <= self.stop
            and place[1] == self.job
            and self.item in (None, int(place[2]))
            and self._open_since(facts, int(place[2])) <= violation.at
        )

    def _open_since(self, facts: Facts, item: int) -> float:
        """Return the moment of the item's last run that began before: nothing since need have been reported yet."""
        runs = (run.begun for run in facts.runs_of.get((self.job, item), ()))
        return max((one.slot / 1000 for one in runs if one.at <= self.start), default=0.0)


@dataclass(slots=True)
class Verdict:
    """What the judges found."""

    violations: list[Violation] = field(default_factory=list)
    targets: int = 0
    met: Counter[str] = field(default_factory=Counter)
    """How many targets were met by what: ``run``, ``rescue`` (nothing else ran it), ``report``."""
    excused: Counter[str] = field(default_factory=Counter)
    """How many broken promises what was done excuses, by its kind."""


def judge(
    entries: Sequence[Entry], configs: Sequence[JobConfig], span: Span, excuses: Sequence[Excuse] = ()
) -> Verdict:
    """Hold a history to the promises, but for those that there are excuses for."""
    facts, verdict = Facts(entries), Verdict()
    for rule in (one_runner, one_run_per_slot, fences_grow):
        verdict.violations += rule(facts)
    for config in configs:
        course = _Course(facts, config, span)
        for item in range(config.sharding_total_count):
            verdict.violations += course.judge(item, verdict)
    found, verdict.violations = sorted(verdict.violations, key=lambda violation: violation.at), []
    for violation in found:
        excuse = next((one for one in excuses if one.covers(violation, facts)), None)
        if excuse is None:
            verdict.violations.append(violation)
        else:
            verdict.excused[excuse.kind] += 1
    return verdict


@dataclass(frozen=True, slots=True)
class _Report:
    """Somebody's word that moments have passed without a run."""

    at: float
    event: Misfired

    def names(self, slot: int) -> bool:
        """Whether it speaks of this moment."""
        return self.event.first <= slot <= self.event.slot


class _Course:
    """One job's schedule and what became of it."""

    def __init__(self, facts: Facts, config: JobConfig, span: Span) -> None:
        self._facts, self._config, self._span = facts, config, span
        began = facts.entries[0].at if facts.entries else span.start
        self._moments = tuple(_moments(config, min(began, span.start), facts.end))
        self._reports = [
            _Report(entry.at, entry.event)
            for entry in facts.of_kind(Reported)
            if isinstance(entry.event, Misfired) and entry.event.job == config.job_name
        ]

    def judge(self, item: int, verdict: Verdict) -> Iterator[Violation]:
        """Yield what breaks a promise to one item, and count its targets."""
        runs = self._facts.runs_of.get((self._config.job_name, item), [])
        reports = [report for report in self._reports if item in report.event.items]
        targets = [slot for slot in self._moments if self._span.start < slot / 1000 <= self._span.stop]
        verdict.targets += len(targets)
        yield from self._windows(item, runs)
        yield from self._accounted(item, targets, runs, reports, verdict)
        yield from self._truly_reported(item, runs, reports)
        yield from self._brought_to_an_end(item, targets, runs, reports)

    def _windows(self, item: int, runs: Sequence[ObservedRun]) -> Iterator[Violation]:
        """Every scheduled run belongs to a moment of the schedule and begins within the moment's window."""
        newest = 0
        for one in (run.begun for run in runs if run.begun.source in SCHEDULED):
            if one.slot not in self._moments:
                yield self._violation("window", one.at, item, one.slot, "is no moment of the schedule")
            if one.at < one.slot / 1000 - EARLY:
                yield self._violation(
                    "window", one.at, item, one.slot, f"begins {one.slot / 1000 - one.at:.3f} s early"
                )
            if one.slot < newest:
                yield self._violation("window", one.at, item, one.slot, f"begins after the newer {newest}")
            newest = max(newest, one.slot)

    def _accounted(
        self,
        item: int,
        targets: Sequence[int],
        runs: Sequence[ObservedRun],
        reports: Sequence[_Report],
        verdict: Verdict,
    ) -> Iterator[Violation]:
        """Every target has a run, a rescue or a report that names it."""
        run = {one.begun.slot for one in runs if one.begun.source in SCHEDULED}
        rescued = {one.begun.slot for one in runs if one.begun.source is FireSource.FAILOVER}
        verdict.met["run"] += len(run.intersection(targets))
        verdict.met["rescue"] += len((rescued - run).intersection(targets))
        for slot in targets:
            if slot in run or slot in rescued:
                continue
            if any(one.names(slot) for one in reports):
                verdict.met["report"] += 1
            else:
                yield self._violation("nothing lost", slot / 1000, item, slot, "is neither run nor reported")

    def _truly_reported(
        self, item: int, runs: Sequence[ObservedRun], reports: Sequence[_Report]
    ) -> Iterator[Violation]:
        """What an instance reports as missed it has not run on time, nor reported before.

        A run that gave way has left its moment open: if nobody goes on with it before the next one, it is missed.
        """
        begun = [run.begun for run in runs if not self._gave_way(run)]
        on_time = {(one.instance, one.slot) for one in begun if one.source is FireSource.SCHEDULE}
        reported = set[tuple[str, int]]()
        for report in reports:
            mine = {(report.event.instance, slot) for slot in self._moments if report.names(slot)}
            if not report.event.cut_off:  # a moment that was cut off is reported whether it was reported before or not
                for _, slot in sorted(mine & on_time):
                    yield self._violation("true reports", report.at, item, slot, "is reported, and was run on time")
                for _, slot in sorted(mine & reported):
                    yield self._violation("true reports", report.at, item, slot, "is reported twice")
                reported |= mine

    def _brought_to_an_end(
        self, item: int, targets: Sequence[int], runs: Sequence[ObservedRun], reports: Sequence[_Report]
    ) -> Iterator[Violation]:
        """What was begun comes to its end in some run of that moment, or is reported as cut off.

        A stream that gave way goes on later: with the moment that it has left open, or with a newer one.
        """
        wanted = set(targets)
        by_slot: dict[int, list[ObservedRun]] = {}
        for run in runs:
            by_slot.setdefault(run.begun.slot, []).append(run)
        for slot, attempts in by_slot.items():
            last = attempts[-1]
            if slot not in wanted or any(run.how in SETTLED for run in attempts):
                continue
            if self._gave_way(last):
                if not any(one.names(slot) and one.at > last.end for one in reports) and runs[-1] is last:
                    yield self._violation("rescued", last.begun.at, item, slot, f"{last} gave way, and nobody went on")
                continue
            reasons = [one.event.why for one in reports if one.event.slot == slot and one.at > last.begun.at]
            if any(self._is_given_up(why) for why in reasons):
                continue
            reported = bool(reasons)
            if self._config.failover and reported:
                yield self._violation("reported, not rescued", last.begun.at, item, slot, f"was cut off: {last}")
            elif self._config.failover:
                yield self._violation(
                    "rescued", last.begun.at, item, slot, f"was cut off {len(attempts)} times, never rescued"
                )
            elif last.how != "cut off" and not reported:
                yield self._violation("rescued", last.begun.at, item, slot, f"{last} {last.how}, and nobody said so")

    def _is_given_up(self, why: str) -> bool:
        """Say whether a report is of a run that was rescued as often as the job wants.

        It says how often.  A history cannot: a claim whose answer was lost with its session is followed by no run.
        """
        found = re.match(rf"{GIVEN_UP}: its run and (\d+) rescues? ", why)
        return found is not None and int(found[1]) >= self._config.max_rescues

    def _gave_way(self, run: ObservedRun) -> bool:
        return self._config.streaming and run.how == GAVE_WAY

    def _violation(self, rule: str, at: float, item: int, slot: int, text: str) -> Violation:
        return Violation(rule, at, f"{self._config.job_name}/{item} {slot} {text}")


def _moments(config: JobConfig, start: float, end: float) -> Iterator[int]:
    """Yield a job's scheduled moments, in milliseconds since the epoch."""
    schedule = config.schedule
    following = None if schedule is None else schedule.next_after(moment(start))
    while schedule is not None and following is not None and following.timestamp() <= end:
        yield round(following.timestamp() * 1000)
        following = schedule.next_after(following)
