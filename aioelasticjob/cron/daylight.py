"""Turns wall times into instants, with the rules for the days on which the clock is changed.

quartz  a wall time that is skipped does not fire; one shown twice fires on the second pass.
fixed   a time of day fires when the clock first reaches or passes it: at a gap's end, on the first pass of a repeat.
roving  a rhythm (``*`` or a step as hour) fires whenever the clock shows a named time: not in a gap, on both passes.

``fixed`` and ``roving`` are the two halves of the rule of Debian's cron.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from typing import Literal, TypeAlias

from aioelasticjob.cron.search import Search
from aioelasticjob.cron.zone import turn_at

Rule: TypeAlias = Literal["quartz", "fixed", "roving"]
_SECOND = timedelta(seconds=1)


def next_fire(rule: Rule, search: Search, since: datetime, zone: tzinfo) -> datetime | None:
    """Return the first fire from ``since`` on, a whole second given in ``zone``."""
    return _NEXT[rule](search, since, zone)


def previous_fire(rule: Rule, search: Search, until: datetime, zone: tzinfo) -> datetime | None:
    """Return the last fire up to ``until``, a whole second given in ``zone``."""
    return _PREVIOUS[rule](search, until, zone)


def _quartz_next(search: Search, since: datetime, zone: tzinfo) -> datetime | None:
    wall = search.next(since)
    while wall is not None:
        turn = turn_at(wall, zone)
        if turn is None or turn.repeats:
            return wall.replace(tzinfo=zone, fold=int(turn is not None))
        wall = search.next(turn.ends)
    return None


def _quartz_previous(search: Search, until: datetime, zone: tzinfo) -> datetime | None:
    shown_again = turn_at(until, zone)
    if shown_again is not None and not until.fold:  # on the first pass nothing of the repeat is due yet
        until = shown_again.begins - _SECOND
    wall = search.previous(until)
    while wall is not None:
        turn = turn_at(wall, zone)
        if turn is None or turn.repeats:
            return wall.replace(tzinfo=zone, fold=int(turn is not None))
        wall = search.previous(turn.begins - _SECOND)
    return None


def _fixed_next(search: Search, since: datetime, zone: tzinfo) -> datetime | None:
    second_pass = turn_at(since, zone) if since.fold else None
    just_before = turn_at(since - _SECOND, zone)
    if second_pass is not None:  # the first pass has fired all of the repeat
        since = second_pass.ends
    elif just_before is not None and not just_before.repeats:  # a gap ends now, and its times are due
        since = just_before.begins
    wall = search.next(since)
    if wall is None:
        return None
    return _reached(wall, zone)


def _fixed_previous(search: Search, until: datetime, zone: tzinfo) -> datetime | None:
    second_pass = turn_at(until, zone) if until.fold else None
    if second_pass is not None:  # the first pass has fired all of the repeat
        until = second_pass.ends - _SECOND
    wall = search.previous(until)
    if wall is None:
        return None
    return _reached(wall, zone)


def _reached(wall: datetime, zone: tzinfo) -> datetime:
    """Return the first instant at which the clock shows ``wall`` or more."""
    turn = turn_at(wall, zone)
    if turn is not None and not turn.repeats:
        wall = turn.ends
    return wall.replace(tzinfo=zone)


def _roving_next(search: Search, since: datetime, zone: tzinfo) -> datetime | None:
    shown_again = turn_at(since, zone)
    wall = search.next(since)
    if shown_again is not None and not since.fold:
        if wall is not None and wall < shown_again.ends:
            return wall.replace(tzinfo=zone)
        wall = search.next(shown_again.begins)  # nothing more on the first pass: the second begins
    while wall is not None:
        turn = turn_at(wall, zone)
        if turn is None or turn.repeats:
            second_pass = shown_again is not None and wall < shown_again.ends
            return wall.replace(tzinfo=zone, fold=int(second_pass))
        wall = search.next(turn.ends)
    return None


def _roving_previous(search: Search, until: datetime, zone: tzinfo) -> datetime | None:
    shown_again = turn_at(until, zone)
    wall = search.previous(until)
    if shown_again is not None and until.fold:
        if wall is not None and wall >= shown_again.begins:
            return wall.replace(tzinfo=zone, fold=1)
        wall = search.previous(shown_again.ends - _SECOND)  # nothing before on the second pass: the first ends
    while wall is not None:
        turn = turn_at(wall, zone)
        if turn is None or turn.repeats:
            first_pass = turn is None or (shown_again is not None and wall >= shown_again.begins)
            return wall.replace(tzinfo=zone, fold=int(not first_pass))
        wall = search.previous(turn.begins - _SECOND)
    return None


_Step: TypeAlias = Callable[[Search, datetime, tzinfo], datetime | None]
_NEXT: dict[Rule, _Step] = {"quartz": _quartz_next, "fixed": _fixed_next, "roving": _roving_next}
_PREVIOUS: dict[Rule, _Step] = {"quartz": _quartz_previous, "fixed": _fixed_previous, "roving": _roving_previous}
