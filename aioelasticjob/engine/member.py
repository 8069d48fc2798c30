"""An instance of a job: its identity within a session, and its node as it is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from logging import WARNING, Logger
from math import inf
from typing import TypeGuard

from aioelasticjob.config import job as settings
from aioelasticjob.config.job import JobConfig, required
from aioelasticjob.core.layout import Layout
from aioelasticjob.engine.refusals import Refusals
from aioelasticjob.ground.encoding import json_object
from aioelasticjob.ground.limited_log import MOST, LimitedLog
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.tree import Node, Tree


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
        if up_since != inf:
            fields["upSince"] = up_since
        if self.handler:
            fields["handler"] = self.handler
        if leaving:
            fields["leaving"] = True
        for key, value in (notes or {}).items():
            fields.pop(key, None)
            if value is not None:
                fields[key] = value
        return json.dumps(fields).encode()

    def lacks(self, tree: Tree) -> tuple[str, ...]:
        """Return the features that the job requires according to a tree, and that this instance does not know."""
        node = tree.get(self.layout.config)
        if node is None:
            return ()
        return tuple(one for one in required(node.data) or () if one not in self.features)
