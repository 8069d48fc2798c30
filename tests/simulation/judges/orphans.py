"""The promises about runs that were cut off: each is rescued, and soon, or somebody tells that it is not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from aioelasticjob.events import Misfired
from aioelasticjob.model import FireSource, Outcome, Record
from tests.simulation.facts import PROMPT, RESENT, Facts, JobFacts, ObservedRun, Violation
from tests.simulation.judges import excuses
from tests.simulation.switches import closing
from tests.simulation.written import decode_record, is_as_before
from tests.support.history import Reported, Written

RECENT = 4.0
"""Seconds after a change of settings in which somebody may still go by the old ones."""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A run that was cut off, and the claim that took its record's place without being its rescue."""

    item: int
    run: Record
    since: float
    """When the run was claimed."""
    claim: Record
    at: float


def orphans_are_rescued(facts: Facts) -> Iterator[Violation]:
    """Where failover is on, the next run of an item whose run was cut off is that run's rescue."""
    for name in facts.jobs:
        if all(era.config.failover for era in facts.job(name).eras):
            for one in _forgotten(facts, name):
                text = f"{name}/{one.item}: the run of {one.run.slot} was cut off and forgotten"
                yield Violation("orphans are rescued", one.at, text)


def cut_off_is_reported(facts: Facts) -> Iterator[Violation]:
    """Where a run was cut off and is not rescued, somebody says so: at the latest who runs the item next."""
    for name in facts.jobs:
        reported = {
            (item, one.event.slot, one.event.cut_off): one.at
            for one in facts.of_kind(Reported)
            if isinstance(one.event, Misfired) and one.event.job == name and one.event.cut_off
            for item in one.event.items
        }
        for one in _forgotten(facts, name):
            last, host = (
                reported.get((one.item, one.run.moment, one.run.instance), 0.0),
                one.claim.instance.partition("@")[0],
            )
            if not one.since <= last and facts.undisturbed(host, one.at - PROMPT, one.at + PROMPT):
                text = (
                    f"{name}/{one.item}: nobody tells that the run of {one.run.moment} by {one.run.instance} ended so"
                )
                yield Violation("cut off untold", one.at, text)


def orphans_are_found(facts: Facts) -> Iterator[Violation]:
    """An item is marked as an orphan soon after its runner's end."""
    for written in facts.of_kind(Written):
        for change in written.changes if written.ending else ():
            job, _, path = change.path[1:].partition("/execution/")
            if path.endswith("/running") and change.data is None:
                yield from _overlooked(facts.job(job), int(path.partition("/")[0]), written.at)


def orphans_are_taken(facts: Facts) -> Iterator[Violation]:
    """An orphan does not wait while anybody who may take it has nothing to do."""
    for written in facts.of_kind(Written):
        for change in written.changes:
            job, _, item = change.path[1:].partition("/leader/failover/items/")
            if item and change.created and written.at + PROMPT < facts.end:
                yield from _neglected(facts.job(job), int(item), written.at)


def rescues_follow_what_was_cut_off(facts: Facts) -> Iterator[Violation]:
    """A run that was cut off, rescues included, is rescued at most once; and nothing else is.

    So the last claim of the item, as its record has it when the rescue is claimed, must have no end, and be of the same
    moment; and under one claim the item is run once.
    """
    last, found = dict[str, Record](), dict[tuple[str, int, int], Record]()
    for written in facts.of_kind(Written):
        for change in written.changes:
            job, _, path = change.path[1:].partition("/execution/")
            if path.isdigit():
                found[job, int(path), written.zxid] = last.get(change.path, Record())
                last[change.path] = decode_record(change.data or b"") or Record()
    begun = dict[tuple[str, int, int], ObservedRun]()
    for run in facts.runs:
        one = run.begun
        if one.source is not FireSource.FAILOVER:
            continue
        before, first = found.get((one.job, one.item, one.fence)), begun.setdefault((one.job, one.item, one.fence), run)
        what = f"{one.job}/{one.item}: {run} rescues {one.slot}"
        if first is not run:
            yield Violation("one rescue", one.at, f"{what} again after {first}")
        elif before is not None and (before.completed or not before.begun):
            yield Violation("one rescue", one.at, f"{what}, and the run before it has ended")
        elif before is not None and before.moment != one.slot:
            yield Violation("one rescue", one.at, f"{what}, and the run before it was of {before.moment}")


RULES = (
    orphans_are_rescued,
    cut_off_is_reported,
    orphans_are_found,
    orphans_are_taken,
    rescues_follow_what_was_cut_off,
)


def _forgotten(facts: Facts, name: str) -> Iterator[Forgotten]:
    """Yield what took the place of a run that was cut off, other than its rescue: a claim, or its holder's word."""
    for item in facts.nodes.ever(f"/{name}/execution"):
        last, before, claimed = Record(), Record(), dict[int, float]()
        path = f"/{name}/execution/{item}"
        garbled = [(at, nonsense) for at, _, nonsense in excuses.nonsense(facts, path)]
        for at, data in sorted([*facts.nodes.changes(path), *garbled], key=lambda change: change[0]):
            record = decode_record(data or b"") or Record()  # of what was removed or made by hand nothing is owed
            cut_off = last.begun and not last.completed and record.begun not in (0, last.begun)
            claimed.setdefault(record.begun, at)
            given_back = is_as_before(record, before)
            # the rescue of one that claimed too much of the future is written below what it claimed
            rescued = record.source == FireSource.FAILOVER and last.moment == record.moment
            if cut_off and not given_back and not rescued:
                yield Forgotten(int(item), last, claimed[last.begun], record, at)
            is_ended = record.begun == last.begun > 0 and record.completed and not last.completed
            if is_ended and record.outcome == Outcome.CANCELLED:
                holder = facts.nodes.at(f"/{name}/sharding/{item}/instance", at) or b""
                yield Forgotten(int(item), last, claimed[last.begun], replace(record, instance=holder.decode()), at)
            before, last = last, record


def _overlooked(job: JobFacts, item: int, ended: float) -> Iterator[Violation]:
    """Yield an orphan that the leader, or an idle instance, should have seen to."""
    facts, nodes, root, until = job.facts, job.facts.nodes, f"/{job.name}", ended + PROMPT
    path = f"{root}/execution/{item}"
    record = decode_record(nodes.at(path, ended) or b"")
    configs = job.configs(ended - RECENT, until + PROMPT)
    wanted = all(config.failover and item < config.sharding_total_count for config in configs)
    garbled = any(at <= until and over >= ended for at, over, _ in excuses.nonsense(facts, path))
    if record is None or record.completed or garbled or not wanted or until + PROMPT > facts.end:
        return
    leaders = set(nodes.over(f"{root}/leader/election/host", ended, until))
    (leader, *others) = ((one or b"").decode() for one in leaders)
    host = leader.partition("@-@")[0]
    if (
        others
        or nodes.at(f"{root}/instances/{leader}", until) is None
        or not facts.undisturbed(host, ended - RESENT, until)
    ):
        return
    if not facts.alive(leader, until):
        return
    marks = nodes.over(f"{root}/leader/failover/items/{item}", ended, until)
    ran_again = len(nodes.over(f"{root}/execution/{item}", ended, until)) > 1
    if not (any(mark is not None for mark in marks) or ran_again):
        yield Violation(
            "orphans are found", until, f"{job.name}/{item}: nobody puts it up for rescue since {ended:.3f}"
        )


def _neglected(job: JobFacts, item: int, since: float) -> Iterator[Violation]:
    """Yield an orphan that an idle instance should have taken."""
    facts, nodes, root, until = job.facts, job.facts.nodes, f"/{job.name}", since + PROMPT
    disabled = set(nodes.over(f"{root}/sharding/{item}/disabled", since - RECENT, until)) != {None}
    waits = None not in nodes.over(f"{root}/leader/failover/items/{item}", since, until)
    record = decode_record(nodes.at(f"{root}/execution/{item}", since) or b"") or Record()
    # an orphan that was rescued too often is given up by the leader
    wanted = all(
        one.failover and item < one.sharding_total_count and record.rescues < one.max_rescues
        for one in job.configs(since, until)
    )
    if disabled or not waits or not wanted:
        return
    for instance in nodes.children(f"{root}/instances", since):
        host = instance.partition("@-@")[0]
        flags = closing(job.name, host)
        there = None not in nodes.over(f"{root}/instances/{instance}", since - RECENT, until)
        there = there and all(set(nodes.over(flag, since - RECENT, until)) == {None} for flag in flags)
        busy = any(run.begun.at <= until and run.end >= since for run in job.runs_by.get(instance, ()))
        refuses = any(
            since <= one.at <= until and one.event.instance == instance for one in job.refusals
        )  # by its clock
        idle = there and not busy and not refuses and facts.leaving.get(instance, until) >= until
        if idle and facts.undisturbed(host, since - RESENT, until) and facts.alive(instance, until):
            text = f"{job.name}/{item} waits for a rescuer since {since:.3f}, and {instance} has nothing to do"
            yield Violation("orphans are taken", until, text)
