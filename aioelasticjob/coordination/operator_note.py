"""Who has acted last on a job, or on servers in all jobs: each action of an operator notes it in its own transaction.

The note is a node of its own: a flag that an action removes cannot hold a name, and for other releases the data of a
flag has a meaning.  A release that does not know the note ignores it.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass

from aioelasticjob.registry.tree import Node, parent

ANYBODY = "an operator"
"""The name of an operator whose name is not known."""
MAX_PATHS = 20
"""How many nodes a note names; if there are more, it names their parents."""
MAX_NAME = 100
"""Characters of a name that are shown."""


@dataclass(frozen=True, slots=True)
class OperatorNote:
    """The last action that was noted."""

    by: str
    """Who acted."""
    paths: frozenset[str]
    """The nodes that were made, changed or removed, or their parents."""
    zxid: int
    """The transaction of the action."""

    def covers(self, path: str) -> bool:
        """Whether the action made, changed or removed a node, as far as the note tells."""
        return path in self.paths or parent(path) in self.paths


def encode_note(by: str, paths: Collection[str]) -> bytes:
    """Return the data of a note."""
    named = paths if len(paths) <= MAX_PATHS else {parent(path) for path in paths}
    return json.dumps({"by": by, "paths": sorted(named)[:MAX_PATHS]}).encode()


def decode_note(node: Node | None) -> OperatorNote | None:
    """Return the note in a node; None without one, or if somebody has written something else there."""
    try:
        fields = json.loads(b"" if node is None else node.data)
        by, paths = fields["by"], fields["paths"]
        if node is None or not isinstance(by, str) or not all(isinstance(path, str) for path in paths):
            return None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return OperatorNote(by, frozenset(paths), node.stat.mzxid)


def shown_name(by: str) -> str:
    """Return the name of an operator as it is shown: short, on one line, and never empty."""
    return "".join(filter(str.isprintable, by))[:MAX_NAME] or ANYBODY


def who_acted(path: str, before: Node | None, after: Node | None) -> str:
    """Return who has changed a node between two views, of which these are the nodes of the note; empty if unknown."""
    note = decode_note(after)
    if note is None or (before is not None and note.zxid <= before.stat.mzxid) or not note.covers(path):
        return ""
    return shown_name(note.by)
