"""Up to which moment a job whose execution is not monitored had somebody: the data of its ``execution`` node.

Such a job keeps no records.  Its leader writes the newest moment on a tick if one has come since the last tick; while
nobody may lead, one of its instances does.  So does every instance that leaves.  The first leader after an absence
knows from it what nobody was up for.
"""

from __future__ import annotations

from aioelasticjob.clock import moment
from aioelasticjob.coordination.commit import Applied, Refused, SessionOver, write
from aioelasticjob.coordination.membership import Member
from aioelasticjob.coordination.view import JobView
from aioelasticjob.errors import Conflict, Suspended
from aioelasticjob.registry.txn import Check, Op, Set


async def note_accounted(member: Member, view: JobView, now: float, last: int = 0) -> int:
    """Write the newest moment up to ``now`` (seconds) if it is later than ``last``, and return it; else ``last``.

    Raises:
        Suspended: there is no connection.
        SessionEnded: the session was lost.
    """
    schedule = view.config.schedule
    if view.config.monitor_execution or schedule is None:
        return last
    came = schedule.previous_before(moment(now + 0.001))
    newest = 0 if came is None else round(came.timestamp() * 1000)
    if newest <= last:
        return last
    operations: list[Op] = [
        Check(member.layout.instance(member.id)),
        Set(member.layout.execution, str(newest).encode(), -1),
    ]
    match await write(member, operations, "to note that its moments are accounted for"):
        case Applied():
            return newest
        case SessionOver(error) | Refused(Suspended() as error):
            raise error
        case Refused():  # the node was removed by hand, or may not be written; the next tick tries again
            return last


async def read_accounted(member: Member) -> tuple[int, int] | None:
    """Return the moment that was written, 0 if none was, and the version of its node; None without the node.

    Raises:
        Suspended: there is no connection.
    """
    (node,) = await member.session.get_many([member.layout.execution])
    if node is None:
        return None
    return int(node.data) if node.data.isdigit() and len(node.data) < 16 else 0, node.stat.version


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
        case Applied():
            return True
        case Refused(Conflict()):
            return False
        case Refused(error) | SessionOver(error):
            raise error
