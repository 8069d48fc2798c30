"""Up to which moment a job whose execution is not monitored had somebody: the data of its ``execution`` node.

Such a job keeps no records.  Its leader writes the newest moment on a tick if one has come since the last tick; while
nobody may lead, one of its instances does.  So does every instance that leaves.  The first leader after an absence
knows from it what nobody was up for.
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
    """What an instance knows of the node."""

    moment: int
    """In milliseconds since the epoch, 0 if none is known."""
    version: int
    """Of the node; ``UNREAD`` if it has to be read first."""


UNREAD = -1
NOBODY_YET = AccountedMoment(0, UNREAD)


async def note_accounted(
    member: Member, view: JobView, now: float, known: AccountedMoment = NOBODY_YET
) -> AccountedMoment:
    """Write the newest moment up to ``now`` (seconds) if it is later than what is ``known``; return what is known then.

    What others have written stands if it is later, unless that is so far in the future that a clock must have been
    ahead.

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
        return known  # without the node, which was removed by hand, there is nothing to write to
    operations: list[Op] = [
        Check(member.layout.instance(member.id)),
        Set(member.layout.execution, str(newest).encode(), known.version),
    ]
    match await write(member, operations, "to note that its moments are accounted for"):
        case WriteApplied(committed):
            return AccountedMoment(newest, committed.versions[1])
        case SessionOver(error) | WriteRefused(Suspended() as error):
            raise error
        case WriteRefused():  # somebody else has written, or it may not be written; the next tick looks again
            return AccountedMoment(known.moment, UNREAD)


async def read_accounted(member: Member) -> AccountedMoment | None:
    """Return what was written, the moment 0 if nothing was; None without the node.

    Raises:
        Suspended: there is no connection.
    """
    (node,) = await member.session.get_many([member.layout.execution])
    if node is None:
        return None
    return AccountedMoment(int(node.data) if node.data.isdigit() and len(node.data) < 16 else 0, node.stat.version)


async def advance_accounted(member: Member, view: JobView, until: int, version: int) -> bool:
    """Write that moments up to ``until`` are accounted for; False if somebody else has written meanwhile.

    Raises:
        Suspended: there is no connection; nothing was written.
        SessionEnded: the session was lost.
        RegistryError: the registry refuses it; nothing was written.
    """
    leading = Check(member.layout.epoch, -1 if view.epoch is None else view.epoch)
    operations: list[Op] = [leading, Set(member.layout.execution, str(until).encode(), version)]
    match await write(member, operations, "to note what nobody was up for"):
        case WriteApplied():
            return True
        case WriteRefused(Conflict()):
            return False
        case WriteRefused(error) | SessionOver(error):
            raise error
