"""The promises about reports of missed moments: each is made once, and only of a moment that was missed."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from aioelasticjob.core.items import MADE_WITHIN
from aioelasticjob.core.reasons import SKIPPED
from aioelasticjob.engine.missed_reports import OF_REQUESTS
from aioelasticjob.events import Misfired
from aioelasticjob.model import SCHEDULED
from tests.simulation.facts import RESENT, Facts, JobFacts, Violation
from tests.simulation.judges import excuses
from tests.simulation.switches import pausing
from tests.support.history import Reported

APART = 5.0
"""Seconds around a moment in which the clocks of the cluster may disagree about what held when it came."""


def reports_are_true(facts: Facts) -> Iterator[Violation]:
    """What is reported as missed is reported once in the whole cluster, and is not run.

    A report may come twice if who made it first was gone within a minute after it: the next holder cannot know that it
    has made the report before.  Only who leaves by itself, and still holds the item, says so in the record.  Nobody
    knows what was run without records by another instance, or before the job was removed.  What was run early, by a
    clock ahead, is not known any more if its record is lost before the moment comes.
    """
    for name in facts.jobs:
        job = facts.job(name)
        for (item, slot), reports in job.reports.items():
            if excuses.may_be_repeated(facts, slot):
                continue
            came = [one for one in reports if not _is_by_a_clock_ahead(one, slot)]
            own = [one for one in came if not _is_of_a_run(one.event) and _is_about(job, one.event, slot)]
            alike = [run for run in facts.runs_of.get((name, item), ()) if run.begun.slot == slot]
            runs = [run for run in alike if run.begun.source in SCHEDULED]
            unmonitored = [run for run in runs if excuses.is_unmonitored(run, facts)]
            for number, one in enumerate(own):
                me = one.event.instance
                life = excuses.lives(facts, name, one.at)
                earlier = [two for two in own[:number] if not _was_gone(facts, two, item)]
                earlier = [two for two in earlier if excuses.lives(facts, name, two.at) == life]
                others = [run for run in runs if run.begun.instance == me or run not in unmonitored]
                others = [run for run in others if excuses.lives(facts, name, run.begun.at) == life]
                others = [run for run in others if not excuses.was_forgotten(facts, run, one.at)]
                if not job.is_recorded(slot / 1000 - APART, one.at):
                    earlier = [two for two in earlier if two.event.instance == me]  # nothing tells the others of it
                    others = [run for run in others if run.begun.instance == me]
                ran = [run.begun for run in others]
                for what, found in (("run", ran), ("reported before", earlier)):
                    if found:
                        yield Violation("true reports", one.at, f"{name}/{item} {slot} is {what}: {one.event} {found}")


def cut_off_is_reported_once(facts: Facts) -> Iterator[Violation]:
    """That a run was cut off is reported once, unless who has reported it was gone within a minute after it."""
    known = dict[tuple[str, int, int, str], list[Reported]]()
    for one in facts.of_kind(Reported):
        event = one.event
        if not (isinstance(event, Misfired) and event.cut_off):
            continue
        for item in event.items:
            earlier = known.setdefault((event.job, item, event.slot, event.cut_off), [])
            if found := [two for two in earlier if not _was_gone(facts, two, item)]:
                yield Violation("cut off told once", one.at, f"{event.job}/{item}: {event} after {found}")
            earlier.append(one)


def what_is_off_is_excused(facts: Facts) -> Iterator[Violation]:
    """No moment is reported that came while its item was switched off, or before there was the item.

    Only who held the item all the time has seen that it was off.
    """
    for name in facts.jobs:
        job = facts.job(name)
        for (item, slot), reports in job.reports.items():
            moment = slot / 1000
            start, end = moment - APART, moment + APART
            for one in reports:
                if _is_of_a_run(one.event) or not _is_about(job, one.event, slot) or excuses.owes_nothing(job, slot):
                    continue
                if _is_by_a_clock_ahead(one, slot) or _is_skipped(one):
                    continue
                if set(facts.nodes.over(f"/{name}/sharding/{item}", start, end)) == {None}:
                    text = f"{name}/{item} {slot} is reported, and there was no such item: {one.event}"
                    yield Violation("owed reports", one.at, text)
                instance = one.event.instance
                holders = set(facts.nodes.over(f"/{name}/sharding/{item}/instance", start, one.at))
                steady = holders == {instance.encode()} and facts.undisturbed(
                    one.host, start - RESENT, max(one.at, end), but="flag"
                )
                for flag in (f"/{name}/sharding/{item}/disabled", *pausing(name, one.host)):
                    if steady and None not in facts.nodes.over(flag, start, end):
                        text = f"{name}/{item} {slot} is reported in spite of {flag}: {one.event}"
                        yield Violation("owed reports", one.at, text)


RULES = (reports_are_true, cut_off_is_reported_once, what_is_off_is_excused)


def _is_by_a_clock_ahead(report: Reported, slot: int) -> bool:
    """Whether a moment was reported long before it came: if the clock was lowered since, it may be run or reported."""
    return report.at < slot / 1000 - APART


def _is_skipped(report: Reported) -> bool:
    """Whether a clock that was behind was put right: it may have dated the item before it was made in truth."""
    return isinstance(report.event, Misfired) and report.event.why == SKIPPED


def _was_gone(facts: Facts, report: Reported, item: int) -> bool:
    """Whether who has made a report was gone within a minute after it, or even before, by clocks that may differ.

    Not if it left by itself, held the item until then, and could write: the item did not run anywhere.
    """
    event = report.event
    assert isinstance(event, Misfired)
    gone, left = facts.gone.get(event.instance, (inf, False))
    is_holder = facts.nodes.at(f"/{event.job}/sharding/{item}/instance", gone) == event.instance.encode()
    is_free = facts.nodes.at(f"/{event.job}/execution/{item}/running", gone) is None
    has_said_so = left and is_holder and is_free and facts.undisturbed(report.host, gone - RESENT, gone)
    return gone <= report.at + MADE_WITHIN / 1000 + APART and not has_said_so


def _is_of_a_run(event: object) -> bool:
    """Whether a report is of a run that was cut off, or that somebody asked for, and not of a scheduled moment."""
    return isinstance(event, Misfired) and bool(event.cut_off or event.why in OF_REQUESTS)


def _is_about(job: JobFacts, event: object, slot: int) -> bool:
    """Whether a report means a moment: it is of the schedule with its first and last one, and as many as it counts."""
    if not isinstance(event, Misfired):
        return False
    known = {era.schedule: era.counted(event.first, event.slot) for era in job.followed}
    ends = {event.first, event.slot}
    meant = [moments for moments in known.values() if len(moments) == event.moments and ends.issubset(moments)]
    return event.moments > 15 or not meant or any(slot in moments for moments in meant)
