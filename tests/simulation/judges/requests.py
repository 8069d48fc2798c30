"""The promises to those who ask for runs: each item of a request runs each moment once, and none is forgotten."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from math import inf

from aioelasticjob.config.job import JobConfig
from aioelasticjob.core.requests import Request, decode, decode_cancellation, decode_progress
from aioelasticjob.model import ASKED, LEFT_OPEN, FireSource, Outcome, run_name
from aioelasticjob.registry.tree import UNREAD_NODE, Node
from tests.simulation.facts import PROMPT, RESENT, Facts, JobFacts, ObservedRun, Violation
from tests.simulation.switches import closing
from tests.simulation.written import decode_record
from tests.support.history import Change, Drained, Written

UNDER_WAY = 5.0
"""Seconds before the end in which a request that has much to run has gone on."""
PROMISE = "each item of a request runs once"


def request_of(facts: Facts, run: ObservedRun) -> str:
    """Return the request that a run was claimed for; empty if there is none."""
    one = run.begun
    if not one.fence:
        return _unrecorded_request(facts, run)
    claimed = facts.claimed.get((one.job, one.item, one.fence), one.at)
    record = decode_record(facts.nodes.at(f"/{one.job}/execution/{one.item}", claimed) or b"")
    return "" if record is None else record.request


def _unrecorded_request(facts: Facts, run: ObservedRun) -> str:
    """Return the request for which an instance has noted that it begins a run of an item, in a job without records."""
    one = run.begun
    for name in facts.nodes.children(f"/{one.job}/requests", one.at):
        data = facts.nodes.at(f"/{one.job}/requests/{name}/{one.item}", one.at)
        progress = None if data is None else decode_progress(data)
        if progress is not None and (progress.moment, progress.instance) == (one.slot, one.instance):
            return name
    return ""


def is_cancelled(facts: Facts, run: ObservedRun) -> bool:
    """Whether somebody has asked to stop a run before it ended."""
    one = run.begun
    return cancelled(facts).get((one.job, one.item, one.fence), inf) <= run.end


def _is_one_call(config: JobConfig) -> bool:
    """Whether all items that an instance runs are run in one call."""
    return config.per == "instance" or config.job_type == "DATAFLOW"


def named(facts: Facts) -> Mapping[tuple[str, int, int], float]:
    """Return when each run was first named by somebody who cancelled it, by job, item and fence; reckoned once."""
    found: dict[tuple[str, int, int], float] | None = facts.__dict__.get("_named")
    if found is None:
        found = facts.__dict__["_named"] = {}
        for written in facts.of_kind(Written):
            for change in written.changes:
                job, _, name = change.path[1:].partition("/requests/")
                node = Node.of(change.data or b"", UNREAD_NODE.stat)
                wish = decode_cancellation(name, node) if name and change.data else None
                for item, fence in wish.fences.items() if wish is not None else ():
                    found.setdefault((job, item, fence), written.at)
    return found


def cancelled(facts: Facts) -> Mapping[tuple[str, int, int], float]:
    """Return when each run was cancelled: items that run in one call are stopped together; reckoned once."""
    found: dict[tuple[str, int, int], float] | None = facts.__dict__.get("_cancelled")
    if found is None:
        found = facts.__dict__["_cancelled"] = dict(named(facts))
        together = {name for name in facts.jobs if any(_is_one_call(era.config) for era in facts.job(name).eras)}
        first = {(job, fence): at for (job, _, fence), at in sorted(named(facts).items(), key=lambda one: -one[1])}
        for job, item, fence in facts.claimed:
            if job in together and (job, fence) in first:
                found[job, item, fence] = first[job, fence]
    return found


def items_go_on_by_claims(facts: Facts) -> Iterator[Violation]:
    """An item goes on with a request only in the transaction that claims it, and never goes back."""
    last: dict[str, int] = {}
    for written in facts.of_kind(Written):
        locked = {change.path for change in written.changes if change.created and change.path.endswith("/running")}
        for change in written.changes:
            if (place := _place(change)) is None or change.data is None:
                continue
            job, name, item = place
            before, now = last.get(change.path, 0), decode_progress(change.data).moment
            last[change.path] = now
            if now < before:
                yield Violation(PROMISE, written.at, f"{job}/{name}: item {item} went back from {before} to {now}")
            runner = decode_progress(change.data).instance
            is_begun_without_record = bool(runner) and facts.incarnations.get(runner) == written.session
            if now > before and not is_begun_without_record and f"/{job}/execution/{item}/running" not in locked:
                yield Violation(PROMISE, written.at, f"{job}/{name}: item {item} went on to {now} without a claim")


def requested_runs_begin_once(facts: Facts) -> Iterator[Violation]:
    """No moment of a request is begun twice for an item, unless it is rescued, or is a stream that had given way."""
    begun = Counter[tuple[str, str, int, int]]()
    for run in facts.runs:
        one = run.begun
        if one.source in ASKED and (name := request_of(facts, run)):
            if _was_left_open(facts, run, name):
                continue
            begun[one.job, name, one.item, one.slot] += 1
            if begun[one.job, name, one.item, one.slot] > 1:
                yield Violation(PROMISE, one.at, f"{one.job}/{name}: item {one.item} runs {one.slot} again")


def requests_are_answered(facts: Facts) -> Iterator[Violation]:
    """At the end nothing that was asked for waits, if the job may answer it."""
    for job in map(facts.job, facts.jobs):
        names = facts.nodes.children(f"/{job.name}/requests", facts.end)
        if any(_is_under_way(job, name) for name in names):
            continue  # there is more to run than could be run by the end, and requests wait for earlier ones
        for name in names:
            data = facts.nodes.at(f"/{job.name}/requests/{name}", facts.end)
            request = None if data is None else decode(name, Node.of(data, UNREAD_NODE.stat))
            if request is not None and request.is_open and (waiting := _waiting(job, request)):
                yield Violation("requests are answered", facts.end, f"{job.name}/{name}: items {waiting} wait")


def only_cancelled_runs_are_stopped(facts: Facts) -> Iterator[Violation]:
    """A run ends as stopped only after somebody has cancelled it."""
    claimed = dict[tuple[str, int], int]()
    stopped = dict[tuple[str, int], int]()
    """When the newest run of each item began that has ended as stopped."""
    for written in facts.of_kind(Written):
        for change in written.changes:
            job, _, path = change.path[1:].partition("/")
            parts = path.split("/")
            if parts[0] != "execution" or len(parts) < 2 or not parts[1].isdigit():
                continue
            place = job, int(parts[1])
            record = decode_record(change.data) if len(parts) == 2 and change.data else None
            if record is not None and record.outcome == Outcome.STOPPED:
                is_known = stopped.get(place) == record.begun  # a claim was given back, or a report is written
                stopped[place] = record.begun
                if not is_known and (*place, claimed.get(place, 0)) not in cancelled(facts):
                    yield Violation("only cancelled runs are stopped", written.at, change.path)
            elif parts[2:] == ["running"] and change.created:
                claimed[place] = written.zxid


def cancelled_runs_end(facts: Facts) -> Iterator[Violation]:
    """The handler of a run that somebody has cancelled ends soon."""
    for run in facts.runs:
        one = run.begun
        wished = cancelled(facts).get((one.job, one.item, one.fence), inf)
        latest = max(wished, one.at) + PROMPT
        if run.end > latest and facts.undisturbed(one.host, wished - RESENT, latest):
            yield Violation("cancelled runs end", run.end, f"{one.job}/{one.item}: {run} was cancelled at {wished:.3f}")


def cancelled_runs_are_not_rescued(facts: Facts) -> Iterator[Violation]:
    """No instance rescues a run of which it knows that it was cancelled."""
    claims = dict[tuple[str, int], list[int]]()
    for job, item, fence in sorted(facts.claimed):
        claims.setdefault((job, item), []).append(fence)
    for one in (run.begun for run in facts.runs if run.begun.source is FireSource.FAILOVER):
        before = [fence for fence in claims.get((one.job, one.item), ()) if fence < one.fence]
        at = facts.claimed.get((one.job, one.item, one.fence), one.at)
        wished = named(facts).get((one.job, one.item, before[-1] if before else 0), inf)
        if wished < facts.knows_since(one.host, at):
            text = f"{one.job}/{one.item}: {one.instance} rescues a run that was cancelled at {wished:.3f}"
            yield Violation("cancelled runs are not rescued", one.at, text)


def streams_are_fetched_to_their_end(facts: Facts) -> Iterator[Violation]:
    """A run of a streaming job is noted as completed for its request only if ``fetch`` has found no more records."""
    drained = dict[tuple[str, int, str], float]()
    for entry in facts.entries:
        if isinstance(entry, Drained):
            drained.setdefault((entry.job, entry.item, entry.run), entry.at)
        for change in entry.changes if isinstance(entry, Written) else ():
            if (place := _place(change)) is None or change.data is None:
                continue
            job, name, item = place
            progress = decode_progress(change.data)
            is_stream = any(era.config.streaming for era in facts.job(job).eras)
            run = run_name(progress.moment, name)
            if is_stream and progress.outcome == Outcome.COMPLETED and (job, int(item), run) not in drained:
                text = f"{job}/{name}: item {item} has completed {progress.moment}, and there are more records"
                yield Violation("streams are fetched to their end", entry.at, text)


RULES = (
    items_go_on_by_claims,
    streams_are_fetched_to_their_end,
    requested_runs_begin_once,
    requests_are_answered,
    only_cancelled_runs_are_stopped,
    cancelled_runs_end,
    cancelled_runs_are_not_rescued,
)


def _place(change: Change) -> tuple[str, str, str] | None:
    parts = change.path[1:].split("/")
    return (parts[0], parts[2], parts[3]) if len(parts) == 4 and parts[1] == "requests" else None


def _was_left_open(facts: Facts, run: ObservedRun, name: str) -> bool:
    """Whether a stream had given way and left its moment open when it was claimed for this run."""
    one = run.begun
    path = f"/{one.job}/requests/{name}/{one.item}"
    # a job without records notes the beginning there, just before its handler is called
    noted = max((at for at, _ in facts.nodes.changes(path) if at <= one.at), default=one.at)
    claimed = facts.claimed.get((one.job, one.item, one.fence), noted if not one.fence else one.at)
    before = [data for at, data in facts.nodes.changes(f"/{one.job}/requests/{name}/{one.item}") if at < claimed]
    return bool(before) and before[-1] is not None and decode_progress(before[-1]).outcome == LEFT_OPEN


def _is_under_way(job: JobFacts, name: str) -> bool:
    """Whether any item has gone on with a request shortly before the end."""
    facts, path = job.facts, f"/{job.name}/requests/{name}"
    paths = [f"{path}/{item}" for item in facts.nodes.children(path, facts.end)]
    return any(at > facts.end - UNDER_WAY for one in paths for at, _ in facts.nodes.changes(one))


def _waiting(job: JobFacts, request: Request) -> list[int]:
    facts, root, config = job.facts, f"/{job.name}", job.eras[-1].config
    due = request.moment / 1000 < facts.calm[-1][0]
    if (request.span is not None and not config.monitor_execution) or request.paused or not due:
        return []
    found, since = list[int](), facts.calm[-1][0]
    refused = {one.event.instance for one in job.refusals if one.at >= since}
    for item in request.within(config.sharding_total_count):
        data = facts.nodes.at(f"{root}/requests/{request.id}/{item}", facts.end)
        holder = (facts.nodes.at(f"{root}/sharding/{item}/instance", facts.end) or b"").decode()
        if holder in refused:  # for example because its clock is wrong
            if request.span is not None and request.span.items_at_once:
                return []  # other items may have to wait for this one
            continue
        flags = (f"{root}/sharding/{item}/disabled", *closing(job.name, holder.partition("@-@")[0]))
        off = any(facts.nodes.at(flag, facts.end) is not None for flag in flags)
        if not off and request.following(None if data is None else decode_progress(data)) is not None:
            found.append(item)
    return found
