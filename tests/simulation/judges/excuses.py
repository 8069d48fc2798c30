"""What the faults of the surroundings excuse: each only the items and the moments that it concerns."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from itertools import pairwise
from math import inf

from aioelasticjob.core.account import MAX_FUTURE
from aioelasticjob.events import Ended
from aioelasticjob.model import Outcome
from tests.simulation.facts import REGISTRY, RESENT, Facts, JobFacts, ObservedRun, Span, Violation
from tests.simulation.written import decode_record
from tests.support.history import ClockSet, Nonsense, Raised, Reported, Started, Written

ASTRAY = 1.0
"""Seconds by which a clock may be wrong without an effect."""
NEWS = 10.0
"""Seconds within which everybody has learnt of the registry's time, which replies to writes tell."""
SETTLED = 4.0
"""Seconds within which a change of settings or of clocks is known everywhere."""
CHECKED = 1.25
"""Seconds after its machine has woken within which a process finds out that its session may be over."""
SOON = 3.0
"""Seconds before a moment in which instances may have claimed it: claims are sent early, and clocks differ."""
ROUNDED = 0.001
MEASURED = 0.7
"""Seconds by which a slow network may mislead who compares clocks."""


class Clocks:
    """The wall clocks of all hosts over time."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._set: dict[str, tuple[list[float], list[float]]] = {}
        for one in facts.of_kind(ClockSet):
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
        return [(start, end) for start, end, ahead in self.spans if abs(ahead) > ASTRAY]

    def known(self, instance: str, at: float) -> float:
        """Return by how many seconds the registry's clock was ahead when an instance heard of its time last."""
        session, last = self._facts.incarnations.get(instance), bisect_right(self._answers, at, key=lambda one: one[0])
        heard = next((when for when, writer in reversed(self._answers[:last]) if writer == session), at)
        return self.ahead(REGISTRY, heard, heard)[0]

    @cached_property
    def _answers(self) -> list[tuple[float, int]]:
        """When the registry told which session its time: the answer to a change of a node's data does."""
        written = self._facts.of_kind(Written)
        return [
            (one.at, one.session)
            for one in written
            if any(put.data is not None and not put.created for put in one.changes)
        ]

    def late(self, moment: float) -> Iterator[float]:
        """Yield when a moment has come by the registry's clock while that was behind."""
        for start, end, ahead in self.spans:
            if ahead < -ASTRAY and start <= moment - ahead <= end + NEWS:
                yield moment - ahead

    @cached_property
    def spans(self) -> list[tuple[float, float, float]]:
        """From when to when the registry's clock was ahead by how much."""
        times, values = self._set.get(REGISTRY, ([], []))
        return list(zip(times, [*times[1:], self._facts.end], values, strict=False))

    @cached_property
    def repeated(self) -> list[Span]:
        """The spans of time that came twice by the registry's clock, which was set back by more than a minute."""
        times, values = self._set.get(REGISTRY, ([], []))
        steps = zip(times, [0.0, *values], values, strict=False)
        return [(at + after, at + before) for at, before, after in steps if 1000 * (before - after) > MAX_FUTURE]


def clocks(facts: Facts) -> Clocks:
    """Return the clocks of a history; reckoned once."""
    found: Clocks | None = facts.__dict__.get("_clocks")
    if found is None:
        found = facts.__dict__["_clocks"] = Clocks(facts)
    return found


def failed_unheard(job: JobFacts) -> Mapping[tuple[int, int], list[Ended]]:
    """Return the runs (item, slot) that were reported as failed, though their handlers may never have been called."""
    found: dict[tuple[int, int], list[Ended]] = {}
    for entry in job.facts.of_kind(Reported):
        event = entry.event
        if isinstance(event, Ended) and event.job == job.name and event.outcome is Outcome.FAILED:
            found.setdefault((event.item, event.slot), []).append(event)
    return found


def owes_nothing(job: JobFacts, slot: int) -> bool:
    """Say whether a moment of a job may pass without a word: it came while the registry's clock was wrong."""
    moment = slot / 1000
    return any(start - ASTRAY <= moment <= end + SETTLED for start, end in clocks(job.facts).wrong)


def may_be_repeated(facts: Facts, slot: int) -> bool:
    """Say whether a moment came twice by the registry's clock, which was lowered by more than a minute.

    Then records are lowered, and the moment may be run or reported a second time.
    """
    return any(start - SETTLED <= slot / 1000 <= end + SETTLED for start, end in clocks(facts).repeated)


def is_overwritten(job: JobFacts, item: int, slot: int) -> bool:
    """Say whether nonsense was written over an item's record when a moment had come, before its holder could read it.

    The item then counts as claimed up to there.
    """
    last, claimed, path = 0.0, 0, f"/{job.name}/execution/{item}"
    nonsense = [(one.at, one.data) for one in job.facts.of_kind(Nonsense) if one.path == path]  # or its end
    written = sorted([*job.facts.nodes.changes(path), *nonsense], key=lambda change: change[0])
    for (at, data), (over, _) in pairwise([*written, (job.facts.end, b"")]):
        record, known = decode_record(data or b""), 1000 * (at + clocks(job.facts).ahead(REGISTRY, at, at)[0])
        if record is not None:
            last, claimed = at, record.slot
        elif claimed < slot <= known and _is_unread(job, item, last, at, over):
            return True
    return False


def _is_unread(job: JobFacts, item: int, last: float, at: float, over: float) -> bool:
    """Say whether a holder may not have read the record written at ``last``, but what stood from ``at`` to ``over``.

    An instance that was given the item before, knew of it, and was idle, has read it.  A host in trouble may know of it
    late.
    """
    gains = [one for one in job.facts.nodes.changes(f"/{job.name}/sharding/{item}/instance") if one[1]]
    before, after = [one for one in gains if one[0] <= at][-1:], [one for one in gains if at < one[0] <= over]
    for gained, holder in [*before, *after]:
        name = (holder or b"").decode()
        runs = [run.begun.at for run in job.runs_by.get(name, ()) if run.end >= at]
        knows_since = partial(job.facts.knows_since, name.partition("@-@")[0])
        if gained > last and any(gained >= knows_since(when) for when in (at, *runs)):
            return True
    return False


def counts_as_accounted(job: JobFacts, item: int, slot: int) -> bool:
    """Say whether a moment counted as accounted for before it came, because a clock was ahead.

    The item's record says so.  Or the item was made, or its schedule was noted, by a clock ahead: then that date is
    later than the moment.  Of a job without records only its processes know it.
    """
    nodes, moment = job.facts.nodes, slot / 1000
    for start, end, ahead in clocks(job.facts).spans:
        had_come = ahead > ASTRAY and start < moment <= end + ahead
        if had_come and not job.is_recorded(start, end):
            return True
    for at, data in nodes.changes(f"/{job.name}/execution/{item}"):
        record = decode_record(data or b"")
        if record is not None and record.accounted >= slot and at + SOON < moment:
            return True
    for path in (f"/{job.name}/sharding/{item}", f"/{job.name}/leader/schedule"):
        for at, _ in nodes.changes(path):
            if at < moment <= at + clocks(job.facts).ahead(REGISTRY, at, at)[0]:
                return True
    return False


def ahead_of_time(facts: Facts, host: str, at: float) -> float:
    """Return by how many seconds the registry's clock may seem to be ahead to a host that writes at a time.

    Nothing is concluded from a clock that was set back before it has stood there for a while, and a process that could
    not hear the registry learns of it only afterwards.
    """
    started = max((one.at for one in facts.of_kind(Started) if one.host == host and one.at <= at), default=0.0)
    since = min(at - NEWS, max(started, facts.heard_before(host, at - NEWS)))
    return max(0.0, *clocks(facts).ahead(REGISTRY, since, at))


def refuses_by_clock(job: JobFacts, item: int, slot: int) -> bool:
    """Say whether the holder of an item rightly refused a moment, for its clock differed by more than tolerated."""
    moment = slot / 1000
    held = job.facts.nodes.over(f"/{job.name}/sharding/{item}/instance", moment - ASTRAY, moment + ASTRAY)
    return any(is_astray(job, holder.decode().partition("@-@")[0], moment) for holder in held if holder)


def is_astray(job: JobFacts, host: str, at: float) -> bool:
    """Say whether a host's clock may have differed from the registry's by more than a job tolerates, shortly before."""
    limits = [config.max_time_diff_seconds for config in job.configs(at - SETTLED, at)]
    limit = min((limit for limit in limits if limit >= 0), default=None)
    return limit is not None and max(clocks(job.facts).apart(host, at - NEWS, at)) > limit - MEASURED


def is_unmonitored(run: ObservedRun, facts: Facts) -> bool:
    """Say whether a run may have been begun without a claim, so that nothing keeps others from running it, too."""
    begun = run.begun
    since = min(begun.at - SETTLED, facts.knows_since(begun.host, begun.at))
    return not facts.job(begun.job).is_recorded(since, run.end)


def monitored(facts: Facts, name: str, at: float) -> bool:
    """Say whether every run that goes on at a time was begun under a claim."""
    runs = (run for run in facts.runs if run.begun.job == name and run.begun.at <= at <= run.end)
    return not any(is_unmonitored(run, facts) for run in runs)


def woken(run: ObservedRun, facts: Facts, start: float, end: float) -> float:
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


def was_forgotten(facts: Facts, run: ObservedRun, until: float) -> bool:
    """Say whether the registry has forgotten until a time that a run was early, by a clock ahead.

    The record claimed a later moment, too far in the future, and was lowered; or it went with its item, or an operator
    overwrote it, before the moment came.
    """
    one = run.begun
    first = facts.claimed.get((one.job, one.item, one.fence), one.at)
    path = f"/{one.job}/execution/{one.item}"
    lost = [at for at, data in facts.nodes.changes(path) if data is None] + [at for at, _, _ in nonsense(facts, path)]
    if any(first <= at < min(until, one.slot / 1000) for at in lost):
        return True
    for at, data in facts.nodes.changes(path):
        record = decode_record(data or b"") if first <= at < until else None
        if record is not None and one.slot < record.slot and record.slot > 1000 * at + MAX_FUTURE:
            return True
    return False


def nonsense(facts: Facts, path: str) -> list[tuple[float, float, bytes]]:
    """Return from when to when which nonsense stood at a path: until it was mended, or somebody wrote over it."""
    found: list[tuple[float, float, bytes]] = []
    for entry in facts.entries:
        if isinstance(entry, Nonsense):
            touched = entry.path == path
        else:
            touched = isinstance(entry, Written) and any(change.path == path for change in entry.changes)
        if touched and found and found[-1][1] == inf:
            found[-1] = found[-1][0], entry.at, found[-1][2]
        if touched and isinstance(entry, Nonsense) and not entry.gone:
            found.append((entry.at, inf, entry.data))
    return found


def put_away_badly(run: ObservedRun, facts: Facts) -> bool:
    """Say whether a provider raised when it put its value away: then a run failed though its handler did not."""
    one = run.begun
    ends = (raised for raised in facts.of_kind(Raised) if raised.where == "provider end")
    return any(
        (raised.process, raised.job) == (one.process, one.job) and run.end <= raised.at <= run.end + ROUNDED
        for raised in ends
    )


def could_not_settle(run: ObservedRun, facts: Facts, until: float) -> bool:
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
