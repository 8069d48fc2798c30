"""The promises, as judges of a history: each rule yields what breaks it.

The rules know nothing of how the package is built: they see runs of handlers, what the registry holds, and what was
broken when.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from math import inf

from aioelasticjob.core.strategies import AssignmentInput, find, in_order
from aioelasticjob.engine.claim_ahead import LEADS
from aioelasticjob.model import GIVEN_UP, SCHEDULED, FireSource, Instance, Outcome
from tests.simulation.facts import KNOWN, REGISTRY, RESENT, Facts, JobFacts, ObservedRun, Violation
from tests.simulation.judges import (
    assignments,
    checkpoints,
    conduct,
    excuses,
    followers,
    leases,
    listening,
    orphans,
    reports,
    requests,
    restraint,
    retries,
    writes,
)
from tests.simulation.judges.timeliness import calendars_are_followed, catches_up_only_if_asked, nothing_lost, on_time
from tests.simulation.switches import closing, disabling
from tests.simulation.written import decode_record
from tests.support.history import Change, Entry, Stopped, Written

Rule = Callable[[Facts], Iterator[Violation]]
AHEAD = 1.0 + 0.7 + max(LEADS) / 1000
"""Seconds by which a clock may be ahead unnoticed, a slow network may falsify its measurement, and claims are early."""
NEWS = 2.0
"""Seconds that the end of a session may be on its way to its owner, who begins what was claimed before."""
LONGEST_LEASE = 10.0
"""Seconds that a handler may run on at most when its session's end cannot be heard of."""
HOWS = {
    "completed": ("completed",),
    "failed": ("failed",),
    "timed out": ("cut off", "completed", "failed"),  # a process that slept wakes up both done and out of time
    "cancelled": ("cut off",),
    "stopped": ("cut off", "completed", "failed", "crashed"),
    GIVEN_UP: ("cut off", "crashed"),
}


def one_runner(facts: Facts) -> Iterator[Violation]:
    """No two instances run one item at the same time.

    A process that sleeps runs nothing: its handlers stand still.  And nobody can know that a stranger has ended his
    session before the news arrives, so a run counts no further than that; the fence is for what it does then.
    """
    for (job, item), runs in facts.runs_of.items():
        monitored = [run for run in runs if not excuses.is_unmonitored(run, facts)]
        awake = [(span, run) for run in monitored for span in _awake(run, facts)]
        latest, running = -inf, None
        for (start, end), run in sorted(awake, key=lambda one: one[0]):
            if running is not None and running.begun.run != run.begun.run and min(latest, end) > start + 1e-6:
                until = min(latest, end)
                yield Violation("one runner", start, f"{job}/{item}: {run} while {running} goes on until {until:.3f}")
            if end > latest:
                latest, running = end, run


def one_run_per_slot(facts: Facts) -> Iterator[Violation]:
    """A scheduled moment of an item is begun once in the whole cluster."""
    first: dict[tuple[str, int, int, int], ObservedRun] = {}
    for run in facts.runs:
        one = run.begun
        if one.source in SCHEDULED and not excuses.is_unmonitored(run, facts):
            life = excuses.lives(facts, one.job, one.at)
            earlier = first.setdefault((one.job, one.item, one.slot, life), run)
            if earlier is not run and not excuses.was_forgotten(facts, earlier, one.at):
                yield Violation("one run per slot", one.at, f"{one.job}/{one.item} {one.slot}: {run} after {earlier}")


def fences_grow(facts: Facts) -> Iterator[Violation]:
    """Each run of an item has a larger fence than any before it, unless news of its session's end is on its way."""
    for (job, item), runs in facts.runs_of.items():
        informed = [run for run in runs if not (_is_news(run, facts) or excuses.is_unmonitored(run, facts))]
        for before, run in pairwise(informed):
            if run.begun.fence <= before.begun.fence:
                fences = f"{run.begun.fence:#x} after {before.begun.fence:#x}"
                yield Violation("fences grow", run.begun.at, f"{job}/{item}: {run} has {fences} of {before}")


def no_dead_writes(facts: Facts) -> Iterator[Violation]:
    """What speaks for an instance was written in the session that instance lived in."""
    nodes: dict[str, bytes | None] = {}
    for written in facts.of_kind(Written):
        for change in () if written.ending else written.changes:
            author = _author(change)
            if _accounts(change, written):
                author = (nodes.get(_holder_of(change.path)) or b"").decode()
            if author is None or (written.zxid, change.path) in facts.given_back:
                continue
            incarnation = facts.incarnations.get(author)
            if incarnation is not None and incarnation != written.session:
                what = f"{change.path} speaks for {author} of {incarnation:#x}, written by {written.session:#x}"
                yield Violation("no dead writes", written.at, what)
        nodes |= {change.path: change.data for change in written.changes}


def leaders_assign(facts: Facts) -> Iterator[Violation]:
    """An assignment, whole or in parts, is written by the one who took the leader's seat last."""
    seated: dict[str, int] = {}
    for written in facts.of_kind(Written):
        for change in written.changes:
            job, _, path = change.path[1:].partition("/")
            if path == "leader/election/host" and change.created:
                seated[job] = written.session
            assigns = path == "sharding" or (path.startswith("sharding/") and path.endswith("/instance"))
            assigns = assigns and not (path == "sharding" and change.created)
            removed = assigns and any(one.path == f"/{job}" and one.data is None for one in written.changes)
            if assigns and not removed and seated.get(job) != written.session:
                text = f"{job}: {written.session:#x} assigns while {seated.get(job, 0):#x} holds the seat"
                yield Violation("leaders assign", written.at, text)


def claims_are_settled(facts: Facts) -> Iterator[Violation]:
    """Nothing is claimed on an assignment that is known to be outdated, nor for a moment that is still to come."""
    hosts = {name: name.partition("@-@")[0] for name in facts.incarnations}
    marked: dict[str, float] = {}
    for written in facts.of_kind(Written):
        for change in written.changes:
            job, _, path = change.path[1:].partition("/")
            if path == "leader/sharding/necessary":
                if change.created:
                    marked[job] = written.at
                elif change.data is None:
                    marked.pop(job, None)
            elif path.startswith("execution/") and path.endswith("/running") and change.data is not None:
                since, host = marked.get(job, inf), hosts.get(change.data.decode(), "")
                known = change.path.removesuffix("/running") not in _rescued(written)
                known = known and since + KNOWN < written.at and not facts.troubled(host, since - RESENT, written.at)
                if known and not facts.troubled(REGISTRY, since - RESENT, written.at):
                    text = f"{change.path} claimed by {host} though an assignment is due since {since:.3f}"
                    yield Violation("settled claims", written.at, text)
            elif path.startswith("execution/") and change.data and "/" not in path.removeprefix("execution/"):
                record = decode_record(change.data) if change.path in _claimed(written) else None
                early = 0.0 if record is None else record.slot / 1000 - written.at
                if record is not None and early > AHEAD:
                    host = record.instance.partition("@-@")[0]
                    if early > AHEAD + excuses.ahead_of_time(facts, host, written.at):
                        text = f"{change.path} claimed {early:.3f} s too early"
                        yield Violation("no claims ahead", written.at, text)


def records_tell_the_truth(facts: Facts) -> Iterator[Violation]:
    """What the registry says of a run's outcome is how the handler ended."""
    runs = {(run.begun.job, run.begun.item, run.begun.fence): run for run in facts.runs}
    claims: dict[str, int] = {}
    for written in facts.of_kind(Written):
        paths = {change.path: change for change in written.changes}
        for path, change in paths.items():
            if not path.endswith("/running") or "/execution/" not in path:
                continue
            job, item = path[1:].partition("/")[0], int(path.split("/")[-2])
            if change.created:
                claims[path] = written.zxid
                continue
            settled = paths.get(path.removesuffix("/running"))
            record = decode_record(settled.data) if settled is not None and settled.data else None
            run = runs.get((job, item, claims.get(path, 0)))
            if record is None or run is None or not record.outcome:
                continue
            excused = record.outcome == "failed" and excuses.put_away_badly(run, facts)
            excused = excused or (record.outcome == GIVEN_UP and excuses.could_not_settle(run, facts, written.at))
            if run.how not in HOWS.get(record.outcome, ()) and not excused:
                yield Violation("true records", written.at, f"{path}: {record.outcome!r}, but {run} was {run.how}")


def nobody_dies(facts: Facts) -> Iterator[Violation]:
    """A process ends when it is told to or killed, not of an error; while nothing can be reached it may give up."""
    for stopped in facts.of_kind(Stopped):
        hosts = (stopped.host, REGISTRY) if stopped.how.startswith("gave up") else ()
        unreached = any(not facts.undisturbed(host, stopped.at - 10, stopped.at) for host in hosts)
        if stopped.how not in ("crashed", "left") and not unreached:
            yield Violation("nobody dies", stopped.at, f"{stopped.process}: {stopped.how}")


def converged(facts: Facts) -> Iterator[Violation]:
    """After the faults there is one leader, the strategy's assignment, and no mark that means nothing any more."""
    if facts.calm:
        for name in facts.jobs:
            for text in _unsettled(facts.job(name)):
                yield Violation("convergence", facts.end, f"{name}: {text}")


RULES: tuple[Rule, ...] = (
    one_runner,
    one_run_per_slot,
    fences_grow,
    no_dead_writes,
    leaders_assign,
    claims_are_settled,
    records_tell_the_truth,
    nobody_dies,
    nothing_lost,
    on_time,
    calendars_are_followed,
    catches_up_only_if_asked,
    *conduct.RULES,
    *orphans.RULES,
    *assignments.RULES,
    *checkpoints.RULES,
    *leases.RULES,
    *reports.RULES,
    *writes.RULES,
    *listening.RULES,
    *excuses.RULES,
    *requests.RULES,
    *retries.RULES,
    *restraint.RULES,
    *followers.RULES,
    converged,
)


def check(entries: Sequence[Entry], rules: Sequence[Rule] = RULES) -> list[Violation]:
    """Return every broken promise, oldest first."""
    facts = Facts(entries)
    return sorted((found for rule in rules for found in rule(facts)), key=lambda found: found.at)


def _awake(run: ObservedRun, facts: Facts) -> Iterator[tuple[float, float]]:
    """Yield the spans in which a handler ran, and had to know that it may."""
    removed = min((at for at in excuses.removals(facts, run.begun.job) if at >= run.begun.at), default=inf)
    for start, informed in _informed(run, facts):
        end = min(informed, removed)
        for asleep, awake in facts.paused.get(run.begun.process, ()):
            if start < awake and asleep < end:
                yield start, max(start, asleep)
                start = excuses.woken(run, facts, awake, end)
        if start <= end:
            yield start, end


def _informed(run: ObservedRun, facts: Facts) -> Iterator[tuple[float, float]]:
    """Yield the spans in which the instance that runs could know whether its session lives.

    When a stranger has ended it, the news has to arrive first; where packets get lost, the lease ends the run.
    """
    session, (start, end) = facts.incarnations.get(run.begun.instance, 0), (run.begun.at, run.end)
    ended = facts.ended_by_hand.get(session, inf)
    if start <= ended:
        yield start, min(end, ended)
    peace = facts.undisturbed(run.begun.host, ended + KNOWN, ended + NEWS, but="expire")
    known = ended + (NEWS if peace else LONGEST_LEASE)
    if known < end:
        yield max(start, known), end


def _is_news(run: ObservedRun, facts: Facts) -> bool:
    """Say whether a run began under a session that a stranger had just ended: who slept or was cut off cannot know."""
    ended, at = facts.ended_by_hand.get(facts.incarnations.get(run.begun.instance, 0), inf), run.begun.at
    if facts.troubled(run.begun.instance.partition("@-@")[0], at - NEWS, at, but="expire"):
        return 0 <= at - ended <= LONGEST_LEASE
    asleep = (min(over, at) - max(start, ended) for start, over in facts.paused.get(run.begun.process, ()))
    return 0 <= at - ended <= NEWS + sum(seconds for seconds in asleep if seconds > 0)


def _claimed(written: Written) -> frozenset[str]:
    """Return the items' nodes that a transaction claims for a scheduled moment; others leave that of the record."""
    locks = {change.path for change in written.changes if change.created}
    found = ((one.path, decode_record(one.data or b"")) for one in written.changes if f"{one.path}/running" in locks)
    return frozenset(path for path, record in found if record is not None and record.source in SCHEDULED)


def _rescued(written: Written) -> frozenset[str]:
    """Return the items' nodes that a transaction claimed for a rescue, which needs no assignment."""
    found = ((change.path, decode_record(change.data or b"")) for change in written.changes)
    return frozenset(path for path, record in found if record is not None and record.source == FireSource.FAILOVER)


def _accounts(change: Change, written: Written) -> bool:
    """Whether a record was written without a lock: only who holds the item may account for its moments."""
    parts = change.path.split("/")[2:]
    is_record = len(parts) == 2 and parts[0] == "execution" and _author(change) is not None
    return is_record and f"{change.path}/running" not in {one.path for one in written.changes}


def _holder_of(path: str) -> str:
    """Return the node that names the holder of an item, given the path of its record."""
    return f"{path.replace('/execution/', '/sharding/')}/instance"


def _author(change: Change) -> str | None:
    """Return the instance in whose name a node was written."""
    parts = change.path.split("/")[2:]
    if not change.data or not parts:
        return None
    if parts[0] == "execution" and len(parts) == 2:
        record = decode_record(change.data)
        by_leader = record is not None and record.outcome in (GIVEN_UP, Outcome.STOPPED)  # or by the runner
        return None if record is None or by_leader else record.instance
    speaks = parts == ["leader", "election", "host"] or (parts[0] == "execution" and parts[-1] == "running")
    if speaks:
        return change.data.decode()
    return parts[1] if parts[0] == "instances" and len(parts) == 2 else None


def _unsettled(job: JobFacts) -> Iterator[str]:
    """Yield what is not as it should be at the end."""
    nodes, end, root = job.facts.nodes, job.facts.end, f"/{job.name}"
    instances = {name: _instance(nodes.at(f"{root}/instances/{name}", end), name) for name in _below(job, "instances")}
    hosts = sorted(one.ip for one in instances.values())
    if hosts != sorted(job.facts.living.values()):
        yield f"instances at {hosts}, processes at {sorted(job.facts.living.values())}"
    closed = {ip for ip in hosts if any(nodes.at(flag, end) is not None for flag in disabling(job.name, ip))}
    eligible = in_order([one for one in instances.values() if one.ip not in closed])
    leader = (nodes.at(f"{root}/leader/election/host", end) or b"").decode()
    if leader not in eligible:
        yield f"the leader is {leader!r}, eligible are {eligible}"
    if not eligible:
        return
    config = job.eras[-1].config
    items = [int(name) for name in _below(job, "sharding")]
    holders = {item: nodes.at(f"{root}/sharding/{item}/instance", end) for item in items}
    kept = {item for item in items if nodes.at(f"{root}/sharding/{item}/disabled", end) is not None}  # beyond the count
    assigned = {item: (held or b"").decode() for item, held in holders.items() if held is not None or item not in kept}
    wanted = find(config.sharding_strategy)(AssignmentInput(job.name, eligible, config.sharding_total_count, assigned))
    if assigned != wanted:
        yield f"the assignment is {assigned}, {config.sharding_strategy} says {dict(wanted)}"
    yield from _left_over(job, items)


def _left_over(job: JobFacts, items: Sequence[int]) -> Iterator[str]:
    nodes, end, root = job.facts.nodes, job.facts.end, f"/{job.name}"
    marks = [f"{root}/leader/sharding/necessary", f"{root}/leader/sharding/processing"]
    marks += [f"{root}/shutdown/{name}" for name in _below(job, "shutdown")]
    orphans = nodes.children(f"{root}/leader/failover/items", end)
    disabled = [item for item in orphans if nodes.at(f"{root}/sharding/{item}/disabled", end) is not None]
    disabled = orphans if all(map(partial(_rests, job), job.facts.living.values())) else disabled
    marks += [f"{root}/leader/failover/items/{item}" for item in orphans if item not in disabled]  # those have to wait
    known = {int(name) for name in _below(job, "execution")}
    marks += [f"{root}/execution/{item}" for item in known - set(items)]
    for item in items:
        marks.append(f"{root}/sharding/{item}/failover")
        runner = nodes.at(f"{root}/execution/{item}/running", end)
        if runner is not None and runner != nodes.at(f"{root}/sharding/{item}/instance", end):
            yield f"{item} is run by {runner.decode()}, which does not hold it"
    for mark in marks:
        if nodes.at(mark, end) is not None:
            yield f"{mark} is still there"


def _rests(job: JobFacts, host: str) -> bool:
    return any(job.facts.nodes.at(flag, job.facts.end) is not None for flag in closing(job.name, host))


def _below(job: JobFacts, parent: str) -> list[str]:
    return job.facts.nodes.children(f"/{job.name}/{parent}", job.facts.end)


def _instance(data: bytes | None, name: str) -> Instance:
    fields = json.loads(data or b"{}")
    return Instance(name, str(fields.get("ip", name.partition("@-@")[0])))
