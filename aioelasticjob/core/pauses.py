"""A pause as its flag says it: who has paused what and why, and when the pause ends by itself, if it does."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import inf

from aioelasticjob.ground.encoding import json_object, number
from aioelasticjob.registry.tree import Node

MAX_NOTE = 1000
"""Characters of a pause's note."""


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause, of a job or of a server.  Times are seconds since the epoch, by the registry's clock."""

    since: float
    until: float = inf
    """When it ends by itself; infinity if somebody has to end it."""
    by: str = ""
    """Who has set it; empty if that is not known."""
    note: str = ""
    """Why."""

    @property
    def ends(self) -> bool:
        """Whether it ends by itself."""
        return self.until != inf

    def is_over(self, time: float) -> bool:
        """Whether the pause has ended by itself at some time.  A moment that comes just at its end is run."""
        return time >= self.until


def pause_in(node: Node) -> Pause:
    """Return the pause that a flag stands for.  What makes no sense in it is ignored, so that the pause still holds."""
    if not node.data:
        return Pause(node.stat.ctime)
    fields = json_object(node.data)
    until = number(fields.get("until"))
    return Pause(
        since=node.stat.ctime,
        until=inf if until is None else until / 1000,
        by=_text(fields.get("by")),
        note=_text(fields.get("note")),
    )


def pause_data(by: str = "", note: str = "", until: float = inf) -> bytes:
    """Return the data of a flag; empty if there is nothing to say."""
    fields: dict[str, object] = {}
    if by:
        fields["by"] = by
    if note:
        fields["note"] = note
    if until != inf:
        fields["until"] = round(until * 1000)
    return json.dumps(fields).encode() if fields else b""


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
