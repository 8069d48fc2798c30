"""The promises about time: no moment is lost without a word, and in peace every moment is run when it is due."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from aioelasticjob.events import Misfired
from aioelasticjob.model import FireSource
from aioelasticjob.testing import excuses
from aioelasticjob.testing.facts import REGISTRY, Era, Facts, JobFacts, Violation

LATE = 0.6
"""Seconds that may pass between a moment and its run in peace, on a host whose clock is right."""
EARLY = 0.05
FUZZ = 4.0
"""Seconds around a change within which the clocks of the cluster may disagree about which moments it touched."""
RECENT = 10.0
"""Seconds of peace before a moment after which nothing that is told of it is owed to what was before."""
LAST = 8.0
"""Seconds at the end of a history whose moments may still be on their way."""


def on_time(facts: Facts) -> Iterator[Violation]:
    """In calm every moment of every item that is enabled is run once, at its moment by the clock of who runs it."""
    for start, end in facts.calm:
        for name in facts.jobs:
            job = facts.job(name)
            for era in job.eras:
                for slot in era.moments:
                    if max(start, era.start) + FUZZ <= slot / 1000 < min(end, era.end) - FUZZ:
                        yield from _punctual(job, era, slot)


def _punctual(job: JobFacts, era: Era, slot: int) -> Iterator[Violation]:
    moment = slot / 1000
    for item in range(era.config.sharding_total_count):
        if _disabled(job, item, moment) or excuses.refuses_by_clock(job, item, slot):
            continue
        runs = [run.begun for run in job.facts.runs_of.get((job.name, item), ()) if run.begun.slot == slot]
        if len(runs) != 1:
            yield Violation("on time", moment, f"{job.name}/{item} {slot} is run {len(runs)} times in peace")
            continue
        late = [runs[0].at - moment] if abs(runs[0].skew) > 0.9 else []  # a clock a second astray is not followed
        late += [runs[0].at + runs[0].skew - moment] if abs(runs[0].skew) < 1.1 else []
        if not any(-EARLY <= seconds <= LATE for seconds in late):
            yield Violation("on time", runs[0].at, f"{job.name}/{item} {slot} is {late[0]:.3f} s late in peace")


def nothing_lost(facts: Facts) -> Iterator[Violation]:
    """Every moment is begun, or somebody says that it was passed over, or the one who would have said so is gone."""
    for name in facts.jobs:
        job, failed = facts.job(name), excuses.failed_unheard(facts.job(name))
        for era in job.eras:
            for slot in era.moments:
                if era.start + FUZZ < slot / 1000 < min(era.end - FUZZ, facts.end - LAST):
                    for item in range(era.config.sharding_total_count):
                        known = (item, slot) in job.begun or (item, slot) in job.reports
                        if not known and (item, slot) not in failed and not excuses.owes_nothing(job, slot):
                            yield from _lost(job, item, slot, era)


def reports_are_true(facts: Facts) -> Iterator[Violation]:
    """What is told of as missed is told of once, and not run on time.

    By one instance, whatever happens; in the whole cluster in peace, for who cannot be heard may be told of twice.
    """
    for name in facts.jobs:
        for (item, slot), told in facts.job(name).reports.items():
            if excuses.may_be_repeated(facts, slot):
                continue
            own = [one for one in told if isinstance(one.event, Misfired) and not one.event.cut_off]
            on_time = [run.begun for run in facts.runs_of.get((name, item), ()) if run.begun.slot == slot]
            on_time = [begun for begun in on_time if begun.source is FireSource.CRON]
            peaceful = any(start + RECENT <= slot / 1000 and one.at <= end for one in own for start, end in facts.calm)
            for number, one in enumerate(own):
                others = [begun for begun in on_time if peaceful or begun.instance == one.event.instance]
                earlier = (
                    own[:number]
                    if peaceful
                    else [two for two in own[:number] if two.event.instance == one.event.instance]
                )
                for what, found in (("run on time", others), ("told of before", earlier)):
                    if found:
                        yield Violation("true reports", one.at, f"{name}/{item} {slot} is {what}: {one.event} {found}")


def _lost(job: JobFacts, item: int, slot: int, era: Era) -> Iterator[Violation]:
    moment = slot / 1000
    following = min(
        (run.begun.at for run in job.facts.runs_of.get((job.name, item), ()) if run.begun.slot > slot), default=inf
    )
    end = min(max(following, moment + FUZZ), job.facts.end)
    if _disabled(job, item, moment) or any(moment - 1 <= at <= end for at in job.refusals):
        return
    if any(alone - FUZZ <= moment <= manned + FUZZ for alone, manned in job.unmanned):
        return
    path = f"/{job.name}/sharding/{item}/instance"
    holders = {data.decode() for data in job.facts.nodes.over(path, moment - FUZZ, end) if data}
    if None in job.facts.nodes.over(path, moment - FUZZ, end):
        return  # it had no holder yet, or has none any more
    if era.end <= end and job.facts.nodes.at(f"/{job.name}/instances/{_holder(job, item, era.end)}", era.end) is None:
        return  # the last one who held it under that schedule was gone before it was changed
    hosts = {holder.partition("@-@")[0] for holder in holders}
    if any(job.facts.troubled(host, moment - FUZZ, end) for host in (*hosts, REGISTRY)):
        return
    held = ", ".join(sorted(holders))
    yield Violation("nothing lost", moment, f"{job.name}/{item} {slot} is neither run nor reported; held by {held}")


def _holder(job: JobFacts, item: int, at: float) -> str:
    return (job.facts.nodes.at(f"/{job.name}/sharding/{item}/instance", at) or b"").decode()


def _disabled(job: JobFacts, item: int, moment: float) -> bool:
    flag = f"/{job.name}/sharding/{item}/disabled"
    return any(value is not None for value in job.facts.nodes.over(flag, moment - FUZZ, moment + FUZZ))
