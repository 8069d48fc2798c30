"""Which faults there are now: rules over the status of jobs, their newest runs, and what processes say of themselves.

A rule is a pure function of facts.  Times are in seconds since the epoch, by the registry's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from aioelasticjob.config.types import MILLISECOND
from aioelasticjob.ground.plural import counted, listed_items
from aioelasticjob.ground.times import moment, time_text
from aioelasticjob.model import GIVEN_UP, Record
from aioelasticjob.operations.alerts.kinds import (
    FAILED_IN_A_ROW,
    FAILED_PART,
    LEAST_RATED_RUNS,
    MISFIRE_SECONDS,
    MISFIRES,
    OF_WORKERS,
)
from aioelasticjob.operations.alerts.observed import FAILURES, JobRuns, ObservedRuns
from aioelasticjob.operations.alerts.plan import Condition
from aioelasticjob.operations.alerts.state import AlertKey
from aioelasticjob.operations.status import ItemStatus, JobStatus, able_instances

NOBODY: Final = {
    "nobody there": "no instance is up",
    "nobody able": "every instance lacks a feature that the job requires, or cannot use its configuration",
    "clock differs": "every instance that could run the job refuses to, because its host's clock differs",
}
"""By the state of a job that nobody runs, the reason."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a namespace at one moment."""

    jobs: Sequence[JobStatus]
    runs: ObservedRuns
    now: float


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
            elif kind == "failing":
                yield from _failing(job, runs)
            elif kind == "misfiring":
                yield from _misfiring(job, runs, facts.now, is_whole)
            else:
                assert kind in OF_WORKERS


def next_change(jobs: Iterable[JobStatus], now: float) -> float:
    """Return when a job may become late though nothing happens."""
    found = float("inf")
    for job in jobs:
        if "late" not in job.config.alert_on or job.config.schedule is None:
            continue
        for within in (job.config.must_start_within, job.config.must_end_within):
            if within is None:
                continue
            following = job.config.schedule.next_after(moment(now - within))
            if following is not None:
                found = min(found, following.timestamp() + within)
    return found


def _nobody_there(job: JobStatus, now: float) -> Iterator[Condition]:
    """A job that is paused, or has no moment to come, misses nothing."""
    if job.config.schedule is None or job.paused or job.state not in NOBODY:
        return
    following = job.config.schedule.next_after(moment(now))
    if following is not None:
        text = f"{NOBODY[job.state]}: its runs are missed, the next one at {time_text(following)}"
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
        yield Condition(AlertKey("given-up", job.name), text, is_told=True)


def _writes_refused(job: JobStatus, now: float) -> Iterator[Condition]:
    found = [refusal for one in job.instances for refusal in one.refused]
    if found:
        what, why, _ = found[0]
        affected = counted(sum(bool(one.refused) for one in job.instances), "instance")
        text = f"the registry refuses {what} to {affected}: {why}"
        yield Condition(AlertKey("writes-refused", job.name), text, min(since for _, _, since in found))


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


def _failing(job: JobStatus, runs: JobRuns) -> Iterator[Condition]:
    """Yield a fault while runs fail.  It is over when the newest run of each item succeeded, and most of the last."""
    key = AlertKey("failing", job.name)
    if not job.config.monitor_execution or job.config.job_type == "DATAFLOW":
        yield from _failing_by_counts(job, key)
        return
    streaks = {one.item: runs.in_a_row(one.item) for one in job.items if runs.in_a_row(one.item)}
    longest = max(streaks, key=lambda item: streaks[item], default=None)
    if longest is not None and streaks[longest] >= FAILED_IN_A_ROW:
        text = f"the last {streaks[longest]} runs of item {longest} failed{_error_of(job.items, longest)}"
        yield Condition(key, text)
        return
    rated = len(runs.failed)
    failed = sum(runs.failed)
    if rated >= LEAST_RATED_RUNS and failed >= FAILED_PART * rated:
        yield Condition(key, f"{failed} of the last {rated} runs failed")
    elif longest is not None:
        text = f"the newest run of item {longest} failed{_error_of(job.items, longest)}"
        yield Condition(key, text, begins=False)


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
    """Yield a fault if a moment came so long ago that it should have begun, or ended, on all items.

    Moments that were excused, because the job or the item was switched off, are accounted for in the item's record.
    """
    if job.state == "switched off" or job.config.schedule is None:
        return
    resting = {one.item for one in job.resting}
    for within, word, is_late in (
        (job.config.must_end_within, "ended", _has_not_ended),
        (job.config.must_start_within, "begun", _has_not_begun),
    ):
        if within is None:
            continue
        due = job.config.schedule.previous_before(moment(now - within + MILLISECOND))
        if due is None:
            continue
        at = due.timestamp()
        items = [one for one in job.items if one.item not in resting and _concerns(at, one, job)]
        late = [one.item for one in items if one.record is not None and is_late(one.record, at)]
        if late:
            text = f"the moment {time_text(due)} has not {word} within {within:g} s: {listed_items(late)}"
            yield Condition(AlertKey("late", job.name), text)
            return  # one alert, which says the gravest


def _concerns(at: float, item: ItemStatus, job: JobStatus) -> bool:
    """Whether the schedule was in force at a moment, and the item is known to have been there."""
    since = job.scheduled_since
    if item.record is None or not item.record.accounted:
        since = max(since, job.configured_at)  # the item may be new, because the number of items was raised
    return at > since


def _has_not_begun(record: Record, at: float) -> bool:
    return record.accounted < at * 1000


def _has_not_ended(record: Record, at: float) -> bool:
    """Whether a moment waits for its run, or its run, or that of an earlier moment, goes on or was cut off."""
    if _has_not_begun(record, at):
        return True
    is_run_of_a_moment = record.begun > 0 and not record.asked
    return is_run_of_a_moment and not record.outcome and record.slot <= at * 1000


def _error_of(items: Iterable[ItemStatus], number: int) -> str:
    """Return why the newest run of an item failed, as the end of a sentence."""
    for one in items:
        if one.item == number and one.record is not None:
            why = one.record.error or (one.record.outcome if one.record.outcome in FAILURES else "")
            return f": {why}" if why else ""
    return ""


_RULES: Final[dict[str, Callable[[JobStatus, float], Iterator[Condition]]]] = {
    "nobody-there": _nobody_there,
    "nobody-leads": _nobody_leads,
    "given-up": _given_up,
    "writes-refused": _writes_refused,
    "config-unusable": _config_unusable,
    "clock-differs": _clock_differs,
    "late": _late,
}
"""The rules that need only the status of the job, by the kind."""
