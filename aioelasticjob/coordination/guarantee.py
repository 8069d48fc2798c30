"""Once in the whole cluster: marks per item, and the instance whose mark completes them does it.

All items of a moment leave a mark that carries the moment; the marks' zxids put them into one order that every reader
sees alike, so exactly one mark is the last.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress

from aioelasticjob.coordination.membership import Member
from aioelasticjob.errors import Conflict
from aioelasticjob.registry.tree import Node
from aioelasticjob.registry.txn import Create, Delete, Op, Set


async def leave_marks(member: Member, parent: str, items: Collection[int], moment: int) -> int:
    """Mark items for a moment and return the zxid of doing so; marks of earlier moments are replaced.

    Raises:
        Conflict: the job was removed.
    """
    while True:
        paths = [f"{parent}/{item}" for item in sorted(items)]
        above = [member.layout.guarantee, parent]
        present = await member.session.get_many([*above, *paths])
        data = str(moment).encode()
        operations: list[Op] = [Create(path) for path, node in zip(above, present, strict=False) if node is None]
        for path, node in zip(paths, present[len(above) :], strict=True):
            operations.append(Create(path, data) if node is None else Set(path, data, node.stat.version))
        try:
            return (await member.session.commit(operations, incarnation=member.incarnation)).zxid
        except Conflict as conflict:  # another instance made a parent, or an earlier moment is being tidied away
            if conflict.index == 0 and conflict.path == above[0] and conflict.reason == "missing":
                raise  # there is no job any more


async def is_last(member: Member, parent: str, items: Collection[int], moment: int, mine: int) -> bool:
    """Whether all ``items`` carry the moment's mark and the newest of these marks is the one written at ``mine``."""
    nodes = await member.session.get_many([f"{parent}/{item}" for item in sorted(items)])
    marks = [node.stat.mzxid for node in nodes if node is not None and _is_of(node, moment)]
    return len(marks) == len(items) and max(marks) == mine


async def clear_marks(member: Member, parent: str, items: Sequence[int], moment: int) -> None:
    """Remove a moment's marks, all at once; whoever waits for them goes on."""
    paths = [f"{parent}/{item}" for item in items]
    nodes = await member.session.get_many(paths)
    found = zip(paths, nodes, strict=True)
    operations: list[Op] = [Delete(path, node.stat.version) for path, node in found if node and _is_of(node, moment)]
    with suppress(Conflict):  # a later moment has replaced them
        await member.session.commit(operations, incarnation=member.incarnation)


def _is_of(node: Node, moment: int) -> bool:
    return node.data == str(moment).encode()
