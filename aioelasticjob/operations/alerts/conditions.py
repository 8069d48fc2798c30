"""Which faults there are now: rules over the status of jobs, their newest runs, and what processes say of themselves.

A rule is a pure function of facts.  Times are in seconds since the epoch, by the registry's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from operator import itemgetter
from typing import Final

from aioelasticjob.core.processes import ProcessStatus
from aioelasticjob.ground.plural import counted, listed_items
from aioelasticjob.ground.times import moment, time_text
from aioelasticjob.model import GIVEN_UP
from aioelasticjob.operations.alerts.kinds import (
    CLOCK_SECONDS,
    FAILED_IN_A_ROW,
    FAILED_PART,
    LEAST_RATED_RUNS,
    MISFIRE_SECONDS,
    MISFIRES,
    OF_WORKERS,
)
from aioelasticjob.operations.alerts.observed import JobRuns, ObservedRuns
from aioelasticjob.operations.alerts.plan import Condition
from aioelasticjob.operations.alerts.state import AlertKey
from aioelasticjob.operations.lateness import late_at, lateness
from aioelasticjob.operations.process_status import processes_of
from aioelasticjob.operations.status import ItemStatus, JobStatus, able_instances

NOBODY: Final = {
    "nobody there": "no instance is up",
    "nobody able": "every instance lacks a feature that the job requires, or cannot use its configuration",
    "clock differs": "every instance that could run the job refuses to, because its host's clock differs",
    "calendar missing": "a calendar that the job names is missing",
}
"""By the state of a job that nobody runs, the reason."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a namespace at one moment."""

    jobs: Sequence[JobStatus]
    runs: ObservedRuns
    now: float
    processes: Sequence[ProcessStatus] = ()
    """The processes that cannot do something."""


def conditions(facts: Facts) -> Iterator[Condition]:
    """Yield the faults that there are, of the kinds that each job's ``alert_on`` names."""
    for job in facts.jobs:
        if job.foreign:
            continue
        if job.fault is not None:  # nobody can read its ``alert_on``
            yield Condition(AlertKey("config-unusable", job.name), f"its configuration is refused: {job.fault}")
            continue
        runs = facts.runs.jobs.get(job.name, JobRuns())
        is_whole = facts.now - facts.runs.since >= MISFIRE_SECONDS
        for kind in job.config.alert_on:
            if kind in _RULES:
                yield from _RULES[kind](job, facts.now)
            elif kind == "writes-refused":
                yield from _writes_refused(job, facts.processes)
            elif kind == "failing":
                yield from _failing(job, runs)
            elif kind == "misfiring":
                yield from _misfiring(job, runs, facts.now, is_whole)
            else:
                assert kind in OF_WORKERS
    yield from _store_not_written(facts.processes)
    yield from _clocks_differ(facts.processes)


def next_change(jobs: Iterable[JobStatus], now: float) -> float:
    """Return when a job may become late though nothing happens."""
    times = [late_at(job, now) for job in jobs if "late" in job.config.alert_on]
    return min((at for at in times if at is not None), default=inf)


def _nobody_there(job: JobStatus, now: float) -> Iterator[Condition]:
    """A job that is paused, or has no moment to come, misses nothing."""
    if job.schedule is None or job.paused or job.state not in NOBODY:
        return
    following = job.schedule.next_to_come(moment(now))
    if following is not None:
        why = f"no process has the handler {job.config.handler}" if job.lacks_handler else NOBODY[job.state]
        text = f"{why}: its runs are missed, the next one at {time_text(following)}"
        yield Condition(AlertKey("nobody-there", job.name), text)


def _nobody_leads(job: JobStatus, now: float) -> Iterator[Condition]:
    if job.leader is None and able_instances(job) and job.state != "switched off":
        up = counted(len(job.instances), "instance")
        text = f"none of {up} leads the job, so its items are not assigned anew"
        yield Condition(AlertKey("nobody-leads", job.name), text)


def _given_up(job: JobStatus, now: float) -> Iterator[Condition]:
    found = [one for one in job.items if one.outcome == GIVEN_UP]
    if found:
        items = listed_items(one.item for one in found)
        text = f"given up after repeated rescues: {items}"
        # the leader that gives a run up calls the error handler
        record = found[0].record
        run = "" if record is None else record.run
        yield Condition(AlertKey("given-up", job.name), text, run=run, is_notified=True)


def _writes_refused(job: JobStatus, processes: Sequence[ProcessStatus]) -> Iterator[Condition]:
    """Yield a fault from what processes say at once, and what instances say at their next tick."""
    found = [refusal for one in job.instances for refusal in one.refused]
    for process in processes_of(job, processes):
        # of several jobs only one is named
        refused = [one for one in process.problems.refused if one.job == job.name or one.jobs > 1]
        found += [(one.what, one.why, one.since) for one in refused]
    if found:
        what, why, since = min(found, key=itemgetter(2))
        yield Condition(AlertKey("writes-refused", job.name), f"the registry refuses {what}: {why}", since)


def _config_unusable(job: JobStatus, now: float) -> Iterator[Condition]:
    found = [one for one in job.instances if one.unusable]
    if found:
        host = found[0].host or found[0].ip
        affected = counted(len(found), "instance")
        text = f"{affected} cannot use the configuration; that on {host}: {found[0].unusable}"
        yield Condition(AlertKey("config-unusable", job.name), text)


def _clock_differs(job: JobStatus, now: float) -> Iterator[Condition]:
    differences = {one.host or one.ip: one.clock_differs for one in job.instances if one.clock_differs is not None}
    if differences:
        worst = max(differences, key=lambda host: abs(differences[host]))
        text = f"the clock of {worst} differs from the registry's by {abs(differences[worst]):g} s, so it runs nothing"
        yield Condition(AlertKey("clock-differs", job.name), text)


def _store_not_written(processes: Sequence[ProcessStatus]) -> Iterator[Condition]:
    found = [(one.problems.event_store, one) for one in processes if one.problems.event_store is not None]
    if found:
        store, process = min(found, key=lambda pair: pair[0].since)
        others = f" (and {counted(len(found) - 1, 'other')})" if len(found) > 1 else ""
        text = f"{process.name}{others} cannot write to the event store, so the history lacks runs: {store.why}"
        yield Condition(AlertKey("store-not-written"), text, store.since)


def _clocks_differ(processes: Sequence[ProcessStatus]) -> Iterator[Condition]:
    differing = [(one.problems.clock_differs or 0.0, one.name) for one in processes]
    seconds, name = max(differing, key=lambda pair: abs(pair[0]), default=(0.0, ""))
    if abs(seconds) > CLOCK_SECONDS:
        side = "ahead of" if seconds > 0 else "behind"
        text = f"the clock of {name} is {abs(seconds):g} s {side} the registry's"
        yield Condition(AlertKey("clock-differs"), text)


def _failing(job: JobStatus, runs: JobRuns) -> Iterator[Condition]:
    """Yield a fault while runs fail.  It is over when the newest run of each item succeeded, and most of the last."""
    key = AlertKey("failing", job.name)
    if not job.config.monitor_execution or job.config.job_type == "DATAFLOW":
        yield from _failing_by_counts(job, key)
        return
    streaks = {one.item: runs.in_a_row(one.item) for one in job.items if runs.in_a_row(one.item)}
    longest = max(streaks, key=lambda item: streaks[item], default=None)
    run = "" if longest is None else runs.failed_run(longest)
    if longest is not None and streaks[longest] >= FAILED_IN_A_ROW:
        text = f"the last {streaks[longest]} runs of item {longest} failed{_error_of(job.items, longest)}"
        yield Condition(key, text, run=run)
        return
    rated = len(runs.failed)
    failed = sum(runs.failed)
    if rated >= LEAST_RATED_RUNS and failed >= FAILED_PART * rated:
        yield Condition(key, f"{failed} of the last {rated} runs failed")
    elif longest is not None:
        text = f"the newest run of item {longest} failed{_error_of(job.items, longest)}"
        yield Condition(key, text, begins=False, run=run)


def _failing_by_counts(job: JobStatus, key: AlertKey) -> Iterator[Condition]:
    """Yield a fault if half of the runs or records failed that the servers have counted in the last interval."""
    if job.failed:
        total = job.succeeded + job.failed
        text = f"{job.failed} of {total} failed in the last {job.config.statistics_interval:g} s"
        is_much = total >= LEAST_RATED_RUNS and job.failed >= FAILED_PART * total
        yield Condition(key, text, begins=is_much or not job.succeeded)


def _misfiring(job: JobStatus, runs: JobRuns, now: float, is_whole: bool) -> Iterator[Condition]:
    """Yield a fault while moments are missed; ``is_whole`` says whether runs were followed for long enough."""
    count = runs.missed_lately(now)
    minutes = f"{MISFIRE_SECONDS / 60:g} minutes"
    text = f"{counted(count, 'scheduled moment')} passed without a run on time in the last {minutes}"
    if count >= MISFIRES:
        yield Condition(AlertKey("misfiring", job.name), text)
    elif count or not is_whole:
        yield Condition(AlertKey("misfiring", job.name), text, begins=False)


def _late(job: JobStatus, now: float) -> Iterator[Condition]:
    late = lateness(job, now)
    if late is not None:
        at = time_text(late.moment)
        text = f"the moment {at} has not {late.missing} within {late.within:g} s: {listed_items(late.items)}"
        yield Condition(AlertKey("late", job.name), text, run=late.run)


def _error_of(items: Iterable[ItemStatus], number: int) -> str:
    """Return why the newest run of an item failed, as the end of a sentence."""
    for one in items:
        if one.item == number and one.record is not None:
            return f": {one.record.error}" if one.record.error else ""
    return ""


_RULES: Final[dict[str, Callable[[JobStatus, float], Iterator[Condition]]]] = {
    "nobody-there": _nobody_there,
    "nobody-leads": _nobody_leads,
    "given-up": _given_up,
    "config-unusable": _config_unusable,
    "clock-differs": _clock_differs,
    "late": _late,
}
"""The rules that need only the status of the job, by the kind."""
