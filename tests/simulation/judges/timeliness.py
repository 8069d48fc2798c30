"""The promises about time: no moment is lost without a word, and in peace every moment is run when it is due."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import inf

from aioelasticjob.core.layout import calendar_path
from aioelasticjob.model import SCHEDULED, Outcome
from aioelasticjob.schedules.calendars import calendar_in
from tests.simulation.facts import REGISTRY, Facts, JobFacts, Violation
from tests.simulation.judges import excuses, followers
from tests.simulation.judges.eras import Era
from tests.simulation.judges.requests import request_of
from tests.simulation.switches import closing
from tests.simulation.written import decode_record

LATE = 0.6
"""Seconds that may pass between a moment and its run in peace, on a host whose clock is right."""
SETTLED = 0.1
"""Seconds that may pass in peace between the end of a run and its settlement."""
EARLY = 0.05
FUZZ = 4.0
"""Seconds around a change within which the clocks of the cluster may disagree about which moments it touched."""
ASTRAY = 2.0
"""Seconds by which the time that an instance goes by may differ from the true one, or from another instance's."""
LAST = 8.0
"""Seconds at the end of a history whose moments may still be on their way."""


def on_time(facts: Facts) -> Iterator[Violation]:
    """In calm every moment of every item that is enabled is run once, at its moment by the clock of who runs it.

    That is its host's; or the registry's, if the two are a second apart.  Only answers to changes of nodes' data carry
    the registry's time: an instance that has changed none since the registry's clock was set cannot know that they are
    apart, and goes by its host's clock, if that agrees with the registry's as it was heard last.
    """
    for start, end in facts.calm:
        for name in facts.jobs:
            job = facts.job(name)
            for era in job.followed:
                if era.schedule is not None and era.schedule.missing_calendars:
                    continue  # nothing is run then
                for slot in era.moments:
                    came = followers.came(job, slot)
                    if came is None or followers.is_hindered(job, slot):
                        continue
                    first, last = min(came, slot / 1000), max(came, slot / 1000)
                    if max(start, era.start) + FUZZ <= first and last < min(end, era.end) - FUZZ:
                        yield from _punctual(job, era, slot, came)


def _punctual(job: JobFacts, era: Era, slot: int, came: float) -> Iterator[Violation]:
    moment = slot / 1000
    assert era.schedule is not None
    start = max(came, era.schedule.starts(slot) / 1000)
    for item in range(era.config.sharding_total_count):
        if _disabled(job, item, moment) or _rests(job, item, moment) or excuses.refuses_by_clock(job, item, slot):
            continue
        if _runs_for_a_request(job, item, moment):  # then ``misfire`` says what happens to the moment
            continue
        alike = (run for run in job.facts.runs_of.get((job.name, item), ()) if run.begun.slot == slot)
        runs = [run.begun for run in alike if not request_of(job.facts, run)]
        if len(runs) != 1:
            yield Violation("on time", moment, f"{job.name}/{item} {slot} is run {len(runs)} times in peace")
            continue
        if max(excuses.clocks(job.facts).ahead(REGISTRY, runs[0].at, runs[0].at)) > ASTRAY:
            continue  # it was run before there was peace, by the registry's clock that was ahead: that run stands
        known = excuses.clocks(job.facts).known(runs[0].instance, runs[0].at)
        apart = min(abs(runs[0].skew), abs(runs[0].skew - known))
        # a clock a second astray is not followed, but the registry's, as it was when it was heard of last
        late = [runs[0].at - start, runs[0].at + known - start] if abs(runs[0].skew) > 0.9 else []
        late += [runs[0].at + runs[0].skew - start] if apart < 1.1 else []
        if era.config.after:  # it came when others had ended it, whatever clocks show
            late = [runs[0].at - came]
        if not any(-EARLY <= seconds <= LATE for seconds in late):
            yield Violation("on time", runs[0].at, f"{job.name}/{item} {slot} is {late[0]:.3f} s late in peace")


def calendars_are_followed(facts: Facts) -> Iterator[Violation]:
    """In calm the leader has noted what the calendar has that a job names, or that it is missing."""
    path = calendar_path("closed")
    for start, end in facts.calm:
        data = facts.nodes.over(path, end, end)[0]
        calendar = None if data is None else calendar_in(data)
        contents = "" if calendar is None else calendar.hash
        for name in facts.jobs:
            for era in facts.job(name).followed:
                schedule = era.schedule
                is_present = era.start < start + FUZZ and era.end >= end
                if is_present and schedule is not None and schedule.settings.contents not in ((), (contents,)):
                    text = f"{name} follows {schedule.settings.contents}, and the calendar has {contents!r}"
                    yield Violation("calendars are followed", end, text)


def nothing_lost(facts: Facts) -> Iterator[Violation]:
    """Every moment is begun, or somebody says that it was passed over, or the one who would have said so is gone."""
    for name in facts.jobs:
        job, failed = facts.job(name), excuses.failed_unheard(facts.job(name))
        for era in job.followed:
            for slot in era.moments:
                came = followers.came(job, slot)
                if came is None or came >= facts.end - LAST:
                    continue
                if era.start + ASTRAY < slot / 1000 < min(era.end - ASTRAY, facts.end - LAST):
                    for item in range(era.config.sharding_total_count):
                        known = (item, slot) in job.begun or (item, slot) in job.reports
                        if not known and (item, slot) not in failed and not excuses.owes_nothing(job, slot):
                            yield from _lost(job, item, slot)


def catches_up_only_if_asked(facts: Facts) -> Iterator[Violation]:
    """A moment that nobody was up for is run only where ``catch_up`` asks for it.

    By a registry's clock that is behind, a moment may come when somebody is up, though it came before that in truth.
    """
    for name in facts.jobs:
        job = facts.job(name)
        for one in (run.begun for run in facts.runs if run.begun.job == name and run.begun.source in SCHEDULED):
            since = max((start for start, _ in job.manned if start <= one.at), default=one.at)
            asked = any(config.catch_up for config in job.configs(facts.knows_since(one.host, one.at), one.at))
            moment = followers.came(job, one.slot) or 0.0
            came = (at for at in excuses.clocks(facts).late(moment) if at <= one.at + EARLY)
            if max([moment, *came]) < since - ASTRAY and not asked:
                text = f"{name}/{one.item} {one.slot} is run, and nobody was up before {since:.3f}"
                yield Violation("unwanted catch-up", one.at, text)


def _lost(job: JobFacts, item: int, slot: int) -> Iterator[Violation]:
    """Yield a moment without a word, unless it was nobody's to run, or who had to say so has not come back yet."""
    moment, facts, sharding = followers.came(job, slot) or 0.0, job.facts, f"/{job.name}/sharding/{item}"
    runs = facts.runs_of.get((job.name, item), ())
    later = (run.begun for run in runs if run.begun.slot > slot and run.begun.at >= moment - ASTRAY)  # by a right clock
    following = min((begun.at for begun in later if begun.source in SCHEDULED), default=inf)
    start, end = moment - ASTRAY, min(max(following, moment + ASTRAY), facts.end)
    held = facts.nodes.over(f"{sharding}/instance", start, end)
    holders = {data.decode() for data in held if data}
    garbled = any(at <= end and over >= start for at, over, _ in excuses.nonsense(facts, f"{sharding}/instance"))
    if (garbled or len(holders) > 1) and not job.is_recorded(start, end):
        return  # without claims the next holder cannot know what the one before has run
    hosts = {holder.partition("@-@")[0] for holder in holders}
    known = min([start, *(facts.heard_before(host, moment) for host in hosts)])
    if None in held or set(facts.nodes.over(f"{sharding}/disabled", known, end)) != {None}:
        return  # there was no such item yet, or not any more, or it was switched off as far as its holder could know
    if _refused(job, holders, start, end) or any(_closed(job, host, known, end) for host in hosts):
        return
    if excuses.counts_as_accounted(job, item, slot) or excuses.is_overwritten(job, item, slot):
        return
    if _is_stopped(job, item, slot):
        return
    if following == inf and any(facts.troubled(host, start, end) for host in (*hosts, REGISTRY)):
        return
    text = f"{job.name}/{item} {slot} is neither run nor reported; held by {', '.join(sorted(holders))}"
    yield Violation("nothing lost", moment, text)


def _is_stopped(job: JobFacts, item: int, slot: int) -> bool:
    """Whether somebody cancelled the run of a moment before its handler was called, say because its process died."""
    found = (decode_record(data) for _, data in job.facts.nodes.changes(f"/{job.name}/execution/{item}") if data)
    return any(one is not None and (one.slot, one.outcome) == (slot, Outcome.STOPPED) for one in found)


def _refused(job: JobFacts, holders: Collection[str], start: float, end: float) -> bool:
    """Whether one of these instances said in a span of time that it runs nothing at the moment."""
    return any(start <= one.at <= end and one.event.instance in holders for one in job.refusals)


def _closed(job: JobFacts, host: str, start: float, end: float) -> bool:
    """Whether a server was switched off at any time of a span."""
    return any(set(job.facts.nodes.over(flag, start, end)) != {None} for flag in closing(job.name, host))


def _rests(job: JobFacts, item: int, moment: float) -> bool:
    """Whether an item's holder was paused at a moment, so that nobody was to run it."""
    holders = job.facts.nodes.over(f"/{job.name}/sharding/{item}/instance", moment - FUZZ, moment + FUZZ)
    hosts = [holder.decode().partition("@-@")[0] for holder in holders if holder]
    return any(_closed(job, host, moment - FUZZ, moment + FUZZ) for host in hosts)


def _runs_for_a_request(job: JobFacts, item: int, moment: float) -> bool:
    """Whether an item's holder had claimed items of the job for a request, ran or settled them, when a moment came.

    By a clock that is ahead, it came earlier.
    """
    holders = set(job.facts.nodes.over(f"/{job.name}/sharding/{item}/instance", moment - LATE, moment))
    runs = (run for run in job.facts.runs if run.begun.job == job.name and run.begun.instance.encode() in holders)
    ends = ((run, run.end + SETTLED + max(0.0, run.begun.skew)) for run in runs)
    return any(run.begun.at - LATE <= moment <= end and request_of(job.facts, run) for run, end in ends)


def _disabled(job: JobFacts, item: int, moment: float) -> bool:
    flag = f"/{job.name}/sharding/{item}/disabled"
    return any(value is not None for value in job.facts.nodes.over(flag, moment - FUZZ, moment + FUZZ))
