"""Marks items whose moments came while no instance was up, so that only one of the returning instances reports them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aioelasticjob.coordination.commit import SessionOver, WriteApplied, WriteRefused, write
from aioelasticjob.coordination.member import Member
from aioelasticjob.coordination.record_cache import MissedMark, RecordCache
from aioelasticjob.coordination.view import JobView
from aioelasticjob.errors import Conflict
from aioelasticjob.layout import ItemPaths
from aioelasticjob.model import Record, VersionedRecord
from aioelasticjob.registry.transaction import Check, Create, Op, Set

MARKS_PER_TRANSACTION = 400
"""How many items one transaction marks."""


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
        writes = [op for item, said in left.items() for op in _marking(member.layout.item(item), cache, item, said)]
        match await write(member, [entitled, *writes], "to mark items that no instance was up for"):
            case WriteApplied(committed):
                for n, (item, said) in enumerate(left.items()):
                    entry = cache.items[item]
                    entry.mark, entry.mark_version, entry.marked = said, committed.versions[2 + 2 * n], True
                for item in left:
                    if cache.version(item) is None:
                        cache.items[item].seen = VersionedRecord(Record(), 0, committed.zxid)
                break
            case WriteRefused(Conflict() as conflict):
                if conflict.path == entitled.path:
                    return None
                left = await _left(member, cache, left, conflict, refused)
            case WriteRefused(error) | SessionOver(error):
                raise error
    return frozenset(left)


async def _left(
    member: Member, cache: RecordCache, wanted: Mapping[int, MissedMark], conflict: Conflict, refused: set[int]
) -> dict[int, MissedMark]:
    """Read the items again after a conflict, and return the marks still to be written.

    ``refused`` are the items that have caused a conflict before.
    """
    before = {item: (cache.record(item).slot, cache.version(item)) for item in wanted}
    await cache.learn(list(wanted))
    # an instance that has claimed a later moment reports the earlier ones; a rescue does not
    taken = {item for item in wanted if cache.record(item).slot > before[item][0]}
    known = {item for item, said in wanted.items() if cache.items[item].mark.covers(said)}
    unmoved = {item for item in wanted if cache.version(item) == before[item][1]}
    again = {item for item in unmoved if _refused(member.layout.item(item), conflict)}
    over = taken | known | (again & refused)
    refused |= again
    return {item: said for item, said in wanted.items() if item not in over}


def _marking(paths: ItemPaths, cache: RecordCache, item: int, said: MissedMark) -> Iterable[Op]:
    record = cache.version(item)
    yield Create(paths.execution) if record is None else Check(paths.execution, record)  # empty: the item never ran
    version, data = cache.items[item].mark_version, said.encode()
    yield Create(paths.misfire, data) if version is None else Set(paths.misfire, data, version)


def _refused(paths: ItemPaths, conflict: Conflict) -> bool:
    return conflict.path in (paths.execution, paths.misfire)
