"""The promises about attempts: they follow one another within one run, under one lock, and end with it."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from aioelasticjob.events import AttemptFailed
from tests.simulation.facts import KNOWN, REGISTRY, RESENT, Facts, Violation
from tests.simulation.switches import closing
from tests.support.history import Attempted, AttemptOver, Raised, Reported, Written

NEWS = 2.0
"""Seconds that the end of a session may be on its way to its owner."""
LONGEST_LEASE = 10.0
"""Seconds that an instance may go on at most when its session's end cannot be heard of."""
SLACK = 0.05
"""Seconds by which an attempt may be cut off late: the loop's turns, and clocks that round."""
RECENT = 4.0
"""Seconds after a change of settings in which a run may still go by the old ones."""


def attempts_follow_one_another(facts: Facts) -> Iterator[Violation]:
    """The attempts of a run are counted from 1, and each begins after the one before is over."""
    last: dict[int, int] = {}
    going_on: set[int] = set()
    runs = {run.begun.run: run for run in facts.runs}
    unprovided = {one.job for one in facts.of_kind(Raised) if one.where.startswith("provider")}
    for entry in facts.entries:
        if isinstance(entry, AttemptOver):
            going_on.discard(entry.run)
        elif isinstance(entry, Attempted):
            before = last.get(entry.run, 0)
            skips = runs[entry.run].begun.job in unprovided  # then an attempt may fail before its handler is called
            if entry.number != before + 1 and not (skips and entry.number > before):
                text = f"run {entry.run}: attempt {entry.number} follows attempt {before}"
                yield Violation("attempts count up", entry.at, text)
            if entry.run in going_on:
                text = f"run {entry.run}: attempt {entry.number} begins while attempt {before} goes on"
                yield Violation("one attempt at a time", entry.at, text)
            last[entry.run] = entry.number
            going_on.add(entry.run)


def no_attempt_without_its_lock(facts: Facts) -> Iterator[Violation]:
    """No attempt begins after its instance has given the lock up, or its session has ended as far as it can know."""
    runs, given_up = {run.begun.run: run for run in facts.runs}, _given_up(facts)
    for entry in facts.of_kind(Attempted):
        one = runs[entry.run].begun
        if entry.number > 1 and entry.at > given_up.get((one.job, one.item, one.fence), inf) + 1e-6:
            text = f"{one.job}/{one.item}: attempt {entry.number} of {runs[entry.run]} has no lock any more"
            yield Violation("no attempt without its lock", entry.at, text)


def attempts_rest_when_switched_off(facts: Facts) -> Iterator[Violation]:
    """No further attempt begins of an item that is known to be switched off, or on a server that is."""
    runs = {run.begun.run: run for run in facts.runs}
    for entry in facts.of_kind(Attempted):
        run, since = runs[entry.run], entry.at - KNOWN
        one = run.begun
        for flag in (f"/{one.job}/sharding/{one.item}/disabled", *closing(one.job, one.host)):
            known = entry.number > 1 and None not in facts.nodes.over(flag, since, entry.at)
            if known and facts.undisturbed(one.host, since - RESENT, entry.at, but="flag"):
                text = f"{one.job}/{one.item}: attempt {entry.number} of {run} begins in spite of {flag}"
                yield Violation("no attempt when switched off", entry.at, text)


def attempts_keep_their_limit(facts: Facts) -> Iterator[Violation]:
    """No attempt goes on beyond ``attempt_timeout``, unless its process sleeps."""
    runs, begun = {run.begun.run: run for run in facts.runs}, dict[int, float]()
    for entry in facts.entries:
        if isinstance(entry, Attempted):
            begun[entry.run] = entry.at
        elif isinstance(entry, AttemptOver):
            one, since = runs[entry.run].begun, begun[entry.run]
            configs = facts.job(one.job).configs(one.at - RECENT, one.at)
            longest = max((inf if (limit := each.attempt_timeout) is None else limit for each in configs), default=inf)
            asleep = any(start <= entry.at and end >= since for start, end in facts.paused.get(one.process, ()))
            if entry.at - since > longest + SLACK and not asleep:
                text = f"{one.job}/{one.item}: attempt {entry.number} of {runs[entry.run]} outlasts {longest:g} s"
                yield Violation("attempt timeout", entry.at, text)


def failed_attempts_are_reported(facts: Facts) -> Iterator[Violation]:
    """An attempt that is followed by another one has failed, and its process has reported that."""
    reported = {
        (one.process, one.event.job, item, one.event.slot, one.event.attempt)
        for one in facts.of_kind(Reported)
        if isinstance(one.event, AttemptFailed)
        for item in one.event.items
    }
    runs = {run.begun.run: run for run in facts.runs}
    for entry in facts.of_kind(Attempted):
        one, before = runs[entry.run].begun, entry.number - 1
        if before and (one.process, one.job, one.item, one.slot, before) not in reported:
            yield Violation(
                "failed attempts are reported", entry.at, f"{runs[entry.run]}: nobody reported attempt {before}"
            )


def _given_up(facts: Facts) -> dict[tuple[str, int, int], float]:
    """Return until when an attempt may begin under each lock: job, item and fence."""
    held: dict[str, int] = {}
    found: dict[tuple[str, int, int], float] = {}
    for written in facts.of_kind(Written):
        for change in written.changes:
            if not change.path.endswith("/running") or "/execution/" not in change.path:
                continue
            if change.created:
                held[change.path] = written.zxid
            elif change.data is None and (fence := held.pop(change.path, 0)):
                _, job, _, item, _ = change.path.split("/")
                found[job, int(item), fence] = _known(facts, written)
    return found


def _known(facts: Facts, written: Written) -> float:
    """Return when an instance has to know that a lock of its own is gone."""
    if not written.ending:
        owners = frozenset(facts.incarnations.values())
        return written.at if written.session in owners else inf  # an operator has removed it by hand
    if facts.ended_by_hand.get(written.session) is None:
        return written.at  # its lease was over before
    hosts = {session: name.partition("@-@")[0] for name, session in facts.incarnations.items()}
    start, host = written.at, hosts.get(written.session, REGISTRY)
    peace = facts.undisturbed(host, start + KNOWN, start + NEWS, but="expire")
    return start + (NEWS if peace else LONGEST_LEASE)


RULES = (
    attempts_follow_one_another,
    no_attempt_without_its_lock,
    attempts_rest_when_switched_off,
    attempts_keep_their_limit,
    failed_attempts_are_reported,
)
