"""Notes, for a job that is not monitored, up to which moment an instance was up: in the data of its ``execution`` node.

Such a job keeps no records.  On a tick its leader writes the newest moment, if one has come since the last tick; if no
instance may lead, one of the instances does so.  An instance that leaves writes it as well.  When no instance has been
up for a while, the next leader knows from it which moments were missed.
"""

from __future__ import annotations

from typing import NamedTuple

from aioelasticjob.clock import moment
from aioelasticjob.coordination.commit import SessionOver, WriteApplied, WriteRefused, write
from aioelasticjob.coordination.member import Member
from aioelasticjob.coordination.record_cache import MAX_FUTURE
from aioelasticjob.coordination.view import JobView
from aioelasticjob.errors import Conflict, Suspended
from aioelasticjob.registry.transaction import Check, Op, Set


class AccountedMoment(NamedTuple):
    """The content of the ``execution`` node, as an instance knows it."""

    moment: int
    """The moment in milliseconds since the epoch; 0 if none is known."""
    version: int
    """The version of the node; ``UNREAD`` if the node has to be read first."""


UNREAD = -1
NOBODY_YET = AccountedMoment(0, UNREAD)


async def note_accounted(
    member: Member, view: JobView, now: float, known: AccountedMoment = NOBODY_YET
) -> AccountedMoment:
    """Write the newest moment up to ``now`` (seconds) if it is later than the ``known`` one; return the newest known.

    A later moment that another instance has written is kept, unless it is so far in the future that a clock must have
    been ahead.

    Raises:
        Suspended: there is no connection.
        SessionEnded: the session was lost.
    """
    schedule = view.config.schedule
    if view.config.monitor_execution or schedule is None:
        return known
    came = schedule.previous_before(moment(now + 0.001))
    newest = 0 if came is None else round(came.timestamp() * 1000)
    if known.version == UNREAD:
        known = await read_accounted(member) or known
    if known.version == UNREAD or known.moment - MAX_FUTURE <= newest <= known.moment:
        return known  # also if somebody has removed the node: then there is nothing to write to
    operations: list[Op] = [
        Check(member.layout.instance(member.id)),
        Set(member.layout.execution, str(newest).encode(), known.version),
    ]
    match await write(member, operations, "to note up to which moment an instance was up"):
        case WriteApplied(committed):
            return AccountedMoment(newest, committed.versions[1])
        case SessionOver(error) | WriteRefused(Suspended() as error):
            raise error
        case WriteRefused():  # another instance has written, or the registry refuses it; the next tick tries again
            return AccountedMoment(known.moment, UNREAD)


async def read_accounted(member: Member) -> AccountedMoment | None:
    """Read the node; the moment is 0 if none was written.  None if the node is missing.

    Raises:
        Suspended: there is no connection.
    """
    (node,) = await member.session.get_many([member.layout.execution])
    if node is None:
        return None
    return AccountedMoment(int(node.data) if node.data.isdigit() and len(node.data) < 16 else 0, node.stat.version)


async def advance_accounted(member: Member, view: JobView, until: int, version: int) -> bool:
    """Write that the moments up to ``until`` were run or are reported; False if another instance has written meanwhile.

    Raises:
        Suspended: there is no connection; nothing was written.
        SessionEnded: the session was lost.
        RegistryError: the registry refuses the write; nothing was written.
    """
    leading = Check(member.layout.epoch, -1 if view.epoch is None else view.epoch)
    operations: list[Op] = [leading, Set(member.layout.execution, str(until).encode(), version)]
    match await write(member, operations, "to note which moments no instance was up for"):
        case WriteApplied():
            return True
        case WriteRefused(Conflict()):
            return False
        case WriteRefused(error) | SessionOver(error):
            raise error
