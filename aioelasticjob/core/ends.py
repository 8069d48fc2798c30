"""How an item has ended its newest moments: a short list, for jobs that follow this one.

An item has ended all moments up to the last one of its list, because its account has advanced that far.  Moments that
are in no entry were not the item's.  Times are in milliseconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Sequence

from aioelasticjob.model import End

SINGLE = 8
"""How many of the newest ends stand each by itself, with the time at which it ended."""
MOST = 16
"""The most entries of a list."""
BEGINS = "begins"
"""Stands for an outcome at the time where the account of an item begins: earlier moments are not in the list."""
MISSED = "missed"
"""Stands for the outcome of moments that were reported as missed."""
OFF = "switched off"
"""Stands for the outcome of moments that came while the item was switched off."""
FORGOTTEN = "forgotten"
"""Stands for the outcomes of moments that are so long ago that the list does not say any more how each ended."""


def with_end(ends: Sequence[End], *newer: End) -> tuple[End, ...]:
    """Return a list of ends with newer ones.

    Older entries with the same outcome are joined.  If there are too many, the two oldest are, whatever their outcome.
    """
    found = list(ends)
    for end in newer:
        found.append(end)
        place = len(found) - SINGLE - 1
        if place > 0 and found[place - 1].outcome == found[place].outcome:
            found[place - 1 : place + 1] = [_joined(found[place - 1], found[place], found[place].outcome)]
        if len(found) > MOST:
            found[:2] = [_joined(found[0], found[1], FORGOTTEN)]
    return tuple(found)


def up_to(ends: Sequence[End], time: int) -> tuple[End, ...]:
    """Return the ends that are not later than a time; the list says then that the item has ended just these."""
    kept = [end for end in ends if end.last <= time]
    return with_end(kept, End(time, time, BEGINS, time)) if len(kept) < len(ends) else tuple(ends)


def _joined(one: End, next_one: End, outcome: str) -> End:
    return End(one.first, next_one.last, outcome, next_one.at)
