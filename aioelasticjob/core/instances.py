"""What the nodes of instances say: who they are, what they know, and what they cannot use."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from aioelasticjob.core import zone_rules
from aioelasticjob.core.layout import Layout
from aioelasticjob.ground.encoding import json_object
from aioelasticjob.model import NONE, Instance
from aioelasticjob.registry.tree import Node, Tree, changed_below

UNUSABLE = "unusable"
"""The key of what an instance says of a configuration that its process cannot use."""
LEFT = "left"
"""The key of the instance that has left the job last, in the parent of the instances."""


_HOST = re.compile(r"[\w.:%-]{1,255}")


def instances(
    layout: Layout, tree: Tree, before: Mapping[str, Instance], changed: Iterable[str]
) -> Mapping[str, Instance]:
    """Return all registered instances by id, given those before and the paths that may have changed."""
    names = changed_below(layout.instances, changed)
    if not names:
        return before
    found = dict[str, Instance]()
    for name in tree.children(layout.instances):
        if name not in names and name in before:
            found[name] = before[name]
        elif (node := tree.get(layout.instance(name))) is not None and node.stat.ephemeral_owner:
            found[name] = instance(name, node)
    return found


def departure_note(instance: str) -> bytes:
    """Return the data of the instances' parent when an instance leaves the job gracefully.

    An instance that is killed leaves no note: so readers can tell an announced restart from a crash.
    """
    return json.dumps({LEFT: instance}).encode()


def left_at(parent: Node | None) -> float | None:
    """Return when an instance has last left the job gracefully, in seconds since the epoch; None if none has."""
    if parent is None or not isinstance(json_object(parent.data).get(LEFT), str):
        return None
    return parent.stat.mtime


def address_of(instance: str) -> str:
    """Return the address that an instance's id contains; the whole id of one that was made by hand."""
    return instance.partition("@-@")[0]


def instance(name: str, node: Node) -> Instance:
    """Return the instance that a node describes."""
    joined = node.stat.ctime
    incarnation = node.stat.ephemeral_owner
    fields = json_object(node.data)
    ip, named, _ = name.partition("@-@")
    if not named and is_host(fields.get("ip")):
        ip = str(fields["ip"])  # a node made by hand; our own names contain the address
    host = fields.get("host")
    pid = fields.get("pid")
    up_since = joined
    since = fields.get("upSince")
    if isinstance(since, int | float) and since is not True and 0 < since < joined:
        up_since = since
    known: frozenset[str] = NONE
    features = fields.get("features")
    if isinstance(features, list):
        known = _shared(tuple(one for one in features if isinstance(one, str)))
    return Instance(
        name,
        ip,
        str(host) if is_host(host) else "",
        pid if isinstance(pid, int) else 0,
        incarnation,
        joined,
        up_since,
        fields.get("leaving") is True,
        known,
        unusable_config(fields)[0],
        zone_rules.noted(fields),
    )


def unusable_note(written: int, why: str) -> dict[str, object]:
    """Return what an instance says of the configuration that a transaction has written and its process cannot use."""
    return {"config": written, "why": why}


def unusable_config(data: Mapping[str, object]) -> tuple[int, str]:
    """Return which configuration an instance's node says its process cannot use, and why; 0 and no text if none."""
    note = data.get(UNUSABLE)
    if not isinstance(note, dict):
        return 0, ""
    written = note.get("config")
    if type(written) is not int:
        written = 0
    why = note.get("why")
    if not isinstance(why, str):
        why = ""
    return written, why


@lru_cache
def _shared(features: tuple[str, ...]) -> frozenset[str]:
    """Return features as a set, which all instances with the same features share."""
    return frozenset(features) or NONE


def is_made_by_hand(lock: Node) -> bool:
    """Whether somebody has made an item's lock by hand: no instance holds it, so none will remove it."""
    return not lock.stat.ephemeral_owner or "@-@" not in lock.text


def is_host(name: object) -> bool:
    """Whether a value is an address or a host name, and so can be the name of a node."""
    return isinstance(name, str) and _HOST.fullmatch(name) is not None and bool(name.strip("."))
