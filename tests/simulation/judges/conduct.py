"""The promises to operators: what they ask for is done once, what they switch off rests, what they set holds.

Nothing is excused but what the instance concerned could not know, or was kept from.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from aioelasticjob.model import FireSource
from tests.simulation.facts import KNOWN, RESENT, Facts, ObservedRun, Violation
from tests.simulation.judges.requests import is_cancelled
from tests.simulation.switches import closing

SLACK = 0.05
"""Seconds by which a handler may be cut off early or late: the loop's turns, and clocks that round."""
RECENT = 4.0
"""Seconds after a change of settings in which a run may still go by the old ones."""


def rests_when_switched_off(facts: Facts) -> Iterator[Violation]:
    """No item is claimed that is known to be switched off, nor any by a server that is."""
    for run in facts.runs:
        one, claimed = run.begun, _claimed(facts, run)
        for flag in (f"/{one.job}/sharding/{one.item}/disabled", *closing(one.job, one.host)):
            known = None not in facts.nodes.over(flag, claimed - KNOWN, claimed)
            if known and facts.undisturbed(one.host, claimed - RESENT, claimed, but="flag"):
                yield Violation("switched off", one.at, f"{one.job}/{one.item}: {run} is claimed in spite of {flag}")


def late_runs_are_wanted(facts: Facts) -> Iterator[Violation]:
    """A moment that its item's holder missed is run afterwards only where ``misfire`` or ``catch_up`` asks for it.

    The run of an item that was given away, or ran elsewhere, since the moment counts as none, whatever it is called.
    """
    for one in (run.begun for run in facts.runs if run.begun.source is FireSource.MISFIRE):
        came = min(one.slot / 1000, one.at)
        configs = facts.job(one.job).configs(min(came - RECENT, facts.knows_since(one.host, one.at)), one.at)
        holders = facts.nodes.over(f"/{one.job}/sharding/{one.item}/instance", came, one.at)
        runners = set(facts.nodes.over(f"/{one.job}/execution/{one.item}/running", came, one.at))
        mine = len(holders) == 1 and runners <= {None, one.instance.encode()}
        if mine and not any(config.misfire or config.catch_up for config in configs):
            yield Violation("unwanted late run", one.at, f"{one.job}/{one.item} {one.slot} by {one.instance}")


def timeouts_hold(facts: Facts) -> Iterator[Violation]:
    """No handler goes on beyond its ``timeout``, unless its process sleeps."""
    for run in facts.runs:
        longest = max(_timeouts(facts, run), default=inf)
        asleep = any(one <= run.end and other >= run.begun.at for one, other in facts.paused.get(run.begun.process, ()))
        if run.end - run.begun.at > longest + SLACK and not asleep:
            yield Violation("timeout", run.end, f"{run.begun.job}/{run.begun.item}: {run} outlasts {longest:g} s")


def cut_off_for_a_reason(facts: Facts) -> Iterator[Violation]:
    """A handler is cut off by its timeout, by a session in doubt, or when its instance's grace is over."""
    for run in facts.runs:
        one = run.begun
        if run.how != "cut off" or run.end - one.at >= min(_timeouts(facts, run), default=0) - SLACK:
            continue
        asked = min(facts.leaving.get(who, inf) for who in (one.process, one.instance))
        configs = facts.job(one.job).configs(min(asked, run.end) - RECENT, run.end)
        graceful = asked + min((config.shutdown_timeout for config in configs), default=0) - SLACK <= run.end
        if is_cancelled(facts, run):
            continue
        if not graceful and facts.undisturbed(one.host, run.end - RESENT, run.end, but="leave"):
            text = f"{one.job}/{one.item}: {run} is cut off after {run.end - one.at:.3f} s"
            yield Violation("cut off", run.end, text)


RULES = (
    rests_when_switched_off,
    late_runs_are_wanted,
    timeouts_hold,
    cut_off_for_a_reason,
)


def _claimed(facts: Facts, run: ObservedRun) -> float:
    """Return when a run was claimed."""
    return facts.claimed.get((run.begun.job, run.begun.item, run.begun.fence), run.begun.at)


def _timeouts(facts: Facts, run: ObservedRun) -> list[float]:
    """Return how long a run may take, by every configuration that its instance may have gone by when it claimed it."""
    one = run.begun
    configs = facts.job(one.job).configs(facts.knows_since(one.host, _claimed(facts, run)), one.at)
    return [inf if config.timeout is None else config.timeout for config in configs]
