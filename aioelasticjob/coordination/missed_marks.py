"""Moments that nobody was up for: their items are marked, so that only one of those that come back reports them."""

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
"""Items that one transaction marks."""


async def mark_missed_moments(
    member: Member, cache: RecordCache, view: JobView, missed: Mapping[int, MissedMark]
) -> frozenset[int] | None:
    """Leave marks that say which moments of items are reported as missed; return which were left here.

    Of the others somebody else has written, and knows.  None if the view is old: the next holder might have read
    already, and would not see the mark.  Of a job that keeps no records it is known here only.

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
        match await write(member, [entitled, *writes], "to mark items that nobody was up for"):
            case WriteApplied(committed):
                for n, (item, said) in enumerate(left.items()):
                    entry = cache.items[item]
                    entry.mark, entry.mark_version, entry.marked = said, committed.versions[2 + 2 * n], True
                cache.note({item: VersionedRecord(Record(), 0) for item in left if cache.version(item) is None})
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
    """Read again what refused the marks, and return those still to be left; ``refused`` has been refused before."""
    before = {item: (cache.record(item).slot, cache.version(item)) for item in wanted}
    await cache.learn(list(wanted))
    # who has claimed a later moment knows the rest; rescues and their ends say nothing of it
    taken = {item for item in wanted if cache.record(item).slot > before[item][0]}
    known = {item for item, said in wanted.items() if cache.items[item].mark.covers(said)}
    unmoved = {item for item in wanted if cache.version(item) == before[item][1]}
    again = {item for item in unmoved if _refused(member.layout.item(item), conflict)}
    over = taken | known | (again & refused)
    refused |= again
    return {item: said for item, said in wanted.items() if item not in over}


def _marking(paths: ItemPaths, cache: RecordCache, item: int, said: MissedMark) -> Iterable[Op]:
    record = cache.version(item)
    yield Create(paths.execution) if record is None else Check(paths.execution, record)  # empty: it never ran
    version, data = cache.items[item].mark_version, said.encode()
    yield Create(paths.misfire, data) if version is None else Set(paths.misfire, data, version)


def _refused(paths: ItemPaths, conflict: Conflict) -> bool:
    return conflict.path in (paths.execution, paths.misfire)
