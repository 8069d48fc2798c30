"""Why a job needs a person, the worst reason first.  Pure rules over the job's status and what was seen of its runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from aioelasticjob.config.job import JobConfig
from aioelasticjob.core.reasons import ORDINARY_IN_STREAMS, is_of_restart
from aioelasticjob.core.records import is_cut_off
from aioelasticjob.ground.times import moment
from aioelasticjob.model import GIVEN_UP, FireSource, Record, is_failure
from aioelasticjob.observers.missed import Count, MissedMoments, total_of
from aioelasticjob.operations.calendars import ends_soon
from aioelasticjob.operations.error_groups import ErrorGroup
from aioelasticjob.operations.lateness import late_at, lateness
from aioelasticjob.operations.observed_runs import MISFIRED, ObservedRun, new_missed
from aioelasticjob.operations.status import InstanceStatus, ItemStatus, JobStatus, able_instances

SEVERITY: Final = (
    "nobody there",
    "nobody able",
    "refused",
    "never fires",
    "calendar missing",
    "cannot follow",
    "clock differs",
    "writes refused",
    "blocked",
    "given up",
    "failing",
    "late",
    "cut off",
    "running long",
    "unusable here",
    "misfiring",
    "behind",
    "calendar ends",
    "not converging",
    "unreliable",
    "foreign",
)
"""The kinds of reasons, the worst first: what runs nothing at all, what goes wrong each time, what goes wrong at times.
"""
MILD: Final = frozenset(SEVERITY[SEVERITY.index("running long") :])
"""The kinds of reasons with which the job still does its work, most of the time."""
RECENT_RUNS: Final = 20
"""Runs over which failures and late runs are counted; of a job with many items the last two fires."""
FLAKY_FAILURES: Final = 2
"""Failures among the recent runs from which a job needs attention, although its newest run succeeded."""
SETTLE_LIMIT: Final = 60.0
"""Seconds after which an assignment that does not come to stand needs attention."""
ENDED_AFTER: Final = 300.0
"""Seconds after the last missed moment, after which that needs no attention any more if a run has succeeded since."""
RESTART_LIMIT: Final = 120.0
"""Seconds that a restart may take after an instance has left gracefully; what that causes until then is no fault."""
CLOCK_DIFFERENCE: Final = 5.0
"""Seconds by which a report may be dated before the departure that has caused it: it has its writer's time."""
LONG_RUN: Final = 1_800.0
"""Seconds that a run may take before it needs attention, also if its job fires more often or has a lower timeout."""


ERRORS: Final = "errors"
"""The subject of all reasons that are about runs that failed, whether they fail each time or now and then."""


@dataclass(frozen=True, slots=True)
class RepeatedError:
    """An error of the job, and how many of the newest runs of an item have failed with it one after another."""

    group: ErrorGroup
    streak: Count


@dataclass(frozen=True, slots=True)
class _Streak:
    begun: Sequence[int]
    """When the failed runs of an item began, in milliseconds since the epoch, the newest first."""
    is_whole: bool
    """Whether the success before them is known; otherwise more runs may have failed before them."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason; ``sentence`` is a key of the catalogue, with ``values`` for its blanks."""

    kind: str
    """A word for it; a key of the catalogue."""
    sentence: str
    values: Mapping[str, object] = field(default_factory=dict)
    since: float | None = None
    """Since when, in seconds since the epoch; None if that is not known."""
    details: Mapping[str, float | None] = field(default_factory=dict)
    """What distinguishes this reason from a later one of the same subject: each detail, and when it was first seen."""
    errors: tuple[RepeatedError, ...] = ()
    """The errors behind it, the most frequent first; empty if they are not known."""

    @property
    def severity(self) -> int:
        """Its place among all kinds of reasons: 0 stands for the worst."""
        return SEVERITY.index(self.kind)

    @property
    def subject(self) -> str:
        """What an acknowledgement of this reason is about."""
        return ERRORS if self.kind in ("failing", "unreliable") else self.kind


@dataclass(frozen=True, slots=True)
class Seen:
    """What a reader knows of a job beside its present status; a reader that has looked once knows nothing of it."""

    runs: Sequence[ObservedRun] = ()
    """Its newest runs, the oldest first."""
    unsettled_for: float = 0.0
    """For how many seconds its assignment has not stood."""
    errors: Sequence[ErrorGroup] = ()
    """The errors of the last day."""
    missed: Sequence[MissedMoments] = ()
    """The moments that were reported as missed in the last hour."""
    departures: Sequence[float] = ()
    """When instances have left the job gracefully, in seconds since the epoch."""


NOTHING_SEEN: Final = Seen()


def reasons(status: JobStatus, now: float, seen: Seen = NOTHING_SEEN) -> tuple[Reason, ...]:
    """Return why a job needs a person, the worst reason first; ``now`` is in seconds since the epoch."""
    return tuple(sorted(_found(status, now, seen), key=lambda reason: reason.severity))


def _found(status: JobStatus, now: float, seen: Seen) -> Iterable[Reason]:
    if status.foreign:
        sentence = "another program's job, to which nothing is written: {fault}"
        return (Reason("foreign", sentence, {"fault": status.fault}, details={str(status.fault): None}),)
    if (fault := status.fault) is not None:
        return (Reason("refused", "configuration refused: {fault}", {"fault": fault}, details={fault: None}),)
    if status.state == "switched off":
        return ()
    return (
        *_not_run(status, now),
        *_cannot_follow(status),
        *_writes_refused(status.instances),
        *_unusable(status.instances),
        *_clock_differs(able_instances(status)),
        *_blocked(status),
        *_given_up(status.items),
        *_cut_off(status),
        *_failing(status, seen.runs, seen.errors),
        *_late(status, now),
        *_running_long(status, now),
        *_misfiring(status, now, seen),
        *_behind(status, seen.runs),
        *_calendar_ends(status, now),
        *_not_converging(seen.unsettled_for),
    )


def changes_at(status: JobStatus, now: float, seen: Seen = NOTHING_SEEN) -> float | None:
    """Return when the reasons change although nothing happens, in seconds since the epoch; None if they do not."""
    times = list[float]()
    limit = None if status.config.streaming else _time_limit(status.config)
    if limit is not None:
        times += [item.run.since.timestamp() + limit for item in status.running if item.run is not None]
    if not status.instances and status.left_at is not None:
        times.append(status.left_at.timestamp() + RESTART_LIMIT)
    times += [one.last + ENDED_AFTER for one in missed_of(status, seen)]
    if (late := late_at(status, now)) is not None:
        times.append(late)
    return min((at for at in times if at > now), default=None)


def is_restarting(status: JobStatus, now: float) -> bool:
    """Whether nobody is there because the last instance has left gracefully, and has not been away for long."""
    return not status.instances and status.left_at is not None and now < status.left_at.timestamp() + RESTART_LIMIT


def missed_of(status: JobStatus, seen: Seen = NOTHING_SEEN) -> Sequence[MissedMoments]:
    """Return the moments of a job that were reported as missed: lately, or else by the newest write of its records."""
    return seen.missed or new_missed({}, status.items)


def excused_of(status: JobStatus, seen: Seen) -> Count:
    """Return how many of the moments that were missed in the last hour are no fault."""
    return total_of(one for one in seen.missed if is_excused(one, status, seen.departures))


def _not_run(status: JobStatus, now: float) -> Iterator[Reason]:
    if is_restarting(status, now):
        return
    if status.lacks_handler:
        values = {"handler": status.config.handler}
        yield Reason("nobody there", "no process has the handler {handler}, for which it was created", values)
    elif not status.instances:
        yield Reason("nobody there", "nobody is there to run it")
    elif all(one.lacks for one in status.instances):
        yield Reason("nobody able", "every instance lacks a feature that the job requires")
    elif not any(one.is_able for one in status.instances):
        yield Reason("nobody able", "no process that is there can do what the job requires")
    elif status.state == "never fires":
        yield Reason("never fires", "its schedule names no moment of any year")
    elif missing := status.missing_calendars:
        details = dict.fromkeys(missing)
        yield Reason(
            "calendar missing", "a calendar is missing: {calendars}", {"calendars": ", ".join(missing)}, details=details
        )


def _calendar_ends(status: JobStatus, now: float) -> Iterator[Reason]:
    """Yield a reason for each calendar whose dates end soon: from then on its days would be open."""
    schedule = status.config.schedule
    if schedule is None:
        return
    today = moment(now).astimezone(schedule.zone).date()
    for name, calendar in schedule.named_calendars:
        if ends_soon(calendar, today):
            values = {"calendar": name, "last": calendar.last}
            sentence = "the calendar {calendar} has no date after {last}"
            yield Reason("calendar ends", sentence, values, details={name: None})


def _cannot_follow(status: JobStatus) -> Iterator[Reason]:
    """Yield a reason for each job that is followed, and from which nothing comes."""
    for one in status.upstreams:
        if one.problem:
            values = {"job": one.job, "problem": one.problem}
            yield Reason("cannot follow", "it cannot follow {job}: {problem}", values, details={one.job: None})


def _writes_refused(instances: Sequence[InstanceStatus]) -> Iterator[Reason]:
    """Yield one reason for all instances to which the registry refuses something."""
    found = [refusal for one in instances for refusal in one.refused]
    if found:
        what, why, _ = found[0]
        values = {"what": what, "why": why, "instances": sum(bool(one.refused) for one in instances)}
        since = {f"{what}: {why}": at for what, why, at in reversed(found)}
        sentence = "the registry refuses {what}: {why} (instances: {instances})"
        yield Reason("writes refused", sentence, values, min(since.values()), since)


def _unusable(instances: Sequence[InstanceStatus]) -> Iterator[Reason]:
    """Yield one reason for all instances that run nothing because their processes cannot use the configuration."""
    found = [one for one in instances if one.unusable]
    if found:
        values = {"host": found[0].host or found[0].ip, "why": found[0].unusable, "instances": len(found)}
        sentence = "processes cannot use the configuration, and run nothing: {instances}; that on {host}: {why}"
        yield Reason("unusable here", sentence, values, details={one.unusable: None for one in found})


def _clock_differs(instances: Sequence[InstanceStatus]) -> Iterator[Reason]:
    """Yield one reason for all instances that refuse all runs because of their hosts' clocks."""
    seconds = {one.id: abs(one.clock_differs) for one in instances if one.clock_differs is not None}
    if seconds:
        found = [one for one in instances if one.id in seconds]
        worst = max(found, key=lambda one: seconds[one.id])
        values = {"host": worst.host or worst.ip, "seconds": seconds[worst.id], "instances": len(found)}
        hosts = {one.host or one.ip: None for one in found}
        sentence = "instances refuse all runs because of clocks: {instances}; that of {host} differs by {seconds} s"
        yield Reason("clock differs", sentence, values, details=hosts)


def _blocked(status: JobStatus) -> Iterator[Reason]:
    """Yield one reason for all items whose locks somebody has made by hand."""
    if found := {item.blocked_by: None for item in status.blocked}:
        values = {"items": _listed(item.item for item in status.blocked), "node": next(iter(found))}
        sentence = "locks made by hand keep items from running (items: {items}): remove {node}"
        yield Reason("blocked", sentence, values, details=found)


def _given_up(items: Iterable[ItemStatus]) -> Iterator[Reason]:
    found = [item for item in items if item.outcome == GIVEN_UP]
    if found:
        names = _listed(item.item for item in found)
        begun = {str(item.item): item.record.begun / 1000 for item in found if item.record is not None}
        since = min(begun.values())
        yield Reason("given up", "given up after repeated rescues (items: {items})", {"items": names}, since, begun)


def _cut_off(status: JobStatus) -> Iterator[Reason]:
    """Yield one reason for all items whose instance was killed, or has lost its session, during the last run."""
    orphans = {str(item.item): None for item in status.orphans}
    begun = {}
    if status.config.monitor_execution:  # otherwise the records are from before
        for item in status.items:
            if item.run or item.outcome or item.disabled:  # it runs, has ended, or has no next run
                continue
            if item.record and is_cut_off(item.record):
                begun[str(item.item)] = item.record.begun / 1000
    details: dict[str, float | None] = {**begun, **orphans}
    if not details:
        return
    sentence = "the last run was cut off (items: {items})"
    values = {"items": _listed(map(int, details))}
    if not begun.keys() - orphans.keys():
        yield Reason("cut off", "cut off and waiting for a rescuer (items: {items})", values, details=details)
        return
    if orphans:
        sentence = "the last run was cut off (items: {items}; waiting for a rescuer: {orphans})"
        values |= {"orphans": _listed(map(int, orphans))}
    yield Reason("cut off", sentence, values, min(begun.values()), details)


def _late(status: JobStatus, now: float) -> Iterator[Reason]:
    late = lateness(status, now)
    if late is None:
        return
    sentence = "has not ended within {seconds} s after its moment (items: {items})"
    if late.missing == "begun":
        sentence = "has not begun within {seconds} s after its moment (items: {items})"
    values = {"seconds": late.within, "items": _listed(late.items)}
    at = late.moment.timestamp()
    yield Reason("late", sentence, values, at, {str(item): at for item in late.items})


def _running_long(status: JobStatus, now: float) -> Iterator[Reason]:
    """Yield one reason for all items whose runs go on although a further moment of the job, or their end, has come."""
    begun = {item.item: item.run.since.timestamp() for item in status.running if item.run is not None}
    if status.config.streaming or not begun:
        return
    fired = _running_at_next_fire(status, begun, now)
    limit = _time_limit(status.config)
    overdue = {} if limit is None else {item: since for item, since in begun.items() if since + limit <= now}
    found = fired
    sentence = "still running, although its next fire has come (items: {items})"
    if len(overdue) > len(fired):  # both name the oldest runs, so the longer one has all
        found = overdue
        sentence = "still running, although its timeout is long over (items: {items})"
    if found:
        details = {str(item): since for item, since in found.items()}
        yield Reason("running long", sentence, {"items": _listed(found)}, min(found.values()), details)


def _time_limit(config: JobConfig) -> float | None:
    """Return after how many seconds a run must have been ended by its timeout; None if that is not known.

    With ``items_at_once`` a run may have waited for others, and its timeout begins after that.
    """
    if config.timeout is None or config.items_at_once is not None:
        return None
    return config.timeout + LONG_RUN


def _running_at_next_fire(status: JobStatus, begun: Mapping[int, float], now: float) -> Mapping[int, float]:
    """Return the items that have run for long while a further moment has come, and since when.

    The list of jobs is renewed at each moment, so that is seen without a timer.
    """
    config = status.config
    newest = None if status.schedule is None else status.schedule.newest_come(moment(now))
    if newest is None:
        return {}
    latest = now - max(LONG_RUN, config.timeout or 0.0)
    records = {item.item: item.record for item in status.items}
    found = {}
    for item, since in begun.items():
        own = _own_moment(records[item], since)
        if since <= latest and own < newest.timestamp():
            found[item] = since
    return found


def _own_moment(record: Record | None, begun: float) -> float:
    """Return the moment of a run, in seconds; a run may begin shortly before it, or be dated by a clock that is behind.

    A run that somebody has asked for has no moment, so that is when it began.
    """
    if record is None:
        return begun
    return max(begun, record.slot / 1000)


def _failing(status: JobStatus, runs: Sequence[ObservedRun], errors: Sequence[ErrorGroup]) -> tuple[Reason, ...]:
    """Return why the job's runs count as failing: what their records say, or else what only counts say."""
    if status.config.monitor_execution:  # otherwise the records are from before
        found = tuple(_failing_by_records(status.items, runs, errors))
        if found:
            return found
    return tuple(_failing_by_counts(status, errors))


def _failing_by_records(
    items: Sequence[ItemStatus], runs: Sequence[ObservedRun], errors: Sequence[ErrorGroup]
) -> Iterator[Reason]:
    """Yield one reason if the newest run of an item failed, and another one if failures come and go."""
    streaks = _streaks(items, runs)
    details = {one.name: one.first for one in errors}
    repeated = _repeated(errors, streaks)
    if streaks:
        longest = max(streaks.values(), key=lambda streak: (len(streak.begun), not streak.is_whole))
        values = {"items": _listed(streaks), "streak": len(longest.begun)}
        since = min(streak.begun[-1] for streak in streaks.values()) / 1000
        if longest.is_whole:
            sentence = "failing, {streak} in a row (items: {items})"
        else:
            sentence = "failing, at least {streak} in a row (items: {items})"
        yield Reason("failing", sentence, values, since, details, repeated)
        return
    finished = _recent(items, runs)
    failed = [run for run in finished if is_failure(run.outcome)]
    if _is_repeated(failed, finished):
        values = {"failed": len(failed), "runs": len(finished)}
        since = failed[0].begun / 1000
        yield Reason("unreliable", "{failed} of the last {runs} runs failed", values, since, details, repeated)


def _failing_by_counts(status: JobStatus, errors: Sequence[ErrorGroup]) -> Iterator[Reason]:
    """Yield one reason if the counts of the servers tell failures that no record of a run tells.

    These are records of a dataflow, whose run completes all the same, and runs that are not monitored.
    """
    config = status.config
    failed = status.failed
    total = status.succeeded + status.failed
    is_dataflow = config.job_type == "DATAFLOW"
    is_recorded = config.monitor_execution and not is_dataflow
    if is_recorded or not failed or failed * RECENT_RUNS < total * FLAKY_FAILURES:
        return
    sentence = "{failed} of {total} runs failed in the last interval"
    if is_dataflow:
        sentence = "{failed} of {total} records failed in the last interval"
    kind = "unreliable" if status.succeeded else "failing"
    details = {one.name: one.first for one in errors}
    yield Reason(kind, sentence, {"failed": failed, "total": total}, None, details, _repeated(errors, {}))


def _misfiring(status: JobStatus, now: float, seen: Seen) -> Iterator[Reason]:
    """Yield one reason for all missed moments that are a fault, unless that has ended by itself."""
    missed = [one for one in missed_of(status, seen) if not is_excused(one, status, seen.departures)]
    if not missed or _has_ended(status, max(one.last for one in missed), now):
        return
    total = total_of(missed)
    sentence = "missed moments: {count}"
    if total.is_least:
        sentence = "missed moments: at least {count}"
    yield Reason("misfiring", sentence, {"count": total.number}, min(one.first for one in missed))


def is_excused(missed: MissedMoments, status: JobStatus, departures: Iterable[float] = ()) -> bool:
    """Whether missed moments are no fault: streams miss them all the time, and a restart was announced."""
    if status.config.streaming and missed.why in ORDINARY_IN_STREAMS:
        return True
    if not is_of_restart(missed.why):
        return False
    newest = () if status.left_at is None else (status.left_at.timestamp(),)
    for left in (*departures, *newest):
        if left - CLOCK_DIFFERENCE <= missed.first and missed.last <= left + RESTART_LIMIT:
            return True
    return False


def _has_ended(status: JobStatus, last: float, now: float) -> bool:
    """Whether no further moment was missed for some time, and a run that began since has succeeded."""
    if now < last + ENDED_AFTER:
        return False
    if not status.config.monitor_execution:  # its records are from before
        return True
    records = [item.record for item in status.items if item.record is not None]
    return any(one.begun / 1000 > last and one.outcome and not is_failure(one.outcome) for one in records)


def _behind(status: JobStatus, runs: Sequence[ObservedRun]) -> Iterator[Reason]:
    """Yield one reason if runs begin late again and again, because the run before was still going on."""
    if not status.config.monitor_execution:  # its records are from before
        return
    recent = _recent(status.items, runs)
    late = [run for run in recent if run.source == FireSource.MISFIRE]
    if _is_repeated(late, recent):
        sentence = "{late} of the last {runs} runs began late, because the run before was still going on"
        yield Reason("behind", sentence, {"late": len(late), "runs": len(recent)}, late[0].begun / 1000)


def _not_converging(unsettled_for: float) -> Iterator[Reason]:
    if unsettled_for >= SETTLE_LIMIT:
        values = {"seconds": int(unsettled_for)}
        yield Reason("not converging", "its items have not been assigned for {seconds} s", values)


def _streaks(items: Iterable[ItemStatus], runs: Iterable[ObservedRun]) -> Mapping[int, _Streak]:
    """Return by item its failed runs since its last success.

    An item that runs now is judged by its earlier runs, so that a failing job does not look healthy while it runs.
    """
    by_item: dict[int, list[ObservedRun]] = {}
    for run in runs:
        if run.outcome != MISFIRED:
            by_item.setdefault(run.item, []).append(run)
    found = {}
    for item in items:
        record = item.record
        if record is None or record.outcome == GIVEN_UP:
            continue
        streak = []
        if record.outcome:
            if not is_failure(record.outcome):
                continue
            streak.append(record.begun)
        is_whole = False
        for run in reversed(by_item.get(item.item, ())):
            if run.begun >= record.begun:
                continue
            if is_whole := not is_failure(run.outcome):
                break
            streak.append(run.begun)
        if streak:
            found[item.item] = _Streak(streak, is_whole)
    return found


def _repeated(errors: Iterable[ErrorGroup], streaks: Mapping[int, _Streak]) -> tuple[RepeatedError, ...]:
    """Return the errors with their streaks, the most frequent first."""
    found = []
    for error in errors:
        counts = Counter[int]()
        for item, began in error.runs:
            if item not in streaks:
                continue
            first = streaks[item].begun[-1] / 1000
            # A second is allowed for: the registry notes when the item was claimed, the event store when its run began.
            if began >= first - 1:
                counts[item] += 1
        streak = Count(max(counts.values(), default=0), error.is_least)
        found.append(RepeatedError(error, streak))
    return tuple(sorted(found, key=lambda one: -one.group.count.number))


def _recent(items: Sequence[ItemStatus], runs: Sequence[ObservedRun]) -> Sequence[ObservedRun]:
    """Return the newest runs: so many that what happens at times is seen."""
    number = max(RECENT_RUNS, 2 * len(items))
    newest_first = (run for run in reversed(runs) if run.outcome != MISFIRED)
    return list(islice(newest_first, number))[::-1]


def _is_repeated(found: Sequence[ObservedRun], recent: Sequence[ObservedRun]) -> bool:
    """Whether something has happened to several of the recent runs, and has not ended by itself since."""
    number = len(recent)
    is_over = number >= RECENT_RUNS and not any(run in found for run in recent[number // 2 :])
    return len(found) >= FLAKY_FAILURES and not is_over


def _listed(items: Iterable[int]) -> str:
    found = sorted(items)
    text = ", ".join(map(str, found[:5]))
    return f"{text} …" if len(found) > 5 else text
