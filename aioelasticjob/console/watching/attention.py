"""Why a job needs a person.  Pure rules over the job's status and its newest runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from aioelasticjob.config.job import JobConfig
from aioelasticjob.console.watching.error_groups import ErrorGroup
from aioelasticjob.console.watching.registry_watch import ObservedRun
from aioelasticjob.core.records import is_cut_off
from aioelasticjob.ground.times import moment
from aioelasticjob.model import GIVEN_UP, Record
from aioelasticjob.operations import InstanceStatus, ItemStatus, JobStatus
from aioelasticjob.operations.status import able_instances

if TYPE_CHECKING:
    from aioelasticjob.observers.sql.history import StateCount

GOOD_OUTCOMES: Final = ("completed", "", "running", "handed over", "stopped", "misfired")
"""Outcomes that are no failure; a misfire is counted by itself, and somebody has stopped what is stopped."""
RECENT_RUNS: Final = 20
"""Runs over which failures and misfires are counted; of a job with many items the last two fires."""
FLAKY_FAILURES: Final = 2
"""Failures among the recent runs from which a job needs attention, although its newest run succeeded."""
SETTLE_LIMIT: Final = 60.0
"""Seconds after which an assignment that does not come to stand needs attention."""
LONG_RUN: Final = 1_800.0
"""Seconds that a run may take before it needs attention, also if its job fires more often or has a lower timeout."""


ERRORS: Final = "errors"
"""The subject of all reasons that are about runs that failed, whether they fail each time or now and then."""


@dataclass(frozen=True, slots=True)
class RepeatedError:
    """An error of the job, and how many of the newest runs of an item have failed with it one after another."""

    group: ErrorGroup
    streak: int


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
    def subject(self) -> str:
        """What an acknowledgement of this reason is about."""
        return ERRORS if self.kind in ("failing", "unreliable") else self.kind


def reasons(
    status: JobStatus,
    runs: Sequence[ObservedRun],
    now: float,
    unsettled_for: float = 0.0,
    errors: Sequence[ErrorGroup] = (),
    misfires: StateCount | None = None,
) -> tuple[Reason, ...]:
    """Return why a job needs a person, the gravest reason first.

    ``runs`` are its newest runs, the oldest first; ``now`` is in seconds since the epoch; ``errors`` are those of the
    last day, ``misfires`` those of the last hour that the event store has counted.
    """
    if status.foreign:
        sentence = "another program's job, to which nothing is written: {fault}"
        return (Reason("foreign", sentence, {"fault": status.fault}, details={str(status.fault): None}),)
    if (fault := status.fault) is not None:
        return (Reason("refused", "configuration refused: {fault}", {"fault": fault}, details={fault: None}),)
    if status.state == "switched off":
        return ()
    return (
        *_not_run(status),
        *_writes_refused(status.instances),
        *_unusable(status.instances),
        *_clock_differs(able_instances(status)),
        *_blocked(status),
        *_given_up(status.items),
        *_cut_off(status),
        *_failing(status, runs, errors),
        *_running_long(status, now),
        *_misfiring(status, runs, misfires),
        *_not_converging(unsettled_for),
    )


def is_failure(outcome: str) -> bool:
    """Whether a run with this outcome has failed."""
    return outcome not in GOOD_OUTCOMES


def _not_run(status: JobStatus) -> Iterator[Reason]:
    if not status.instances:
        yield Reason("nobody there", "nobody is there to run it")
    elif all(one.lacks for one in status.instances):
        yield Reason("nobody able", "every instance lacks a feature that the job requires")
    elif not any(one.is_able for one in status.instances):
        yield Reason("nobody able", "no process that is there can do what the job requires")
    elif status.state == "never fires":
        yield Reason("never fires", "its schedule names no moment of any year")


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


def overdue_at(status: JobStatus, now: float) -> float | None:
    """Return when the next run that goes on gives a reason though nothing happens, in seconds since the epoch."""
    limit = None if status.config.streaming else _time_limit(status.config)
    if limit is None:
        return None
    times = [item.run.since.timestamp() + limit for item in status.running if item.run is not None]
    return min((at for at in times if at > now), default=None)


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
    newest = None if config.schedule is None else config.schedule.previous_before(moment(now))
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
    recent = _recent(items, runs)
    finished = [run for run in recent if run.outcome != "misfired"]
    failed = [run for run in finished if is_failure(run.outcome)]
    if len(failed) >= FLAKY_FAILURES:
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


def _misfiring(status: JobStatus, runs: Sequence[ObservedRun], stored: StateCount | None) -> Iterator[Reason]:
    if stored is not None and stored.first is not None:
        sentence = "misfires in the last hour: {count}"
        yield Reason("misfiring", sentence, {"count": stored.number}, stored.first.timestamp())
        return
    marks = [run for run in _recent(status.items, runs) if run.outcome == "misfired"]
    if marks and status.config.monitor_execution:  # otherwise no newer runs follow them
        since = min(mark.begun for mark in marks) / 1000
        yield Reason("misfiring", "misfired, {count} of late", {"count": len(marks)}, since)
    elif status.misfired:
        names = _listed(item.item for item in status.misfired)
        yield Reason("misfiring", "misfired (items: {items})", {"items": names})


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
        if run.outcome != "misfired":
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
        found.append(RepeatedError(error, max(counts.values(), default=0)))
    return tuple(sorted(found, key=lambda one: -one.group.count))


def _recent(items: Sequence[ItemStatus], runs: Sequence[ObservedRun]) -> Sequence[ObservedRun]:
    count = max(RECENT_RUNS, 2 * len(items))
    return list(runs)[-count:]


def _listed(items: Iterable[int]) -> str:
    found = sorted(items)
    text = ", ".join(map(str, found[:5]))
    return f"{text} …" if len(found) > 5 else text
