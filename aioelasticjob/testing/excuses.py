"""What the faults of the surroundings excuse: each only the items and the moments that it concerns."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from functools import cached_property

from aioelasticjob.coordination import records
from aioelasticjob.coordination.ledger import TOLERATED
from aioelasticjob.events import Ended
from aioelasticjob.model import Outcome
from aioelasticjob.testing.facts import REGISTRY, RESENT, Facts, JobFacts, Run, Span, Violation
from aioelasticjob.testing.history import ClockSet, Raised, Told, of_kind

ASTRAY = 1.0
"""Seconds by which a clock may be wrong without an effect."""
NEWS = 10.0
"""Seconds within which everybody has learnt of the registry's time, which replies to writes tell."""
SETTLED = 4.0
"""Seconds within which a change of settings or of clocks is known everywhere."""
CHECKED = 1.25
"""Seconds after its machine has woken within which a process finds out that its session may be over."""
ROUNDED = 0.001
MEASURED = 0.7
"""Seconds by which a slow network may mislead who compares clocks."""


class Clocks:
    """The wall clocks of all hosts over time."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._set: dict[str, tuple[list[float], list[float]]] = {}
        for one in of_kind(facts.entries, ClockSet):
            times, values = self._set.setdefault(one.host, ([], []))
            times.append(one.at)
            values.append(one.ahead)

    def ahead(self, host: str, start: float, end: float) -> list[float]:
        """Return by how many seconds a host's clock was ahead at any time from ``start`` to ``end``."""
        times, values = self._set.get(host, ([], []))
        first, last = bisect_right(times, start), bisect_right(times, end)
        return [values[first - 1] if first else 0.0, *values[first:last]]

    def apart(self, host: str, start: float, end: float) -> list[float]:
        """Return by how many seconds a host's clock and the registry's differed at any time of a span."""
        own, registry = self.ahead(host, start, end), self.ahead(REGISTRY, start, end)
        return [abs(one - other) for one in own for other in registry]

    @cached_property
    def wrong(self) -> list[Span]:
        """When the registry's clock was wrong."""
        return [(start, end) for start, end, ahead in self._spans if abs(ahead) > ASTRAY]

    def early(self, moment: float) -> Iterator[float]:
        """Yield when a moment has come, or was jumped over, by the registry's clock while that was ahead."""
        for start, end, ahead in self._spans:
            if ahead > ASTRAY and moment - ahead <= end + NEWS and start <= moment:
                yield max(start, moment - ahead)

    @cached_property
    def _spans(self) -> list[tuple[float, float, float]]:
        """From when to when the registry's clock was ahead by how much."""
        times, values = self._set.get(REGISTRY, ([], []))
        return list(zip(times, [*times[1:], self._facts.end], values, strict=False))

    @cached_property
    def repeated(self) -> list[Span]:
        """The spans of time that came twice by the registry's clock, which was set back."""
        times, values = self._set.get(REGISTRY, ([], []))
        steps = zip(times, [0.0, *values], values, strict=False)
        return [(at + after, at + before) for at, before, after in steps if before - after > ASTRAY]


def clocks(facts: Facts) -> Clocks:
    """Return the clocks of a history; reckoned once."""
    known: dict[int, Clocks] = facts.__dict__.setdefault("_clocks", {})
    return known.setdefault(0, Clocks(facts))


def failed_unheard(job: JobFacts) -> Mapping[tuple[int, int], list[Ended]]:
    """Return the runs (item, slot) that were told of as failed, though their handlers may never have been called."""
    found: dict[tuple[int, int], list[Ended]] = {}
    for told in of_kind(job.facts.entries, Told):
        event = told.event
        if isinstance(event, Ended) and event.job == job.name and event.outcome is Outcome.FAILED:
            found.setdefault((event.item, event.slot), []).append(event)
    return found


def owes_nothing(job: JobFacts, slot: int) -> bool:
    """Say whether a moment of a job may pass without a word: it came while the registry's clock was wrong."""
    moment = slot / 1000
    return any(start - ASTRAY <= moment <= end + SETTLED for start, end in clocks(job.facts).wrong)


def may_be_repeated(facts: Facts, slot: int) -> bool:
    """Say whether a moment came twice by the registry's clock, so that it may be run and also be told of."""
    return any(start - SETTLED <= slot / 1000 <= end + SETTLED for start, end in clocks(facts).repeated)


def ahead_of_time(facts: Facts, at: float) -> float:
    """Return by how many seconds the registry's clock may seem to be ahead to somebody who writes at a time."""
    return max(0.0, *clocks(facts).ahead(REGISTRY, at - NEWS, at))


def refuses_by_clock(job: JobFacts, item: int, slot: int) -> bool:
    """Say whether the holder of an item rightly refused a moment, for its clock differed by more than tolerated."""
    moment = slot / 1000
    held = job.facts.nodes.over(f"/{job.name}/sharding/{item}/instance", moment - ASTRAY, moment + ASTRAY)
    hosts = {holder.decode().partition("@-@")[0] for holder in held if holder}
    limits = [config.max_time_diff_seconds for config in job.configs(moment - SETTLED, moment)]
    limit = min((limit for limit in limits if limit >= 0), default=None)
    if limit is None:
        return False
    return any(max(clocks(job.facts).apart(host, moment - NEWS, moment)) > limit - MEASURED for host in hosts)


def is_unmonitored(run: Run, facts: Facts) -> bool:
    """Say whether a run may have been begun without a claim, so that nothing keeps others from running it, too."""
    begun = run.begun
    configs = facts.job(begun.job).configs(begun.at - SETTLED, run.end)
    return any(not config.monitor_execution for config in configs)


def monitored(facts: Facts, name: str, at: float) -> bool:
    """Say whether every run that goes on at a time was begun under a claim."""
    runs = (run for run in facts.runs if run.begun.job == name and run.begun.at <= at <= run.end)
    return not any(is_unmonitored(run, facts) for run in runs)


def woken(run: Run, facts: Facts, start: float, end: float) -> float:
    """Return since when a run must know that its session may be over: its machine may just have been woken.

    The lease is checked at least every second of the loop's clock, and before handlers and writes; so this is for runs
    that had begun before the machine was suspended.
    """
    wakes = facts.wakes.get(run.begun.process, ())
    return max([start, *(min(end, at + CHECKED) for at in wakes if run.begun.at < at <= start + ROUNDED)])


def removals(facts: Facts, name: str) -> list[float]:
    """Return when a job was removed by an operator."""
    return [at for at, data in facts.nodes.changes(f"/{name}/config") if data is None]


def lives(facts: Facts, name: str, at: float) -> int:
    """Return how often a job had been removed: what it did before that, it knows nothing of."""
    return bisect_right(removals(facts, name), at)


def was_lowered(facts: Facts, earlier: Run, run: Run) -> bool:
    """Say whether an item's record was lowered between two runs: it claimed a later moment, too far in the future.

    Which others had been run by a clock that was ahead is forgotten with it.
    """
    one, first = run.begun, facts.claimed.get((run.begun.job, run.begun.item, earlier.begun.fence), earlier.begun.at)
    for at, data in facts.nodes.changes(f"/{one.job}/execution/{one.item}"):
        record = records.decode(data or b"") if first <= at < one.at else None
        if record is not None and one.slot < record.slot and record.slot > 1000 * at + TOLERATED:
            return True
    return False


def put_away_badly(run: Run, facts: Facts) -> bool:
    """Say whether a provider raised when it put its value away: then a run failed though its handler did not."""
    one = run.begun
    ends = (raised for raised in of_kind(facts.entries, Raised) if raised.where == "provider end")
    return any(
        (raised.process, raised.job) == (one.process, one.job) and run.end <= raised.at <= run.end + ROUNDED
        for raised in ends
    )


def could_not_settle(run: Run, facts: Facts, until: float) -> bool:
    """Say whether a run's end may have been kept from the record until then, for its host was in trouble."""
    return not facts.undisturbed(run.begun.host, min(run.end, until) - RESENT, until)


def clocks_agree(facts: Facts) -> Iterator[Violation]:
    """Nothing is run where the clock differs from the registry's by more than the job tolerates."""
    for run in facts.runs:
        one = run.begun
        configs = facts.job(one.job).configs(one.at - NEWS, one.at)
        limits = [config.max_time_diff_seconds for config in configs]
        apart = min(clocks(facts).apart(one.host, one.at - NEWS, one.at))
        astray = min(limits, default=-1) >= 0 and apart > max(limits) + MEASURED
        if astray and facts.undisturbed(one.host, one.at - NEWS, one.at, but="clock limit"):
            text = f"{one.job}/{one.item}: {run} though the clock of {one.host} is {apart:.1f} s astray"
            yield Violation("clock limit", one.at, text)


RULES = (clocks_agree,)
