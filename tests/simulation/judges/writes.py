"""The promises that a single transaction keeps or breaks: each is judged with what the registry held before it.

They need no excuse: what a transaction says has to be true at the moment at which the registry takes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from aioelasticjob.config.job import JobConfig
from aioelasticjob.core.schedules import FOREVER, Schedules
from aioelasticjob.core.timeline import Timeline
from aioelasticjob.model import SCHEDULED, Record
from aioelasticjob.registry.tree import UNREAD_NODE, Node
from aioelasticjob.schedules.calendars import Calendar
from tests.simulation.facts import RESENT, Facts, Violation
from tests.simulation.written import decode_record
from tests.support.history import Change, Refusal, Written


@dataclass(slots=True)
class Job:
    """What a job's items are doing, as the registry has it while a history is gone through."""

    running: dict[int, str] = field(default_factory=dict)
    records: dict[int, Record] = field(default_factory=dict)
    waiting: set[int] = field(default_factory=set)
    """The items that wait for a rescuer."""
    schedule: bytes = b""
    """The leader's note of the schedules; empty if there is none."""


@dataclass(frozen=True, slots=True)
class Step:
    """One transaction as far as it concerns one job: the changes by path below the job, and the job before it."""

    written: Written
    job: str
    changes: dict[str, Change]
    before: Job
    after: Job

    def item(self, path: str, parent: str, leaf: str = "") -> int | None:
        """Return the item that a path like ``parent/3/leaf`` names, None if it is another path."""
        parts = path.removeprefix(f"{parent}/").split("/")
        fits = path.startswith(f"{parent}/") and parts[0].isdigit() and "/".join(parts[1:]) == leaf
        return int(parts[0]) if fits else None


def leavers_settle(facts: Facts, step: Step) -> Iterator[Violation]:
    """An instance that unregisters by itself leaves nothing running behind."""
    for path, change in step.changes.items():
        parent, _, name = path.partition("/")
        own = facts.incarnations.get(name) == step.written.session and not step.written.ending
        if parent == "instances" and change.data is None and own:
            left = sorted(item for item, runner in step.after.running.items() if runner == name)
            at, host = step.written.at, name.partition("@-@")[0]
            if left and facts.undisturbed(host, at - RESENT, at, but="leave"):
                yield Violation("leavers settle", at, f"{step.job}: {name} leaves, and {left} still run")


def epochs_rise(facts: Facts, step: Step) -> Iterator[Violation]:
    """An instance that becomes the leader raises the epoch with it, or no write of the last leader would be refused."""
    seat = step.changes.get("leader/election/host")
    if seat is not None and seat.data is not None and "leader/election/epoch" not in step.changes:
        text = f"{step.job}: {seat.data.decode()} leads, and the epoch is the last leader's"
        yield Violation("epochs rise", step.written.at, text)


def only_orphans_wait(facts: Facts, step: Step) -> Iterator[Violation]:
    """An item is marked as an orphan only while its last run has no end and nobody runs it."""
    for item in sorted(step.after.waiting - step.before.waiting):
        record = step.after.records.get(item, Record())
        runs, ended = item in step.after.running, record.completed or not record.begun
        if runs or ended:
            text = f"{step.job}/{item} waits for a rescuer, and {'runs' if runs else 'its run has ended'}"
            yield Violation("only orphans wait", step.written.at, text)


def what_is_cut_off_is_handed_over(facts: Facts, step: Step) -> Iterator[Violation]:
    """An instance that unlocks an item whose run it cut off marks it as an orphan in the same transaction.

    If the registry refuses the mark, the item is unlocked without it, and the leader marks the item later.
    """
    at = step.written.at
    for item, runner in step.before.running.items():
        record = step.after.records.get(item, Record())
        given_back = (step.written.zxid, f"/{step.job}/execution/{item}") in facts.given_back
        unlocked = item not in step.after.running and not step.written.ending and not given_back
        if not unlocked or record.completed or item in step.after.waiting:
            continue
        if _refused(facts, f"/{step.job}/leader/failover/items/{item}", at):
            continue
        configs = facts.job(step.job).configs(facts.knows_since(runner.partition("@-@")[0], at), at)
        if all(config.failover and item < config.sharding_total_count for config in configs):
            text = f"{step.job}/{item}: {runner} has cut off the run of {record.moment} and hands it over to nobody"
            yield Violation("handed over", at, text)


def nothing_that_runs_is_removed(facts: Facts, step: Step) -> Iterator[Violation]:
    """No item is removed while it runs."""
    for path, change in step.changes.items():
        item = step.item(path, "sharding")
        if item is not None and change.data is None and item in step.after.running:
            text = f"{step.job}/{item} is removed while {step.after.running[item]} runs it"
            yield Violation("nothing that runs is removed", step.written.at, text)


def claims_follow_the_note(facts: Facts, step: Step) -> Iterator[Violation]:
    """A scheduled moment is claimed only if a schedule has it that the leader had noted, in the time of that schedule.

    So nobody claims by a schedule that was replaced, nor by one that is not noted yet.  While a calendar is missing,
    nothing is claimed.
    """
    if not step.before.schedule:
        return
    timeline = timeline_of(step.before.schedule, tuple(facts.job(step.job).contents.values()))
    for item in sorted(step.after.running.keys() - step.before.running.keys()):
        record = step.after.records.get(item, Record())
        slot = record.slot
        if record.source not in SCHEDULED or timeline is None:
            continue
        if timeline.lacking and timeline.lacking[-1].until == FOREVER:
            text = f"{step.job}/{item}: {record.instance} claims {slot} while a calendar is missing"
            yield Violation("noted schedules", step.written.at, text)
        elif not timeline.has_moment(slot - 1, slot):
            text = f"{step.job}/{item}: {record.instance} claims {slot}, which is no moment of {step.before.schedule!r}"
            yield Violation("noted schedules", step.written.at, text)


@lru_cache(maxsize=4096)
def timeline_of(note: bytes, calendars: tuple[Calendar, ...]) -> Timeline | None:
    """Return the timeline of a leader's note of the schedules; None if it is no such note."""
    contents = {calendar.hash: calendar for calendar in calendars}
    schedules = Schedules.of(JobConfig.build(job_name="job"), None, Node.of(note, UNREAD_NODE.stat), contents)
    return Timeline.of(schedules, 0) if schedules.noted else None


def transactions_are_sound(facts: Facts) -> Iterator[Violation]:
    """Every transaction leaves each job as the judges above want it."""
    judges = (leavers_settle, epochs_rise, only_orphans_wait, what_is_cut_off_is_handed_over, claims_follow_the_note)
    for step in steps(facts):
        for judge in (*judges, nothing_that_runs_is_removed):
            yield from judge(facts, step)


RULES = (transactions_are_sound,)


def steps(facts: Facts) -> Iterator[Step]:
    """Yield every transaction with each job that it concerns, oldest first."""
    known: dict[str, Job] = {}
    for written in facts.of_kind(Written):
        concerned: dict[str, dict[str, Change]] = {}
        for change in written.changes:
            job, _, path = change.path[1:].partition("/")
            concerned.setdefault(job, {})[path] = change
        for job, changes in concerned.items():
            before = known.get(job, Job())
            known[job] = _after(before, changes)
            yield Step(written, job, changes, before, known[job])


def _after(before: Job, changes: dict[str, Change]) -> Job:
    """Return what a job's items do after a transaction; the job before it, if it changes nothing of that."""
    busy = [path for path in changes if path.startswith(("execution/", "leader/failover/items/", "leader/schedule"))]
    if not busy:
        return before
    after = Job(dict(before.running), dict(before.records), set(before.waiting), before.schedule)
    for path in busy:
        data = changes[path].data
        match path.split("/"):
            case ["execution", item, "running"]:
                after.running.pop(int(item), None)
                if data is not None:
                    after.running[int(item)] = data.decode()
            case ["execution", item]:
                after.records[int(item)] = decode_record(data or b"") or Record()
            case ["leader", "schedule"]:
                after.schedule = data or b""
            case ["leader", "failover", "items", item]:
                (after.waiting.discard if data is None else after.waiting.add)(int(item))
    return after


def _refused(facts: Facts, path: str, at: float) -> bool:
    """Whether the registry has just refused a write of a node for a reason that lay with the registry."""
    return any(path in refusal.paths for refusal in facts.of_kind(Refusal) if at - RESENT <= refusal.at <= at)
