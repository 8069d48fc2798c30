"""Who leads."""

from __future__ import annotations

from collections.abc import Iterator

from aioelasticjob.coordination.effects import LeaveSeat, TakeSeat
from aioelasticjob.coordination.rules.situation import Situation


def elect(now: Situation) -> Iterator[TakeSeat]:
    """An eligible instance takes an empty seat; the transaction lets one of several through."""
    if now.view.leader is None and now.me in now.view.eligible:
        yield TakeSeat(now.me)


def abdicate(now: Situation) -> Iterator[LeaveSeat]:
    """A leader that may no longer hold items makes room, if anybody else could lead."""
    if now.leading and now.me not in now.view.eligible and now.view.eligible:
        yield LeaveSeat(now.me)
