"""Writes up to where items are accounted for of which no moment is run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from aioelasticjob.core import records
from aioelasticjob.core.effects import ends_for_followers, halves, parts
from aioelasticjob.core.request_runs import losing
from aioelasticjob.core.view import JobView
from aioelasticjob.engine.claims import in_force
from aioelasticjob.engine.commit import write
from aioelasticjob.engine.member import Member
from aioelasticjob.errors import Conflict, NodeTooLarge
from aioelasticjob.model import Record, VersionedRecord
from aioelasticjob.registry.transaction import Create, Op, Set

WHAT = "to write what items have missed"
RECORDS_PER_TRANSACTION = 400
"""How many records one transaction writes."""


async def write_accounts(
    member: Member, view: JobView, wanted: Mapping[int, tuple[VersionedRecord, Record]]
) -> dict[int, VersionedRecord] | None:
    """Write records under the assignment and the schedules of a view; return those that were written.

    ``wanted`` has the record that each item had, and its new one.  The records of items that are missing in the result
    were written by somebody else meanwhile.  The result is None if the view is outdated and nothing was written.

    Raises:
        Suspended: there is no connection.
        SessionEnded: the session was lost.
        RegistryError: the registry refuses it.
    """
    written = dict[int, VersionedRecord]()
    odd = set[str]()
    left = [list(part) for part in parts(sorted(wanted), RECORDS_PER_TRANSACTION)]
    while left:
        items = left.pop(0)
        entitled = in_force(member, view)
        before = {item: wanted[item][0].record for item in items}
        for_followers = _writing_ends(member, items, wanted, odd)
        operations = [*entitled, *_writing(member, items, wanted), *for_followers, *losing(view, before, member.id)]
        try:
            committed = await write(member, operations, WHAT, has_parts=len(items) > 1)
        except NodeTooLarge:
            if len(items) == 1:
                raise
            left[:0] = [list(half) for half in halves(items)]
        except Conflict as conflict:
            if conflict.index < len(entitled):
                return written or None
            if conflict.path not in odd and any(conflict.path == one.path for one in for_followers):
                odd.add(conflict.path)
                left.insert(0, items)
        else:
            for number, item in enumerate(items):
                version = committed.versions[len(entitled) + number]
                written[item] = VersionedRecord(wanted[item][1], version, committed.zxid)
    return written


def _writing(member: Member, items: Sequence[int], wanted: Mapping[int, tuple[VersionedRecord, Record]]) -> list[Op]:
    """Return the operations that write the records of items, if they are as they were read."""
    operations = list[Op]()
    for item in items:
        before, record = wanted[item]
        path = member.layout.item(item).execution
        data = records.encode(record)
        operations.append(Create(path, data) if before.version is None else Set(path, data, before.version))
    return operations


def _writing_ends(
    member: Member, items: Sequence[int], wanted: Mapping[int, tuple[VersionedRecord, Record]], odd: Collection[str]
) -> list[Op]:
    """Return the operations that write, for followers, how items have ended their moments.

    The first of them makes the item's node.  The ``odd`` nodes exist already, from an earlier time, or were removed by
    hand.
    """
    operations = list[Op]()
    for item in items:
        before, record = wanted[item]
        for one in ends_for_followers(member.layout, item, record):
            is_new = not before.record.ends
            if is_new is not (one.path in odd):
                operations.append(Create(one.path, one.data))
            else:
                operations.append(one)
    return operations
