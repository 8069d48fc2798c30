"""The nodes of instances, read as what they mean."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from aioelasticjob.encoding import json_object
from aioelasticjob.layout import Layout
from aioelasticjob.model import NONE, Instance
from aioelasticjob.registry.tree import Node, Tree

_HOST = re.compile(r"[\w.:%-]{1,255}")


def instances_of(tree: Tree, layout: Layout) -> Mapping[str, Instance]:
    """Return all registered instances, by id."""
    nodes = {name: tree.get(layout.instance(name)) for name in tree.children(layout.instances)}
    return {name: instance(name, node) for name, node in nodes.items() if node and node.stat.ephemeral_owner}


def instance(name: str, node: Node) -> Instance:
    """Return the instance that a node describes."""
    return _instance(name, node.data, node.stat.ctime, node.stat.ephemeral_owner)


def address_of(instance: str) -> str:
    """Return the address that an instance's id contains; the whole id of one that was made by hand."""
    return instance.partition("@-@")[0]


@lru_cache(maxsize=65536)
def _instance(name: str, data: bytes, joined: float, incarnation: int) -> Instance:
    fields = json_object(data)
    ip, named, _ = name.partition("@-@")
    if not named and is_host(fields.get("ip")):
        ip = str(fields["ip"])  # a node made by hand; our own names contain the address
    host, pid, since = fields.get("host"), fields.get("pid"), fields.get("upSince")
    return Instance(
        name,
        ip,
        str(host) if is_host(host) else "",
        pid if isinstance(pid, int) else 0,
        incarnation,
        joined,
        since if isinstance(since, int | float) and since is not True and 0 < since < joined else joined,
        fields.get("leaving") is True,
        _features(fields.get("features")),
    )


def _features(fields: object) -> frozenset[str]:
    return frozenset(one for one in fields if isinstance(one, str)) if fields and isinstance(fields, list) else NONE


def is_host(name: object) -> bool:
    """Whether a value is an address or a host name, and so can be the name of a node."""
    return isinstance(name, str) and _HOST.fullmatch(name) is not None and bool(name.strip("."))
