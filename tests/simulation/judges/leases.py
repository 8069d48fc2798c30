"""The promise behind one runner: an instance that cannot prove that its session lives stops well before it can end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf

from tests.simulation.facts import RESENT, Facts, Violation
from tests.support.history import Stopped, Written

MARGIN = 1.2
"""Seconds by which handlers end before their session, which lasts 4 s or more: a follower may be so far behind."""
SLACK = 0.05
"""Seconds by which a handler may end late: the loop's turns, and clocks that round."""


def handlers_end_before_their_session(facts: Facts) -> Iterator[Violation]:
    """When the registry ends a session that fell silent, its handlers have been over for the margin.

    A process that sleeps runs nothing, and one that was killed has nothing to stop.  One that leaves ends its session,
    and may be paused before it has ended itself.
    """
    ended, stopped = _silent(facts), _stopped(facts)
    for run in facts.runs:
        at = ended.get(facts.incarnations.get(run.begun.instance, 0), inf)
        latest, spans = at - MARGIN + SLACK, facts.paused.get(run.begun.process, ())
        asleep = any(one <= at and other >= run.begun.at for one, other in spans)
        later = sum(other - one for one, other in spans if at < one and other < inf)
        if latest < run.end and not asleep and stopped.get(run.begun.process, inf) > at + RESENT + later:
            text = f"{run.begun.job}/{run.begun.item}: {run} ends {at - run.end:.3f} s before its session"
            yield Violation("lease", run.end, text)


RULES = (handlers_end_before_their_session,)


def _silent(facts: Facts) -> Mapping[int, float]:
    """Return when the registry ended which session by itself."""
    ends = (written for written in facts.of_kind(Written) if written.ending)
    return {one.session: one.at for one in ends if one.session not in facts.ended_by_hand}


def _stopped(facts: Facts) -> Mapping[str, float]:
    return {one.process: one.at for one in facts.of_kind(Stopped)}
