"""Up to which moment a job whose execution is not monitored had somebody: the data of its ``execution`` node.

Such a job keeps no records.  Its leader writes the newest moment on a tick if one has come since the last tick; while
nobody may lead, one of its instances does.  So does every instance that leaves.  The first leader after an absence
knows from it what nobody was up for.
"""

from __future__ import annotations

from contextlib import suppress

from aioelasticjob.clock import moment
from aioelasticjob.coordination.membership import Member, connected
from aioelasticjob.coordination.view import JobView
from aioelasticjob.errors import Conflict, OutcomeUnknown, SessionEnded, Suspended
from aioelasticjob.registry.txn import Check, Set


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
    write = Set(member.layout.execution, str(newest).encode(), -1)
    with suppress(Conflict, OutcomeUnknown):  # the node was removed by hand; the next tick tries again
        await member.session.commit([Check(member.layout.instance(member.id)), write], incarnation=member.incarnation)
        return newest
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
    """
    leading = Check(member.layout.epoch, -1 if view.epoch is None else view.epoch)
    write = Set(member.layout.execution, str(until).encode(), version)
    try:
        await member.session.commit([leading, write], incarnation=member.incarnation)
    except Conflict:
        return False
    except OutcomeUnknown:
        return await _is_written(member, until, version + 1)
    return True


async def _is_written(member: Member, until: int, version: int) -> bool:
    """Look whether a write took whose reply was lost, however often the connection breaks."""
    while await connected(member.session, member.incarnation):
        with suppress(Suspended):
            await member.session.sync(member.layout.root)
            return await read_accounted(member) == (until, version)
    raise SessionEnded("the session was lost while something was written, and nobody can tell whether it was")
