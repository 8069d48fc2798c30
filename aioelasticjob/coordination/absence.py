"""Moments that nobody was up for: their items are marked, so that only one of those who come back tells of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

from aioelasticjob.coordination.ledger import Ledger
from aioelasticjob.coordination.membership import Member, connected
from aioelasticjob.coordination.view import JobView
from aioelasticjob.errors import Conflict, OutcomeUnknown, SessionEnded, Suspended
from aioelasticjob.layout import ItemPaths
from aioelasticjob.model import Record, Seen
from aioelasticjob.registry.txn import Check, Create, Op, Set

MARKED_AT_ONCE = 400
"""Items that one transaction marks."""


async def mark(member: Member, ledger: Ledger, view: JobView, missed: Mapping[int, int]) -> frozenset[int] | None:
    """Leave marks that say up to which moment items have missed theirs; return which were left here.

    Of the others somebody else has written, and knows.  None if the view is old: the next holder might have read
    already, and would not see the mark.

    Raises:
        Suspended: there is no connection; nothing was written.
        SessionEnded: the session was lost.
    """
    left = dict(missed)
    entitled = Check(member.layout.sharding, view.sharding_version)
    while left:
        known = {item: ledger.version(item) for item in left}
        writes = [op for item, until in left.items() for op in _marking(member.layout.item(item), ledger, item, until)]
        try:
            await member.session.commit([entitled, *writes], incarnation=member.incarnation)
        except Conflict as conflict:
            if conflict.path == entitled.path:
                return None
            await ledger.learn(list(left))
            left = {item: until for item, until in left.items() if not _refused(member.layout.item(item), conflict)}
            left = {item: until for item, until in left.items() if ledger.missed(item)[0] < until}
        except OutcomeUnknown:
            await _look_up(member, ledger, left)
            if any(ledger.missed(item)[0] == until for item, until in left.items()):  # all or nothing: it was written
                break
            left = {item: until for item, until in left.items() if ledger.version(item) == known[item]}
        else:
            ledger.marked |= left.keys()
            ledger.note({item: Seen(Record(), 0) for item in left if known[item] is None})
            break
    return frozenset(left)


def _marking(paths: ItemPaths, ledger: Ledger, item: int, until: int) -> Iterable[Op]:
    record = ledger.version(item)
    yield Create(paths.execution) if record is None else Check(paths.execution, record)  # empty: it never ran
    version, data = ledger.missed(item)[1], str(until).encode()
    yield Create(paths.misfire, data) if version is None else Set(paths.misfire, data, version)


def _refused(paths: ItemPaths, conflict: Conflict) -> bool:
    return conflict.path in (paths.execution, paths.misfire)


async def _look_up(member: Member, ledger: Ledger, items: Mapping[int, int]) -> None:
    """Read the records anew, however often the connection breaks, from a server that knows what another was told."""
    while await connected(member.session, member.incarnation):
        with suppress(Suspended):
            await member.session.sync(member.layout.root)
            await ledger.learn(list(items))
            return
    raise SessionEnded("the session was lost while something was written, and nobody can tell whether it was")
