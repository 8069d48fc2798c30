"""An instance of a job: its identity within a session, and its node, as it is written and as it is read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from logging import WARNING, Logger
from math import inf
from typing import TypeGuard

from aioelasticjob.config import job as settings
from aioelasticjob.config.job import JobConfig, required
from aioelasticjob.core import zone_rules
from aioelasticjob.core.layout import Layout
from aioelasticjob.engine.refusals import Refusals
from aioelasticjob.ground.encoding import json_object
from aioelasticjob.ground.limited_log import MOST, LimitedLog
from aioelasticjob.model import NONE, Instance
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.tree import Node, Tree, changed_below

UNUSABLE = "unusable"
"""The key of what an instance says of a configuration that its process cannot use."""
_HOST = re.compile(r"[\w.:%-]{1,255}")


@dataclass(frozen=True, slots=True)
class Member:
    """One instance of a job within one session."""

    session: Session
    layout: Layout
    id: str
    ip: str
    host: str
    pid: int
    incarnation: int
    features: frozenset[str] = field(default_factory=lambda: settings.FEATURES)
    """The features of the registry's format that this instance knows."""
    refusals: Refusals = field(default_factory=lambda: Refusals("a job"), compare=False)
    """The requests of the job that the registry refuses."""
    limited_log: LimitedLog = field(default_factory=LimitedLog, compare=False)
    """Limits the lines that can repeat."""
    handler: str = ""
    """The function that this instance calls, as ``module:function``; empty for kinds that need none."""
    declared: JobConfig | None = field(default=None, compare=False)
    """The configuration that this process declares; None counts as the one that the registry has."""

    def is_proven(self) -> bool:
        """Whether the session in which this instance has joined is certain to live now."""
        return self.session.incarnation == self.incarnation and self.session.is_proven()

    def owns(self, node: Node | None) -> TypeGuard[Node]:
        """Whether a node exists and lives as long as the session in which this instance has joined."""
        return node is not None and node.stat.ephemeral_owner == self.incarnation

    def admits(self, log: Logger, kind: str, level: int = WARNING) -> bool:
        """Whether another line of a kind may be written about the job; one that may not is counted."""
        return self.limited_log.admits(log, self.layout.job, kind, each=MOST, most=10 * MOST, level=level)

    def log_limited(self, log: Logger, kind: str, message: str, level: int = WARNING, **extra: object) -> None:
        """Log a message about the job, if another line of its kind is admitted.

        ``kind`` says what such lines are about, in words for the line that counts those left out.
        """
        if self.admits(log, kind, level):
            log.log(level, "%s: %s", self.layout.job, message, extra={"job": self.layout.job, **extra})

    def describe(
        self, up_since: float, *, leaving: bool = False, before: bytes = b"", notes: Mapping[str, object] | None = None
    ) -> bytes:
        """Return the data of the instance's node; ``notes`` are keys that only people need, absent where None.

        ``up_since`` is infinity if no instance is known to have been up before.  ``before`` is the node's former data;
        keys in it that are not written anew are kept.
        """
        own = {"id": self.id, "ip": self.ip, "host": self.host, "pid": self.pid, "incarnation": self.incarnation}
        fields: dict[str, object] = {**json_object(before), **own, "features": sorted(self.features)}
        fields |= {} if up_since == inf else {"upSince": up_since}
        fields |= {"handler": self.handler} if self.handler else {}
        fields |= {"leaving": True} if leaving else {}
        for key, value in (notes or {}).items():
            fields.pop(key, None)
            fields |= {} if value is None else {key: value}
        return json.dumps(fields).encode()

    def lacks(self, tree: Tree) -> tuple[str, ...]:
        """Return the features that the job requires according to a tree, and that this instance does not know."""
        node = tree.get(self.layout.config)
        return tuple(one for one in (node and required(node.data)) or () if one not in self.features)


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


def address_of(instance: str) -> str:
    """Return the address that an instance's id contains; the whole id of one that was made by hand."""
    return instance.partition("@-@")[0]


def instance(name: str, node: Node) -> Instance:
    """Return the instance that a node describes."""
    joined, incarnation = node.stat.ctime, node.stat.ephemeral_owner
    fields = json_object(node.data)
    ip, named, _ = name.partition("@-@")
    if not named and is_host(fields.get("ip")):
        ip = str(fields["ip"])  # a node made by hand; our own names contain the address
    host, pid, since = fields.get("host"), fields.get("pid"), fields.get("upSince")
    features = fields.get("features")
    return Instance(
        name,
        ip,
        str(host) if is_host(host) else "",
        pid if isinstance(pid, int) else 0,
        incarnation,
        joined,
        since if isinstance(since, int | float) and since is not True and 0 < since < joined else joined,
        fields.get("leaving") is True,
        _shared(tuple(one for one in features if isinstance(one, str))) if isinstance(features, list) else NONE,
        unusable_config(fields)[0],
        zone_rules.noted(fields),
    )


def unusable_note(written: int, why: str) -> dict[str, object]:
    """Return what an instance says of the configuration that a transaction has written and its process cannot use."""
    return {"config": written, "why": why}


def unusable_config(data: Mapping[str, object]) -> tuple[int, str]:
    """Return which configuration an instance's node says its process cannot use, and why; 0 and no text if none."""
    note = data.get(UNUSABLE)
    written, why = (note.get("config"), note.get("why")) if isinstance(note, dict) else (0, "")
    return written if type(written) is int else 0, why if isinstance(why, str) else ""


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
