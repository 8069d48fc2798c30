"""Stats of nodes, for tests that make trees without a registry."""

from __future__ import annotations

from typing import Any

from aioelasticjob.registry.tree import Stat

NEW = {"czxid": 1, "mzxid": 1, "ctime": 0.0, "mtime": 0.0, "version": 0, "ephemeral_owner": 0, "num_children": 0}


def stat(**values: Any) -> Stat:
    """Return a stat; values that are not given are those of the first node ever made."""
    czxid, mzxid, ctime, mtime, *others = {**NEW, **values}.values()
    return Stat.of((czxid, mzxid), (ctime, mtime), *others)


def changed(before: Stat, **values: Any) -> Stat:
    """Return a stat with some values replaced."""
    return stat(**{**{name: getattr(before, name) for name in NEW}, **values})
