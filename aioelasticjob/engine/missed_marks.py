"""Notes which moments were run or are reported, so that those that came while no instance was up are reported once.

If the job is monitored, an instance that reports missed moments marks their items before, and the other instances that
return read the marks.  If it is not, there are no records, and one moment is noted for the whole job, in the data of
its ``execution`` node.  On a tick the leader writes the newest moment there, if one has come since the last tick; if no
instance may lead, one of the instances does so.  An instance that leaves writes it as well.  When no instance has been
up for a while, the next leader knows from it which moments were missed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from aioelasticjob.core.entries import MAX_FUTURE, AccountedMoment, Entry, MissedMark
from aioelasticjob.core.layout import ItemPaths
from aioelasticjob.core.view import JobView
from aioelasticjob.engine.commit import write, write_if_unchanged
from aioelasticjob.engine.member import Member
from aioelasticjob.engine.record_cache import RecordCache
from aioelasticjob.errors import Conflict, RegistryError, SessionEnded, Suspended
from aioelasticjob.ground.times import moment
from aioelasticjob.model import Record, VersionedRecord
from aioelasticjob.registry.transaction import Check, Create, Op, Set


async def mark_missed_moments(
    member: Member, cache: RecordCache, view: JobView, missed: Mapping[int, MissedMark]
) -> frozenset[int] | None:
    """Write marks that say which missed moments of items are reported; return the items that were marked.

    For the other items another instance has written a mark or a record, so it reports them.  The result is None if the
    view is outdated: then the next holder may have read the item already, and would not know the mark.  For a job that
    keeps no records, the marks are kept in this process only.

    Raises:
        Suspended: there is no connection; nothing was written.
        SessionEnded: the session was lost.
        RegistryError: the registry refuses it; nothing was written.
    """
    left = {item: said.joined(cache.items[item].mark) for item, said in missed.items()}
    if not view.config.monitor_execution:
        for item, said in left.items():
            cache.items[item].mark = said
        return frozenset(left)
    entitled, refused = Check(member.layout.sharding, view.sharding_version), set[int]()
    while left:
        marks = ((member.layout.item(item), cache.items[item], said) for item, said in left.items())
        writes = [operation for mark in marks for operation in _marking(*mark)]
        try:
            committed = await write(member, [entitled, *writes], "to mark items that no instance was up for")
        except Conflict as conflict:
            if conflict.path == entitled.path:
                return None
            left = await _left(member, cache, left, conflict, refused)
        else:
            for n, (item, said) in enumerate(left.items()):
                entry = cache.items[item]
                entry.mark = replace(said, version=committed.versions[2 + 2 * n], removable=True)
                if entry.version is None:
                    entry.seen = VersionedRecord(Record(), 0, committed.zxid)
            break
    return frozenset(left)


async def mark_misfired(member: Member, cache: RecordCache, view: JobView, item: int, slot: int) -> None:
    """Mark for operators that an item has missed a moment.  The next claim of the item removes the mark.

    The mark is written only under the assignment on which it was decided.  Otherwise the next holder may have read the
    item before, and would not know the mark.
    """
    entitled = Check(member.layout.sharding, view.sharding_version)
    mark = Create(member.layout.item(item).misfire, str(slot).encode())
    with suppress(RegistryError):  # or it exists
        await write(member, [entitled, mark], "to mark an item whose run was missed")
    entry = cache.items[item]
    if entry.mark.version is None:  # otherwise its node is known here
        entry.mark = replace(entry.mark, removable=True)


async def note_accounted(member: Member, view: JobView, now: float, known: int | None = None) -> int | None:
    """Write the newest moment up to ``now`` (seconds) if it is later than the one that is noted, and return it.

    If it is ``known`` to be noted, nothing is read: most jobs have no new moment on a tick.  The result is None if it
    could not be noted.

    A later moment that another instance has written is kept, unless it is so far in the future that a clock must have
    been ahead.

    Raises:
        RegistryError: the node could not be read, or there is no connection any more.
    """
    schedule = view.config.schedule
    if view.config.monitor_execution or schedule is None:
        return None
    came = schedule.previous_before(moment(now + 0.001))
    newest = 0 if came is None else round(came.timestamp() * 1000)
    if newest == known:
        return known
    noted = await read_accounted(member)
    if noted is None:  # somebody has removed the node: then there is nothing to write to
        return None
    if noted.moment - MAX_FUTURE <= newest <= noted.moment:
        return newest
    operations: list[Op] = [
        Check(member.layout.instance(member.id)),
        Set(member.layout.execution, str(newest).encode(), noted.version),
    ]
    try:
        await write(member, operations, "to note up to which moment an instance was up")
    except (Suspended, SessionEnded):
        raise
    except RegistryError:  # another instance has written, or the registry refuses it; the next tick tries again
        return None
    return newest


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
    operations = Check(view.layout.epoch, view.epoch), Set(view.layout.execution, str(until).encode(), version)
    return await write_if_unchanged(member, operations, "to note which moments no instance was up for")


async def _left(
    member: Member, cache: RecordCache, wanted: Mapping[int, MissedMark], conflict: Conflict, refused: set[int]
) -> dict[int, MissedMark]:
    """Read the items again after a conflict, and return the marks still to be written.

    ``refused`` are the items that have caused a conflict before.
    """
    before = {item: (cache.items[item].record.slot, cache.items[item].version) for item in wanted}
    await cache.learn(wanted)
    left = dict[int, MissedMark]()
    for item, said in wanted.items():
        entry, paths, (slot, version) = cache.items[item], member.layout.item(item), before[item]
        # an instance that has claimed a later moment reports the earlier ones; a rescue does not
        is_taken = entry.record.slot > slot
        is_refused = entry.version == version and conflict.path in (paths.execution, paths.misfire)
        if not (is_taken or entry.mark.covers(said) or (is_refused and item in refused)):
            left[item] = said
        if is_refused:
            refused.add(item)
    return left


def _marking(paths: ItemPaths, entry: Entry, said: MissedMark) -> Iterable[Op]:
    record, version, data = entry.version, entry.mark.version, said.encode()
    yield Create(paths.execution) if record is None else Check(paths.execution, record)  # empty: the item never ran
    yield Create(paths.misfire, data) if version is None else Set(paths.misfire, data, version)
