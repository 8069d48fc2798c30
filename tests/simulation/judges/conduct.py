"""The promises to operators: what they ask for is done once, what they switch off rests, what they set holds.

Nothing is excused but what the instance concerned could not know, or was kept from.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from math import inf

from aioelasticjob.events import Ended, Misfired
from aioelasticjob.model import FireSource, Outcome
from tests.simulation.facts import KNOWN, PROMPT, RESENT, Facts, JobFacts, ObservedRun, Violation
from tests.simulation.judges.excuses import is_astray
from tests.simulation.judges.requests import is_cancelled, request_of
from tests.simulation.judges.timeliness import SCHEDULED
from tests.simulation.switches import closing
from tests.simulation.written import decode_record
from tests.support.history import Reported, Written

SLACK = 0.05
"""Seconds by which a handler may be cut off early or late: the loop's turns, and clocks that round."""
RECENT = 4.0
"""Seconds after a change of settings in which a run may still go by the old ones."""


def rests_when_switched_off(facts: Facts) -> Iterator[Violation]:
    """No item is claimed that is known to be switched off, nor any by a server that is."""
    for run in facts.runs:
        one, claimed = run.begun, _claimed(facts, run)
        for flag in (f"/{one.job}/sharding/{one.item}/disabled", *closing(one.job, one.host)):
            known = None not in facts.nodes.over(flag, claimed - KNOWN, claimed)
            if known and facts.undisturbed(one.host, claimed - RESENT, claimed, but="flag"):
                yield Violation("switched off", one.at, f"{one.job}/{one.item}: {run} is claimed in spite of {flag}")


def late_runs_are_wanted(facts: Facts) -> Iterator[Violation]:
    """A moment that its item's holder missed is run afterwards only where ``misfire`` or ``catch_up`` asks for it.

    The run of an item that was given away, or ran elsewhere, since the moment counts as none, whatever it is called.
    """
    for one in (run.begun for run in facts.runs if run.begun.source is FireSource.MISFIRE):
        came = min(one.slot / 1000, one.at)
        configs = facts.job(one.job).configs(min(came - RECENT, facts.knows_since(one.host, one.at)), one.at)
        holders = facts.nodes.over(f"/{one.job}/sharding/{one.item}/instance", came, one.at)
        runners = set(facts.nodes.over(f"/{one.job}/execution/{one.item}/running", came, one.at))
        mine = len(holders) == 1 and runners <= {None, one.instance.encode()}
        if mine and not any(config.misfire or config.catch_up for config in configs):
            yield Violation("unwanted late run", one.at, f"{one.job}/{one.item} {one.slot} by {one.instance}")


def timeouts_hold(facts: Facts) -> Iterator[Violation]:
    """No handler goes on beyond its ``timeout``, unless its process sleeps."""
    for run in facts.runs:
        longest = max(_timeouts(facts, run), default=inf)
        asleep = any(one <= run.end and other >= run.begun.at for one, other in facts.paused.get(run.begun.process, ()))
        if run.end - run.begun.at > longest + SLACK and not asleep:
            yield Violation("timeout", run.end, f"{run.begun.job}/{run.begun.item}: {run} outlasts {longest:g} s")


def cut_off_for_a_reason(facts: Facts) -> Iterator[Violation]:
    """A handler is cut off by its timeout, by a session in doubt, or when its instance's grace is over."""
    for run in facts.runs:
        one = run.begun
        if run.how != "cut off" or run.end - one.at >= min(_timeouts(facts, run), default=0) - SLACK:
            continue
        asked = min(facts.leaving.get(who, inf) for who in (one.process, one.instance))
        configs = facts.job(one.job).configs(min(asked, run.end) - RECENT, run.end)
        graceful = asked + min((config.shutdown_timeout for config in configs), default=0) - SLACK <= run.end
        if is_cancelled(facts, run):
            continue
        if not graceful and facts.undisturbed(one.host, run.end - RESENT, run.end, but="leave"):
            text = f"{one.job}/{one.item}: {run} is cut off after {run.end - one.at:.3f} s"
            yield Violation("cut off", run.end, text)


def triggers_are_answered(facts: Facts) -> Iterator[Violation]:
    """What an operator triggers is run by the instance asked, once: every item that it can run."""
    runs: dict[tuple[str, str, int], list[float]] = {}
    triggered = (run for run in facts.runs if run.begun.source is FireSource.TRIGGER)
    for one in (run.begun for run in triggered if not request_of(facts, run)):
        runs.setdefault((one.job, one.instance, one.item), []).append(one.at)
    taken = _triggers_taken(facts)
    for (job, instance, item), begun in runs.items():
        answered = {0}
        for at in begun:
            request = bisect_right(taken.get((job, instance), []), at)
            if request in answered:
                yield Violation("triggers", at, f"{job}/{item}: {instance} was not asked to run it, or it has already")
            answered.add(request)
    for (job, instance), asked in taken.items():
        for at in asked:
            if _is_refused(facts.job(job), instance, at):
                continue
            for item in _runnable(facts.job(job), instance, at):
                known = runs.get((job, instance, item), []) + _failed(facts.job(job), instance, item)
                if not any(at <= begun <= at + PROMPT for begun in known):
                    yield Violation("triggers", at, f"{job}/{item}: {instance} was asked to run it, and has not")


def triggers_are_not_forgotten(facts: Facts) -> Iterator[Violation]:
    """An item that could not be had when it was asked for by hand is run so before anything else runs it, or reported.

    A run that failed before its handler was called is one, too.  It is still to be run as long as its instance lives;
    so whatever was broken meanwhile is no excuse.
    """
    for (job, instance), asked in _triggers_taken(facts).items():
        own = facts.job(job).runs_by.get(instance, ())
        for at in asked:
            for item in _asked_for(facts.job(job), instance, at):
                runs = [run.begun for run in own if run.begun.item == item and _claimed(facts, run) >= at]
                if not runs or runs[0].source not in SCHEDULED:
                    continue
                failed = any(at <= end <= runs[0].at for end in _failed(facts.job(job), instance, item))
                if not failed and not _is_reported(facts.job(job), instance, item, at):
                    text = f"{job}/{item}: {instance} was asked to run it at {at:.3f}, and runs {runs[0].slot} instead"
                    yield Violation("deferred triggers", runs[0].at, text)


RULES = (
    rests_when_switched_off,
    late_runs_are_wanted,
    timeouts_hold,
    cut_off_for_a_reason,
    triggers_are_answered,
    triggers_are_not_forgotten,
)


def _asked_for(job: JobFacts, instance: str, at: float) -> Iterator[int]:
    """Yield the items that an instance had and knew it might run when it took a request, whether or not they ran."""
    facts, nodes, root = job.facts, job.facts.nodes, f"/{job.name}"
    host = instance.partition("@-@")[0]
    since = facts.knows_since(host, at)
    for item in (int(name) for name in nodes.children(f"{root}/sharding", at)):
        flags = (f"{root}/sharding/{item}/disabled", *closing(job.name, host))
        held = set(nodes.over(f"{root}/sharding/{item}/instance", since, at)) == {instance.encode()}
        if held and all(set(nodes.over(flag, since, at)) == {None} for flag in flags):
            yield item


def _is_reported(job: JobFacts, instance: str, item: int, at: float) -> bool:
    """Whether an instance has said that it will not run what it was asked for, in the request that it took at ``at``.

    The report names when the request was made, which may be long before: the instance may have been running the job.
    """
    changes = job.facts.nodes.changes(f"/{job.name}/trigger/{instance}")
    made = max((when for when, data in changes if when < at and data is not None), default=at)
    refused = any(one.at >= at and one.event.instance == instance for one in job.refusals)
    events = (one.event for one in job.facts.of_kind(Reported) if one.at >= at)
    own = (event for event in events if isinstance(event, Misfired) and event.instance == instance)
    return refused or any(
        item in event.items and event.first == event.slot and made - RESENT <= event.slot / 1000 <= at + RECENT
        for event in own
    )


def _is_refused(job: JobFacts, instance: str, at: float) -> bool:
    """Whether an instance has rightly said that it does not run what it was just asked for, because of its clock."""
    said = any(at <= one.at <= at + KNOWN and one.event.instance == instance for one in job.refusals)
    return said and is_astray(job, instance.partition("@-@")[0], at)


def _failed(job: JobFacts, instance: str, item: int) -> list[float]:
    """Return when triggered runs of an item were reported as failed, perhaps before their handler was called."""
    wanted = (job.name, instance, item, FireSource.TRIGGER, Outcome.FAILED)
    events = ((one.at, one.event) for one in job.facts.of_kind(Reported))  # an event is dated by its host
    ends = ((at, event) for at, event in events if isinstance(event, Ended))
    return [at for at, end in ends if (end.job, end.instance, end.item, end.source, end.outcome) == wanted]


def _triggers_taken(facts: Facts) -> dict[tuple[str, str], list[float]]:
    """Return when each instance took requests to run a job now; one that leaves removes its own, and takes none."""
    found: dict[tuple[str, str], list[float]] = {}
    for written in facts.of_kind(Written):
        removed = {change.path for change in written.changes if change.data is None}
        for change in written.changes:
            job, _, name = change.path[1:].partition("/trigger/")
            if not name or change.data is not None or f"/{job}/instances/{name}" in removed:
                continue
            if facts.incarnations.get(name) == written.session:
                found.setdefault((job, name), []).append(written.at)
    return found


def _runnable(job: JobFacts, instance: str, at: float) -> Iterator[int]:
    """Yield the items that an instance was certainly able to run when it was asked to, and for a while after it."""
    facts, nodes, root = job.facts, job.facts.nodes, f"/{job.name}"
    host, start, end = instance.partition("@-@")[0], at - RECENT, at + PROMPT

    def always(path: str, *values: bytes | None) -> bool:
        return set(nodes.over(f"{root}/{path}", start, end)) <= set(values)

    events = [one.event for one in facts.of_kind(Reported) if at <= one.at <= end]
    refused = {
        item for event in events if isinstance(event, Misfired) and event.instance == instance for item in event.items
    }
    in_order = end < facts.end and facts.undisturbed(host, at - RESENT, end, but="flag")
    there = None not in nodes.over(f"{root}/instances/{instance}", at, end) and end < facts.leaving.get(instance, inf)
    open_ = all(set(nodes.over(flag, start, end)) == {None} for flag in closing(job.name, host))
    if not (in_order and there and open_):
        return
    for item in {int(name) for name in nodes.children(f"{root}/sharding", at)} - refused:
        marks = [f"sharding/{item}/disabled", f"sharding/{item}/failover", f"leader/failover/items/{item}"]
        record = decode_record(nodes.at(f"{root}/execution/{item}", at) or b"")
        free = record is not None and record.completed and all(always(mark, None) for mark in marks)
        free = free and always(f"execution/{item}/running", None, instance.encode())
        if free and always(f"sharding/{item}/instance", instance.encode()):
            yield item


def _claimed(facts: Facts, run: ObservedRun) -> float:
    """Return when a run was claimed."""
    return facts.claimed.get((run.begun.job, run.begun.item, run.begun.fence), run.begun.at)


def _timeouts(facts: Facts, run: ObservedRun) -> list[float]:
    """Return how long a run may take, by every configuration that its instance may have gone by when it claimed it."""
    one = run.begun
    configs = facts.job(one.job).configs(facts.knows_since(one.host, _claimed(facts, run)), one.at)
    return [inf if config.timeout is None else config.timeout for config in configs]
