"""What the registry refuses to an instance, noted in the instance's own node, so that operators see it."""

from __future__ import annotations

import json
from collections.abc import Mapping

from aioelasticjob.coordination.instance_nodes import instance_data
from aioelasticjob.coordination.member import Member
from aioelasticjob.errors import RegistryError, SessionEnded, Suspended
from aioelasticjob.registry.transaction import Set
from aioelasticjob.registry.tree import Tree

KEY = "refused"
"""The key in the instance's node."""
MOST = 3
"""Kinds of requests that are noted."""
LONGEST_REASON = 300
"""Characters of a reason that are noted."""


def noted_refusals(data: Mapping[str, object]) -> tuple[tuple[str, str, float], ...]:
    """Return the purpose, the reason and the beginning of each refusal that an instance's node tells of."""
    found = data.get(KEY)
    said = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    rows = [(one.get("what"), one.get("why"), one.get("since")) for one in said]
    return tuple(
        (what, why, float(since))
        for what, why, since in rows
        if isinstance(what, str) and isinstance(why, str) and isinstance(since, int | float)
    )


async def note_refusals(member: Member, tree: Tree) -> None:
    """Note in the instance's node what is refused at present, if that is not what the node says.

    If the registry refuses this write, too, it is tried again at the next tick.

    Raises:
        Suspended, SessionEnded: there is no connection, or no session any more.
    """
    path, present = member.layout.instance(member.id), member.refusals.present[:MOST]
    node = tree.get(path)
    if node is None or not (present or KEY.encode() in node.data):
        return
    data = instance_data(node.data)
    if [(one.what, one.since) for one in present] == [(what, since) for what, _, since in noted_refusals(data)]:
        return
    wanted = {key: value for key, value in data.items() if key != KEY}
    if present:
        wanted[KEY] = [{"what": one.what, "why": one.why[:LONGEST_REASON], "since": one.since} for one in present]
    try:
        change = Set(path, json.dumps(wanted).encode(), node.stat.version)
        await member.session.commit([change], incarnation=member.incarnation)
    except (Suspended, SessionEnded):
        raise
    except RegistryError:
        return
