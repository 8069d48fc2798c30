"""The identity of a job's instance: its id, its session, and the data of its node."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from logging import Logger
from math import inf

from aioelasticjob import config as settings
from aioelasticjob.config import required
from aioelasticjob.coordination.refusals import Refusals
from aioelasticjob.encoding import json_object
from aioelasticjob.layout import Layout
from aioelasticjob.limited_log import MOST, LimitedLog
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.tree import Tree


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

    def admits(self, log: Logger, kind: str) -> bool:
        """Whether another line of a kind may be written about the job; one that may not is counted."""
        return self.limited_log.admits(log, self.layout.job, kind, each=MOST, most=10 * MOST)

    def describe(
        self, up_since: float, *, leaving: bool = False, before: bytes = b"", differs: Sequence[str] = ()
    ) -> bytes:
        """Return the data of the instance's node; ``differs`` are the settings that this process declares otherwise.

        ``up_since`` is infinity if no instance is known to have been up before.  ``before`` is the node's former data;
        keys in it that this release does not know are kept.
        """
        own = {"id": self.id, "ip": self.ip, "host": self.host, "pid": self.pid, "incarnation": self.incarnation}
        fields: dict[str, object] = {**json_object(before), **own, "features": sorted(self.features)}
        fields |= {} if up_since == inf else {"upSince": up_since}
        fields |= {"handler": self.handler} if self.handler else {}
        fields |= {"differs": list(differs)} if differs else {}
        return json.dumps({**fields, "leaving": True} if leaving else fields).encode()

    def lacks(self, tree: Tree) -> tuple[str, ...]:
        """Return the features that the job requires according to a tree, and that this instance does not know."""
        node = tree.get(self.layout.config)
        return tuple(one for one in (node and required(node.data)) or () if one not in self.features)

    def knows(self, features: Collection[str]) -> bool:
        """Whether this instance knows all of these features."""
        return self.features.issuperset(features)
