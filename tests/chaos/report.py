"""One page about a chaos run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from statistics import median

from aioelasticjob.config.job import JobConfig
from aioelasticjob.events import Misfired
from aioelasticjob.model import FireSource
from tests.chaos.checker import Span, Verdict
from tests.chaos.history import Arranged
from tests.chaos.stage import Stage
from tests.simulation.facts import Facts, ObservedRun
from tests.support.history import Begun, Reported, Started, of_kind

SHOWN = 20
"""Violations that are shown in full."""


@dataclass(frozen=True, slots=True)
class Played:
    """A run that was disturbed on purpose, judged."""

    seed: int | None
    """None if nothing was left to chance."""
    seconds: float
    jobs: Sequence[JobConfig]
    stage: Stage
    arranged: Arranged
    span: Span
    verdict: Verdict
    name: str = "Chaos"


def page(played: Played) -> str:
    """Return the report as text."""
    return "\n".join([*head(played), *actions(played), *_runs(played), *verdict_of(played)])


def head(played: Played) -> Iterator[str]:
    """Yield lines about when, where and by whom."""
    taken = datetime.fromtimestamp(played.span.start, UTC)
    seed = "" if played.seed is None else f", seed {played.seed}"
    yield f"{played.name} of {played.seconds / 60:.3g} min{seed}, {taken:%Y-%m-%d %H:%M} UTC"
    started = list(of_kind(played.arranged.entries, Started))
    instances = {one.instance for one in of_kind(played.arranged.entries, Begun)}
    yield (
        f"{len(played.stage.ensemble.members)} members, {len(played.stage.seats)} workers at a time,"
        f" {len(started)} processes,"
        f" {len({name.rpartition('-')[0] for name in instances})} of them ran something in {len(instances)} sessions"
    )
    if played.stage.lost:
        yield f"{len(played.stage.lost)} were not let in by the registry when they started, and were started again"


def actions(played: Played) -> Iterator[str]:
    """Yield how often each kind of thing was done."""
    yield "\nDone to them"
    for name, count in sorted(played.stage.done.items()):
        yield f"  {name:<24}{count:>6}"


def _runs(played: Played) -> Iterator[str]:
    facts = Facts(played.arranged.entries)
    for config in played.jobs:
        name = config.job_name
        runs = [run for run in facts.runs if run.begun.job == name]
        sources, ends = Counter(run.begun.source for run in runs), Counter(run.how for run in runs)
        events = [one.event for one in facts.of_kind(Reported) if isinstance(one.event, Misfired)]
        reports = [event for event in events if event.job == name]
        failover = "on" if config.failover else "off"
        yield f"\nJob {name}: {config.cron}, {config.sharding_total_count} items, failover {failover}"
        yield f"  runs                    {len(runs):>6}   {_listed(sources)}"
        yield f"  how they ended                   {_listed(ends)}"
        moments = sum(len(one.items) * one.moments for one in reports)
        yield f"  misfires reported       {len(reports):>6}   of {moments} moments"
        cron = [run.begun.at - run.begun.slot / 1000 for run in runs if run.begun.source is FireSource.SCHEDULE]
        yield f"  SCHEDULE runs late      {median(cron):>6.3f} s in the median, {max(cron):.3f} s at most"
        gap, item = max(_gaps(facts, config, played.span))
        yield f"  longest gap             {gap:>6.1f} s between two runs of item {item}"
        if rescues := sorted(_rescues(runs)):
            yield f"  begun again after death {median(rescues):>6.1f} s in the median, {rescues[-1]:.1f} s at most"


def verdict_of(played: Played) -> Iterator[str]:
    """Yield what the judges found."""
    verdict, tails = played.verdict, played.arranged.tails
    yield f"\nTargets: {verdict.targets} moments of items, met by {_listed(verdict.met)}"
    if verdict.excused:
        yield f"Excused by what was done: {_listed(verdict.excused)}"
    if tails:
        yield f"Handlers that woke up cut off: {len(tails)}, gone after {1000 * max(tails):.0f} ms at most"
    if errors := played.stage.errors():
        yield f"Errors in the workers' logs: {len(errors)}, the first: {errors[0]}"
    if not verdict.violations:
        yield "Verdict: every promise was kept"
        return
    yield f"Verdict: {len(verdict.violations)} VIOLATIONS"
    for violation in verdict.violations[:SHOWN]:
        yield f"  {violation.line(played.span.start)}"


def _gaps(facts: Facts, config: JobConfig, span: Span) -> Iterator[tuple[float, int]]:
    """Yield how long nothing of an item began, with the item."""
    for item in range(config.sharding_total_count):
        begins = [run.begun.at for run in facts.runs_of.get((config.job_name, item), ())]
        times = [span.start, *(at for at in begins if span.start < at < span.stop), span.stop]
        yield from ((later - earlier, item) for earlier, later in pairwise(times))


def _rescues(runs: Sequence[ObservedRun]) -> Iterator[float]:
    """Yield how long after a worker's death each run that it took with it was begun again."""
    dead = {(run.begun.item, run.begun.slot): run.end for run in runs if run.how == "crashed"}
    for run in runs:
        died = dead.get((run.begun.item, run.begun.slot))
        if run.begun.source is FireSource.FAILOVER and died is not None and run.begun.at >= died:
            yield run.begun.at - died


def _listed(counts: Counter[FireSource] | Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.most_common())
