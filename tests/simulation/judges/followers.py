"""The promises about jobs that follow others: never before them, in order, and each moment that they have ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aioelasticjob.config.job import JobConfig
from aioelasticjob.model import SCHEDULED, Outcome
from tests.simulation.facts import Facts, ItemEnd, JobFacts, Violation


def never_before_upstream(facts: Facts) -> Iterator[Violation]:
    """A moment is begun only once every item of each job that is followed has ended it."""
    for job, config in _followers(facts):
        for run in facts.runs:
            one = run.begun
            if one.job != job.name or one.source not in SCHEDULED:
                continue
            for upstream in config.after:
                found = ends_of(facts.job(upstream), one.slot)
                open_items = [item for item, end in found.items() if end is None or end.at > one.at]
                if open_items:
                    text = f"{job.name}/{one.item} {one.slot} begins before {upstream} has ended it: items {open_items}"
                    yield Violation("after its upstream", one.at, text)


def in_order(facts: Facts) -> Iterator[Violation]:
    """Each item of a follower begins its moments in their order."""
    for job, _ in _followers(facts):
        newest = dict[int, int]()
        for run in facts.runs:
            one = run.begun
            if one.job != job.name or one.source not in SCHEDULED:
                continue
            if one.slot < newest.get(one.item, 0):
                text = f"{job.name}/{one.item} {one.slot} begins after {newest[one.item]} has begun"
                yield Violation("followers keep the order", one.at, text)
            newest[one.item] = max(one.slot, newest.get(one.item, 0))


def only_what_completed(facts: Facts) -> Iterator[Violation]:
    """A moment that an upstream item has missed or failed is begun only where any outcome will do."""
    for job, config in _followers(facts):
        if config.after_outcome == "any":
            continue
        for (item, slot), at in job.begun.items():
            for upstream in config.after:
                found = ends_of(facts.job(upstream), slot)
                wrong = [
                    number for number, end in found.items() if end is not None and end.outcome != Outcome.COMPLETED
                ]
                if wrong and _is_scheduled(job, item, slot):
                    text = f"{job.name}/{item} {slot} is run though items {wrong} of {upstream} have not completed it"
                    yield Violation("only what has completed", at, text)


def came(job: JobFacts, slot: int) -> float | None:
    """Return when a moment came: at its time, or when the followed jobs had ended it; None if they have not yet."""
    config = job.eras[-1].config
    if not config.after:
        return slot / 1000
    ends = [end for upstream in config.after for end in ends_of(job.facts.job(upstream), slot).values()]
    known = [end.at for end in ends if end is not None]
    return max(known) if ends and len(known) == len(ends) else None


def is_hindered(job: JobFacts, slot: int) -> bool:
    """Whether a moment is missed because a followed job has not completed it."""
    config = job.eras[-1].config
    if config.after_outcome == "any":
        return False
    ends = [end for upstream in config.after for end in ends_of(job.facts.job(upstream), slot).values()]
    return any(end is None or end.outcome != Outcome.COMPLETED for end in ends)


def ends_of(job: JobFacts, slot: int) -> Mapping[int, ItemEnd | None]:
    """Return how each item of a job has ended a moment; None for an item that has not.

    It follows from the records alone, not from what is written for followers.
    """
    count = job.eras[-1].config.sharding_total_count
    return {item: job.end_of(item, slot) for item in range(count)}


def _is_scheduled(job: JobFacts, item: int, slot: int) -> bool:
    runs = job.facts.runs_of.get((job.name, item), ())
    return any(run.begun.slot == slot and run.begun.source in SCHEDULED for run in runs)


def _followers(facts: Facts) -> Iterator[tuple[JobFacts, JobConfig]]:
    for name in facts.jobs:
        job = facts.job(name)
        if job.eras and job.eras[-1].config.after:
            yield job, job.eras[-1].config


RULES = (never_before_upstream, in_order, only_what_completed)
